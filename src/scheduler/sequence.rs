//! A sequence in the scheduler, and the table of all sequences.

use std::sync::Arc;

use super::disk_state::Fetch;
use super::luck::Luck;
use super::masks::MaskSource;
use super::tuning::{MAKE_WAY_SHARE, PROMISED_CELLS_MAX, PROMISED_SHARE, SHARED_STOPS_MAX};
use crate::constraint::Compiled;
use crate::limits::BRANCHES_MAX;
use crate::ring::message::{Batch, Start};
use crate::sampling::AdvancedSampling;
use crate::types::{
    CacheScope, CheckpointId, Guessing, KeyId, Logits, Owner, PageId, Position, Sampling,
    SequenceId, SlotId, TokenId,
};

/// A sequence to be admitted.
#[derive(Clone, Debug)]
pub struct NewSequence {
    /// The prompt, at least one token.
    pub prompt: Arc<[TokenId]>,
    /// The most tokens to generate. 0 only computes the prompt, for the KV cache.
    pub max_tokens: u32,
    /// How to choose them.
    pub sampling: Sampling,
    /// Sampling with the less common options.
    pub advanced: Option<Arc<AdvancedSampling>>,
    /// The priority; a lower number goes first.
    pub priority: i32,
    /// The API key of the request.
    pub key: KeyId,
    /// Whether to compute the log-probability of each prompt token but the first.
    pub scores_prompt: bool,
    /// The part of the prefix cache that it starts from, and keeps its tokens in. `None` computes
    /// the whole prompt, and keeps nothing.
    pub cache: Option<CacheScope>,
    /// How many of its tokens may be guessed.
    pub guessing: Guessing,
    /// The slot that it takes if that is free and keeps no text of another key. Slots with caches of
    /// their own are not chosen so.
    pub slot: Option<SlotId>,
    /// The numbers of first tokens behind which later prompts probably part from this one.
    pub branches: heapless::Vec<u32, BRANCHES_MAX>,
}

impl NewSequence {
    /// A sequence of the first key, with priority 0, with reuse and without guesses.
    pub fn new(prompt: Arc<[TokenId]>, max_tokens: u32, sampling: Sampling) -> Self {
        let (advanced, key, cache) = (None, KeyId::at(0), Some(CacheScope::default()));
        let (priority, scores_prompt, guessing) = (0, false, Guessing::default());
        Self {
            prompt,
            max_tokens,
            sampling,
            advanced,
            priority,
            key,
            scores_prompt,
            cache,
            guessing,
            slot: None,
            branches: heapless::Vec::new(),
        }
    }
}

/// A live sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The prompt, followed by every sample that came back.
    pub tokens: Vec<TokenId>,
    pub prompt_tokens: usize,
    /// The request. Its prompt has moved to `tokens`.
    pub asked: NewSequence,
    /// Mirostat's `mu` after the last token that came back.
    pub mu: f32,
    pub state: Stage,
    /// The number of its admission: a lower one is older.
    pub admitted: u64,
    /// Rows planned so far, or found in the KV cache, without guesses of steps in flight. This is
    /// the least position of the next row.
    pub planned: usize,
    /// Samples planned and not yet returned, without those behind guesses.
    pub in_flight: u32,
    /// Guesses granted in steps in flight. If some come true, the next row is up to this many
    /// positions after `planned`.
    pub guessed: usize,
    /// How often guesses from its text come true.
    pub luck: Luck,
    /// How often the draft model's guesses come true.
    pub draft_luck: Luck,
    /// Scores of the prompt that came back.
    pub scored: usize,
    /// Tokens of the prompt found in the KV cache.
    pub cached: usize,
    /// Those of them that came from the prefix store.
    pub restored: usize,
    /// Failed steps in a row.
    pub failures: u32,
    /// The step in which it got its slot.
    pub started: u64,
    /// The step that samples its next token from kept logits, if it started so.
    pub sampled_in: u64,
    /// How often it was preempted for another key's claim.
    pub made_way: u32,
    /// Its number of tokens at the last such preemption.
    pub made_way_at: usize,
    /// Steps in which it was first in the queue and did not fit.
    pub overtaken: u32,
    /// Where its masks come from.
    pub masks: MaskSource,
    /// The pages of the prefix store that it starts with, until they are copied.
    pub loads: Option<Loads>,
    /// It was to start with some tokens of a slot, whose window did not reach so far
    /// ([`super::windows`]).
    pub avoids_windows: bool,
    /// It has no tokens since, and goes back to the queue.
    pub starts_again: bool,
    /// The KV cache had no room for its pages of the prefix store.
    pub avoids_store: bool,
    /// The files that it waits for.
    pub fetch: Option<Fetch>,
    /// The files were looked through for it.
    pub looked_up: bool,
    /// Tokens of its prompt that came from files; [`Sequence::restored`] has them, too.
    pub fetched: usize,
    /// The numbers of first tokens that other sequences share.
    pub shared: heapless::Vec<u32, SHARED_STOPS_MAX>,
}

