//! A model without weights, for tests. It is deterministic, takes microseconds per step, and panics
//! if it is used wrongly.
//!
//! The next token is a hash of all tokens before it. So a sequence's text depends only on its own
//! prompt, and [`continuation`] can compute it without slots, batches or positions. However the
//! scheduler runs a sequence, its text must equal that continuation.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Backend, DecodeRow, StepError};
use crate::abort::StepAbort;
use crate::random::mix;
use crate::types::{Logits, Position, SlotId, TokenId};

/// The fake vocabulary: one token for each byte, and [`END`].
pub const N_VOCAB: usize = 257;
/// The end-of-generation token.
pub const END: TokenId = 256;

/// The behaviour of a fake model.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeOptions {
    /// One row in this many is followed by [`END`]; 0 means never.
    pub end_one_in: u64,
    /// The least time of a step.
    pub step: Duration,
    /// One step in this many fails; 0 means never.
    pub fail_one_in: u64,
    /// The number of further failures right after each such step.
    pub fail_more: u64,
    /// It has a recurrent state.
    pub is_recurrent: bool,
    /// Most tokens by which that state can go back, behind a step with rows of its slot alone.
    pub rollback: usize,
    /// Most tokens by which the sliding windows of all slots together can go back, beside the rows of
    /// the last step; 0 if it has no window.
    pub window: usize,
    /// One step in this many hangs until it is aborted; 0 means never.
    pub hang_one_in: u64,
    /// The number of further hangs right after each such step.
    pub hang_more: u64,
    /// A hang ignores the abort flag.
    pub hangs_for_good: bool,
    /// One step in this many panics; 0 means never.
    pub panic_one_in: u64,
    /// Phrases that it writes, each from start to end, one after another; none is empty. `None`
    /// writes printable ASCII.
    pub phrases: Option<&'static [&'static [u8]]>,
}

impl FakeOptions {
    /// Whether a slot has a state beside its cells.
    pub fn has_state(&self) -> bool {
        self.is_recurrent || self.window > 0
    }
}

/// The state of a sequence.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    /// The hash of all its tokens.
    hash: u64,
    /// The cell of its last token; no other token has this number.
    cell: u64,
    /// The current phrase.
    phrase: usize,
    /// Bytes of the phrase already written.
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

    /// Writes it, without its cell.
    fn write(self, to: &mut [u8]) {
        let numbers = [self.hash, self.phrase as u64, self.said as u64];
        to.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(to, n)| *to = n.to_le_bytes());
    }

    fn read(from: &[u8]) -> Self {
        let [phrase, said] = [8, 16].map(|at| number(&from[at..][..8]) as usize);
        Self { hash: number(&from[..8]), cell: 0, phrase, said }
    }

    /// The next token.
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
    /// Cells written so far.
    cells: u64,
    context_tokens: usize,
    slots: Box<[Vec<Tail>]>, // [slots][tokens]: the state after each token
    /// The state of each slot, and the number of tokens before it.
    states: Box<[(usize, Tail)]>, // [slots]
    /// Tokens by which the state of each slot can go back now.
    undo: Box<[usize]>, // [slots]
    logits: Box<[f32]>,      // [rows_max, N_VOCAB]
    sampled: Box<[bool]>,    // [rows_max]: whether a row of the last step has logits
    fails_next: Option<StepError>,
    abort: Arc<StepAbort>,
}

impl FakeModel {
    /// A model with `slots` slots that share `context_tokens` cells, and with steps of at most
    /// `rows_max` rows.
    pub fn new(slots: usize, context_tokens: usize, rows_max: usize, options: FakeOptions) -> Self {
        Self {
            options,
            steps: 0,
            cells: 0,
            context_tokens,
            slots: (0..slots).map(|_| Vec::new()).collect(),
            states: vec![Default::default(); slots].into_boxed_slice(),
            undo: vec![0; slots].into_boxed_slice(),
            sampled: vec![false; rows_max].into_boxed_slice(),
            logits: vec![0.0; rows_max * N_VOCAB].into_boxed_slice(),
            fails_next: None,
            abort: Arc::default(),
        }
    }

    /// Sets the abort flag that hanging steps watch.
    pub fn with_abort(self, abort: Arc<StepAbort>) -> Self {
        Self { abort, ..self }
    }

