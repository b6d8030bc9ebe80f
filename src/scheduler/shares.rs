//! The keys' shares of the model and of the queue.

use std::time::Duration;

use crate::fair::{Quota, Turns};
use crate::types::KeyId;

/// Most keys that others may overtake in a step, because their first sequence does not fit.
const OVERTAKEN_KEYS_MAX: usize = 16;

/// The service and the queue of each key.
pub(super) struct Shares {
    turns: Turns,
    /// Sequences in the queue.
    pub sequences: Quota,
    /// Tokens of these.
    pub tokens: Quota,
}

/// The most slots that a key held at once recently, and when it last held them.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    pub slots: usize,
    /// The step.
    pub step: u64,
    /// The time that all steps before had taken.
    pub ran: Duration,
}

/// Keys whose first waiting sequence cannot start.
pub(super) type Overtaken = heapless::Vec<KeyId, OVERTAKEN_KEYS_MAX>;

impl Shares {
    /// One entry for each weight. Weights are positive. The queue holds at most `sequences`
    /// sequences with `tokens` tokens together.
    pub fn new(weights: &[f64], sequences: usize, tokens: usize) -> Self {
        Self {
            turns: Turns::new(weights),
            sequences: Quota::new(sequences, weights),
            tokens: Quota::new(tokens, weights),
        }
    }

    /// Notes that a key sends a request.
    pub fn arrive(&mut self, key: KeyId) {
        self.turns.arrive(key, |place| self.sequences.held_at(place) > 0);
    }

    /// Limits how far the waiting and running keys may be behind the most served of them: to
    /// `tokens` tokens, by weight. `runs` tells whether the key at a place runs.
    pub fn bound_credit(&mut self, runs: impl Fn(usize) -> bool, tokens: f64) {
        let waits = |place| self.sequences.held_at(place) > 0;
        self.turns.bound_credit(|place| waits(place) || runs(place), tokens);
    }

    /// Whether a key still has its place. False once it was removed and another key came.
    pub fn has_place(&self, key: KeyId) -> bool {
        self.turns.has_place(key)
    }

    /// A sequence of `tokens` tokens enters the queue.
    pub fn wait(&mut self, key: KeyId, tokens: usize) {
        self.sequences.take(key, 1);
        self.tokens.take(key, tokens);
    }

    /// A sequence of `tokens` tokens leaves the queue.
    pub fn leave(&mut self, key: KeyId, tokens: usize) {
        self.sequences.give(key, 1);
        self.tokens.give(key, tokens);
        self.turns.leave(key);
    }

    /// Charges a key with `tokens` tokens, prompt or generated.
    pub fn serve(&mut self, key: KeyId, tokens: f64) {
        self.turns.serve(key, tokens);
    }

    /// Takes back a charge for rows that will be computed again.
    pub fn refund(&mut self, key: KeyId, tokens: usize) {
        self.turns.serve(key, -(tokens as f64));
    }

    /// The service of a key, divided by its weight.
    pub fn served(&self, key: KeyId) -> f64 {
        self.turns.served(key)
    }
}
