//! The messages between lanes. A preallocated [`Batch`] goes to the decode lane with rows and comes
//! back with samples. A [`MaskTask`] goes to the mask lane with tokens and comes back with the
//! tokens that may follow.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Micros;
use crate::constraint::{Allowed, Compiled, Walk};
use crate::limits::{
    PAGES_STEP_MAX, SAMPLES_MAX, SCORED_ROWS_MAX, SLOTS_MAX, STEP_ROWS_MAX, TOP_LOGPROBS_MAX,
};
use crate::sampling::AdvancedSampling;
use crate::types::{
    Broken, CheckpointId, Guessing, KeyId, Logits, Owner, PageId, Position, Sampling, SequenceId,
    SlotId, Threads, TokenId,
};

/// One step: the scheduler's plan, and the decode lane's answers.
///
/// **Invariant:** all batches are allocated at the start and reused. No step allocates one.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number of the step, from 1, in the order of planning.
    pub step: u64,
    /// The time at which the front lane sent the batch.
    pub sent: Micros,
    /// The expected time of the step; `None` if it is not known yet.
    pub expected: Option<Duration>,
    /// Slots whose KV cells are cleared first.
    pub clears: heapless::Vec<SlotId, { 2 * SLOTS_MAX }>,
    /// Sequences that start, after the clears, in this order.
    pub starts: heapless::Vec<Start, { 2 * SLOTS_MAX }>,
    /// States that are saved, each before the rows of the step or behind those of its slot, and logits
    /// that are kept.
    pub saves: heapless::Vec<Save, { 4 * SLOTS_MAX }>,
    /// Pages of the prefix store that are copied into slots, after the starts.
    pub loads: heapless::Vec<Load, PAGES_STEP_MAX>,
    /// Cells of slots that are copied into pages of the prefix store, before anything else.
    pub stores: heapless::Vec<StorePage, PAGES_STEP_MAX>,
    /// Slots whose constrained text has ended. The decode lane frees the state of the constraint.
    pub forgets: heapless::Vec<SlotId, { 2 * SLOTS_MAX }>,
    /// Masks from the mask lane, for rows of this step that sample. They come back with the batch.
    pub masks: heapless::Vec<Box<MaskTask>, SLOTS_MAX>,
    /// The tokens to run. Rows of a sequence are in order of position.
    pub rows: heapless::Vec<Row, STEP_ROWS_MAX>,
    /// The number of rows that continue a text: generated tokens whose row samples.
    pub decode_rows: u32,
    /// The number of prompt rows. They include generated tokens that a preempted sequence computes
    /// again.
    pub prefill_rows: u32,
    /// The number of guesses that the rows may have.
    pub guessed_rows: u32,
    /// The draft model reads the prompts of this step.
    pub drafter_reads: bool,
    /// The compute threads; `None` leaves them as they are.
    pub threads: Option<Threads>,
    /// Once the masks of this step have taken this time, the decode lane computes no further one.
    /// `None` sets no limit.
    pub masks_max: Option<Duration>,

    /// Answer: one sample for each start from kept logits, one for each row that ran and asked for
    /// one, and one for each of its guesses that came true. Those of a sequence are in order of position.
    pub samples: heapless::Vec<Sample, SAMPLES_MAX>,
    /// Answer: the log-probabilities of samples whose requests asked for them.
    pub logprobs: heapless::Vec<TokenLogprobs, SAMPLES_MAX>,
    /// Answer: the scores of prompt tokens, one for each row that ran and asked for one.
    pub scores: heapless::Vec<Score, SCORED_ROWS_MAX>,
    /// Answer: sequences that failed in this step. Their later rows are dropped until they restart.
    pub failed: heapless::Vec<Failed, SLOTS_MAX>,
    /// Answer: for each slot, the fewest tokens above 0 to which it can be cut now without a saved
    /// state. Empty if the model has no sliding windows.
    pub least_left: heapless::Vec<Position, SLOTS_MAX>,
    /// Answer: the model could not run the step.
    pub step_failed: bool,
    /// Answer: the step took too long and was aborted.
    pub aborted: bool,
    /// Answer: rows that did not run because their sequence had ended in an earlier step.
    pub rows_dropped: u32,
    /// Answer: the time at which the decode lane began.
    pub began: Micros,
    /// Answer: time in which there was work and the decode lane was idle, in microseconds.
    pub bubble_us: u32,
    /// Answer: time to find guesses, in microseconds.
    pub guess_us: u32,
    /// Answer: time inside the model, in microseconds. It includes the time in which the draft
    /// model reads prompts.
    pub decode_us: u32,
    /// Answer: time in the sampler, in microseconds, masks included.
    pub sample_us: u32,
    /// Answer: time spent on masks.
    pub masks_took: Duration,
    /// Answer: time to copy pages of the prefix store, in microseconds.
    pub pages_us: u32,
    /// Answer: time to save states, in microseconds.
    pub save_us: u32,
    /// Answer: time in which the slowest thread of the step waited for a core, in microseconds.
    pub queued_us: u32,
    /// Answer: estimated time of the decode lane's page faults, in microseconds.
    pub faults_us: u32,
    /// Answer: Rust heap allocations of the decode lane since the previous step.
    pub allocations: u32,
}

