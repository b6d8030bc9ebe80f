//! `/v1/embeddings`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::error::ApiError;
use super::json::refuse;
use super::json::{Fields, read_object};
use super::prompts::{Prompt, read_prompt_list};
use super::request::read_timeout;
use super::write::{List, push_json};
use crate::limits::EMBEDDING_INPUTS_MAX;
use crate::types::TokenId;

/// A request for embeddings.
#[derive(Clone, Debug)]
pub struct EmbeddingsRequest {
    /// The field that the texts came in, for errors.
    pub field: &'static str,
    /// The texts.
    pub inputs: Vec<Prompt>,
    /// Whether a text that is too long is cut. If not, it is refused.
    pub truncate: bool,
    /// What the texts are for.
    pub input_type: InputType,
    /// Writes the answer.
    pub push: PushVectors,
    /// Whether the answer may have a vector for each token.
    pub by_token: bool,
    /// The length of a vector, if it is not the model's.
    pub dimensions: Option<usize>,
    /// How vectors are scaled.
    pub norm: Norm,
    /// The time limit; `None` uses the server's.
    pub timeout: Option<Duration>,
    /// The first texts, as tokens.
    pub ready: Vec<Box<[TokenId]>>,
}

impl EmbeddingsRequest {
    /// Bytes of the texts that are not tokenised yet.
    pub fn text_bytes(&self) -> usize {
        self.inputs.get(self.ready.len()..).unwrap_or_default().iter().map(Prompt::bytes).sum()
    }

    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let inputs = self.inputs.iter().map(|input| size_of::<Prompt>() + input.bytes());
        size_of::<Self>() + inputs.sum::<usize>() + ready_bytes(&self.ready)
    }
}

/// About the bytes of memory that texts as tokens take.
pub fn ready_bytes(ready: &[Box<[TokenId]>]) -> usize {
    ready.iter().map(|ids| size_of::<Box<[TokenId]>>() + size_of_val(&**ids)).sum()
}

/// What a text to embed is for. Some models want a text before it that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputType {
    /// The request does not say.
    #[default]
    Any,
    /// To find documents.
    Query,
    /// To be found.
    Document,
}

/// The number by which a vector is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// 1.
    None,
    /// Its largest magnitude, over the range of 16-bit integers: llama.cpp's.
    Largest,
    /// The p-norm: the p-th root of the sum of the p-th powers of the magnitudes.
    P(f64),
}

impl Norm {
    /// The length of the vector.
    pub const EUCLIDEAN: Self = Norm::P(2.0);

    /// Scales a vector. A zero vector stays zero.
    pub fn scale(self, vector: &mut [f32]) {
        let magnitudes = vector.iter().map(|x| f64::from(x.abs()));
        let norm = match self {
            Norm::None => return,
            Norm::Largest => magnitudes.fold(0.0, f64::max) / 32760.0,
            Norm::P(p) => magnitudes.map(|x| x.powf(p)).sum::<f64>().powf(p.recip()),
        };
        if norm > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
        }
    }
}

/// Writes an answer of vectors in the form of a dialect.
pub type PushVectors = fn(&mut Vec<u8>, &Vectors<'_>);

/// The vectors of a request's texts.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    /// The model's name.
    pub model: &'a str,
    /// One for each text, or the vectors of its tokens one after another.
    pub vectors: &'a [Vec<f32>],
    /// Numbers in one vector.
    pub n_embd: usize,
    /// Tokens of all texts.
    pub tokens: usize,
}

/// Reads a `/v1/embeddings` request.
pub fn read(body: &mut [u8]) -> Result<EmbeddingsRequest, ApiError> {
    read_object(body, |fields| {
        fields.string("model")?; // any name is accepted, for only one model is served
        refuse(fields, &[("priority", "0")])?;
        Ok(EmbeddingsRequest {
            timeout: read_timeout(fields)?,
            ready: Vec::new(),
            field: "input",
            inputs: read_inputs(fields)?,
            truncate: false,
            input_type: read_input_type(fields)?,
            push: read_format(fields)?,
            by_token: false,
            dimensions: read_dimensions(fields)?,
            norm: Norm::EUCLIDEAN,
        })
    })
}

/// Reads `dimensions`.
pub fn read_dimensions(fields: &Fields<'_, '_>) -> Result<Option<usize>, ApiError> {
    Ok(fields.integer("dimensions", 1..=1 << 20)?.map(|n| n as usize)) // in range
}

/// Reads Cohere's `input_type`.
fn read_input_type(fields: &Fields<'_, '_>) -> Result<InputType, ApiError> {
    match fields.string("input_type")?.as_deref() {
        None => Ok(InputType::Any),
        Some("query" | "search_query") => Ok(InputType::Query),
        Some("document" | "passage" | "search_document") => Ok(InputType::Document),
        Some(other) => Err(ApiError::field(
            "input_type",
            format!("input_type must be query or document, not {other:?}"),
        )),
    }
}

