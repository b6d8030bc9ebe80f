//! Ollama's dialect, `/api/*`.
//!
//! Ollama loads models on demand, and its clients send options about that (`keep_alive`, `num_ctx`,
//! `num_gpu`). Here one model is always loaded, so they are accepted and change nothing.

pub mod embed;
pub mod models;
pub mod reply;
pub mod request;
