//! Writes the log-probabilities of a text's tokens, in both of OpenAI's forms.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use super::write::push_string;
use crate::limits::TOP_LOGPROBS_MAX;
use crate::types::TokenId;

/// A token of the text with its log-probability, and the most probable alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct SpelledLogprobs {
    /// The token that was chosen.
    pub chosen: Scored,
    /// The most probable tokens, as many as the request asked for.
    pub top: Vec<Scored>,
}

impl SpelledLogprobs {
    /// About the memory that it takes: itself, and as JSON.
    pub fn bytes(&self) -> usize {
        (1 + self.top.len()) * LOGPROB_BYTES
    }
}

/// About the memory of one token with its log-probability.
const LOGPROB_BYTES: usize = 256;

/// A token and the natural logarithm of its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token's id.
    pub token: TokenId,
    /// Its bytes; not always whole characters.
    pub bytes: Vec<u8>,
    /// Over the whole vocabulary.
    pub logprob: f32,
}

impl Scored {
    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// The prompt at the start of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its text. The choices of a prompt share it.
    pub text: Arc<str>,
    /// The spelling of its first token, which has no score.
    pub first_token: Arc<[u8]>,
}

/// JSON has no -inf. OpenAI writes this number for an impossible token.
const LEAST: f32 = -9999.0;

/// A choice's tokens as a list of objects. Each token is written when it arrives: writing a long
/// list at the end would delay the lane.
#[derive(Clone, Debug, Default)]
pub struct TokenList(Vec<u8>);

impl TokenList {
    /// Appends tokens in the form of chats; with `with_id`, in llama-server's form.
    pub fn extend(&mut self, tokens: &[SpelledLogprobs], with_id: bool) {
        for token in tokens {
            push_comma(&mut self.0);
            push_scored(&mut self.0, &token.chosen, with_id);
            self.0.extend_from_slice(b",\"top_logprobs\":");
            push_list(&mut self.0, &token.top, |out, scored| {
                push_scored(out, scored, with_id);
                out.push(b'}');
            });
            self.0.push(b'}');
        }
    }

    /// Writes `[{"token","logprob","bytes","top_logprobs"}]`.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        out.extend_from_slice(&self.0);
        out.push(b']');
    }

    /// Moves the tokens of another list to the end of this one.
    pub fn append(&mut self, other: &mut Self) {
        if !other.0.is_empty() {
            push_comma(&mut self.0);
            self.0.append(&mut other.0);
        }
    }

    /// Forgets the tokens; they have been sent.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// A choice's tokens in the form of completions: four parallel lists.
#[derive(Clone, Debug, Default)]
pub struct TokenColumns {
    tokens: Vec<u8>,
    logprobs: Vec<u8>,
    top: Vec<u8>,
    offsets: Vec<u8>,
    /// Characters before the next token.
    offset: usize,
}

impl TokenColumns {
    /// The columns of a text that starts with a prompt. Its first token has no log-probability.
    pub fn after(echo: &Echo) -> Self {
        let text = String::from_utf8_lossy(&echo.first_token);
        let mut columns = Self {
            logprobs: b"null".into(),
            top: b"null".into(),
            offsets: b"0".into(),
            ..Self::default()
        };
        push_string(&mut columns.tokens, &text);
        // The token at the start of every text is no part of the text.
        columns.offset = if echo.text.starts_with(&*text) { text.chars().count() } else { 0 };
        columns
    }

    /// Appends tokens.
    pub fn extend(&mut self, tokens: &[SpelledLogprobs]) {
        for token in tokens {
            let Self { tokens, logprobs, top, offsets, offset } = self;
            let text = token.chosen.text();
            [&mut *tokens, logprobs, top, offsets].into_iter().for_each(push_comma);
            push_string(tokens, &text);
            write!(logprobs, "{:?}", token.chosen.logprob.max(LEAST)).expect("memory"); // `{:?}` always writes a decimal point
            push_map(top, token);
            write!(offsets, "{offset}").expect("memory");
            *offset += text.chars().count();
        }
    }

