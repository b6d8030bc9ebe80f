//! Which tokens run in the next step: continuous batching.
//!
//! [`Scheduler::admit`] takes sequences in, [`Scheduler::schedule`] plans the
//! next step, [`Scheduler::complete`] takes a step's samples. A step is planned
//! while the one before it runs, so a decoding row carries no token: it says
//! "what this sequence samples in the step before".
//!
//! Policy, in full: every running sequence that has its prompt behind it
//! decodes in every step. What room is left goes to prompts, oldest first, and
//! at most `prefill_tokens_beside_decode` of it while others decode. A waiting
//! sequence starts as soon as a slot is free and the KV cache has room for all
//! that it may ever need.
//!
//! **Invariant:** pure. Nothing here does I/O, reads a clock or draws a random
//! number.
//! **Invariant:** two live sequences never hold the same slot, and a slot is
//! handed out again only in a batch that clears it first.

pub mod sequence;
pub mod slots;

use std::collections::VecDeque;

use crate::limits::{QUEUE_SEQUENCES, SEQUENCES_MAX};
use crate::ring::message::{Batch, Input, Row, Start};
use crate::types::{Owner, Position, TokenId};
pub use sequence::{NewSequence, SequenceId};
use sequence::{Sequences, State};
use slots::Slots;

/// The room that the scheduler has to give.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Sequences that run at once.
    pub slots: usize,
    /// Rows of one step.
    pub step_rows: usize,
    /// Prompt rows of a step in which others decode.
    pub prefill_tokens_beside_decode: usize,
    /// KV cells, all slots together.
    pub context_tokens: u32,
    /// Tokens of one sequence, prompt and generated.
    pub sequence_tokens: u32,
    /// Sequences that wait.
    pub queue_sequences: usize,
    /// Prompt tokens that wait.
    pub queue_tokens: usize,
}

/// Why sequences were not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue has no room for all of them now.
    QueueFull {
        /// Sequences waiting.
        waiting: usize,
        /// The queue's bound.
        limit: usize,
    },
    /// The queue has no room for all of their tokens now.
    TokensFull {
        /// Prompt tokens waiting.
        waiting: usize,
        /// The queue's bound.
        limit: usize,
    },
}

/// What became of a sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It goes on with this token.
    Token(SequenceId, TokenId),
    /// It is over. The id is free for another sequence.
    Finished(SequenceId, Finish),
}

/// How a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// With an end-of-generation token, which is not part of its text.
    End,
    /// With as many tokens as it asked for.
    Length,
    /// The step that it was in failed.
    Failed,
}

/// See the module's description.
pub struct Scheduler {
    capacity: Capacity,
    sequences: Sequences,
    slots: Slots,
    waiting: VecDeque<SequenceId>, // capacity SEQUENCES_MAX
    running: heapless::Vec<SequenceId, { crate::limits::SLOTS_MAX }>, // oldest first
    /// KV cells promised to running sequences.
    reserved_tokens: u32,
    /// Prompt tokens of waiting sequences.
    waiting_tokens: usize,
    step: u64,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(capacity: Capacity) -> Self {
        assert!(capacity.slots <= capacity.step_rows, "every running sequence decodes in a step");
        assert!(capacity.queue_sequences <= QUEUE_SEQUENCES);
        assert!(capacity.sequence_tokens <= capacity.context_tokens);
        Self {
            capacity,
            sequences: Sequences::with_capacity(SEQUENCES_MAX),
            slots: Slots::new(capacity.slots),
            waiting: VecDeque::with_capacity(SEQUENCES_MAX),
            running: heapless::Vec::new(),
            reserved_tokens: 0,
            waiting_tokens: 0,
            step: 0,
        }
    }

