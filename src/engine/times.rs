//! The times of a sequence, and the metrics that follow from them.

use std::time::Duration;

use super::late::{Late, Mark};
use crate::api::reply::{Restored, Usage};
use crate::clock::Micros;
use crate::metrics::{Cause, Counter, FrontMetrics};

/// The times of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// When the request's head was complete.
    received: Micros,
    /// When the scheduler admitted the sequence.
    admitted: Micros,
    /// When the sequence first got a slot.
    started: Micros,
    /// When the newest token came.
    last_token: Option<Mark>,
    /// Microseconds since the newest token in which the text waited for masks; and the time of a
    /// restart since then, after which its prompt is computed again.
    masks_us: u64,
    restarted: Option<Micros>,
    /// Tokens of the prompt; 0 until the sequence starts.
    prompt_tokens: u64,
    /// Tokens of the prompt found in the KV cache.
    pub cached: u64,
    /// Those of them that came from the prefix store.
    pub restored: Restored,
    generated: u64,
}

impl Times {
    /// The times of a sequence that is admitted now.
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
            restored: Restored::default(),
            generated: 0,
        }
    }

    /// The sequence starts or restarts in a slot.
    pub fn start(&mut self, prompt_tokens: u32, metrics: &FrontMetrics, now: Micros) {
        if self.prompt_tokens == 0 {
            self.started = now;
            self.prompt_tokens = prompt_tokens.into();
            metrics.queue_us.observe(now.since(self.admitted));
        }
        if self.last_token.is_some() {
            self.restarted = Some(now); // its prompt is computed again
        }
    }

    /// Notes how many tokens of the prompt are cached, and how many of them come from the prefix
    /// store. Once the sequence has a token, this no longer changes.
    pub fn count_cached(&mut self, cached: u64, restored: Restored) {
        if self.last_token.is_none() {
            (self.cached, self.restored) = (cached, restored);
        }
    }

    /// The time since the sequence first got a slot.
    pub fn since_start(&self, now: Micros) -> Duration {
        Duration::from_micros(now.since(self.started))
    }

    /// Adds a time in which the text waited for a mask.
    pub fn mask(&mut self, us: u32) {
        self.masks_us += u64::from(us);
    }

    /// Records a new token. Returns the cause if it is late.
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
        // From the restart on, the text waited for its own prompt.
        let own_prompt = restarted.map_or(0, |at| now.since(at));
        let own = [(Cause::Mask, masks_us), (Cause::OwnPrompt, own_prompt)];
        let cause = late.judge(&last, &own, now)?;
        metrics.late_tokens.of(cause).increment();
        Some(cause)
    }

    /// Records that the prompt is computed.
    pub fn prompt(&self, metrics: &FrontMetrics, now: Micros) {
        metrics.prompt_tokens.add(self.prompt_tokens);
        metrics.prefill_us.observe(now.since(self.started));
    }

    /// The numbers of the sequence's tokens so far.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached,
            completion_tokens: self.generated,
        }
    }

    /// Records the end of the text.
    pub fn end(&self, metrics: &FrontMetrics, reason: &Counter, now: Micros) {
        reason.increment();
        metrics.e2el_us.observe(now.since(self.received));
    }
}
