//! Writes the log-probabilities of a text's tokens, in both of OpenAI's forms.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::write::{List, Object, Written, WrittenList};
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

    fn spelling(&self, with_id: bool) -> Spelling<'_> {
        Spelling {
            id: with_id.then_some(self.token),
            token: self.text(),
            logprob: Logprob(self.logprob),
            bytes: &self.bytes,
        }
    }
}

#[derive(Serialize)]
struct Spelling<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<TokenId>,
    token: Cow<'a, str>,
    logprob: Logprob,
    bytes: &'a [u8],
}

/// The prompt at the start of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its text. The choices of a prompt share it.
    pub text: Arc<str>,
    /// The spelling of its first token, which has no score.
    pub first_token: Arc<[u8]>,
}

/// Appends tokens to a list in the form of chats; with `with_id`, in llama-server's form.
pub fn push_tokens(list: &mut WrittenList, tokens: &[SpelledLogprobs], with_id: bool) {
    #[derive(Serialize)]
    struct Token<'a, T> {
        #[serde(flatten)]
        chosen: Spelling<'a>,
        top_logprobs: T,
    }
    for SpelledLogprobs { chosen, top } in tokens {
        let top_logprobs = List(top.iter().map(|scored| scored.spelling(with_id)));
        list.push(&Token { chosen: chosen.spelling(with_id), top_logprobs });
    }
}

/// A logarithm, as Rust writes it. JSON has no -inf: OpenAI writes -9999 for an impossible token.
struct Logprob(f32);

impl Serialize for Logprob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = heapless::Vec::<u8, 32>::new();
        write!(text, "{:?}", self.0.max(-9999.0)).expect("no number is longer");
        Written(&text).serialize(serializer)
    }
}

/// A choice's tokens in the form of completions: four parallel lists.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TokenColumns {
    tokens: WrittenList,
    token_logprobs: WrittenList,
    top_logprobs: WrittenList,
    text_offset: WrittenList,
    /// Characters before the next token.
    #[serde(skip)]
    offset: usize,
}

impl TokenColumns {
    /// The columns of a text that starts with a prompt. Its first token has no log-probability.
    pub fn after(echo: &Echo) -> Self {
        let text = String::from_utf8_lossy(&echo.first_token);
        let mut columns = Self::default();
        columns.tokens.push(&text);
        columns.token_logprobs.push(&());
        columns.top_logprobs.push(&());
        columns.text_offset.push(&0);
        // The token at the start of every text is no part of the text.
        columns.offset = if echo.text.starts_with(&*text) { text.chars().count() } else { 0 };
        columns
    }

    /// Appends tokens.
    pub fn extend(&mut self, tokens: &[SpelledLogprobs]) {
        for token in tokens {
            let text = token.chosen.text();
            self.tokens.push(&text);
            self.token_logprobs.push(&Logprob(token.chosen.logprob));
            self.top_logprobs.push(&Object(by_text(token).iter().map(|(text, p)| (text, p))));
            self.text_offset.push(&self.offset);
            self.offset += text.chars().count();
        }
    }

    /// Forgets the tokens; they have been sent.
    pub fn clear(&mut self) {
        let Self { tokens, token_logprobs, top_logprobs, text_offset, offset: _ } = self;
        [tokens, token_logprobs, top_logprobs, text_offset]
            .into_iter()
            .for_each(WrittenList::clear);
    }
}

/// The most probable tokens with the chosen one, which OpenAI always lists. Of tokens with the same
/// text, the first one counts. Equal numbers are written alike.
fn by_text(
    token: &SpelledLogprobs,
) -> heapless::Vec<(Cow<'_, str>, Logprob), { TOP_LOGPROBS_MAX + 1 }> {
    let mut texts: heapless::Vec<(Cow<'_, str>, Logprob), _> = heapless::Vec::new();
    for scored in [&token.chosen].into_iter().chain(&token.top) {
        let text = scored.text();
        if texts.iter().all(|(known, _)| *known != text) {
            let added = texts.push((text, Logprob(scored.logprob)));
            assert!(added.is_ok(), "no request asks for more");
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::write::push_json;

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

    fn json(value: &impl Serialize) -> serde_json::Value {
        let mut out = Vec::new();
        push_json(&mut out, value);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn each_api_has_its_shape() {
        let a = serde_json::json!({"token": "a", "logprob": -0.5, "bytes": [97]});
        let quote = serde_json::json!({"token": "\"", "logprob": -9999.0, "bytes": [34]});
        let list = |with_id| {
            let mut list = WrittenList::default();
            tokens()
                .iter()
                .for_each(|token| push_tokens(&mut list, std::slice::from_ref(token), with_id));
            json(&list)
        };
        let chat = list(false);
        assert_eq!(chat[0]["top_logprobs"], serde_json::json!([a, quote]));
        assert_eq!(chat[1]["bytes"], serde_json::json!([195]));
        let llama = list(true);
        assert_eq!((&llama[0]["id"], &llama[0]["top_logprobs"][1]["id"]), (&7.into(), &9.into()));
        let mut columns = TokenColumns::default();
        columns.extend(&tokens());
        let completion = json(&columns);
        assert_eq!(
            completion,
            serde_json::json!({"tokens": ["a", "\u{fffd}"], "token_logprobs": [-0.5, -1.0],
                "top_logprobs": [{"a": -0.5, "\"": -9999.0}, {"\u{fffd}": -1.0}], "text_offset": [0, 1]})
        );
    }
}
