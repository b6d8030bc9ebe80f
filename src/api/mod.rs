//! The dialects: typed requests out of JSON, JSON out of typed results.
//!
//! A dialect is a file. [`route`] finds it; its `read` turns a body into a
//! [`GenerationRequest`]; its reply turns text, as it comes, into bytes.
//!
//! **Invariant:** pure. Nothing here does I/O or reads a clock; ids and times
//! are passed in.

pub mod cllm;
pub mod error;
pub mod json;
pub mod llama;
pub mod openai;
pub mod request;

use std::time::Duration;

use crate::clock::Micros;
use crate::http::head::Method;
use error::ApiError;
pub use request::{GenerationRequest, Prompt};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /health`, `/v1/health`
    Health,
    /// `GET /v1/models`
    Models,
    /// `GET /slots`
    Slots,
    /// `POST /v1/completions`
    Completions,
    /// `POST /generate`
    Generate,
    /// `POST /generate_stream`
    GenerateStream,
    /// `POST /encode`
    Encode,
}

/// Whose shapes a path speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `/v1/*` and everything without a dialect of its own.
    OpenAi,
    /// `/generate`, `/generate_stream`, `/encode`.
    Cllm,
}

/// Every path, its methods and its meaning.
const ROUTES: &[(&str, &str, Route)] = &[
    ("/health", "GET, HEAD", Route::Health),
    ("/v1/health", "GET, HEAD", Route::Health),
    ("/models", "GET, HEAD", Route::Models),
    ("/v1/models", "GET, HEAD", Route::Models),
    ("/slots", "GET, HEAD", Route::Slots),
    ("/completions", "POST", Route::Completions),
    ("/v1/completions", "POST", Route::Completions),
    ("/generate", "POST", Route::Generate),
    ("/generate_stream", "POST", Route::GenerateStream),
    ("/encode", "POST", Route::Encode),
];

/// Finds what a path and method ask for.
///
/// # Errors
/// 404 for an unknown path, 405 for a method that the path does not have.
pub fn route(method: Method, path: &str) -> Result<Route, ApiError> {
    let known = ROUTES.iter().find(|(known, ..)| *known == path);
    let Some((_, methods, route)) = known else { return Err(ApiError::not_found(path)) };
    match (method, *methods) {
        (Method::Get | Method::Head, "GET, HEAD") | (Method::Post, "POST") => Ok(*route),
        (_, "POST") => Err(ApiError::wrong_method(path, "POST, OPTIONS")),
        _ => Err(ApiError::wrong_method(path, "GET, HEAD, OPTIONS")),
    }
}

/// Every path that there is.
pub fn paths() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|(path, ..)| *path)
}

/// The dialect in which a path's errors are written.
pub fn dialect(path: &str) -> Dialect {
    match path {
        "/generate" | "/generate_stream" | "/encode" => Dialect::Cllm,
        _ => Dialect::OpenAi,
    }
}

impl Route {
    /// Open to clients without a key, as llama-server has it: what a load
    /// balancer or a client's set-up asks.
    pub fn is_public(self) -> bool {
        matches!(self, Route::Health | Route::Models)
    }
}

/// Why a choice ended, in the words of OpenAI's `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// Its time was over.
    Timeout,
}

impl FinishReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Timeout => "timeout",
        }
    }
}

/// Tokens of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were found in the KV cache.
    pub cached_tokens: u64,
    /// Tokens generated, an end-of-generation token included.
    pub completion_tokens: u64,
}

/// Where a request's time went: from its admission to its first slot, to its
/// first token, to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// In the queue.
    pub queued: Duration,
    /// Computing prompts.
    pub prefill: Duration,
    /// Generating.
    pub decode: Duration,
}

/// What a finished request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Its tokens.
    pub usage: Usage,
    /// Its time.
    pub timings: Timings,
}

/// What every reply says of itself.
#[derive(Clone, Debug)]
pub struct ReplyContext {
    /// The id of the response.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
    /// When the request had been read.
    pub started: Micros,
}

/// A response in the making: takes each choice's text as it comes, and writes
/// bytes into a buffer, at once when it streams and at the end when not.
#[derive(Debug)]
pub enum Reply {
    /// `/v1/completions`
    Completion(openai::CompletionReply),
    /// `/generate`, `/generate_stream`
    Generate(cllm::GenerateReply),
}

impl Reply {
    /// The reply to a request on `route`.
    pub fn new(route: Route, request: &GenerationRequest, context: ReplyContext) -> Self {
        match route {
            Route::Generate | Route::GenerateStream => {
                Reply::Generate(cllm::GenerateReply::new(request, context))
            }
            _ => Reply::Completion(openai::CompletionReply::new(request, context)),
        }
    }

    /// True when it is an event stream.
    pub fn is_stream(&self) -> bool {
        match self {
            Reply::Completion(reply) => reply.is_stream(),
            Reply::Generate(reply) => reply.is_stream(),
        }
    }

    /// More text of a choice, and the reason if it is the last.
    pub fn push_delta(
        &mut self,
        choice: usize,
        text: &str,
        finish: Option<FinishReason>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Reply::Completion(reply) => reply.push_delta(choice, text, finish, out),
            Reply::Generate(reply) => reply.push_delta(text, out),
        }
    }

    /// All choices have ended.
    pub fn push_end(&mut self, summary: Summary, now: Micros, out: &mut Vec<u8>) {
        match self {
            Reply::Completion(reply) => reply.push_end(summary, out),
            Reply::Generate(reply) => reply.push_end(summary.usage, now, out),
        }
    }

    /// The stream ends with an error, after its head has been sent.
    pub fn push_stream_error(&self, error: &ApiError, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: ");
        let dialect = match self {
            Reply::Completion(_) => Dialect::OpenAi,
            Reply::Generate(_) => Dialect::Cllm,
        };
        error.push_body(dialect, out);
        out.extend_from_slice(b"\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_paths_and_methods_are_told_apart() {
        assert_eq!(route(Method::Post, "/v1/completions"), Ok(Route::Completions));
        assert_eq!(route(Method::Head, "/health"), Ok(Route::Health));
        assert_eq!(route(Method::Post, "/nope").unwrap_err().status, 404);
        let error = route(Method::Get, "/generate").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("POST, OPTIONS")));
        let error = route(Method::Other, "/v1/models").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("GET, HEAD, OPTIONS")));
    }
}