/// Pages of the prefix store that a sequence starts with.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    pub pages: Vec<PageId>,
    /// The page to copy next.
    pub next: usize,
    /// The tokens of the sequence when all are copied.
    pub tokens: usize,
    /// The state behind them, and the number of its save.
    pub checkpoint: Option<(CheckpointId, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue.
    Waiting,
    /// Holds a slot, and waits until `leader` has computed the first `tokens` tokens, which both
    /// share.
    Following { owner: Owner, leader: SequenceId, tokens: usize },
    /// Holds a slot, and has rows in steps.
    Running(Owner),
}

impl Sequence {
    /// Whether its text must keep to a constraint.
    pub fn is_constrained(&self) -> bool {
        self.asked.advanced.as_ref().is_some_and(|asked| asked.constraint.is_some())
    }

    /// The most KV cells that the sequence may need.
    pub fn tokens_max(&self) -> usize {
        self.prompt_tokens + self.asked.max_tokens as usize
    }

    /// The most rows that run for it. The decode lane drops a row of the last token, which is planned
    /// if guesses come true that nobody counted on.
    pub fn rows_max(&self) -> usize {
        self.prompt_tokens.max(self.tokens_max() - 1)
    }

    /// The constraint that its text must keep to.
    pub fn constraint(&self) -> Option<&Arc<Compiled>> {
        self.asked.advanced.as_ref()?.constraint.as_ref()
    }

    /// Counts tokens as cached only up to its planned rows, after it has lost some.
    pub fn lose_cached(&mut self) {
        let lost = self.cached.saturating_sub(self.planned);
        self.cached -= lost;
        self.restored = self.restored.saturating_sub(lost); // the last ones came from the store
        self.fetched = self.fetched.min(self.restored);
    }

    /// The KV cells of its planned rows, and of the guesses in flight.
    pub fn cells(&self) -> usize {
        (self.planned + self.guessed).min(self.tokens_max())
    }

    /// Tokens generated and returned.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Whether it has generated enough since it was last preempted for a claim; see
    /// [`MAKE_WAY_SHARE`].
    pub fn has_gone_on(&self) -> bool {
        self.tokens.len() > self.made_way_at + self.made_way_at / MAKE_WAY_SHARE
    }

    /// Rows that could be planned now: known tokens without a row, and the sample in flight. 1 is a
    /// decode row; more are prefill.
    pub fn rows_left(&self) -> usize {
        if self.asked.max_tokens == 0 {
            return self.prompt_tokens - self.planned;
        }
        if self.generated() + self.in_flight as usize == self.asked.max_tokens as usize {
            return 0; // its last sample is on the way
        }
        // With two samples in flight, the older one is the input of the younger one's row.
        self.tokens.len() + self.in_flight as usize - self.planned
    }

    /// Whether its next row scores a token of the prompt.
    pub fn scores_next(&self) -> bool {
        let is_inside = self.planned + 1 < self.prompt_tokens;
        self.asked.scores_prompt && is_inside && self.planned >= self.scored
    }

    /// The number of first tokens that need not run if the KV cache holds them.
    pub fn reusable(&self) -> usize {
        let scores = self.asked.scores_prompt && self.scored + 1 < self.prompt_tokens;
        if scores { self.scored } else { self.tokens.len() - 1 }
    }

    /// Whether its next token may be sampled from kept logits, without a row. A constrained one needs
    /// a mask.
    pub fn may_start_whole(&self) -> bool {
        self.asked.max_tokens > 0 && !self.asked.scores_prompt && !self.is_constrained()
    }

    /// After a preemption, the rows before the next unscored token: they run again without scores.
    /// `usize::MAX` if there are none.
    pub fn rows_unscored(&self) -> usize {
        let again = self.asked.scores_prompt && self.planned < self.scored;
        if again { self.scored - self.planned } else { usize::MAX }
    }

    /// The use of the next row's logits.
    pub fn next_logits(&self) -> Logits {
        if self.scores_next() {
            return Logits::Score(self.tokens[self.planned + 1]);
        }
        let samples = self.rows_left() == 1 && self.asked.max_tokens > 0;
        if samples { Logits::Sample } else { Logits::None }
    }

