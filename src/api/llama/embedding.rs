//! llama-server's `/embedding` and `/embeddings`, which also show the vector of each token.

use serde::Serialize;

use super::super::embeddings::{EmbeddingsRequest, InputType, Norm, Vectors};
use super::super::error::ApiError;
use super::super::json::{Fields, read_object, refuse};
use super::super::prompts::{Prompt, read_prompt_list};
use super::super::request::read_timeout;
use super::super::write::{List, push_json};
use crate::limits::EMBEDDING_INPUTS_MAX;

/// Reads an `/embedding` request. `input` is OpenAI's name for `content`.
pub fn read_embedding(body: &mut [u8]) -> Result<EmbeddingsRequest, ApiError> {
    read_object(body, |fields| {
        refuse(fields, &[("priority", "0")])?;
        let field = if fields.get("input")?.is_some() { "input" } else { "content" };
        let inputs = read_prompt_list(field, EMBEDDING_INPUTS_MAX, fields)?;
        if inputs.iter().any(|input| matches!(input, Prompt::Parts(_))) {
            let message = "a text is a string or an array of token ids, not of both";
            return Err(ApiError::field(field, message));
        }
        Ok(EmbeddingsRequest {
            field,
            inputs,
            truncate: false,
            input_type: InputType::Any,
            push,
            by_token: true,
            dimensions: None,
            norm: read_norm(fields)?,
            timeout: read_timeout(fields)?,
            ready: Vec::new(),
        })
    })
}

/// Reads `embd_normalize`: -1 for none, 0 for the largest magnitude, or the p of a p-norm.
fn read_norm(fields: &Fields<'_, '_>) -> Result<Norm, ApiError> {
    Ok(match fields.integer("embd_normalize", -1..=i64::from(i32::MAX))? {
        None => Norm::EUCLIDEAN,
        Some(-1) => Norm::None,
        Some(0) => Norm::Largest,
        Some(p) => Norm::P(p as f64), // below 2^31
    })
}

fn push(out: &mut Vec<u8>, answer: &Vectors<'_>) {
    #[derive(Serialize)]
    struct Embedding<T> {
        index: usize,
        embedding: T,
    }
    let vectors = answer.vectors.iter().enumerate();
    push_json(
        out,
        &List(vectors.map(|(index, vectors)| Embedding {
            index,
            embedding: List(vectors.chunks(answer.n_embd)),
        })),
    );
}