impl Batch {
    /// Empties the batch for its next use. It keeps its memory.
    pub fn clear(&mut self) {
        self.clears.clear();
        self.starts.clear();
        self.saves.clear();
        self.loads.clear();
        self.stores.clear();
        self.forgets.clear();
        assert!(self.masks.is_empty(), "the scheduler takes them back");
        self.rows.clear();
        self.decode_rows = 0;
        self.prefill_rows = 0;
        self.guessed_rows = 0;
        self.drafter_reads = false;
        self.threads = None;
        self.expected = None;
        self.samples.clear();
        self.logprobs.clear();
        self.scores.clear();
        self.failed.clear();
        self.least_left.clear();
        self.step_failed = false;
        self.aborted = false;
        self.rows_dropped = 0;
        self.began = Micros(0);
        self.bubble_us = 0;
        self.guess_us = 0;
        self.decode_us = 0;
        self.sample_us = 0;
        self.masks_max = None;
        self.masks_took = Duration::ZERO;
        self.save_us = 0;
        self.pages_us = 0;
        self.queued_us = 0;
        self.faults_us = 0;
        self.allocations = 0;
    }

    /// The last row of a slot, which is the one that samples. Rows are sorted by slot.
    pub fn last_row(&self, slot: SlotId) -> Option<&Row> {
        let behind = self.rows.partition_point(|row| row.owner.slot <= slot);
        self.rows[..behind].last().filter(|row| row.owner.slot == slot)
    }

    /// True once the masks of the step have taken [`Batch::masks_max`].
    pub fn masks_are_late(&self) -> bool {
        self.masks_max.is_some_and(|most| self.masks_took >= most)
    }

    /// True if the batch has no work for the decode lane.
    pub fn is_empty(&self) -> bool {
        self.clears.is_empty()
            && self.starts.is_empty()
            && self.forgets.is_empty()
            && self.loads.is_empty()
            && self.stores.is_empty()
            && self.saves.is_empty()
            && self.rows.is_empty()
    }
}

