//! Reads the less common sampling fields: biases, log-probabilities and the minimum number of
//! tokens. [`super::chain`] reads the options of llama.cpp's samplers.
//!
//! Options that need the vocabulary stay text here; `prepare` converts them to token ids.

use crate::api::value::Value;

use super::chain::read_chain;
use super::error::ApiError;
use super::json::{Fields, wrong};
use crate::limits::{
    COMPLETION_LOGPROBS_MAX, DRY_BREAKER_BYTES_MAX, DRY_BREAKERS_MAX, LOGIT_BIAS_ENTRIES_MAX,
    LOGIT_BIAS_MAX, LOGIT_BIAS_TEXT_BYTES_MAX, SEQUENCE_TOKENS_MAX, TOP_LOGPROBS_MAX,
};
use crate::sampling::AdvancedSampling;

/// Sampling options beyond [`Sampling`](crate::types::Sampling).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestedAdvanced {
    /// The options that need no vocabulary: all but `logit_bias` and DRY's breakers.
    pub advanced: AdvancedSampling,
    /// Each target and the bias added to its logit.
    pub logit_bias: Vec<(BiasTarget, f32)>,
    /// DRY's sequence breakers; `None` uses llama.cpp's own.
    pub dry_breakers: Option<Vec<String>>,
}

/// The target of a bias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BiasTarget {
    /// The token with this id, if the vocabulary has it.
    Token(i64),
    /// Every token that this text is tokenised into.
    Text(String),
}

/// Reads the less common fields. Returns `None` if the request sets none of them.
pub fn read_advanced(fields: &Fields<'_, '_>) -> Result<Option<Box<RequestedAdvanced>>, ApiError> {
    let min_tokens = fields.integer("min_tokens", 0..=SEQUENCE_TOKENS_MAX as i64)?;
    let advanced = AdvancedSampling {
        constraint: None,
        logit_bias: Box::default(),
        min_tokens: min_tokens.unwrap_or(0) as u32, // in range
        logprobs: read_logprobs(fields)?,
        reasoning: None,
        chain: read_chain(fields)?,
    };
    let logit_bias = read_logit_bias(fields)?;
    let dry_breakers = read_breakers(fields)?;
    let asks = advanced != AdvancedSampling::default() || !logit_bias.is_empty();
    Ok(asks.then(|| Box::new(RequestedAdvanced { advanced, logit_bias, dry_breakers })))
}

