//! One sequence in the scheduler's books, and the table of all of them.

use crate::types::{Owner, Position, Sampling, TokenId};

/// What a caller asks for.
#[derive(Clone, Debug)]
pub struct NewSequence {
    /// The prompt; at least one token.
    pub prompt: Box<[TokenId]>,
    /// The number of tokens to generate at most; at least one.
    pub max_tokens: u32,
    /// How to choose them.
    pub sampling: Sampling,
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
    pub prompt: Box<[TokenId]>,
    pub max_tokens: u32,
    pub sampling: Sampling,
    pub state: State,
    /// Prompt tokens put into steps so far.
    pub prompt_planned: usize,
    /// Rows put into steps whose sample becomes a token of this sequence.
    pub samples_planned: u32,
    /// Samples that came back.
    pub samples_received: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running(Owner),
}

impl Sequence {
    /// KV cells that it may come to need.
    pub fn tokens_max(&self) -> u32 {
        self.prompt.len() as u32 + self.max_tokens // checked on admission
    }

    pub fn prompt_left(&self) -> usize {
        self.prompt.len() - self.prompt_planned
    }

    pub fn samples_left(&self) -> u32 {
        self.max_tokens - self.samples_planned
    }

    /// Where its next row goes: after the planned prompt, and after each
    /// planned sample but the newest, which is that row's own input.
    pub fn next_position(&self) -> Position {
        Position(self.prompt_planned as u32 + self.samples_planned.saturating_sub(1))
    }

    pub fn owner(&self) -> Owner {
        match self.state {
            State::Running(owner) => owner,
            State::Waiting => panic!("a waiting sequence holds no slot"),
        }
    }
}

/// All live sequences, in a table that never grows.
pub(super) struct Sequences {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

struct Entry {
    serial: u32,
    sequence: Option<Sequence>,
}

impl Sequences {
    pub fn with_capacity(capacity: usize) -> Self {
        let entries = (0..capacity).map(|_| Entry { serial: 0, sequence: None }).collect();
        let free = (0..capacity as u32).rev().collect(); // SEQUENCES_MAX, far below 2^32
        Self { entries, free }
    }

    pub fn insert(&mut self, new: NewSequence) -> SequenceId {
        let index =
            self.free.pop().expect("admission leaves room for every slot and waiting place");
        let entry = &mut self.entries[index as usize];
        entry.sequence = Some(Sequence {
            prompt: new.prompt,
            max_tokens: new.max_tokens,
            sampling: new.sampling,
            state: State::Waiting,
            prompt_planned: 0,
            samples_planned: 0,
            samples_received: 0,
        });
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