/// The start of a sequence in a slot, with a prefix that a slot holds; or its restart after a
/// failed step.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The slot and its new generation.
    pub owner: Owner,
    /// The slot that holds the prefix: the sequence's own slot or another one.
    pub source: SlotId,
    /// The position of the first row, which is the length of the prefix. Other tokens in the
    /// sequence's slot are forgotten.
    pub keep: Position,
    /// The state behind the prefix. `None` if that is the state of the slot, or if the
    /// model has no such state.
    pub checkpoint: Option<CheckpointId>,
    /// The prefix is all of the sequence, and the next token is sampled from these kept logits, without
    /// a row.
    pub logits: Option<CheckpointId>,
    /// Tokens of the prompt. Later tokens are generated.
    pub prompt_tokens: u32,
    /// The number of tokens at which the sequence ends, prompt included.
    pub tokens_max: u32,
    /// The limits of its guesses.
    pub guessing: Guessing,
    /// How to sample tokens.
    pub sampling: Sampling,
    /// The less common sampling options. Answer: those of the slot's previous sequence. The front
    /// lane drops them, because the decode lane frees nothing.
    pub advanced: Option<Arc<AdvancedSampling>>,
    /// Mirostat's `mu` after the previous token.
    pub mu: f32,
}

/// A page of the prefix store to copy into the slot of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The sequence's slot and generation.
    pub owner: Owner,
    /// The page.
    pub page: PageId,
    /// The position of its first token, which is the next one of the slot.
    pub from: Position,
    /// The position behind the last token to keep. The page may have more.
    pub to: Position,
    /// The state behind that token, with the last page of a sequence.
    pub checkpoint: Option<CheckpointId>,
}

/// Cells of a free slot to copy into a page of the prefix store. What was there is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePage {
    /// The slot.
    pub slot: SlotId,
    /// The position of the first token.
    pub from: Position,
    /// The position behind the last one.
    pub to: Position,
    /// The page.
    pub page: PageId,
    /// Answer: it was copied. Otherwise the slot has fewer tokens, because a step failed.
    pub is_made: bool,
}

/// What to save of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Save {
    /// The sequence's slot and generation.
    pub owner: Owner,
    /// The tokens before the state, or those whose last row has the logits.
    pub position: Position,
    /// What to save, and where. What was there is lost.
    pub what: SaveKind,
    /// Answer: it was saved. Otherwise the step failed, or the sequence had ended.
    pub is_made: bool,
}

/// What a [`Save`] saves, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveKind {
    /// The state.
    State(CheckpointId),
    /// The logits of the next token.
    Logits(CheckpointId),
}

impl Save {
    /// The place for a state.
    pub fn state(&self) -> Option<CheckpointId> {
        match self.what {
            SaveKind::State(place) => Some(place),
            SaveKind::Logits(_) => None,
        }
    }
}

/// A sequence that failed in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The sequence's slot and generation.
    pub owner: Owner,
    /// The position at which the sequence continues. Earlier tokens are in the KV cache.
    pub next: Position,
    /// Why it failed.
    pub reason: FailureReason,
}

/// Why a sequence failed in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The step failed, or what the sequence was to start with is not there.
    Step,
    /// The masks of the step had used up their time before this sequence's mask was computed.
    LateMask,
    /// The sequence was to start with some tokens of a slot whose window no longer reaches so far.
    LostWindow,
}

/// One token of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The slot and generation of the row's sequence.
    pub owner: Owner,
    /// The token's position in its sequence, or the lowest possible one if guesses in flight may
    /// move it. The decode lane compares it with its own count. Answer: the true position.
    pub position: Position,
    /// The token, or the place to take it from.
    pub input: Input,
    /// The use of the row's logits.
    pub logits: Logits,
    /// The guesses behind it.
    pub guesses: Guesses,
}

/// Guessed tokens behind a row. The decode lane makes the guesses, because the token of the row is
/// not known before. It runs them in the same step, samples behind each, and keeps a guess if the
/// sample before is the same token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guesses {
    /// Guesses granted in steps in flight. Each one that comes true moves the row's position by
    /// one.
    pub in_flight: u8,
    /// The most guesses from the text or forced by its constraint.
    pub granted: u8,
    /// The most guesses of the draft model, which is asked if the text gives none.
    pub drafts: u8,
    /// Answer: the number of guesses that ran.
    pub made: u8,
    /// Answer: their source.
    pub source: GuessSource,
}

