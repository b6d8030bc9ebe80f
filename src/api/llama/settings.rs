//! The settings of a `/completion` request, as its answer and `/props` repeat them.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::super::error::ApiError;
use super::super::json::{Fields, wrong};
use super::super::write::{Object, Written};
use crate::limits::{RESPONSE_FIELD_BYTES_MAX, RESPONSE_FIELDS_MAX};
use crate::types::defaults::SamplingDefaults;

/// Each setting except the seed, with its default in JSON, in llama-server's order.
const SETTINGS: &[(&str, &str)] = &[
    ("temperature", "0.8"),
    ("dynatemp_range", "0.0"),
    ("dynatemp_exponent", "1.0"),
    ("top_k", "40"),
    ("top_p", "0.95"),
    ("min_p", "0.05"),
    ("top_n_sigma", "-1.0"),
    ("xtc_probability", "0.0"),
    ("xtc_threshold", "0.1"),
    ("typical_p", "1.0"),
    ("repeat_last_n", "64"),
    ("repeat_penalty", "1.0"),
    ("presence_penalty", "0.0"),
    ("frequency_penalty", "0.0"),
    ("dry_multiplier", "0.0"),
    ("dry_base", "1.75"),
    ("dry_allowed_length", "2"),
    ("dry_penalty_last_n", "64"),
    ("dry_sequence_breakers", "[\"\\n\",\":\",\"\\\"\",\"*\"]"),
    ("mirostat", "0"),
    ("mirostat_tau", "5.0"),
    ("mirostat_eta", "0.1"),
    ("stop", "[]"),
    ("max_tokens", "-1"),
    ("n_predict", "-1"),
    ("n_keep", "0"),
    ("n_discard", "0"),
    ("ignore_eos", "false"),
    ("stream", "false"),
    ("logit_bias", "[]"),
    ("n_probs", "0"),
    ("min_keep", "0"),
    ("grammar", "\"\""),
    (
        "samplers",
        "[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\",\
         \"temperature\"]",
    ),
    ("timings_per_token", "false"),
    ("post_sampling_probs", "false"),
    ("lora", "[]"),
];

/// The names under which a request may give its length. The first one counts.
const LENGTHS: [&str; 3] = ["n_predict", "max_completion_tokens", "max_tokens"];

/// Parts of a request that its answer repeats.
#[derive(Debug)]
pub struct Repeated {
    /// The value of each of [`SETTINGS`], in JSON.
    settings: Vec<Cow<'static, str>>,
    /// The fields that the last object of a choice shall have; all if there are none.
    pub response_fields: Vec<String>,
}

impl Repeated {
    /// Reads them.
    pub fn read(fields: &Fields<'_, '_>) -> Result<Self, ApiError> {
        // Nothing else reads these two, and whatever is repeated must have its type.
        for name in ["n_keep", "n_discard"] {
            fields.integer(name, -1..=i64::from(i32::MAX))?;
        }
        let mut settings = Vec::with_capacity(SETTINGS.len());
        for (name, default) in SETTINGS {
            let names: &[&'static str] =
                if LENGTHS.contains(name) { &LENGTHS } else { std::slice::from_ref(name) };
            let mut given = None;
            for name in names {
                given = given.or(fields.find(name)?);
            }
            settings.push(given.map_or(Cow::from(*default), |value| value.encode().into()));
        }
        let response_fields = read_response_fields(fields)?;
        Ok(Self { settings, response_fields })
    }

    /// Shows the server's values for what the request leaves out. (An entry that was given is owned.)
    pub fn complete(&mut self, defaults: &SamplingDefaults) {
        for ((name, _), shown) in SETTINGS.iter().zip(&mut self.settings) {
            if let (Cow::Borrowed(_), Some(value)) = (&shown, defaults.json(name)) {
                *shown = value.into();
            }
        }
    }

    /// Whether the answer shows the prompts.
    pub fn shows_prompts(&self) -> bool {
        self.response_fields.is_empty() || self.response_fields.iter().any(|name| name == "prompt")
    }

    /// Bytes of the settings, and of their copies in an answer with `choices` choices. An answer may
    /// have the settings twice: as an object, and by their names.
    pub fn size(&self, choices: usize) -> usize {
        let settings: usize = self.settings.iter().map(|value| value.len()).sum();
        let names: usize = self.response_fields.iter().map(String::len).sum();
        (1 + 2 * choices) * settings + (1 + choices) * names
    }

    /// The settings of a choice with this seed.
    pub fn settings(&self, seed: u64) -> impl Serialize {
        let seed = ("seed", Setting::Seed(seed));
        let others = SETTINGS.iter().zip(&self.settings);
        let others = others.map(|((name, _), value)| (*name, Setting::from(&**value)));
        Object([seed].into_iter().chain(others))
    }

    /// One of them, if there is one of this name.
    pub fn setting(&self, seed: u64, name: &str) -> Option<Setting<'_>> {
        if name == "seed" {
            return Some(Setting::Seed(seed));
        }
        let place = SETTINGS.iter().position(|(known, _)| *known == name)?;
        self.settings.get(place).map(|value| (&**value).into())
    }
}

