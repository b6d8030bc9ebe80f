//! One sequence in the scheduler's books, and the table of all of them.

use std::sync::Arc;

use crate::ring::message::{Batch, Start};
use crate::sampling::AdvancedSampling;
use crate::types::{KeyId, Owner, Position, Sampling, SlotId, TokenId};

/// When a sequence starts, this part of the cells that its generation may need must be free:
/// one in four. It is preempted if they turn out too few.
const PROMISED_SHARE: usize = 4;

/// What a caller asks for.
#[derive(Clone, Debug)]
pub struct NewSequence {
    /// The prompt; at least one token.
    pub prompt: Box<[TokenId]>,
    /// The number of tokens to generate at most. 0 computes the prompt alone, for the KV cache.
    pub max_tokens: u32,
    /// How to choose them.
    pub sampling: Sampling,
    /// What few ask for.
    pub advanced: Option<Arc<AdvancedSampling>>,
    /// Lower goes first.
    pub priority: i32,
    /// Whose request it is.
    pub key: KeyId,
    /// Take what the KV cache already has of the prompt, and leave there what
    /// it comes to hold.
    pub cache: bool,
}

impl NewSequence {
    /// A sequence as most are: of no key and no priority, and with the KV cache's
    /// help.
    pub fn new(prompt: Box<[TokenId]>, max_tokens: u32, sampling: Sampling) -> Self {
        let (advanced, key) = (None, KeyId(0));
        Self { prompt, max_tokens, sampling, advanced, priority: 0, key, cache: true }
    }
}

/// Names a sequence while it lives. Ids of ended sequences never match again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId {
    index: u32,
    serial: u32,
}

impl SequenceId {
    /// The sequence's place in tables of `limits::SEQUENCES_MAX`, its own while
    /// it lives.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A live sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The prompt, and behind it every sample that came back.
    pub tokens: Vec<TokenId>,
    pub prompt_tokens: usize,
    /// The request, without its prompt, which stands in `tokens`.
    pub asked: NewSequence,
    /// Mirostat's, after the last token that came back.
    pub mu: f32,
    pub state: State,
    /// Admissions are counted: the lower, the older.
    pub admitted: u64,
    /// Rows put into steps so far, or found in the KV cache: the next position.
    pub planned: usize,
    /// Samples that steps were asked for and that have not come back.
    pub in_flight: u32,
    /// Tokens of its prompt that were found in the KV cache.
    pub cached: usize,
    /// Steps in a row that failed with it.
    pub failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the queue.
    Waiting,
    /// Holds a slot, and waits until `leader` has computed the first `tokens`
    /// of what both begin with.
    Following { owner: Owner, leader: SequenceId, tokens: usize },
    /// Holds a slot, and has rows in steps.
    Running(Owner),
}

impl Sequence {
    /// KV cells that it may come to need.
    pub fn tokens_max(&self) -> usize {
        self.prompt_tokens + self.asked.max_tokens as usize
    }

    /// Tokens that it generated, and that came back.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Rows that could be planned now: known tokens that no step has had, and
    /// the sample that comes back before the next step. 1 is decoding, more is
    /// prefill.
    pub fn rows_left(&self) -> usize {
        if self.asked.max_tokens == 0 {
            return self.prompt_tokens - self.planned;
        }
        if self.generated() + self.in_flight as usize == self.asked.max_tokens as usize {
            return 0; // its last sample is on the way
        }
        // Of two samples in flight, the older is the row of the younger.
        self.tokens.len() + self.in_flight as usize - self.planned
    }

    /// KV cells that it should find free to run on for a while: all that is
    /// known, and a part of what may come.
    pub fn cells_promised(&self) -> usize {
        let left = self.asked.max_tokens as usize - self.generated();
        self.tokens.len() + left.div_ceil(PROMISED_SHARE)
    }

    /// The position of its next row.
    pub fn next_position(&self) -> Position {
        Position(self.planned as u32) // at most tokens_max, checked on admission
    }

    /// Puts its start into a batch, with `keep` tokens of those that `source` holds.
    pub fn push_start(&self, batch: &mut Batch, source: SlotId, keep: usize) {
        let start = Start {
            owner: self.owner(),
            source,
            keep: Position(keep as u32), // below sequence_tokens
            prompt_tokens: self.prompt_tokens as u32, // as above
            sampling: self.asked.sampling,
            advanced: self.asked.advanced.clone(),
            mu: self.mu,
        };
        batch.starts.push(start).expect("one start for each slot");
    }

    pub fn owner(&self) -> Owner {
        match self.state {
            State::Running(owner) | State::Following { owner, .. } => owner,
            State::Waiting => panic!("a waiting sequence holds no slot"),
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
        let tokens = std::mem::take(&mut asked.prompt).into_vec();
        entry.sequence = Some(Sequence {
            prompt_tokens: tokens.len(),
            tokens,
            mu: asked.advanced.as_ref().map_or(0.0, |advanced| advanced.first_mu()),
            asked,
            state: State::Waiting,
            admitted: self.admitted,
            planned: 0,
            in_flight: 0,
            cached: 0,
            failures: 0,
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