    /// Writes `{"tokens","token_logprobs","top_logprobs","text_offset"}`.
    pub fn push(&self, out: &mut Vec<u8>) {
        let columns = [
            ("{\"tokens\":[", &self.tokens),
            ("],\"token_logprobs\":[", &self.logprobs),
            ("],\"top_logprobs\":[", &self.top),
            ("],\"text_offset\":[", &self.offsets),
        ];
        for (name, column) in columns {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(column);
        }
        out.extend_from_slice(b"]}");
    }

    /// Forgets the tokens; they have been sent.
    pub fn clear(&mut self) {
        let Self { tokens, logprobs, top, offsets, offset: _ } = self;
        [tokens, logprobs, top, offsets].into_iter().for_each(Vec::clear);
    }
}

/// Writes the most probable tokens as an object, with the chosen one, which OpenAI always lists. Of
/// tokens with the same text, the first one counts. Equal numbers are written alike.
fn push_map(out: &mut Vec<u8>, token: &SpelledLogprobs) {
    let mut texts: heapless::Vec<Cow<'_, str>, { TOP_LOGPROBS_MAX + 1 }> = heapless::Vec::new();
    out.push(b'{');
    for scored in [&token.chosen].into_iter().chain(&token.top) {
        let text = scored.text();
        if texts.contains(&text) {
            continue;
        }
        out.extend_from_slice(if texts.is_empty() { b"" } else { b"," });
        push_string(out, &text);
        write!(out, ":{:?}", scored.logprob.max(LEAST)).expect("memory");
        texts.push(text).expect("no request asks for more");
    }
    out.push(b'}');
}

/// Writes an object up to its last field; the caller closes it.
fn push_scored(out: &mut Vec<u8>, scored: &Scored, with_id: bool) {
    out.push(b'{');
    if with_id {
        write!(out, "\"id\":{},", scored.token).expect("memory");
    }
    out.extend_from_slice(b"\"token\":");
    push_string(out, &scored.text());
    write!(out, ",\"logprob\":{:?},\"bytes\":", scored.logprob.max(LEAST)).expect("memory");
    serde_json::to_writer(&mut *out, &scored.bytes).expect("memory");
}

fn push_list<T>(out: &mut Vec<u8>, elements: &[T], push: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(out, element);
    }
    out.push(b']');
}

/// Writes a comma unless the list is empty.
fn push_comma(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(token: TokenId, bytes: &[u8], logprob: f32) -> Scored {
        Scored { token, bytes: bytes.to_vec(), logprob }
    }

    fn tokens() -> [SpelledLogprobs; 2] {
        let a = scored(7, b"a", -0.5);
        let half = scored(8, &[0xc3], -1.0);
        [
            SpelledLogprobs {
                top: vec![a.clone(), scored(9, b"\"", f32::NEG_INFINITY)],
                chosen: a,
            },
            SpelledLogprobs { top: Vec::new(), chosen: half },
        ]
    }

    fn json(push: impl Fn(&mut Vec<u8>)) -> serde_json::Value {
        let mut out = Vec::new();
        push(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn each_api_has_its_shape() {
        let a = serde_json::json!({"token": "a", "logprob": -0.5, "bytes": [97]});
        let quote = serde_json::json!({"token": "\"", "logprob": -9999.0, "bytes": [34]});
        let list = |with_id| {
            let mut list = TokenList::default();
            tokens().iter().for_each(|token| list.extend(std::slice::from_ref(token), with_id));
            json(|out| list.push(out))
        };
        let chat = list(false);
        assert_eq!(chat[0]["top_logprobs"], serde_json::json!([a, quote]));
        assert_eq!(chat[1]["bytes"], serde_json::json!([195]));
        let llama = list(true);
        assert_eq!((&llama[0]["id"], &llama[0]["top_logprobs"][1]["id"]), (&7.into(), &9.into()));
        let mut columns = TokenColumns::default();
        columns.extend(&tokens());
        let completion = json(|out| columns.push(out));
        assert_eq!(
            completion,
            serde_json::json!({"tokens": ["a", "\u{fffd}"], "token_logprobs": [-0.5, -1.0],
                "top_logprobs": [{"a": -0.5, "\"": -9999.0}, {"\u{fffd}": -1.0}], "text_offset": [0, 1]})
        );
    }
}