    /// Takes in all of `new`, or none of them: the check and the admission are
    /// one step. `assign` is told the id of each, by its place in `new`.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn admit(
        &mut self,
        new: Vec<NewSequence>,
        mut assign: impl FnMut(usize, SequenceId),
    ) -> Result<(), Refusal> {
        let limit = self.capacity.queue_sequences;
        // Sequences that would start at once do not count against the queue.
        if self.waiting.len() + new.len() > limit + self.slots.free_count() {
            return Err(Refusal::QueueFull { waiting: self.waiting.len(), limit });
        }
        let new_tokens: usize = new.iter().map(|sequence| sequence.prompt.len()).sum();
        let limit = self.capacity.queue_tokens;
        if self.waiting_tokens + new_tokens > limit {
            return Err(Refusal::TokensFull { waiting: self.waiting_tokens, limit });
        }
        for (index, sequence) in new.into_iter().enumerate() {
            self.assert_possible(&sequence);
            let id = self.sequences.insert(sequence);
            self.waiting.push_back(id);
            assign(index, id);
        }
        self.waiting_tokens += new_tokens;
        Ok(())
    }

    /// What can never run was refused where the request was read.
    fn assert_possible(&self, sequence: &NewSequence) {
        let (prompt, max_tokens) = (sequence.prompt.len() as u64, u64::from(sequence.max_tokens));
        let limit = u64::from(self.capacity.sequence_tokens);
        assert!(prompt > 0, "an empty prompt was admitted");
        assert!(max_tokens > 0, "a sequence of no tokens was admitted");
        assert!(prompt + max_tokens <= limit, "{prompt} + {max_tokens} tokens; {limit} may be");
    }

    /// Plans the next step into an empty batch. False when there is nothing to
    /// do, in which case the batch is still empty.
    pub fn schedule(&mut self, batch: &mut Batch) -> bool {
        assert!(batch.is_empty());
        self.slots.clear_released(|owner| {
            batch.clears.push(owner).expect("one clear for each slot");
        });
        self.start_waiting(batch);
        self.plan_decode(batch);
        self.plan_prefill(batch);
        if batch.is_empty() {
            return false;
        }
        // In the order of slots: with a KV cache for each sequence, llama.cpp computes
        // together only rows of neighbouring slots that come in this order.
        batch.rows.sort_unstable_by_key(|row| (row.owner.slot, row.position));
        self.step += 1;
        batch.step = self.step;
        true
    }

    /// Gives slots to waiting sequences, in order, while there are slots and
    /// cells.
    fn start_waiting(&mut self, batch: &mut Batch) {
        while let Some(id) = self.waiting.front().copied() {
            let sequence = self.sequences.get_mut(id);
            let needed = sequence.tokens_max();
            if self.reserved_tokens + needed > self.capacity.context_tokens {
                return;
            }
            let Some(owner) = self.slots.take(id) else { return };
            self.reserved_tokens += needed;
            self.waiting_tokens -= sequence.prompt.len();
            sequence.state = State::Running(owner);
            batch
                .starts
                .push(Start {
                    owner,
                    prompt_tokens: sequence.prompt.len() as u32, // checked on admission
                    sampling: sequence.sampling,
                })
                .expect("one start for each slot");
            self.running.push(id).expect("one running sequence for each slot");
            self.waiting.pop_front();
        }
    }

    fn plan_decode(&mut self, batch: &mut Batch) {
        for id in &self.running {
            let sequence = self.sequences.get_mut(*id);
            if sequence.prompt_left() > 0 || sequence.samples_left() == 0 {
                continue;
            }
            let position = sequence.next_position();
            sequence.samples_planned += 1;
            let row = Row { owner: sequence.owner(), position, input: Input::Carry, sample: true };
            batch.rows.push(row).expect("slots fit into a step");
        }
    }

    fn plan_prefill(&mut self, batch: &mut Batch) {
        let mut room = self.capacity.step_rows - batch.rows.len();
        if !batch.rows.is_empty() {
            room = room.min(self.capacity.prefill_tokens_beside_decode);
        }
        for id in &self.running {
            let sequence = self.sequences.get_mut(*id);
            let take = sequence.prompt_left().min(room);
            for _ in 0..take {
                let index = sequence.prompt_planned;
                sequence.prompt_planned += 1;
                let sample = sequence.prompt_left() == 0;
                sequence.samples_planned += u32::from(sample);
                let row = Row {
                    owner: sequence.owner(),
                    position: Position(index as u32), // checked on admission
                    input: Input::Token(sequence.prompt[index]),
                    sample,
                };
                batch.rows.push(row).expect("room was counted");
            }
            room -= take;
        }
    }

    /// Takes a step's answers, and tells `event` what became of each sequence
    /// in it.
    pub fn complete(&mut self, batch: &Batch, mut event: impl FnMut(Event)) {
        for sample in &batch.samples {
            // A late message for a sequence that is gone.
            let Some(id) = self.slots.holder(sample.owner) else { continue };
            let sequence = self.sequences.get_mut(id);
            sequence.samples_received += 1;
            assert!(
                sequence.samples_received <= sequence.samples_planned,
                "{} samples came back, {} were planned",
                sequence.samples_received,
                sequence.samples_planned,
            );
            if sample.end {
                self.release(id);
                event(Event::Finished(id, Finish::End));
                continue;
            }
            event(Event::Token(id, sample.token));
            // `event` may not cancel: the caller does so after this call.
            let sequence = self.sequences.get_mut(id);
            if sequence.samples_received == sequence.max_tokens {
                self.release(id);
                event(Event::Finished(id, Finish::Length));
            }
        }
        for owner in &batch.failed {
            if let Some(id) = self.slots.holder(*owner) {
                self.release(id);
                event(Event::Finished(id, Finish::Failed));
            }
        }
    }

    /// Ends a sequence for a reason of the caller's. Its slot is cleared in
    /// the next step planned. Does nothing when it has ended already.
    pub fn cancel(&mut self, id: SequenceId) {
        if self.sequences.contains(id) {
            self.release(id);
        }
    }

    fn release(&mut self, id: SequenceId) {
        let sequence = self.sequences.remove(id);
        match sequence.state {
            State::Waiting => {
                self.waiting.retain(|waiting| *waiting != id);
                self.waiting_tokens -= sequence.prompt.len();
            }
            State::Running(owner) => {
                self.slots.release(owner);
                self.running.retain(|running| *running != id);
                self.reserved_tokens -= sequence.tokens_max();
            }
        }
        if self.is_idle() {
            // The whole pool's accounting, whenever nothing holds any of it.
            assert_eq!(self.reserved_tokens, 0, "KV cells reserved by nobody");
            assert_eq!(self.waiting_tokens, 0, "tokens waiting for nobody");
            assert_eq!(self.slots.held_count(), 0, "slots held by nobody");
        }
    }

    /// The sequence that holds a slot under this very generation.
    pub fn holder(&self, owner: Owner) -> Option<SequenceId> {
        self.slots.holder(owner)
    }

    /// KV cells promised to running sequences, in tokens.
    pub fn reserved_tokens(&self) -> u32 {
        self.reserved_tokens
    }

    /// Sequences waiting for a slot.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that hold a slot.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// Sequences that could start in the next step.
    pub fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    /// True when no sequence waits or runs. Slots may still have to be cleared.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Compares the books with what they describe. For tests, after each step.
    ///
    /// # Panics
    /// When they disagree.
    pub fn check(&self) {
        assert_eq!(self.sequences.len(), self.waiting.len() + self.running.len());
        let mut reserved = 0;
        let mut owners: Vec<Owner> = Vec::new();
        for id in &self.running {
            let sequence = self.sequences.get(*id);
            let owner = sequence.owner();
            assert_eq!(self.slots.holder(owner), Some(*id), "the slot knows its holder");
            assert!(!owners.iter().any(|o| o.slot == owner.slot), "one holder for each slot");
            owners.push(owner);
            reserved += sequence.tokens_max();
            assert!(sequence.next_position().0 <= sequence.tokens_max());
        }
        assert_eq!(reserved, self.reserved_tokens, "the whole reservation is accounted for");
        assert!(reserved <= self.capacity.context_tokens);
        assert_eq!(self.slots.held_count(), self.running.len());
        for id in &self.waiting {
            assert_eq!(self.sequences.get(*id).state, State::Waiting);
        }
    }
}