/// The value of a setting.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Setting<'a> {
    /// A seed.
    Seed(u64),
    /// Any other, as the request had it.
    Other(Written<'a>),
}

impl<'a> From<&'a str> for Setting<'a> {
    fn from(json: &'a str) -> Self {
        Setting::Other(Written(json.as_bytes()))
    }
}

/// Reads `response_fields`.
fn read_response_fields(fields: &Fields<'_, '_>) -> Result<Vec<String>, ApiError> {
    const NAME: &str = "response_fields";
    const FORM: &str = "an array of field names such as content and timings/prompt_ms";
    let Some(value) = fields.get(NAME)? else { return Ok(Vec::new()) };
    let names = value.as_array().ok_or_else(|| wrong(NAME, FORM, &value))?;
    if names.len() > RESPONSE_FIELDS_MAX {
        let message =
            format!("{NAME} has {} names; it may have {RESPONSE_FIELDS_MAX}", names.len());
        return Err(ApiError::field(NAME, message));
    }
    let name = |name: crate::api::value::Value<'_, '_>| match name.as_str() {
        Some(text) if text.len() <= RESPONSE_FIELD_BYTES_MAX => Ok(text.to_owned()),
        Some(text) => {
            let message = format!(
                "a name in {NAME} has {} bytes; it may have {RESPONSE_FIELD_BYTES_MAX}",
                text.len()
            );
            Err(ApiError::field(NAME, message))
        }
        None => Err(wrong(NAME, FORM, &name)),
    };
    let mut found: Vec<String> = names.iter().map(name).collect::<Result<_, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The settings of a request that has none: the server's, and else llama-server's.
pub struct Defaults(pub SamplingDefaults);

impl Serialize for Defaults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let settings = [("seed", "-1")].into_iter().chain(SETTINGS.iter().copied());
        let settings: Vec<(&str, Cow<'static, str>)> = settings
            .map(|(name, json)| (name, self.0.json(name).map_or(json.into(), Cow::from)))
            .collect();
        serializer.collect_map(settings.iter().map(|(name, json)| (name, Written(json.as_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::completion::{read_completion, sampling};
    use super::*;
    use crate::api::json::read_object;
    use crate::api::request::GenerationRequest;
    use crate::api::write::push_json;

    fn read(body: &Value) -> GenerationRequest {
        read_completion(&mut body.to_string().into_bytes()).unwrap()
    }

    fn settings(body: &Value) -> Value {
        let mut body = body.to_string().into_bytes();
        let repeated = read_object(&mut body, Repeated::read).unwrap();
        let mut out = Vec::new();
        push_json(&mut out, &repeated.settings(0));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_a_request_that_says_nothing() {
        let mut out = Vec::new();
        push_json(&mut out, &Defaults(SamplingDefaults::default()));
        let mut body: Value = serde_json::from_slice(&out).unwrap();
        body["prompt"] = "a".into();
        body.as_object_mut().unwrap().remove("max_tokens"); // -1 only under llama-server's name
        let said = read(&body);
        let silent = read(&json!({"prompt": "a"}));
        assert_eq!(said.sampling, sampling());
        assert_eq!((said.advanced, silent.advanced), (None, None));
        assert_eq!((said.stops, said.seed), (silent.stops, silent.seed));
    }

    #[test]
    fn what_was_asked_for_is_repeated_and_the_rest_has_its_default() {
        let asked = settings(&json!({"prompt": "a", "top_k": 5, "stop": ["b\n"],
            "max_tokens": 7, "grammar": "root ::= \"é\""}));
        assert_eq!((&asked["top_k"], &asked["stop"]), (&json!(5), &json!(["b\n"])));
        assert_eq!((&asked["n_predict"], &asked["max_tokens"]), (&json!(7), &json!(7)));
        assert_eq!((&asked["grammar"], &asked["min_p"]), (&json!("root ::= \"é\""), &json!(0.05)));
        assert_eq!(asked["seed"], json!(0));
        assert_eq!(asked.as_object().unwrap().len(), SETTINGS.len() + 1);
    }

    /// The answer must be JSON that clients can read: their parsers have limits of depth.
    #[test]
    fn nothing_of_another_type_is_repeated() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for (name, _) in SETTINGS {
            let body =
                format!("{{\"prompt\":\"a\",\"{name}\":{deep},\"response_fields\":[\"x\"]}}");
            let error = read_completion(&mut body.into_bytes()).expect_err(name);
            assert_eq!((error.status, error.param), (400, Some(*name)));
        }
    }

    #[test]
    fn wrong_response_fields_are_refused() {
        let read = |value: Value| {
            let mut body = json!({"response_fields": value}).to_string().into_bytes();
            read_object(&mut body, read_response_fields)
        };
        for (value, says) in [
            (json!("content"), "an array of field names"),
            (json!([1]), "an array of field names"),
            (json!(vec!["a"; 65]), "has 65 names; it may have 64"),
            (json!(["a".repeat(257)]), "has 257 bytes; it may have 256"),
        ] {
            let error = read(value).unwrap_err();
            assert_eq!((error.status, error.param), (400, Some("response_fields")));
            assert!(error.message.contains(says), "{}", error.message);
        }
        assert_eq!(read(json!(["a"])).unwrap(), ["a"]);
    }
}
