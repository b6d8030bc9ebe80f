//! The description of a load: the requests that the load generator sends.

use std::time::Duration;

use serde_json::{Map, Value};

#[cfg(doc)]
use super::result::RequestResult;

/// The requests to send to one server. Build it from [`Load::default`].
#[derive(Clone, Debug)]
pub struct Load {
    /// Address of the server, as `host:port`.
    pub address: String,
    /// Path of an OpenAI-style endpoint, for completions or for chats.
    pub endpoint: String,
    /// How prompts are written. It must fit the endpoint.
    pub form: Form,
    /// Model to name in each request; `None` omits the field.
    pub model: Option<String>,
    /// API key, sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// One prompt per request, as token ids. For [`Form::Text`] and [`Form::Chat`] the numbers
    /// select [`words`](super::prompts::words).
    pub prompts: Vec<Vec<u32>>,
    /// `max_tokens` of each request.
    pub output_tokens: u32,
    /// `max_tokens` of each prompt. When empty, all use [`output_tokens`](Self::output_tokens).
    pub output_lens: Vec<u32>,
    /// Sends `ignore_eos`, so that an end-of-generation token does not end a response.
    pub ignore_eos: bool,
    /// Sampling temperature; 0 is greedy.
    pub temperature: f32,
    /// Requests an event stream. Without a stream, only [`RequestResult::e2el`] is known.
    pub stream: bool,
    /// Further fields of each request's body. They override all other fields.
    pub extra_body: Map<String, Value>,
    /// Most requests in flight at once.
    pub max_concurrency: usize,
    /// Send time of each request, ascending, relative to the start of the run. When empty, each
    /// request is sent as soon as [`max_concurrency`](Self::max_concurrency) allows.
    pub arrivals: Vec<Duration>,
    /// Warm-up requests: sent first, in the same way, and not counted in the results.
    pub warmup_prompts: Vec<Vec<u32>>,
    /// Time limit of one request, from its write to the end of its response.
    pub timeout: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8080".into(),
            endpoint: "/v1/completions".into(),
            form: Form::Ids,
            model: None,
            api_key: None,
            prompts: Vec::new(),
            output_tokens: 50,
            output_lens: Vec::new(),
            ignore_eos: false,
            temperature: 0.0,
            stream: true,
            extra_body: Map::new(),
            max_concurrency: usize::MAX,
            arrivals: Vec::new(),
            warmup_prompts: Vec::new(),
            timeout: Duration::from_secs(600),
        }
    }
}

/// How a prompt is written in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A completion with a prompt of token ids.
    Ids,
    /// A completion with a prompt of text, from `bench::prompts::words`.
    Text,
    /// A chat with one user message, from `bench::prompts::words`.
    Chat,
}
