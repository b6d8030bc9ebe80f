//! The times of a sequence, and the metrics that follow from them.

use std::time::Duration;

use crate::api::reply::Usage;
use crate::clock::Micros;
use crate::metrics::{Counter, FrontMetrics};

/// The times of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The request's head was complete.
    received: Micros,
    /// The scheduler admitted the sequence.
    admitted: Micros,
    /// The sequence got a slot.
    started: Micros,
    /// The newest token came.
    last_token: Option<Micros>,
    /// Tokens of the prompt. Known once the sequence has started.
    prompt_tokens: u64,
    /// Tokens of the prompt found in the KV cache.
    pub cached: u64,
    generated: u64,
}

impl Times {
    /// A sequence that was admitted now.
    pub fn new(received: Micros, now: Micros) -> Self {
        Self {
            received,
            admitted: now,
            started: now,
            last_token: None,
            prompt_tokens: 0,
            cached: 0,
            generated: 0,
        }
    }

    /// The sequence got a slot, or restarts, with this number of cached prompt tokens.
    pub fn start(&mut self, prompt_tokens: u32, cached: u64, metrics: &FrontMetrics, now: Micros) {
        if self.prompt_tokens == 0 {
            self.started = now;
            self.prompt_tokens = prompt_tokens.into();
            metrics.queue_us.observe(now.since(self.admitted));
        }
        if self.last_token.is_none() {
            self.cached = cached;
        } // or else its prompt was computed long ago
    }

    /// The time since the sequence got a slot.
    pub fn since_start(&self, now: Micros) -> Duration {
        Duration::from_micros(now.since(self.started))
    }

    /// A token was written.
    pub fn token(&mut self, metrics: &FrontMetrics, now: Micros) {
        metrics.generation_tokens.increment();
        self.generated += 1;
        match self.last_token.replace(now) {
            Some(last) => metrics.itl_us.observe(now.since(last)),
            None => {
                self.prompt(metrics, now);
                metrics.ttft_us.observe(now.since(self.received));
            }
        }
    }

    /// The prompt is computed.
    pub fn prompt(&self, metrics: &FrontMetrics, now: Micros) {
        metrics.prompt_tokens.add(self.prompt_tokens);
        metrics.prefill_us.observe(now.since(self.started));
    }

    /// The sequence's tokens so far.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached,
            completion_tokens: self.generated,
        }
    }

    /// The text has ended.
    pub fn end(&self, metrics: &FrontMetrics, reason: &Counter, now: Micros) {
        reason.increment();
        metrics.e2el_us.observe(now.since(self.received));
    }
}
