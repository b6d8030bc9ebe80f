//! The scheduler's counters, and the state of its slots.

use crate::types::{KeyId, SequenceId};

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Prompt tokens found in the KV cache.
    pub cached_tokens: u64,
    /// Tokens planned as prompt rows: prompts, and tokens that preempted sequences had generated.
    pub prefilled_tokens: u64,
    /// Prompt tokens found in the prefix store; [`Tally::cached_tokens`] has them, too.
    pub restored_tokens: u64,
    /// Those of them that were read from files.
    pub fetched_tokens: u64,
    /// Pages that were copied into the prefix store.
    pub stored_pages: u64,
    /// Recurrent states that were saved.
    pub states_saved: u64,
    /// Sequences that started from a saved state.
    pub states_restored: u64,
    /// Kept tokens that were evicted.
    pub evicted_tokens: u64,
    /// Preempted sequences.
    pub preemptions: u64,
    /// Sequences restarted after a failed step.
    pub retries: u64,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// The sequence that holds it, and its phase.
    pub held: Option<(SequenceId, Phase)>,
    /// The key whose tokens are in it, if there are any.
    pub key: Option<KeyId>,
    /// Tokens that a free slot keeps, or those of a held one with the rows and guesses in flight.
    pub position: usize,
}

/// The phase of the sequence that holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waits for another sequence to compute the shared prefix.
    Following,
    /// Computes its prompt.
    Prefill,
    /// Generates.
    Decode,
}
