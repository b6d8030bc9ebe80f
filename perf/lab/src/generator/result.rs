//! The result of one request.

use std::time::Duration;

use hyper::body::Bytes;

use super::failure::{Failure, FailureKind};

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    /// Planned send time, relative to the start of the run.
    pub arrival: Duration,
    /// The body, as JSON.
    pub body: Bytes,
    /// Number of tokens in the prompt.
    pub prompt_tokens: u64,
    /// `max_tokens` of the request.
    pub max_tokens: u32,
    /// Whether the request asks for an event stream.
    pub stream: bool,
}

/// Times and token counts of one request, on the client's clock.
///
/// A failed request keeps the values that were known when it failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestResult {
    /// Planned send time, corrected for a late timer, relative to the start of the run.
    pub arrival: Duration,
    /// Time of the write, relative to the start of the run.
    ///
    /// It is later than [`arrival`](Self::arrival) when `max_concurrency` requests were in flight,
    /// or when the request opened a new connection. A user would have waited since `arrival`,
    /// although the server has not seen the request until `started`.
    pub started: Duration,
    /// From just before the write to the first event with a choice. Zero for a response without
    /// streaming.
    pub ttft: Duration,
    /// Gaps between consecutive events with a choice.
    pub itls: Vec<Duration>,
    /// From just before the write to the last event with a choice, or to the end of a response
    /// without streaming.
    pub e2el: Duration,
    /// Number of prompt tokens that the server reports; otherwise the number that was sent.
    pub prompt_tokens: u64,
    /// Number of generated tokens; see [`is_counted`](Self::is_counted).
    pub output_tokens: u64,
    /// Whether the server reported [`output_tokens`](Self::output_tokens). Otherwise it is the
    /// number of events with a choice.
    pub is_counted: bool,
    /// `max_tokens` of the request.
    pub max_tokens: u32,
    /// The generated text.
    pub text: String,
    /// The error message; `None` when the request completed.
    pub error: Option<String>,
    /// The kind of the error, for counting.
    pub error_kind: Option<FailureKind>,
}

impl RequestResult {
    /// The initial result of a request, before anything is known.
    pub(super) fn of(request: &PreparedRequest) -> Self {
        /// Initial capacity of `itls` at most; beyond it the vector grows.
        const EVENTS_EXPECTED_MAX: usize = 4096;
        let events = if request.stream { request.max_tokens as usize } else { 0 };
        Self {
            arrival: request.arrival,
            started: request.arrival,
            itls: Vec::with_capacity(events.min(EVENTS_EXPECTED_MAX)),
            prompt_tokens: request.prompt_tokens,
            max_tokens: request.max_tokens,
            ..Self::default()
        }
    }

    pub(super) fn fail(&mut self, failure: &Failure) {
        self.error = Some(failure.to_string());
        self.error_kind = Some(failure.kind);
    }

    /// Returns whether the request completed.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }

    /// Time per output token after the first. `None` with fewer than two tokens, or without
    /// streaming.
    pub fn tpot(&self) -> Option<Duration> {
        let gaps = self.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
        let decoding = self.e2el.saturating_sub(self.ttft);
        (!self.ttft.is_zero()).then(|| decoding.div_f64(gaps as f64))
    }

    /// Time between the arrival and the write: the wait for a connection on the client's side.
    pub fn client_queue_time(&self) -> Duration {
        self.started.saturating_sub(self.arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpot_is_the_decoding_time_over_the_tokens_after_the_first() {
        let ms = Duration::from_millis;
        let result = |ttft, e2el, output_tokens| RequestResult {
            ttft: ms(ttft),
            e2el: ms(e2el),
            output_tokens,
            ..RequestResult::default()
        };
        assert_eq!(result(100, 500, 5).tpot(), Some(ms(100)));
        assert_eq!(result(100, 100, 1).tpot(), None);
        assert_eq!(result(100, 100, 0).tpot(), None);
        assert_eq!(result(0, 500, 5).tpot(), None, "not streamed");
    }
}
