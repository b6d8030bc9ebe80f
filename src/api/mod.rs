//! The dialects: JSON becomes a typed request, typed results become JSON.
//!
//! [`route`] has the table of paths. A dialect's `read` turns a body into a
//! [`Request`](asked::Request); its [`Reply`](reply::Reply) turns text, as it comes, into bytes.
//!
//! Functions that read fail with a 400. It names the field, its value and the values allowed.
//!
//! **Invariant:** pure. Nothing here does I/O or reads a clock. The caller passes ids and times in.

pub mod advanced;
pub mod anthropic;
pub mod asked;
pub mod chain;
pub mod chat;
pub mod cllm;
pub mod constrain;
pub mod embeddings;
pub mod error;
pub mod hints;
pub mod json;
pub mod lanes;
pub mod llama;
pub mod logprobs;
pub mod model;
pub mod ollama;
pub mod openai;
pub mod prompts;
pub mod rank;
pub mod reply;
pub mod request;
pub mod responses;
pub mod route;
pub mod sglang;
pub mod state;
pub mod stored;
pub mod tools;
pub mod turn;
pub mod value;
pub mod write;

/// The description of the API in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");
