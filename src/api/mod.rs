//! The dialects: typed requests out of JSON, JSON out of typed results.
//!
//! A dialect is a file. [`route`] finds it; its `read` turns a body into a
//! [`GenerationRequest`]; its reply turns text, as it comes, into bytes.
//!
//! **Invariant:** pure. Nothing here does I/O or reads a clock; ids and times
//! are passed in.

pub mod anthropic;
pub mod chain;
pub mod chat;
pub mod cllm;
pub mod constrain;
pub mod embeddings;
pub mod error;
pub mod extras;
pub mod json;
pub mod llama;
pub mod logprobs;
pub mod openai;
pub mod request;

use std::time::Duration;

use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::http::head::Method;
use crate::types::TokenId;
pub use chat::ChatRequest;
use error::ApiError;
use logprobs::TokenLogprobs;
pub use request::{GenerationRequest, Prompt};

/// The description of all of this in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `GET /health`, `/v1/health`
    Health,
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{model}`
    Model,
    /// `GET /slots`
    Slots,
    /// `GET /props`
    Props,
    /// `GET /openapi.json`
    OpenApi,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /completion`
    LlamaCompletion,
    /// `POST /tokenize`
    Tokenize,
    /// `POST /detokenize`
    Detokenize,
    /// `POST /apply-template`
    ApplyTemplate,
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
    /// `/v1/messages`.
    Anthropic,
}

/// One model; its name is the last part.
const MODEL_PATH: &str = "/v1/models/{model}";

/// Every path, its methods and its meaning.
const ROUTES: &[(&str, &str, Route)] = &[
    ("/health", "GET, HEAD", Route::Health),
    ("/v1/health", "GET, HEAD", Route::Health),
    ("/models", "GET, HEAD", Route::Models),
    ("/v1/models", "GET, HEAD", Route::Models),
    (MODEL_PATH, "GET, HEAD", Route::Model),
    ("/slots", "GET, HEAD", Route::Slots),
    ("/props", "GET, HEAD", Route::Props),
    ("/openapi.json", "GET, HEAD", Route::OpenApi),
    ("/v1/completions", "POST", Route::Completions),
    ("/chat/completions", "POST", Route::ChatCompletions),
    ("/v1/chat/completions", "POST", Route::ChatCompletions),
    ("/v1/embeddings", "POST", Route::Embeddings),
    ("/v1/messages", "POST", Route::Messages),
    ("/v1/messages/count_tokens", "POST", Route::CountTokens),
    ("/completion", "POST", Route::LlamaCompletion),
    ("/completions", "POST", Route::LlamaCompletion),
    ("/tokenize", "POST", Route::Tokenize),
    ("/detokenize", "POST", Route::Detokenize),
    ("/apply-template", "POST", Route::ApplyTemplate),
    ("/generate", "POST", Route::Generate),
    ("/generate_stream", "POST", Route::GenerateStream),
    ("/encode", "POST", Route::Encode),
];

/// Finds what a path and method ask for.
///
/// # Errors
/// 404 for an unknown path, 405 for a method that the path does not have.
pub fn route(method: Method, path: &str) -> Result<Route, ApiError> {
    let template = if model_of(path).is_some() { MODEL_PATH } else { path };
    let known = ROUTES.iter().find(|(known, ..)| *known == template);
    let Some((_, methods, route)) = known else { return Err(ApiError::not_found(path)) };
    match (method, *methods) {
        (Method::Get | Method::Head, "GET, HEAD") | (Method::Post, "POST") => Ok(*route),
        (_, "POST") => Err(ApiError::wrong_method(path, "POST, OPTIONS")),
        _ => Err(ApiError::wrong_method(path, "GET, HEAD, OPTIONS")),
    }
}

/// The name in a path that asks for one model, as it is written there.
pub fn model_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/models/").filter(|name| !name.is_empty())
}

/// Every path that there is.
pub fn paths() -> impl Iterator<Item = &'static str> {
    routes().map(|(path, _)| path)
}

/// Every path and its methods, with commas.
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|(path, methods, _)| (*path, *methods))
}

/// The dialect in which a path's errors are written.
pub fn dialect(path: &str) -> Dialect {
    match path {
        "/generate" | "/generate_stream" | "/encode" => Dialect::Cllm,
        "/v1/messages" | "/v1/messages/count_tokens" => Dialect::Anthropic,
        _ => Dialect::OpenAi,
    }
}

impl Route {
    /// Open to clients without a key, as llama-server has it: what a load
    /// balancer or a client's set-up asks.
    pub fn is_public(self) -> bool {
        matches!(self, Route::Health | Route::Models | Route::Model | Route::OpenApi)
    }
}

impl Delta<'_> {
    /// Nothing is new.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
            && self.tokens.is_empty()
            && self.logprobs.is_empty()
            && self.finish.is_none()
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
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
}

/// How a reply is to be written.
#[derive(Clone, Debug, Default)]
pub struct ReplyOptions {
    /// Texts, all prompts together.
    pub choices: usize,
    /// As events.
    pub stream: bool,
    /// The token counts at the end of a stream.
    pub include_usage: bool,
    /// How far it is, in each event of a stream.
    pub timings_per_token: bool,
    /// Log-probabilities of its tokens.
    pub logprobs: bool,
    /// The numbers of its tokens.
    pub return_tokens: bool,
    /// What each choice begins with: its prompt, where that was asked for.
    pub echo: Vec<String>,
    /// How the text of a chat is taken apart.
    pub parser: ParserOptions,
}

