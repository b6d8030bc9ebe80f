//! The times of a sequence, and the metrics that follow from them.

use std::time::Duration;

use super::late::{Late, Mark};
use crate::api::reply::Usage;
use crate::clock::Micros;
use crate::metrics::{Cause, Counter, FrontMetrics};

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
    last_token: Option<Mark>,
    /// Since then, the text waited for masks for this many microseconds, and for its prompt to be
    /// computed again.
    masks_us: u64,
    restarted: Option<Micros>,
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
            masks_us: 0,
            restarted: None,
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
        match self.last_token {
            None => self.cached = cached,
            Some(_) => self.restarted = Some(now), // its prompt was computed long ago
        }
    }

    /// The time since the sequence got a slot.
    pub fn since_start(&self, now: Micros) -> Duration {
        Duration::from_micros(now.since(self.started))
    }

    /// The text waited for a mask.
    pub fn mask(&mut self, us: u32) {
        self.masks_us += u64::from(us);
    }

    /// A token was written. Returns why it was late, if it was.
    pub fn token(&mut self, metrics: &FrontMetrics, late: &mut Late, now: Micros) -> Option<Cause> {
        metrics.generation_tokens.increment();
        self.generated += 1;
        let masks_us = std::mem::take(&mut self.masks_us);
        let restarted = self.restarted.take();
        let Some(last) = self.last_token.replace(late.mark(now)) else {
            self.prompt(metrics, now);
            metrics.ttft_us.observe(now.since(self.received));
            return None;
        };
        metrics.itl_us.observe(now.since(last.at));
        // From the restart on, it waited for its own prompt.
        let own_prompt = restarted.map_or(0, |at| now.since(at));
        let own = [(Cause::Mask, masks_us), (Cause::OwnPrompt, own_prompt)];
        let cause = late.judge(&last, &own, now)?;
        metrics.late_tokens.of(cause).increment();
        Some(cause)
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
