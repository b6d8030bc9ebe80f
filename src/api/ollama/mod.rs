//! Ollama's dialect, `/api/*`.
//!
//! Ollama loads models on demand, and its clients send options about that (`keep_alive`, `num_ctx`,
//! `num_gpu`). Here one model is always loaded, so they are accepted and change nothing.

pub mod embed;
pub mod models;
pub mod reply;
pub mod request;

use super::error::{ApiError, Dialect};
use super::write::{Object, push_json};

/// Ollama's dialect.
pub static DIALECT: Dialect = Dialect {
    stream_type: "application/x-ndjson",
    has_comments: false,
    push_error,
    push_error_event: |out, error| {
        push_error(out, error);
        out.push(b'\n');
    },
};

fn push_error(out: &mut Vec<u8>, error: &ApiError) {
    push_json(out, &Object([("error", &error.message)]));
}
