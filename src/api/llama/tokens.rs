//! llama-server's `/tokenize`, `/detokenize` and `/apply-template`.

use serde::Serialize;

use super::super::error::ApiError;
use super::super::json::{read_object, wrong};
use super::super::write::{List, Object, push_json};
use crate::types::TokenId;

/// A request to `/tokenize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenize {
    /// The text.
    pub content: String,
    /// Add the model's special tokens around a prompt.
    pub add_special: bool,
    /// Read `<|im_end|>` and similar as the tokens that they name.
    pub parse_special: bool,
    /// Return the text of each token.
    pub with_pieces: bool,
}

/// Reads a `/tokenize` request.
pub fn read_tokenize(body: &mut [u8]) -> Result<Tokenize, ApiError> {
    read_object(body, |fields| {
        let content = fields.string("content")?;
        let message = "content is missing; it must be a string";
        Ok(Tokenize {
            content: content.ok_or_else(|| ApiError::field("content", message))?,
            add_special: fields.boolean("add_special")?.unwrap_or(false),
            parse_special: fields.boolean("parse_special")?.unwrap_or(true),
            with_pieces: fields.boolean("with_pieces")?.unwrap_or(false),
        })
    })
}

/// Writes the answer to `/tokenize`. `bytes_of` returns a token's bytes, if the request asked for
/// them; bytes that are not UTF-8 become an array of numbers.
pub fn push_tokens<'a>(
    out: &mut Vec<u8>,
    tokens: &[TokenId],
    bytes_of: Option<impl Fn(TokenId) -> &'a [u8]>,
) {
    #[derive(Serialize)]
    struct Tokens<T> {
        tokens: T,
    }
    #[derive(Serialize)]
    struct Token<'a> {
        id: TokenId,
        piece: Piece<'a>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Piece<'a> {
        Text(&'a str),
        Bytes(&'a [u8]),
    }
    let Some(bytes_of) = bytes_of else { return push_json(out, &Tokens { tokens }) };
    let token = |id: &TokenId| {
        let bytes = bytes_of(*id);
        let piece = std::str::from_utf8(bytes).map_or(Piece::Bytes(bytes), Piece::Text);
        Token { id: *id, piece }
    };
    push_json(out, &Tokens { tokens: List(tokens.iter().map(token)) });
}

/// Reads the tokens of a `/detokenize` request.
pub fn read_detokenize(body: &mut [u8]) -> Result<Vec<TokenId>, ApiError> {
    const FORM: &str = "an array of token ids";
    read_object(body, |fields| {
        let Some(value) = fields.get("tokens")? else {
            return Err(ApiError::field("tokens", format!("tokens is missing; it must be {FORM}")));
        };
        let array = value.as_array().ok_or_else(|| wrong("tokens", FORM, &value))?;
        let token = |element: crate::api::value::Value<'_, '_>| {
            element.as_i32().ok_or_else(|| wrong("tokens", FORM, &element))
        };
        array.iter().map(token).collect()
    })
}

/// Writes the answer to `/detokenize`.
pub fn push_content(out: &mut Vec<u8>, text: &str) {
    push_named(out, "content", text);
}

/// Writes the answer to `/apply-template`.
pub fn push_prompt(out: &mut Vec<u8>, prompt: &str) {
    push_named(out, "prompt", prompt);
}

fn push_named(out: &mut Vec<u8>, name: &str, text: &str) {
    push_json(out, &Object([(name, text)]));
}
