//! What travels between the front lane and the decode lane: one preallocated
//! [`Batch`], which goes down filled with rows and comes back filled with
//! samples.

use crate::clock::Micros;
use crate::limits::{SLOTS_MAX, STEP_ROWS_MAX};
use crate::types::{Owner, Position, Sampling, TokenId};

/// One step: what the scheduler asks for, and what the decode lane made of it.
///
/// **Invariant:** all batches are allocated at start-up. They circulate; a
/// step allocates none.
#[derive(Debug, Default)]
pub struct Batch {
    /// Steps count from 1, in the order they were planned.
    pub step: u64,
    /// When the front lane sent it.
    pub sent: Micros,
    /// Slots whose KV cells are to be cleared before anything else.
    pub clears: heapless::Vec<Owner, SLOTS_MAX>,
    /// Sequences whose first rows are in this batch, after the clears.
    pub starts: heapless::Vec<Start, SLOTS_MAX>,
    /// The tokens to run, each sequence's in order of position.
    pub rows: heapless::Vec<Row, STEP_ROWS_MAX>,

    /// Answer: one for each row that asked for it and was run.
    pub samples: heapless::Vec<Sample, SLOTS_MAX>,
    /// Answer: sequences that this step failed. They have ended.
    pub failed: heapless::Vec<Owner, SLOTS_MAX>,
    /// Answer: rows not run because their sequence had ended in a step before.
    pub rows_dropped: u32,
    /// Answer: time inside the model, in microseconds.
    pub decode_us: u32,
    /// Answer: time in the sampler, in microseconds.
    pub sample_us: u32,
    /// Answer: Rust heap allocations of the decode lane since the step before.
    pub allocations: u32,
}

impl Batch {
    /// Empties the batch for its next use; keeps its memory.
    pub fn clear(&mut self) {
        self.clears.clear();
        self.starts.clear();
        self.rows.clear();
        self.samples.clear();
        self.failed.clear();
        self.rows_dropped = 0;
        self.decode_us = 0;
        self.sample_us = 0;
        self.allocations = 0;
    }

    /// True when the decode lane has nothing to do for it.
    pub fn is_empty(&self) -> bool {
        self.clears.is_empty() && self.starts.is_empty() && self.rows.is_empty()
    }
}

/// A sequence takes hold of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The slot and the generation that it now has.
    pub owner: Owner,
    /// Tokens of the prompt; later ones are generated.
    pub prompt_tokens: u32,
    /// How to choose its tokens.
    pub sampling: Sampling,
}

/// One token of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The sequence it belongs to.
    pub owner: Owner,
    /// Its place in that sequence. The decode lane holds the same number and
    /// compares.
    pub position: Position,
    /// The token itself, or where to find it.
    pub input: Input,
    /// Choose a next token from this row's logits.
    pub sample: bool,
}

/// Where a row's token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A prompt token.
    Token(TokenId),
    /// The carry: the token that this sequence samples in the step before,
    /// which had not run yet when this row was planned.
    Carry,
}

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The sequence that goes on with it.
    pub owner: Owner,
    /// The token.
    pub token: TokenId,
    /// It is an end-of-generation token: the decode lane runs no further row
    /// of this sequence.
    pub end: bool,
}
