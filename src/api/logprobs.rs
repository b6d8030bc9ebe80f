//! Log-probabilities of the tokens of a text, in OpenAI's two shapes.

use std::borrow::Cow;
use std::io::Write;

use super::write::push_string;
use crate::types::TokenId;

/// A token of the text, how probable it was, and what else was.
#[derive(Clone, Debug, PartialEq)]
pub struct SpelledLogprobs {
    /// The token that was chosen.
    pub chosen: Scored,
    /// The most probable ones, as many as were asked for.
    pub top: Vec<Scored>,
}

/// A token and the natural logarithm of its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Its number.
    pub token: TokenId,
    /// Its bytes; not always whole characters.
    pub bytes: Vec<u8>,
    /// The logarithm, over the whole vocabulary.
    pub logprob: f32,
}

impl Scored {
    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// What cannot be is not written as -inf, which JSON has not: OpenAI's floor.
const LEAST: f32 = -9999.0;

/// The tokens of a choice as a list of objects, written as they come: all at once, a long
/// list would hold up the lane.
#[derive(Clone, Debug, Default)]
pub struct TokenList(Vec<u8>);

impl TokenList {
    /// More tokens, as chats have them or, with their numbers, llama-server.
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

    /// `[{"token","logprob","bytes","top_logprobs"}]`
    pub fn push(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        out.extend_from_slice(&self.0);
        out.push(b']');
    }

    /// They have been sent.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The same in the shape of completions: a list for each kind of thing.
#[derive(Clone, Debug, Default)]
pub struct TokenColumns {
    tokens: Vec<u8>,
    logprobs: Vec<u8>,
    top: Vec<u8>,
    offsets: Vec<u8>,
    /// Characters so far.
    offset: usize,
}

impl TokenColumns {
    /// More tokens.
    pub fn extend(&mut self, tokens: &[SpelledLogprobs]) {
        for token in tokens {
            let Self { tokens, logprobs, top, offsets, offset } = self;
            let text = token.chosen.text();
            [&mut *tokens, logprobs, top, offsets].into_iter().for_each(push_comma);
            push_string(tokens, &text);
            write!(logprobs, "{:?}", token.chosen.logprob.max(LEAST)).expect("memory"); // with a point
            let scored =
                |scored: &Scored| (scored.text().into_owned(), scored.logprob.max(LEAST).into());
            // The chosen one is always there, as the API's owner has it.
            let all = token.top.iter().chain([&token.chosen]);
            let map: serde_json::Map<_, _> = all.map(scored).collect();
            serde_json::to_writer(top, &map).expect("memory");
            write!(offsets, "{offset}").expect("memory");
            *offset += text.chars().count();
        }
    }

    /// `{"tokens","token_logprobs","top_logprobs","text_offset"}`
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

    /// They have been sent.
    pub fn clear(&mut self) {
        let Self { tokens, logprobs, top, offsets, offset: _ } = self;
        [tokens, logprobs, top, offsets].into_iter().for_each(Vec::clear);
    }
}

/// The beginning of an object, which the caller ends.
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

/// Between two elements.
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
