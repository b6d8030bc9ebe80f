//! What travels between the front lane and the decode lane: one preallocated
//! [`Batch`], which goes down filled with rows and comes back filled with
//! samples.

use std::sync::Arc;

use crate::clock::Micros;
use crate::limits::{SLOTS_MAX, STEP_ROWS_MAX, TOP_LOGPROBS_MAX};
use crate::sampling::AdvancedSampling;
use crate::types::{Owner, Position, Sampling, SlotId, TokenId};

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
    pub clears: heapless::Vec<SlotId, { 2 * SLOTS_MAX }>,
    /// Sequences that begin, after the clears, in this order.
    pub starts: heapless::Vec<Start, { 2 * SLOTS_MAX }>,
    /// The tokens to run, each sequence's in order of position.
    pub rows: heapless::Vec<Row, STEP_ROWS_MAX>,
    /// How many of the rows are generated tokens.
    pub decode_rows: u32,
    /// How many of the rows are tokens of prompts.
    pub prefill_rows: u32,

    /// Answer: one for each row that asked for it and was run.
    pub samples: heapless::Vec<Sample, SLOTS_MAX>,
    /// Answer: the log-probabilities of those samples that were asked for them.
    pub logprobs: heapless::Vec<TokenLogprobs, SLOTS_MAX>,
    /// Answer: sequences that this step failed. Their later rows are dropped
    /// until they start again.
    pub failed: heapless::Vec<Failed, SLOTS_MAX>,
    /// Answer: the model could not run the step.
    pub step_failed: bool,
    /// Answer: because it took too long and was given up.
    pub aborted: bool,
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
        self.decode_rows = 0;
        self.prefill_rows = 0;
        self.samples.clear();
        self.logprobs.clear();
        self.failed.clear();
        self.step_failed = false;
        self.aborted = false;
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

/// A sequence begins in a slot, with the first tokens of what a slot holds; or
/// begins again, after a step that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The slot and the generation that it now has.
    pub owner: Owner,
    /// The slot that holds its beginning: its own, or another one.
    pub source: SlotId,
    /// Where its first row goes: the tokens before are those of `source`. What
    /// else its own slot holds is forgotten.
    pub keep: Position,
    /// Tokens of the prompt; later ones are generated.
    pub prompt_tokens: u32,
    /// How to choose its tokens.
    pub sampling: Sampling,
    /// What few ask for. Comes back as those of the slot's holder before, for the
    /// front lane to drop: the decode lane frees nothing.
    pub advanced: Option<Arc<AdvancedSampling>>,
    /// What Mirostat's `mu` was after the token before.
    pub mu: f32,
}

/// A sequence that a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which.
    pub owner: Owner,
    /// Its next position: the tokens before are in the KV cache.
    pub next: Position,
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The sequence that goes on with it.
    pub owner: Owner,
    /// The token.
    pub token: TokenId,
    /// It is an end-of-generation token: the decode lane runs no further row
    /// of this sequence.
    pub end: bool,
    /// It ends because its constraint could not be followed any further: the text is
    /// not what was asked for.
    pub broken: bool,
    /// Which of the batch's `logprobs` are its own, if it was asked for them.
    pub logprobs: Option<u16>,
    /// What Mirostat's `mu` is after it: the sequence may have to go on elsewhere.
    pub mu: f32,
}

/// Natural logarithms of probabilities, of the whole vocabulary's softmax over the
/// model's own logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprobs {
    /// The chosen token's.
    pub logprob: f32,
    /// The most probable tokens', as many as were asked for, the largest first.
    pub top: heapless::Vec<(TokenId, f32), TOP_LOGPROBS_MAX>,
}

impl TokenLogprobs {
    /// What stands for a probability of 0, as OpenAI has it: JSON has no infinity.
    /// No log-probability is smaller.
    pub const MIN: f32 = -9999.0;
}