    /// Makes the next step fail with this error. As in a real model, some of its rows may be
    /// stored.
    pub fn fail_next(&mut self, error: StepError) {
        self.fails_next = Some(error);
    }

    /// The number of steps so far.
    pub fn calls(&self) -> u64 {
        self.steps
    }

    /// Tokens in one slot.
    pub fn tokens_in(&self, slot: SlotId) -> usize {
        self.slots[slot.index()].len()
    }

    /// Forgets cells of windows that rows of the last step do not need, while there are too many.
    fn slide_windows(&mut self, rows: &[DecodeRow]) {
        let in_step = |slot: usize| rows.iter().filter(|row| row.slot.index() == slot).count();
        loop {
            let spare = (0..self.undo.len()).map(|slot| (self.undo[slot] - in_step(slot), slot));
            if spare.clone().map(|(spare, _)| spare).sum::<usize>() <= self.options.window {
                return;
            }
            let (spare, slot) = spare.max().expect("there are slots");
            self.undo[slot] -= spare.div_ceil(2);
        }
    }

    /// Cells in use: one for each token of a slot. Copies of a prefix share cells.
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

    fn begin_step(&mut self, step: u64) {
        self.abort.begin(step);
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
        if is_one(hang_one_in, hang_more) {
            while self.options.hangs_for_good || !self.abort.is_given_up() {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err(StepError::Aborted);
        }
        let one = is_one(fail_one_in, fail_more).then_some(StepError::Failed(-1));
        let failure = self.fails_next.take().or(one);
        self.sampled.fill(false);
        if self.options.window == 0 {
            self.undo.fill(0);
        }
        let tokens: usize = self.slots.iter().map(Vec::len).sum();
        // The exact count is slow, and is needed only if shared cells could make the difference.
        if tokens + rows.len() > self.context_tokens
            && self.tokens_held() + rows.len() > self.context_tokens
        {
            return Err(StepError::NoRoom);
        }
        let stored = if failure.is_some() { rows.len() / 2 } else { rows.len() };
        for (index, row) in rows[..stored].iter().enumerate() {
            let slot = &mut self.slots[row.slot.index()];
            assert_eq!(row.position.index(), slot.len(), "positions of a slot are consecutive");
            let before = if self.options.has_state() {
                let (tokens, state) = self.states[row.slot.index()];
                assert_eq!(tokens, slot.len(), "the state stands behind all tokens of the slot");
                state
            } else {
                slot.last().copied().unwrap_or_default()
            };
            let tail = before.absorb(row.token, &self.options);
            self.cells += 1;
            slot.push(Tail { cell: self.cells, ..tail });
            self.states[row.slot.index()] = (slot.len(), tail);
            self.undo[row.slot.index()] += usize::from(self.options.window > 0);
            self.sampled[index] = row.logits != Logits::None;
            if self.sampled[index] {
                let logits = &mut self.logits[index * N_VOCAB..][..N_VOCAB];
                logits.fill(0.0);
                logits[tail.next(&self.options) as usize] = 20.0;
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if self.options.window > 0 {
            self.slide_windows(rows);
        } else if let Some(DecodeRow { slot, .. }) = rows.first()
            && rows.iter().all(|row| row.slot == *slot)
        {
            self.undo[slot.index()] = (rows.len() - 1).min(self.options.rollback);
        }
        Ok(())
    }

    fn logits(&mut self, row: usize) -> &mut [f32] {
        assert!(self.sampled[row], "row {row} of the last step asked for no logits");
        &mut self.logits[row * N_VOCAB..][..N_VOCAB]
    }

    fn copy(&mut self, from: SlotId, to: SlotId, tokens: Position, with_state: bool) -> bool {
        assert!(self.slots[to.index()].is_empty(), "a copy goes into an empty slot");
        let copied = &self.slots[from.index()][..tokens.index()];
        let last = copied.last().copied().filter(|_| self.options.window > 0);
        self.slots[to.index()] = copied.to_vec();
        self.states[to.index()] = match last {
            _ if !with_state => Default::default(),
            Some(last) => (tokens.index(), last), // a window stands behind any token
            None => self.states[from.index()],
        };
        !with_state || self.least_left(from).is_none_or(|least| least <= tokens)
    }

    fn least_left(&self, slot: SlotId) -> Option<Position> {
        let (tokens, _) = self.states[slot.index()];
        let least = tokens - self.undo[slot.index()];
        // Behind loaded pages there is no state.
        let is_lost = tokens < self.slots[slot.index()].len();
        let least = if is_lost { u32::MAX } else { least as u32 }; // at most `context_tokens`
        (self.options.window > 0).then_some(Position(least))
    }

    fn truncate(&mut self, slot: SlotId, from: Position) -> bool {
        let tokens = &mut self.slots[slot.index()];
        let state = &mut self.states[slot.index()];
        let undo = &mut self.undo[slot.index()];
        assert!(from.index() <= tokens.len(), "what is not there cannot be kept");
        if from == Position(0) {
            (*state, *undo) = Default::default();
        } else if self.options.has_state() && state.0 > from.index() {
            if state.0 - from.index() > *undo {
                return false;
            }
            *undo = if self.options.window > 0 { *undo - (state.0 - from.index()) } else { 0 };
            *state = (from.index(), tokens[from.index() - 1]);
        }
        tokens.truncate(from.index());
        true
    }

    fn save(&mut self, slot: SlotId, state: &mut [u8]) -> usize {
        let (tokens, tail) = self.states[slot.index()];
        assert_eq!(tokens, self.slots[slot.index()].len());
        let (count, rest) = state.split_at_mut(8);
        count.copy_from_slice(&(tokens as u64).to_le_bytes());
        tail.write(rest);
        STATE_BYTES
    }

    fn restore(&mut self, slot: SlotId, state: &[u8], tokens: Position) -> bool {
        let (count, rest) = state.split_at(8);
        let (count, state) = (number(count), Tail::read(rest));
        let place = &mut self.slots[slot.index()];
        place.truncate(tokens.index());
        let last = place.last().expect("a state behind at least one token");
        assert_eq!(count, tokens.index() as u64, "the state stands behind these tokens");
        assert_eq!(state.hash, last.hash, "the state of other tokens");
        (self.states[slot.index()], self.undo[slot.index()]) = ((tokens.index(), state), 0);
        true
    }

    fn store_page(&mut self, slot: SlotId, positions: Range<Position>, page: &mut [u8]) -> usize {
        let tokens = &self.slots[slot.index()];
        let (from, to) = (positions.start.index(), positions.end.index());
        let before = from.checked_sub(1).map(|last| tokens[last]).unwrap_or_default();
        let length = page_bytes(to - from);
        let places = page[..length].chunks_exact_mut(TAIL_BYTES);
        let tails = std::iter::once(&before).chain(&tokens[from..to]);
        places.zip(tails).for_each(|(place, tail)| tail.write(place));
        length
    }

    fn load_page(&mut self, slot: SlotId, page: &[u8]) -> bool {
        let mut tails = page.chunks_exact(TAIL_BYTES).map(Tail::read);
        let before = tails.next().expect("a page has a state before it");
        let last = self.slots[slot.index()].last().copied().unwrap_or_default();
        assert_eq!(last.hash, before.hash, "a page behind other tokens");
        if self.tokens_held() + tails.len() > self.context_tokens {
            return false;
        }
        for tail in tails {
            self.cells += 1;
            self.slots[slot.index()].push(Tail { cell: self.cells, ..tail });
        }
        if self.options.has_state() {
            (self.states[slot.index()], self.undo[slot.index()]) = Default::default();
        }
        true
    }
}

/// The bytes of a [`Tail`].
const TAIL_BYTES: usize = 24;

/// The bytes of a saved state.
pub const STATE_BYTES: usize = 8 + TAIL_BYTES;

/// The bytes of a page of `tokens` tokens: the state before it, and those after its tokens.
pub fn page_bytes(tokens: usize) -> usize {
    (tokens + 1) * TAIL_BYTES
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// The greedy continuation of `prompt`: at most `max` tokens, the last of which is [`END`] if the
/// text ends by itself.
pub fn continuation(prompt: &[TokenId], max: usize, end_one_in: u64) -> Vec<TokenId> {
    continuation_with(&FakeOptions { end_one_in, ..FakeOptions::default() }, prompt, max)
}

/// Like [`continuation`], for a model with these options.
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

/// The hash after one more token.
fn absorb(hash: u64, token: TokenId) -> u64 {
    mix(hash ^ u64::from(token.cast_unsigned()))
}