/// Reads `logprobs` of a completion (a number), of a chat (`true`, with `top_logprobs`), and
/// llama-server's `n_probs`.
pub(super) fn read_logprobs(fields: &Fields<'_, '_>) -> Result<Option<u8>, ApiError> {
    const FORMS: &str = "true, false or a whole number from 0 to 5";
    let most = TOP_LOGPROBS_MAX as i64;
    let top = fields.integer("top_logprobs", 0..=most)?.unwrap_or(0);
    let n_probs = fields.integer("n_probs", 0..=most)?.filter(|n| *n > 0);
    let asked = match fields.get("logprobs")? {
        None => None,
        Some(value) if value.is_bool() => (value.as_bool() == Some(true)).then_some(0),
        Some(value) => fields
            .integer("logprobs", 0..=COMPLETION_LOGPROBS_MAX)
            .map_err(|_| wrong("logprobs", FORMS, &value))?,
    };
    if top > 0 && asked.is_none() {
        return Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    let asked = asked.map(|n| n.max(top));
    Ok(asked.max(n_probs).map(|n| n as u8)) // in range
}

/// Reads `logit_bias`: OpenAI's object of token ids and biases (llama-server also takes texts as
/// its keys), or llama-server's list of pairs.
fn read_logit_bias(fields: &Fields<'_, '_>) -> Result<Vec<(BiasTarget, f32)>, ApiError> {
    const FORMS: &str = "an object of token ids and numbers, or an array of pairs of a token id \
                         or a text and a number or false";
    let Some(value) = fields.get("logit_bias")? else { return Ok(Vec::new()) };
    let error = |message: String| Err(ApiError::field("logit_bias", message));
    let count = match (value.as_object(), value.as_array()) {
        (Some(object), _) => object.len(),
        (None, Some(array)) => array.len(),
        (None, None) => return Err(wrong("logit_bias", FORMS, &value)),
    };
    if count > LOGIT_BIAS_ENTRIES_MAX {
        let most = LOGIT_BIAS_ENTRIES_MAX;
        return error(format!("logit_bias has {count} entries; it may have {most}"));
    }
    let mut biases = Vec::with_capacity(count);
    if let Some(object) = value.as_object() {
        for (key, bias) in object.iter() {
            let id = key.parse().map(BiasTarget::Token);
            let target = id.unwrap_or_else(|_| BiasTarget::Text(key.to_owned()));
            biases.push((target, read_bias(&bias)?));
        }
    } else if let Some(pairs) = value.as_array() {
        for pair in pairs.iter() {
            let array = pair.as_array().filter(|array| array.len() == 2);
            let parts = array.and_then(|array| Some((array.get(0)?, array.get(1)?)));
            let (target, bias) = parts.ok_or_else(|| wrong("logit_bias", FORMS, &pair))?;
            let target = match (target.as_i64(), target.as_str()) {
                (Some(id), _) => BiasTarget::Token(id),
                (None, Some(text)) => BiasTarget::Text(text.to_owned()),
                (None, None) => return Err(wrong("logit_bias", FORMS, &target)),
            };
            biases.push((target, read_bias(&bias)?));
        }
    }
    for (target, _) in &biases {
        if let BiasTarget::Text(text) = target
            && !(1..=LOGIT_BIAS_TEXT_BYTES_MAX).contains(&text.len())
        {
            let (most, has) = (LOGIT_BIAS_TEXT_BYTES_MAX, text.len());
            return error(format!("a text in logit_bias has 1 to {most} bytes; one has {has}"));
        }
    }
    Ok(biases)
}

/// Reads one bias. As in llama-server, `false` forbids the token.
fn read_bias(value: &Value<'_, '_>) -> Result<f32, ApiError> {
    if value.as_bool() == Some(false) {
        return Ok(f32::NEG_INFINITY);
    }
    match value.cast_f64() {
        Some(bias) if bias.abs() <= LOGIT_BIAS_MAX => Ok(bias as f32),
        _ => {
            let range = format!("numbers from -{LOGIT_BIAS_MAX} to {LOGIT_BIAS_MAX} or false");
            Err(wrong("logit_bias", &range, value))
        }
    }
}

/// Reads `dry_sequence_breakers`, a list of strings.
fn read_breakers(fields: &Fields<'_, '_>) -> Result<Option<Vec<String>>, ApiError> {
    const NAME: &str = "dry_sequence_breakers";
    let Some(value) = fields.get(NAME)? else { return Ok(None) };
    let array = value.as_array().ok_or_else(|| wrong(NAME, "an array of strings", &value))?;
    if !(1..=DRY_BREAKERS_MAX).contains(&array.len()) {
        let message = format!("{NAME} has 1 to {DRY_BREAKERS_MAX} strings, not {}", array.len());
        return Err(ApiError::field(NAME, message));
    }
    let mut breakers = Vec::with_capacity(array.len());
    for element in array.iter() {
        let text = element.as_str().filter(|t| (1..=DRY_BREAKER_BYTES_MAX).contains(&t.len()));
        let strings = || format!("an array of strings of 1 to {DRY_BREAKER_BYTES_MAX} bytes");
        breakers.push(text.ok_or_else(|| wrong(NAME, &strings(), &element))?.to_owned());
    }
    Ok(Some(breakers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;

    /// The options of a body.
    fn read(body: &str) -> Result<Option<Box<RequestedAdvanced>>, ApiError> {
        read_object(&mut body.as_bytes().to_vec(), read_advanced)
    }

    fn advanced(body: &str) -> RequestedAdvanced {
        *read(body).unwrap().expect("it asks for something")
    }

    #[test]
    fn what_asks_for_nothing_is_nothing() {
        for body in [
            "{}",
            r#"{"logit_bias":{},"logprobs":false,"top_logprobs":0,"n_probs":0,"min_tokens":0}"#,
            r#"{"logit_bias":[],"logprobs":null,"dry_sequence_breakers":["\n"],"mirostat":0}"#,
        ] {
            let advanced = read(body).expect(body);
            assert_eq!(advanced, None, "{body}");
        }
    }

    #[test]
    fn breakers_are_texts() {
        let body = r#"{"dry_multiplier":0.8,"dry_sequence_breakers":["\n","User:"]}"#;
        assert_eq!(advanced(body).dry_breakers.unwrap(), ["\n", "User:"]);
        assert_eq!(advanced(r#"{"dry_multiplier":0.8}"#).dry_breakers, None);
    }

    #[test]
    fn every_form_of_logprobs_is_read() {
        let logprobs = |body| advanced(body).advanced.logprobs;
        assert_eq!(logprobs(r#"{"logprobs":0}"#), Some(0));
        assert_eq!(logprobs(r#"{"logprobs":5}"#), Some(5));
        assert_eq!(logprobs(r#"{"logprobs":true}"#), Some(0));
        assert_eq!(logprobs(r#"{"logprobs":true,"top_logprobs":20}"#), Some(20));
        assert_eq!(logprobs(r#"{"n_probs":7}"#), Some(7));
    }

    #[test]
    fn every_form_of_logit_bias_is_read() {
        let biases = |body| advanced(body).logit_bias;
        let (id, text) = (BiasTarget::Token, |text: &str| BiasTarget::Text(text.to_owned()));
        assert_eq!(biases(r#"{"logit_bias":{"123":-100}}"#), [(id(123), -100.0)]);
        assert_eq!(
            biases(r#"{"logit_bias":[[5,1.5],["a b",-1],[6,false],["7",2]]}"#),
            [(id(5), 1.5), (text("a b"), -1.0), (id(6), f32::NEG_INFINITY), (text("7"), 2.0)]
        );
        assert_eq!(
            biases(r#"{"logit_bias":{"cat":2,"-1":0}}"#),
            [(text("cat"), 2.0), (id(-1), 0.0)]
        );
    }

    #[test]
    fn what_is_wrong_names_the_field_and_what_would_be_right() {
        let long = "x".repeat(300);
        let many = (0..2000).map(|i| format!("\"{i}\":1")).collect::<Vec<_>>().join(",");
        for (field, value, says) in [
            ("dry_sequence_breakers", "\"x\"", "an array of strings, not the string"),
            ("dry_sequence_breakers", "[]", "has 1 to 16 strings, not 0"),
            ("dry_sequence_breakers", "[\"\"]", "strings of 1 to 40 bytes"),
            (
                "dry_sequence_breakers",
                format!("[\"{long}\"]").as_str(),
                "not a string of 300 bytes",
            ),
            ("dry_sequence_breakers", "[1]", "strings of 1 to 40 bytes, not 1"),
            ("min_tokens", "1.5", "a whole number from 0 to 1048576"),
            ("n_probs", "21", "a whole number from 0 to 20"),
            ("top_logprobs", "21", "a whole number from 0 to 20"),
            ("top_logprobs", "3", "top_logprobs needs logprobs to be true"),
            ("logprobs", "6", "true, false or a whole number from 0 to 5, not 6"),
            ("logprobs", "\"yes\"", "true, false or a whole number from 0 to 5"),
            ("logit_bias", "5", "an object of token ids and numbers"),
            ("logit_bias", "{\"5\":10001}", "numbers from -10000 to 10000 or false, not 10001"),
            ("logit_bias", "{\"5\":true}", "or false, not true"),
            ("logit_bias", "{\"5\":\"x\"}", "or false, not the string"),
            ("logit_bias", "[[5]]", "pairs of a token id or a text"),
            ("logit_bias", "[5,1]", "pairs of a token id or a text"),
            ("logit_bias", "[[5,1,2]]", "pairs of a token id or a text"),
            ("logit_bias", "[[{},1]]", "pairs of a token id or a text"),
            ("logit_bias", "[[\"\",1]]", "has 1 to 256 bytes; one has 0"),
            ("logit_bias", format!("[[\"{long}\",1]]").as_str(), "has 1 to 256 bytes; one has 300"),
            ("logit_bias", format!("{{{many}}}").as_str(), "has 2000 entries; it may have 1024"),
        ] {
            let body = format!("{{\"{field}\":{value}}}");
            let error = read(&body).map(|_| ()).expect_err(&body);
            assert_eq!((error.status, error.param), (400, Some(field)), "{body}");
            assert!(error.message.contains(says), "{body}: {}", error.message);
        }
        let error = read(r#"{"n_probs":1,"n_probs":2}"#).map(|_| ()).expect_err("twice");
        assert_eq!(error.message, "n_probs is given twice");
    }
}
