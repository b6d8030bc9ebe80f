//! A model without weights, for tests: deterministic, microseconds a step,
//! and strict about how it is used.
//!
//! The next token follows from a hash of all tokens before it, so a sequence's text
//! depends on its own prompt alone. [`continuation`] computes the same text
//! without slots, batches or positions; whatever the scheduler does to a
//! sequence, the two must agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Backend, DecodeRow, StepError};
use crate::random::mix;
use crate::types::{Position, SlotId, TokenId};

/// Tokens of the fake vocabulary: one for each byte, and [`END`].
pub const N_VOCAB: usize = 257;
/// The end-of-generation token.
pub const END: TokenId = 256;

/// How a fake model behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeOptions {
    /// One row in so many is followed by [`END`]; 0 never ends.
    pub end_one_in: u64,
    /// How long a step takes, at least.
    pub step: Duration,
    /// One step in so many fails; 0 never fails.
    pub fail_one_in: u64,
    /// And so many more right behind it.
    pub fail_more: u64,
    /// It cannot forget a part of a sequence, as recurrent models cannot.
    pub forgets_whole: bool,
    /// One step in so many hangs until it is given up; 0 never does.
    pub hang_one_in: u64,
    /// And so many more right behind it.
    pub hang_more: u64,
    /// And it cannot be given up.
    pub hangs_for_good: bool,
    /// One step in so many panics; 0 never does.
    pub panic_one_in: u64,
    /// Bytes that it says whole, one such after another, and none of them empty; `None`
    /// says printable ASCII.
    pub phrases: Option<&'static [&'static [u8]]>,
}

/// How far a sequence is.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    /// Of all its tokens.
    hash: u64,
    /// The cell of its last token: a number that no other token gets.
    cell: u64,
    /// The phrase that comes or goes on.
    phrase: usize,
    /// Bytes of it that have been said.
    said: usize,
}

impl Tail {
    fn absorb(self, token: TokenId, options: &FakeOptions) -> Self {
        let hash = absorb(self.hash, token);
        let Some(phrases) = options.phrases else { return Self { hash, ..self } };
        let current = phrases[self.phrase];
        let said = self.said + 1;
        if TokenId::from(current[self.said]) == token && said < current.len() {
            return Self { hash, said, ..self };
        }
        Self { hash, phrase: (hash % phrases.len() as u64) as usize, said: 0, ..self }
    }

    /// The token that follows.
    fn next(self, options: &FakeOptions) -> TokenId {
        let Self { hash, phrase, said, .. } = self;
        if options.end_one_in != 0 && (hash >> 32).is_multiple_of(options.end_one_in) {
            return END;
        }
        match options.phrases {
            Some(phrases) => phrases[phrase][said].into(),
            None => TokenId::from(b' ') + (hash % 95) as TokenId, // at most 126
        }
    }
}

/// The fake model.
pub struct FakeModel {
    options: FakeOptions,
    steps: u64,
    /// Cells that were written so far.
    cells: u64,
    context_tokens: usize,
    slots: Box<[Vec<Tail>]>, // [slots][tokens]: how it goes on after each token
    logits: Box<[f32]>,      // [rows_max, N_VOCAB]
    sampled: Box<[bool]>,    // [rows_max]: which rows of the last step have logits
    fails_next: Option<StepError>,
    abort: Arc<AtomicBool>,
}

impl FakeModel {
    /// A model with `slots` slots, `context_tokens` cells shared by them, and
    /// steps of at most `rows_max` rows.
    pub fn new(slots: usize, context_tokens: usize, rows_max: usize, options: FakeOptions) -> Self {
        Self {
            options,
            steps: 0,
            cells: 0,
            context_tokens,
            slots: (0..slots).map(|_| Vec::new()).collect(),
            sampled: vec![false; rows_max].into_boxed_slice(),
            logits: vec![0.0; rows_max * N_VOCAB].into_boxed_slice(),
            fails_next: None,
            abort: Arc::default(),
        }
    }

    /// A step that hangs looks at this flag.
    pub fn with_abort(self, abort: Arc<AtomicBool>) -> Self {
        Self { abort, ..self }
    }

    /// The next step fails like this, after some of its rows were stored, as a real
    /// one may.
    pub fn fail_next(&mut self, error: StepError) {
        self.fails_next = Some(error);
    }

    /// Steps that it was asked to run.
    pub fn calls(&self) -> u64 {
        self.steps
    }

