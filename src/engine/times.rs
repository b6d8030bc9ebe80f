//! When what happened to a sequence, and the metrics that follow from it.

use crate::api::reply::Usage;
use crate::clock::Micros;
use crate::metrics::{Counter, FrontMetrics};

/// When what happened to a sequence.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The request's head was read.
    received: Micros,
    /// The scheduler took it in.
    admitted: Micros,
    /// It was given a slot.
    started: Micros,
    /// Its newest token came.
    last_token: Option<Micros>,
    /// Known once it has started.
    prompt_tokens: u64,
    /// Tokens of its prompt that were there already.
    pub cached: u64,
    generated: u64,
}

impl Times {
    /// Of a sequence taken in now.
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

    /// It was given a slot, or begins again in it, with so much of its prompt there
    /// already.
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

    /// A token became an event.
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

    /// Its prompt is computed.
    pub fn prompt(&self, metrics: &FrontMetrics, now: Micros) {
        metrics.prompt_tokens.add(self.prompt_tokens);
        metrics.prefill_us.observe(now.since(self.started));
    }

    /// Its own tokens so far, and its prompt's.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached,
            completion_tokens: self.generated,
        }
    }

    /// The text is whole.
    pub fn end(&self, metrics: &FrontMetrics, reason: &Counter, now: Micros) {
        reason.increment();
        metrics.e2el_us.observe(now.since(self.received));
    }
}
