//! The requests that a load generator sends.

use std::time::Duration;

use serde_json::{Map, Value};

#[cfg(doc)]
use super::result::RequestResult;

/// What to send. Make one from [`Load::default`].
#[derive(Clone, Debug)]
pub struct Load {
    /// `host:port`
    pub address: String,
    /// The path of an OpenAI-style endpoint, of completions or of chats.
    pub endpoint: String,
    /// How prompts are written, which has to fit the endpoint.
    pub form: Form,
    /// The model to name; `None` names none.
    pub model: Option<String>,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// The requests: token ids each, or, where [`form`](Self::form) says so, numbers
    /// of [`words`](super::prompts::words).
    pub prompts: Vec<Vec<u32>>,
    /// Tokens to ask for (`max_tokens`).
    pub output_tokens: u32,
    /// Tokens to ask for, for each prompt; empty for
    /// [`output_tokens`](Self::output_tokens) each.
    pub output_lens: Vec<u32>,
    /// Sent along: an end-of-generation token does not end a text.
    pub ignore_eos: bool,
    /// 0 is greedy.
    pub temperature: f32,
    /// Ask for event streams. Without, only [`RequestResult::e2el`] is known.
    pub stream: bool,
    /// More fields of the requests' bodies; these go before all others.
    pub extra_body: Map<String, Value>,
    /// Requests under way at once, at most.
    pub max_concurrency: usize,
    /// When each request should be written, ascending, from the beginning;
    /// empty to write each as soon as [`max_concurrency`](Self::max_concurrency)
    /// allows.
    pub arrivals: Vec<Duration>,
    /// Requests to send before, in the same way, whose results do not count.
    pub warmup_prompts: Vec<Vec<u32>>,
    /// Time that one request may take, from its write to the end of its response.
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

/// How a prompt is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A completion's, as token ids.
    Ids,
    /// The text of a completion, from `bench::prompts::words`.
    Text,
    /// A chat's: one message of the user, from `bench::prompts::words`.
    Chat,
}