fn read_inputs(fields: &Fields<'_, '_>) -> Result<Vec<Prompt>, ApiError> {
    let inputs = read_prompt_list("input", EMBEDDING_INPUTS_MAX, fields)?;
    if inputs.iter().any(|input| matches!(input, Prompt::Parts(_))) {
        let message = "an input is a string or an array of token ids, not of both";
        return Err(ApiError::field("input", message));
    }
    Ok(inputs)
}

fn read_format(fields: &Fields<'_, '_>) -> Result<PushVectors, ApiError> {
    match fields.string("encoding_format")?.as_deref() {
        None | Some("float") => Ok(push_numbers),
        Some("base64") => Ok(push_base64),
        Some(other) => Err(ApiError::field(
            "encoding_format",
            format!("encoding_format must be float or base64, not {other:?}"),
        )),
    }
}

/// Writes each vector as an array of numbers.
pub fn push_numbers(out: &mut Vec<u8>, vectors: &Vectors<'_>) {
    push(out, vectors, |vector| vector);
}

/// Writes each vector as 32-bit little-endian floats, in base64.
fn push_base64(out: &mut Vec<u8>, vectors: &Vectors<'_>) {
    push(out, vectors, |vector| {
        let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
        STANDARD.encode(bytes)
    });
}

fn push<'a, T: Serialize>(
    out: &mut Vec<u8>,
    answer: &Vectors<'a>,
    shown: impl Fn(&'a [f32]) -> T + Copy,
) {
    #[derive(Serialize)]
    struct Answer<'a, L> {
        object: &'a str,
        data: L,
        model: &'a str,
        usage: Tokens,
    }
    #[derive(Serialize)]
    struct Embedding<T> {
        object: &'static str,
        index: usize,
        embedding: T,
    }
    let Vectors { model, vectors, tokens, .. } = *answer;
    let data = List(vectors.iter().enumerate().map(|(index, vector)| Embedding {
        object: "embedding",
        index,
        embedding: shown(vector),
    }));
    push_json(out, &Answer { object: "list", data, model, usage: tokens.into() });
}

/// `usage` of an answer without text.
#[derive(Serialize)]
pub struct Tokens {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl From<usize> for Tokens {
    fn from(tokens: usize) -> Self {
        Self { prompt_tokens: tokens, total_tokens: tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_hold_the_same_numbers() {
        let vectors = [vec![0.5, -0.25], vec![1.0, 0.0]];
        let answer = |push: PushVectors| {
            let mut out = Vec::new();
            push(&mut out, &Vectors { model: "m", vectors: &vectors, n_embd: 2, tokens: 7 });
            serde_json::from_slice::<serde_json::Value>(&out).unwrap()
        };
        let floats = answer(push_numbers);
        assert_eq!(floats["data"][0]["embedding"], serde_json::json!([0.5, -0.25]));
        assert_eq!(
            (&floats["data"][1]["index"], &floats["usage"]["total_tokens"]),
            (&1.into(), &7.into())
        );
        let text = answer(push_base64)["data"][1]["embedding"].as_str().unwrap().to_owned();
        assert_eq!(STANDARD.decode(text).unwrap(), [0, 0, 0x80, 0x3f, 0, 0, 0, 0]);
    }

    #[test]
    fn a_vector_has_length_one_if_it_has_any() {
        let scaled = |norm: Norm, mut vector: Vec<f32>| {
            norm.scale(&mut vector);
            vector
        };
        assert_eq!(scaled(Norm::EUCLIDEAN, vec![3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(scaled(Norm::EUCLIDEAN, vec![0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(scaled(Norm::P(1.0), vec![3.0, -1.0]), [0.75, -0.25]);
        assert_eq!(scaled(Norm::Largest, vec![3.0, -1.5]), [32760.0, -16380.0]);
        assert_eq!(scaled(Norm::None, vec![3.0]), [3.0]);
    }

    #[test]
    fn inputs_have_every_form_of_a_prompt() {
        let inputs =
            |body: &str| read(&mut body.as_bytes().to_vec()).map(|request| request.inputs.len());
        for (body, count) in [
            (r#"{"input":"a"}"#, 1),
            (r#"{"input":["a","b"]}"#, 2),
            (r#"{"input":[1,2]}"#, 1),
            (r#"{"input":[[1],[2]]}"#, 2),
        ] {
            assert_eq!(inputs(body), Ok(count), "{body}");
        }
        let error = inputs(r#"{"input":""}"#).unwrap_err();
        assert_eq!(
            (error.param, error.message.as_str()),
            (Some("input"), "input is empty; it must have at least one token")
        );
    }
}
