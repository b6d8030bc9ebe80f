//! The facts of a request that has ended.

use crate::clock::Micros;
use crate::http::trace_context::TraceContext;
use crate::metrics::LateCount;

/// A request that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// The trace that it belongs to, and its own id there.
    pub context: TraceContext,
    /// The client's span, if it sent one.
    pub parent: Option<u64>,
    /// The path, as it stands in the table of routes.
    pub route: &'static str,
    /// The operation, in the words of OpenTelemetry's conventions: `chat` or `text_completion`.
    pub operation: &'static str,
    /// The id of the request.
    pub request_id: String,
    /// The id of the response; empty if there was none.
    pub response_id: String,
    /// When the request's head was complete.
    pub received: Micros,
    /// The times at which it was admitted to the queue, got a slot, and had its first token.
    pub admitted: Option<Micros>,
    /// See `admitted`.
    pub started: Option<Micros>,
    /// See `admitted`.
    pub first_token: Option<Micros>,
    /// The status of its response, if one was begun.
    pub status: Option<u16>,
    /// When its last byte was written, or its client left.
    pub ended: Micros,
    /// The limit of tokens of its first sequence, if the request was prepared.
    pub max_tokens: Option<u32>,
    /// The temperature of its first sequence.
    pub temperature: Option<f32>,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the KV cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Generated tokens that came late, by cause.
    pub late: LateCount,
    /// Why each choice ended.
    pub finish_reasons: Vec<&'static str>,
    /// How the request ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// With its whole response.
    #[default]
    Served,
    /// With an error of this status.
    Failed(u16),
    /// The client left.
    ClientLeft,
}
