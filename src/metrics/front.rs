//! The front lane's metrics.

use super::bounds::{ITL_US, REQUEST_US, STEPS_IN_FLIGHT, TICK_US, TTFT_US};
use super::histogram::Histogram;
use super::http::Responses;
use super::late::LateTokens;
use super::value::{Counter, Gauge};

/// Written by the front lane.
///
/// A **request** here is a sequence, as in vLLM: an HTTP request with three prompts counts three.
#[derive(Debug)]
#[repr(align(128))] // two cache lines: processors fetch them in pairs
pub struct FrontMetrics {
    state: Gauge,
    /// Open client connections.
    pub connections: Gauge,
    /// Connections closed without an answer, because too many were open.
    pub connections_dropped: Counter,
    /// Bytes that requests hold outside the KV cache.
    pub request_bytes: Gauge,
    /// Spans dropped because the collector of traces was too slow.
    pub spans_dropped: Counter,
    /// HTTP responses.
    pub responses: Responses,

    /// Sequences in a slot.
    pub running: Gauge,
    /// Sequences waiting for a slot.
    pub waiting: Gauge,
    /// KV cells in use. Sequences with a common prefix share its cells.
    pub kv_tokens_used: Gauge,
    /// KV cells kept for reuse, which no running sequence needs.
    pub kv_tokens_kept: Gauge,
    /// All KV cells, in tokens.
    pub kv_tokens_capacity: Gauge,
    /// Compute threads of the last step, apart from trials; 0 if they were not measured.
    pub compute_threads: Gauge,
    /// 1 if one of these threads leads and the others help, else 0.
    pub products_led: Gauge,
    /// The slowdown: the time of a step divided by that without other programs, times 1,000; 0 if
    /// it was not measured.
    pub slowdown_permille: Gauge,
    /// Steps in flight whenever another step was sent.
    pub steps_in_flight: Histogram<{ STEPS_IN_FLIGHT.len() }>,

    /// Prompt tokens of the requests whose prompts were computed.
    pub prompt_tokens: Counter,
    /// Tokens generated, end-of-generation tokens included.
    pub generation_tokens: Counter,
    /// Prompt tokens found in the KV cache.
    pub cached_tokens: Counter,
    /// Prompt tokens computed. Tokens of preempted sequences count again.
    pub prefilled_tokens: Counter,
    /// Tokens evicted from the KV cache.
    pub evicted_tokens: Counter,
    /// Prompt tokens found in the prefix store.
    pub restored_tokens: Counter,
    /// Those of them that were read from files.
    pub fetched_tokens: Counter,
    /// Pages of the prefix store in use.
    pub store_pages: Gauge,
    /// Saved states.
    pub checkpoints: Gauge,
    /// Sequences that started from a saved state.
    pub checkpoint_starts: Counter,
    /// Sequences that lost their slot and went back to the queue.
    pub preemptions: Counter,
    /// Sequences that started again after a failed step.
    pub retries: Counter,
    /// How requests ended.
    pub finished: Finished,
    /// From admission to a slot, in microseconds.
    pub queue_us: Histogram<{ REQUEST_US.len() }>,
    /// From a slot to the end of the prompt, in microseconds.
    pub prefill_us: Histogram<{ REQUEST_US.len() }>,
    /// From the HTTP request's head to the first token, in microseconds.
    pub ttft_us: Histogram<{ TTFT_US.len() }>,
    /// Between two tokens of one request, in microseconds.
    pub itl_us: Histogram<{ ITL_US.len() }>,
    /// Tokens that came later than [`FrontMetrics::late_after_us`] after the previous one.
    pub late_tokens: LateTokens,
    /// The time between two tokens after which a token is late, by the newest step, in
    /// microseconds. 0 if there is no bound, or it is not known yet.
    pub late_after_us: Gauge,
    /// From the HTTP request's head to the last token, in microseconds. Counts only requests that
    /// finished.
    pub e2el_us: Histogram<{ REQUEST_US.len() }>,

    /// One tick, in microseconds: handling results of the decode lane and planning the next step.
    pub tick_us: Histogram<{ TICK_US.len() }>,
    /// Rust heap allocations of the lane; 0 without the counting allocator.
    pub allocations: Counter,
    /// Their bytes.
    pub allocated_bytes: Counter,
}

/// How requests ended.
#[derive(Debug, Default)]
pub struct Finished {
    /// The model ended the text, or a stop string did.
    pub stop: Counter,
    /// The text reached its limit of tokens.
    pub length: Counter,
    /// The client disconnected or did not read its text, or the request was refused (4xx).
    pub abort: Counter,
    /// The time limit passed.
    pub timeout: Counter,
    /// corelane failed.
    pub error: Counter,
}

impl Finished {
    /// The counter of requests that an error of this status ended.
    pub fn of_error(&self, status: u16) -> &Counter {
        match status {
            504 => &self.timeout,
            500.. => &self.error,
            _ => &self.abort,
        }
    }
}

/// Whether the server accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Not yet: the model is loading.
    Loading,
    /// It accepts requests.
    Ready,
    /// Not any more: it is shutting down.
    Draining,
    /// It refuses every request for want of a place, although none runs. Only a bug causes this.
    Stuck,
}

impl FrontMetrics {
    pub(super) fn new(paths: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            state: Gauge::default(),
            connections: Gauge::default(),
            connections_dropped: Counter::default(),
            request_bytes: Gauge::default(),
            spans_dropped: Counter::default(),
            responses: Responses::new(paths),
            running: Gauge::default(),
            waiting: Gauge::default(),
            kv_tokens_used: Gauge::default(),
            kv_tokens_kept: Gauge::default(),
            compute_threads: Gauge::default(),
            products_led: Gauge::default(),
            slowdown_permille: Gauge::default(),
            kv_tokens_capacity: Gauge::default(),
            steps_in_flight: Histogram::new(&STEPS_IN_FLIGHT),
            prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            prefilled_tokens: Counter::default(),
            evicted_tokens: Counter::default(),
            restored_tokens: Counter::default(),
            fetched_tokens: Counter::default(),
            store_pages: Gauge::default(),
            checkpoints: Gauge::default(),
            checkpoint_starts: Counter::default(),
            preemptions: Counter::default(),
            retries: Counter::default(),
            finished: Finished::default(),
            queue_us: Histogram::new(&REQUEST_US),
            prefill_us: Histogram::new(&REQUEST_US),
            ttft_us: Histogram::new(&TTFT_US),
            itl_us: Histogram::new(&ITL_US),
            late_tokens: LateTokens::default(),
            late_after_us: Gauge::default(),
            e2el_us: Histogram::new(&REQUEST_US),
            tick_us: Histogram::new(&TICK_US),
            allocations: Counter::default(),
            allocated_bytes: Counter::default(),
        }
    }

    /// Whether the server accepts requests.
    pub fn state(&self) -> ServerState {
        match self.state.get() {
            0 => ServerState::Loading,
            1 => ServerState::Ready,
            2 => ServerState::Draining,
            _ => ServerState::Stuck,
        }
    }

    /// Sets whether the server accepts requests. For the front lane only.
    pub fn set_state(&self, state: ServerState) {
        self.state.set(state as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_as_it_was_written() {
        let front = FrontMetrics::new([]);
        assert_eq!(front.state(), ServerState::Loading);
        for state in
            [ServerState::Ready, ServerState::Draining, ServerState::Stuck, ServerState::Loading]
        {
            front.set_state(state);
            assert_eq!(front.state(), state);
        }
    }
}