    /// Tokens held by one slot.
    pub fn tokens_in(&self, slot: SlotId) -> usize {
        self.slots[slot.index()].len()
    }

    /// Cells in use: one for each token of a slot; copies of a beginning share theirs.
    pub fn tokens_held(&self) -> usize {
        let mut cells: Vec<u64> = self.slots.iter().flatten().map(|tail| tail.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        cells.len()
    }
}

impl Backend for FakeModel {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn decode(&mut self, rows: &[DecodeRow]) -> Result<(), StepError> {
        self.steps += 1;
        let FakeOptions { step, fail_one_in, fail_more, .. } = self.options;
        let FakeOptions { hang_one_in, hang_more, .. } = self.options;
        let steps = self.steps;
        let is_one = |one_in, more| one_in != 0 && steps >= one_in && steps % one_in <= more;
        if !step.is_zero() {
            std::thread::sleep(step);
        }
        assert!(!is_one(self.options.panic_one_in, 0), "the fake model was told to panic");
        self.abort.store(false, Ordering::Relaxed);
        if is_one(hang_one_in, hang_more) {
            while self.options.hangs_for_good || !self.abort.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err(StepError::Aborted);
        }
        let one = is_one(fail_one_in, fail_more).then_some(StepError::Failed(-1));
        let failure = self.fails_next.take().or(one);
        self.sampled.fill(false);
        let tokens: usize = self.slots.iter().map(Vec::len).sum();
        // Counting cells takes long, and only shared ones make a difference.
        if tokens + rows.len() > self.context_tokens
            && self.tokens_held() + rows.len() > self.context_tokens
        {
            return Err(StepError::NoRoom);
        }
        let stored = if failure.is_some() { rows.len() / 2 } else { rows.len() };
        for (index, row) in rows[..stored].iter().enumerate() {
            let slot = &mut self.slots[row.slot.index()];
            assert_eq!(row.position.index(), slot.len(), "positions of a slot are consecutive");
            let tail = slot.last().copied().unwrap_or_default().absorb(row.token, &self.options);
            self.cells += 1;
            slot.push(Tail { cell: self.cells, ..tail });
            self.sampled[index] = row.sample;
            if row.sample {
                let logits = &mut self.logits[index * N_VOCAB..][..N_VOCAB];
                logits.fill(0.0);
                logits[tail.next(&self.options) as usize] = 20.0;
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn logits(&mut self, row: usize) -> &mut [f32] {
        assert!(self.sampled[row], "row {row} of the last step asked for no logits");
        &mut self.logits[row * N_VOCAB..][..N_VOCAB]
    }

    fn copy(&mut self, from: SlotId, to: SlotId, tokens: Position) -> Position {
        assert!(self.slots[to.index()].is_empty(), "a copy goes into an empty slot");
        self.slots[to.index()] = self.slots[from.index()][..tokens.index()].to_vec();
        tokens
    }

    fn truncate(&mut self, slot: SlotId, from: Position) -> Position {
        let tokens = &mut self.slots[slot.index()];
        assert!(from.index() <= tokens.len(), "what is not there cannot be kept");
        if self.options.forgets_whole && from.index() < tokens.len() {
            tokens.clear();
            return Position(0);
        }
        tokens.truncate(from.index());
        from
    }
}

/// What a [`FakeModel`] continues `prompt` with, greedily: at most `max`
/// tokens, the last of them [`END`] if it ends by itself.
pub fn continuation(prompt: &[TokenId], max: usize, end_one_in: u64) -> Vec<TokenId> {
    continuation_with(&FakeOptions { end_one_in, ..FakeOptions::default() }, prompt, max)
}

/// The same, of one that behaves as told.
pub fn continuation_with(options: &FakeOptions, prompt: &[TokenId], max: usize) -> Vec<TokenId> {
    let absorb = |tail: Tail, token: &TokenId| tail.absorb(*token, options);
    let mut tail = prompt.iter().fold(Tail::default(), absorb);
    let mut tokens = Vec::new();
    while tokens.len() < max {
        let token = tail.next(options);
        tokens.push(token);
        if token == END {
            break;
        }
        tail = tail.absorb(token, options);
    }
    tokens
}

/// The running hash with one more token.
fn absorb(hash: u64, token: TokenId) -> u64 {
    mix(hash ^ u64::from(token.cast_unsigned()))
}
