//! Ollama's embeddings: `/api/embed`, and `/api/embeddings` for one text.

use serde::Serialize;

use crate::api::embeddings::{
    EmbeddingsRequest, InputType, Norm, PushVectors, Vectors, read_dimensions,
};
use crate::api::error::ApiError;
use crate::api::json::{Fields, read_object};
use crate::api::prompts::{Prompt, read_prompt_list, read_text};
use crate::api::request::read_timeout;
use crate::api::write::push_json;

use super::models::read_model;
use crate::limits::EMBEDDING_INPUTS_MAX;

/// Reads a `/api/embed` request.
pub fn read_embed(body: &mut [u8]) -> Result<EmbeddingsRequest, ApiError> {
    const NAME: &str = "input";
    read_object(body, |fields| {
        let inputs = read_prompt_list(NAME, EMBEDDING_INPUTS_MAX, fields)?;
        if inputs.iter().any(|input| !matches!(input, Prompt::Text(_))) {
            return Err(ApiError::field(NAME, "input must be a string or an array of strings"));
        }
        let dimensions = read_dimensions(fields)?;
        let truncate = fields.boolean("truncate")?.unwrap_or(true);
        let request = request(NAME, inputs, push_vectors, fields)?;
        Ok(EmbeddingsRequest { dimensions, truncate, ..request })
    })
}

/// Reads a `/api/embeddings` request.
pub fn read_embeddings(body: &mut [u8]) -> Result<EmbeddingsRequest, ApiError> {
    const NAME: &str = "prompt";
    read_object(body, |fields| {
        let text = fields.string(NAME)?;
        let text =
            text.ok_or_else(|| ApiError::field(NAME, "prompt is missing; it must be a string"))?;
        request(NAME, vec![read_text(NAME, &text)?], push_vector, fields)
    })
}

fn request(
    field: &'static str,
    inputs: Vec<Prompt>,
    push: PushVectors,
    fields: &Fields<'_, '_>,
) -> Result<EmbeddingsRequest, ApiError> {
    read_model(fields)?;
    let timeout = read_timeout(fields)?;
    Ok(EmbeddingsRequest {
        field,
        inputs,
        truncate: true,
        input_type: InputType::Any,
        push,
        by_token: false,
        dimensions: None,
        norm: Norm::EUCLIDEAN,
        timeout,
        ready: Vec::new(),
    })
}

/// Writes the answer of `/api/embed`.
fn push_vectors(out: &mut Vec<u8>, answer: &Vectors<'_>) {
    #[derive(Serialize)]
    struct Answer<'a> {
        model: &'a str,
        embeddings: &'a [Vec<f32>],
        prompt_eval_count: usize,
    }
    let Vectors { model, vectors: embeddings, tokens: prompt_eval_count, .. } = *answer;
    push_json(out, &Answer { model, embeddings, prompt_eval_count });
}

/// Writes the answer of `/api/embeddings`.
fn push_vector(out: &mut Vec<u8>, answer: &Vectors<'_>) {
    #[derive(Serialize)]
    struct Answer<'a> {
        embedding: &'a [f32],
    }
    push_json(out, &Answer { embedding: &answer.vectors[0] });
}
