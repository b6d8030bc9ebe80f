//! Log-probabilities of the tokens of a text, in OpenAI's two shapes.

use std::borrow::Cow;
use std::io::Write;

use super::json::push_string;
use crate::types::TokenId;

/// A token of the text, how probable it was, and what else was.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
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

/// `{"content":[{"token","logprob","bytes","top_logprobs"}],"refusal":null}`
pub fn push_chat_logprobs(out: &mut Vec<u8>, tokens: &[TokenLogprobs]) {
    out.extend_from_slice(b"{\"content\":");
    push_list(out, tokens, |out, token| push_token(out, token, false));
    out.extend_from_slice(b",\"refusal\":null}");
}

/// llama-server's list of the same, with the numbers of the tokens.
pub fn push_llama_logprobs(out: &mut Vec<u8>, tokens: &[TokenLogprobs]) {
    push_list(out, tokens, |out, token| push_token(out, token, true));
}

fn push_token(out: &mut Vec<u8>, token: &TokenLogprobs, with_id: bool) {
    push_scored(out, &token.chosen, with_id);
    out.extend_from_slice(b",\"top_logprobs\":");
    push_list(out, &token.top, |out, scored| {
        push_scored(out, scored, with_id);
        out.push(b'}');
    });
    out.push(b'}');
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

/// `{"tokens","token_logprobs","top_logprobs","text_offset"}`; `offset` is the length
/// of the text before, in characters.
pub fn push_completion_logprobs(out: &mut Vec<u8>, tokens: &[TokenLogprobs], mut offset: usize) {
    out.extend_from_slice(b"{\"tokens\":");
    push_list(out, tokens, |out, token| push_string(out, &token.chosen.text()));
    out.extend_from_slice(b",\"token_logprobs\":");
    push_list(out, tokens, |out, token| {
        write!(out, "{:?}", token.chosen.logprob.max(LEAST)).expect("memory"); // with a point
    });
    out.extend_from_slice(b",\"top_logprobs\":");
    push_list(out, tokens, |out, token| {
        let mut top = serde_json::Map::new();
        for scored in &token.top {
            top.insert(scored.text().into_owned(), scored.logprob.max(LEAST).into());
        }
        serde_json::to_writer(&mut *out, &top).expect("memory");
    });
    let offsets: Vec<usize> = tokens
        .iter()
        .map(|token| {
            let at = offset;
            offset += token.chosen.text().chars().count();
            at
        })
        .collect();
    out.extend_from_slice(b",\"text_offset\":");
    serde_json::to_writer(&mut *out, &offsets).expect("memory");
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(token: TokenId, bytes: &[u8], logprob: f32) -> Scored {
        Scored { token, bytes: bytes.to_vec(), logprob }
    }

    fn tokens() -> [TokenLogprobs; 2] {
        let a = scored(7, b"a", -0.5);
        let half = scored(8, &[0xc3], -1.0);
        [
            TokenLogprobs { top: vec![a.clone(), scored(9, b"\"", f32::NEG_INFINITY)], chosen: a },
            TokenLogprobs { top: Vec::new(), chosen: half },
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
        let chat = json(|out| push_chat_logprobs(out, &tokens()));
        assert_eq!(chat["content"][0]["top_logprobs"], serde_json::json!([a, quote]));
        assert_eq!(chat["content"][1]["bytes"], serde_json::json!([195]));
        let llama = json(|out| push_llama_logprobs(out, &tokens()));
        assert_eq!((&llama[0]["id"], &llama[0]["top_logprobs"][1]["id"]), (&7.into(), &9.into()));
        let completion = json(|out| push_completion_logprobs(out, &tokens(), 3));
        assert_eq!(
            completion,
            serde_json::json!({"tokens": ["a", "\u{fffd}"], "token_logprobs": [-0.5, -1.0],
                "top_logprobs": [{"a": -0.5, "\"": -9999.0}, {}], "text_offset": [3, 4]})
        );
    }
}