    /// KV cells that must be free for the sequence to start: its known tokens, and a share of the
    /// future ones.
    pub fn cells_promised(&self) -> usize {
        let left = self.asked.max_tokens as usize - self.generated();
        self.tokens.len() + left.div_ceil(PROMISED_SHARE).min(PROMISED_CELLS_MAX)
    }

    /// The position of its next row.
    pub fn next_position(&self) -> Position {
        Position(self.planned as u32) // at most tokens_max, checked on admission
    }

    /// Adds the sequence's start to a batch. It keeps the first `keep` tokens of slot `source`.
    /// `checkpoint` is the state behind them, if that is not the slot's own. If these are all of its
    /// tokens, the next one is sampled from kept `logits`.
    pub fn push_start(
        &self,
        batch: &mut Batch,
        source: SlotId,
        keep: usize,
        checkpoint: Option<CheckpointId>,
        logits: Option<CheckpointId>,
    ) {
        let start = Start {
            owner: self.owner(),
            source,
            keep: Position(keep as u32), // below sequence_tokens
            checkpoint,
            logits,
            prompt_tokens: self.prompt_tokens as u32, // as above
            tokens_max: self.tokens_max() as u32,     // as above
            guessing: self.asked.guessing,
            sampling: self.asked.sampling,
            advanced: self.asked.advanced.clone(),
            mu: self.mu,
        };
        batch.starts.push(start).expect("one start for each slot");
    }

    pub fn owner(&self) -> Owner {
        match self.state {
            Stage::Running(owner) | Stage::Following { owner, .. } => owner,
            Stage::Waiting => panic!("a waiting sequence holds no slot"),
        }
    }
}

/// All live sequences, in a table that never grows.
pub(super) struct Sequences {
    entries: Vec<Entry>,
    free: Vec<u32>,
    admitted: u64,
}

struct Entry {
    serial: u32,
    sequence: Option<Sequence>,
}

impl Sequences {
    pub fn with_capacity(capacity: usize) -> Self {
        let entries = (0..capacity).map(|_| Entry { serial: 0, sequence: None }).collect();
        let free = (0..capacity as u32).rev().collect(); // SEQUENCES_MAX, far below 2^32
        Self { entries, free, admitted: 0 }
    }

    pub fn insert(&mut self, mut asked: NewSequence) -> SequenceId {
        let index =
            self.free.pop().expect("admission leaves room for every slot and waiting place");
        let entry = &mut self.entries[index as usize];
        let tokens = asked.prompt.to_vec();
        asked.prompt = Arc::default();
        entry.sequence = Some(Sequence {
            prompt_tokens: tokens.len(),
            tokens,
            mu: asked.advanced.as_ref().map_or(0.0, |advanced| advanced.first_mu()),
            asked,
            state: Stage::Waiting,
            admitted: self.admitted,
            planned: 0,
            in_flight: 0,
            guessed: 0,
            luck: Luck::of_text(),
            draft_luck: Luck::of_draft(),
            scored: 0,
            cached: 0,
            restored: 0,
            failures: 0,
            started: 0,
            sampled_in: 0,
            made_way: 0,
            made_way_at: 0,
            overtaken: 0,
            masks: MaskSource::DecodeLane { us: 0 },
            loads: None,
            avoids_windows: false,
            starts_again: false,
            avoids_store: false,
            fetch: None,
            looked_up: false,
            fetched: 0,
            shared: heapless::Vec::new(),
        });
        self.admitted += 1;
        SequenceId { index, serial: entry.serial }
    }

    pub fn remove(&mut self, id: SequenceId) -> Sequence {
        let entry = &mut self.entries[id.index()];
        assert_eq!(entry.serial, id.serial, "removal of a sequence that has ended");
        entry.serial = entry.serial.wrapping_add(1);
        self.free.push(id.index);
        entry.sequence.take().expect("the serial matched")
    }

    pub fn contains(&self, id: SequenceId) -> bool {
        let entry = &self.entries[id.index()];
        entry.serial == id.serial && entry.sequence.is_some()
    }

    pub fn get(&self, id: SequenceId) -> &Sequence {
        assert!(self.contains(id), "use of a sequence that has ended");
        self.entries[id.index()].sequence.as_ref().expect("checked above")
    }

    pub fn get_mut(&mut self, id: SequenceId) -> &mut Sequence {
        assert!(self.contains(id), "use of a sequence that has ended");
        self.entries[id.index()].sequence.as_mut().expect("checked above")
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
