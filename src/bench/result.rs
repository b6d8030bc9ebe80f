//! What came of one request.

use std::time::Duration;

use hyper::body::Bytes;

use super::failure::{Failure, FailureKind};

/// A request that is ready to be written.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    /// When it should be written, from the beginning of the run.
    pub arrival: Duration,
    /// JSON.
    pub body: Bytes,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens that it asks for.
    pub max_tokens: u32,
    /// The response is to be an event stream.
    pub stream: bool,
}

/// Times and tokens of one request, on the client's clock.
///
/// A failed request keeps what was known when it failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestResult {
    /// When it was meant to be written, as exactly as the client's timers are, from the
    /// beginning of the run.
    pub arrival: Duration,
    /// When it was written, from the beginning of the run. Later than
    /// [`arrival`](Self::arrival) when all of `max_concurrency` were busy, or
    /// when it took a new connection; then a client that waits for its turn has
    /// waited since `arrival`, though the server has not seen it.
    pub started: Duration,
    /// From just before the write to the first event with a choice. Zero when
    /// the response was not streamed.
    pub ttft: Duration,
    /// The gaps between such events.
    pub itls: Vec<Duration>,
    /// From just before the write to the last event with a choice, or to the
    /// end of a response that was not streamed.
    pub e2el: Duration,
    /// Tokens of the prompt, as the server counts them; else as they were sent.
    pub prompt_tokens: u64,
    /// Tokens generated, as the server counts them.
    pub output_tokens: u64,
    /// The server did count them; else [`output_tokens`](Self::output_tokens)
    /// is the number of events with a choice.
    pub is_counted: bool,
    /// Tokens that were asked for.
    pub max_tokens: u32,
    /// The generated text.
    pub text: String,
    /// What went wrong, in a sentence; `None` when it completed.
    pub error: Option<String>,
    /// What went wrong, to count by.
    pub error_kind: Option<FailureKind>,
}

impl RequestResult {
    /// The result of a request of which nothing is known yet.
    pub(super) fn of(request: &PreparedRequest) -> Self {
        /// Beyond this many events the vector grows as it goes.
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

    /// It completed.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }

    /// Time per output token after the first; `None` when there is but one, or
    /// when it was not streamed.
    pub fn tpot(&self) -> Option<Duration> {
        let gaps = self.output_tokens.checked_sub(1).filter(|gaps| *gaps > 0)?;
        let decoding = self.e2el.saturating_sub(self.ttft);
        (!self.ttft.is_zero()).then(|| decoding.div_f64(gaps as f64))
    }

    /// How long it waited for its turn on this side.
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
