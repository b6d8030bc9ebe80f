//! What the scheduler shows: counts of what it did, and the state of its slots.

use super::sequence::SequenceId;

/// What the scheduler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Prompt tokens that were found in the KV cache.
    pub cached_tokens: u64,
    /// Tokens that were put into steps to be computed as prompts are: those, and what
    /// preempted sequences had generated.
    pub prefilled_tokens: u64,
    /// Tokens that were kept, and gave way.
    pub evicted_tokens: u64,
    /// Sequences that went back to the queue.
    pub preemptions: u64,
    /// Sequences that began again after a step that failed.
    pub retries: u64,
}

/// A slot, for people to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Who holds it, and what that one is doing.
    pub held: Option<(SequenceId, Phase)>,
    /// Tokens that are in it, those of steps under way included.
    pub position: usize,
}

/// The phase of the sequence that holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for another one to compute what both begin with.
    Following,
    /// Computing its prompt.
    Prefill,
    /// Generating.
    Decode,
}