impl ReplyOptions {
    fn tells_progress(&self) -> bool {
        self.stream && self.timings_per_token
    }
}

/// More of a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delta<'a> {
    /// Text that is new.
    pub text: &'a str,
    /// The tokens that it came from, where somebody asked for them.
    pub tokens: &'a [TokenId],
    /// Their log-probabilities, likewise.
    pub logprobs: &'a [TokenLogprobs],
    /// Why it is over, when it is.
    pub finish: Option<FinishReason>,
    /// The stop string that ended it.
    pub stop_word: Option<&'a str>,
    /// The choice's own tokens so far, and its prompt's.
    pub usage: Usage,
    /// How far the request is, where a choice ends or each event says so.
    pub summary: Option<Summary>,
}

/// A response in the making: takes each choice's text as it comes, and writes
/// bytes into a buffer, at once when it streams and at the end when not.
#[derive(Debug)]
pub enum Reply {
    /// `/v1/completions`
    Completion(openai::CompletionReply),
    /// `/v1/chat/completions`
    Chat(chat::reply::ChatReply),
    /// `/v1/messages`
    Messages(anthropic::reply::MessagesReply),
    /// `/completion`
    Llama(llama::completion::LlamaReply),
    /// `/generate`, `/generate_stream`
    Generate(cllm::GenerateReply),
}

impl Reply {
    /// The reply to a request on `route`.
    pub fn new(route: Route, options: ReplyOptions, context: ReplyContext) -> Self {
        match route {
            Route::Generate | Route::GenerateStream => {
                Reply::Generate(cllm::GenerateReply::new(options.stream, context))
            }
            Route::ChatCompletions => Reply::Chat(chat::reply::ChatReply::new(options, &context)),
            Route::Messages => {
                Reply::Messages(anthropic::reply::MessagesReply::new(options, &context))
            }
            Route::LlamaCompletion => {
                Reply::Llama(llama::completion::LlamaReply::new(options, &context))
            }
            _ => Reply::Completion(openai::CompletionReply::new(options, &context)),
        }
    }

    /// True when it is an event stream.
    pub fn is_stream(&self) -> bool {
        match self {
            Reply::Completion(reply) => reply.is_stream(),
            Reply::Chat(reply) => reply.is_stream(),
            Reply::Messages(reply) => reply.is_stream(),
            Reply::Llama(reply) => reply.is_stream(),
            Reply::Generate(reply) => reply.is_stream(),
        }
    }

    /// True when each event of its stream says how far it is.
    pub fn tells_progress(&self) -> bool {
        match self {
            Reply::Completion(reply) => reply.options.tells_progress(),
            Reply::Chat(reply) => reply.options.tells_progress(),
            Reply::Llama(reply) => reply.options.tells_progress(),
            Reply::Messages(_) | Reply::Generate(_) => false,
        }
    }

    /// More of a choice.
    pub fn push_delta(&mut self, choice: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        match self {
            Reply::Completion(reply) => reply.push_delta(choice, delta, out),
            Reply::Chat(reply) => reply.push_delta(choice, delta, out),
            Reply::Messages(reply) => reply.push_delta(delta, out),
            Reply::Llama(reply) => reply.push_delta(choice, delta, out),
            Reply::Generate(reply) => reply.push_delta(delta.text, out),
        }
    }

    /// All choices have ended.
    pub fn push_end(&mut self, summary: Summary, now: Micros, out: &mut Vec<u8>) {
        match self {
            Reply::Completion(reply) => reply.push_end(summary, out),
            Reply::Chat(reply) => reply.push_end(summary, out),
            Reply::Messages(reply) => reply.push_end(summary, out),
            Reply::Llama(reply) => reply.push_end(summary, out),
            Reply::Generate(reply) => reply.push_end(summary.usage, now, out),
        }
    }

    /// The stream ends with an error, after its head has been sent.
    pub fn push_stream_error(&self, error: &ApiError, out: &mut Vec<u8>) {
        let dialect = match self {
            Reply::Completion(_) | Reply::Chat(_) | Reply::Llama(_) => Dialect::OpenAi,
            Reply::Messages(_) => Dialect::Anthropic,
            Reply::Generate(_) => Dialect::Cllm,
        };
        if dialect == Dialect::Anthropic {
            out.extend_from_slice(b"event: error\n");
        }
        out.extend_from_slice(b"data: ");
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
        assert_eq!(route(Method::Get, "/v1/models/a%2Fb"), Ok(Route::Model));
        assert_eq!(route(Method::Get, "/v1/models/").unwrap_err().status, 404);
        assert_eq!(route(Method::Post, "/nope").unwrap_err().status, 404);
        let error = route(Method::Get, "/generate").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("POST, OPTIONS")));
        let error = route(Method::Other, "/v1/models").unwrap_err();
        assert_eq!((error.status, error.allow), (405, Some("GET, HEAD, OPTIONS")));
    }
}