impl Guesses {
    /// The most guesses from either source.
    pub fn most(&self) -> u8 {
        self.granted.max(self.drafts)
    }
}

/// The source of guesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuessSource {
    /// From the text or its constraint.
    #[default]
    Text,
    /// From the draft model.
    Draft,
    /// The draft model was asked, but has not read the whole text yet. It made no guess.
    Unread,
}

/// The source of a row's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A prompt token.
    Token(TokenId),
    /// The sequence's sample from the previous step, which had not run when this row was planned.
    Carry,
}

/// A sampled token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The slot and generation of the sequence.
    pub owner: Owner,
    /// The position of the row before the token.
    pub position: Position,
    /// The token.
    pub token: TokenId,
    /// The token ends the generation. The decode lane runs no further row of this sequence.
    pub end: bool,
    /// Why the sequence ends, if its constraint could not be followed any further. Its text breaks
    /// the constraint.
    pub broken: Option<Broken>,
    /// The index in the batch's `logprobs`, if the request asked for them.
    pub logprobs: Option<u16>,
    /// Mirostat's `mu` after this token. The scheduler keeps it, in case the sequence moves to
    /// another slot.
    pub mu: f32,
    /// The mask, if the decode lane computed one.
    pub mask: Option<MaskCost>,
}

impl Sample {
    /// A token of a text that goes on, without a constraint, log-probabilities or mirostat.
    pub fn plain(row: &Row, token: TokenId) -> Self {
        let Row { owner, position, .. } = *row;
        let (end, broken, logprobs, mask) = (false, None, None, None);
        Self { owner, position, token, end, broken, logprobs, mu: 0.0, mask }
    }
}

/// The log-probability of a prompt's token.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The slot and generation of the sequence.
    pub owner: Owner,
    /// The position of the row before the token.
    pub position: Position,
    /// The token.
    pub token: TokenId,
    /// Its log-probability, and the most probable tokens if the request asked for them.
    pub logprobs: TokenLogprobs,
}

/// The cost of a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskCost {
    /// Microseconds that it took.
    pub us: u32,
    /// The approximate bytes of the constraint's state after it.
    pub bytes: u32,
}

/// A constrained sequence whose masks the mask lane computes. It holds the state of the constraint.
/// It goes to the mask lane with new tokens and comes back with a mask, goes to the decode lane in
/// a batch and comes back with the batch, and then goes to the mask lane again.
#[derive(Debug, Default)]
pub struct MaskTask {
    /// The sequence. `None` once it has ended: the mask lane then frees the state.
    pub sequence: Option<SequenceId>,
    /// Its API key.
    pub key: KeyId,
    /// In a batch: its slot and generation.
    pub owner: Owner,
    /// The constraint.
    pub constraint: Option<Arc<Compiled>>,
    /// All tokens generated so far.
    pub generated: Vec<TokenId>,
    /// The state of the constraint. The mask lane makes it.
    pub walk: Option<Walk>,
    /// Answer: the tokens that may follow.
    pub allowed: Option<Allowed>,
    /// To the lane: the cost of the text's previous mask. Answer: the cost of this one.
    pub cost: MaskCost,
    /// Answer: why the constraint cannot be followed any further. Only an end token may follow.
    pub broken: Option<Broken>,
}

/// Log-probabilities (natural logarithm): the log-softmax of the model's raw logits over the whole
/// vocabulary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprobs {
    /// The log-probability of the sampled or scored token.
    pub logprob: f32,
    /// The most probable tokens, as many as requested, the most probable first.
    pub top: heapless::Vec<(TokenId, f32), TOP_LOGPROBS_MAX>,
}

impl TokenLogprobs {
    /// The least log-probability. It stands for a probability of 0, as in OpenAI's API, because
    /// JSON has no infinity.
    pub const MIN: f32 = -9999.0;
}
