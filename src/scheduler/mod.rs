//! Continuous batching: chooses the tokens of the next step.
//!
//! [`Scheduler::admit`] takes sequences in. [`Scheduler::schedule`] plans the next step.
//! [`Scheduler::complete`] takes the samples of a step. A step is planned while the previous one
//! runs, so a decode row has no token yet. It refers to the sample of the previous step instead.
//!
//! The whole policy:
//! - **Decode** Every running sequence whose prompt is computed gets one row in every step.
//!   Constrained texts whose masks take long wait for these outside of the steps (`constrained`).
//! - **Prefill** Prompt rows fill the step up to the bound on the time between two tokens
//!   ([`cost`], `prefill`), at least one row. The shortest prompt goes first; in one of four steps the oldest
//!   does.
//! - **Guesses** Decode rows may have guesses behind them: as many as bring the most tokens in a
//!   second, while nobody else waits much longer for the step (`guesses`).
//! - **Start** A waiting sequence gets a free slot when the KV cache has room for its known tokens
//!   and for a share of its future ones, besides the same for all running sequences. The lowest
//!   priority number goes first, then the key with the least service for its weight (`shares`),
//!   then the oldest. Other keys overtake the first one only for a claim, for a slot that is kept for
//!   them, or while it does not fit.
//! - **Reuse** A sequence starts with the longest prefix that a slot holds, kept or running. If a
//!   running sequence is about to compute a longer one, it waits for that (`reuse`).
//! - **Pressure** When cells run out, kept prefixes are evicted, the least useful first. After
//!   them the youngest running sequence of the lowest priority is preempted: it returns to the
//!   queue with its tokens (`pressure`).
//! - **Claims** Each key has its part of the slots and of the cells. A key that has less takes them
//!   from one that has more (`claims`).
//! - **Failure** After a failed step its sequences restart where they stood, in steps of half the
//!   rows, a few times at most (`complete`).
//!
//! **Invariant:** pure. Nothing here does I/O, reads a clock or draws a random number.
//! **Invariant:** two live sequences never hold the same slot. When a sequence starts in a slot,
//! the tokens in the slot are a prefix of that sequence.

mod capacity;
mod cells;
mod claims;
mod complete;
mod constrained;
pub mod cost;
mod curve;
mod event;
mod guesses;
mod lateness;
mod luck;
mod masks;
mod prefill;
mod prefix;
mod pressure;
mod reuse;
mod sequence;
mod shares;
mod slots;
mod tally;
mod thread_choice;
mod view;

use std::time::Duration;

use crate::limits::{QUEUE_SEQUENCES, SEQUENCES_MAX, SLOTS_MAX};
use crate::ring::message::{Batch, Guesses, Input, Row};
pub use crate::types::SequenceId;
use crate::types::{CacheScope, Calibration, KeyId, Logits, Owner, SlotId, Threads};
pub use capacity::{Capacity, Refusal};
use cells::Cells;
use cost::{Rows, StepCost};
pub use event::{Event, Finish};
pub use lateness::Lateness;
use luck::Luck;
use masks::Masks;
use prefix::Prefix;
pub use sequence::NewSequence;
use sequence::{Sequence, Sequences, State};
use shares::{Overtaken, Recent, Shares};
use slots::{Kept, Slots};
pub use tally::{Phase, SlotView, Tally};

/// See the module's description.
pub struct Scheduler {
    capacity: Capacity,
    sequences: Sequences,
    slots: Slots,
    cells: Cells,
    shares: Shares,
    cost: StepCost,
    masks: Masks,
    waiting: Vec<SequenceId>, // capacity SEQUENCES_MAX, in no order
    held: heapless::Vec<SequenceId, SLOTS_MAX>, // those with slots, oldest first
    /// Sequences that restart where they stood, after a failed step.
    restarts: heapless::Vec<SequenceId, SLOTS_MAX>,
    /// Most rows of a step. After failures it is less than `capacity.step_rows`.
    rows_max: usize,
    /// The step that is being planned has a copy from one slot to another.
    copied: bool,
    step: u64,
    /// The time that all steps have taken.
    ran: Duration,
    /// For each key, the slots that it had a moment ago.
    recent: Box<[Recent]>,
    /// The part of the granted guesses that were made of late.
    guesses_made: f64,
    /// How often guesses of the draft model came true of late, with which new sequences start.
    draft_luck: Luck,
    tally: Tally,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    pub fn new(capacity: Capacity) -> Self {
        assert!(capacity.slots <= capacity.step_rows, "every running sequence decodes in a step");
        assert!(capacity.queue_sequences <= QUEUE_SEQUENCES);
        assert!(capacity.sequence_tokens <= capacity.context_tokens);
        Self {
            sequences: Sequences::with_capacity(SEQUENCES_MAX),
            slots: Slots::new(capacity.slots, capacity.own_cells),
            cells: Cells::new(capacity.context_tokens, capacity.slots, capacity.own_cells),
            shares: Shares::new(&capacity.weights, capacity.queue_sequences, capacity.queue_tokens),
            cost: StepCost::new(!capacity.own_cells),
            masks: Masks::new(capacity.weights.len()),
            waiting: Vec::with_capacity(SEQUENCES_MAX),
            held: heapless::Vec::new(),
            restarts: heapless::Vec::new(),
            rows_max: capacity.step_rows,
            copied: false,
            step: 0,
            ran: Duration::ZERO,
            recent: vec![Recent::default(); capacity.weights.len()].into_boxed_slice(),
            guesses_made: 1.0,
            draft_luck: Luck::of_draft(),
            tally: Tally::default(),
            capacity,
        }
    }

    /// Admits all of `new`, or none of them. `assign` is called with the index of each in `new` and
    /// its id.
    ///
    /// # Errors
    /// [`Refusal`] says why there is no room.
    pub fn admit(
        &mut self,
        new: Vec<NewSequence>,
        mut assign: impl FnMut(usize, SequenceId),
    ) -> Result<(), Refusal> {
        let limit = self.capacity.queue_sequences;
        let ever = limit + self.capacity.slots;
        if new.len() > ever {
            return Err(Refusal::TooMany { sequences: new.len(), limit: ever });
        }
        let Some(key) = new.first().map(|first| first.key) else { return Ok(()) };
        let Shares { sequences, tokens, .. } = &self.shares;
        // Sequences that would start at once do not count against the queue.
        if sequences.held() + new.len() > sequences.limit(key) + self.slots.free_count() {
            let (waiting, limit) = (sequences.held_by(key), sequences.most(key));
            return Err(Refusal::QueueFull { waiting, limit });
        }
        let tokens_behind = |started: usize| -> usize {
            new.iter().skip(started).map(|sequence| sequence.prompt.len()).sum()
        };
        let limit = self.capacity.queue_tokens;
        let behind = tokens_behind(self.capacity.slots + 1);
        if behind > limit {
            return Err(Refusal::TooManyTokens { tokens: behind, limit });
        }
        // As above. An empty queue also takes one prompt of any length. If others wait already, the
        // free slots are theirs.
        let at_once = if sequences.held() == 0 { self.slots.free_count() + 1 } else { 0 };
        if tokens.held() + tokens_behind(at_once) > tokens.limit(key) {
            let (waiting, limit) = (tokens.held_by(key), tokens.most(key));
            return Err(Refusal::TokensFull { waiting, limit });
        }
        self.shares.arrive(key);
        for (index, sequence) in new.into_iter().enumerate() {
            self.assert_possible(&sequence);
            assert_eq!(sequence.key, key, "what comes together is one key's");
            self.shares.wait(key, sequence.prompt.len());
            let id = self.sequences.insert(sequence);
            self.waiting.push(id);
            assign(index, id);
        }
        Ok(())
    }

    /// Requests that can never run were refused when they were read.
    fn assert_possible(&self, sequence: &NewSequence) {
        let (prompt, max_tokens) = (sequence.prompt.len() as u64, u64::from(sequence.max_tokens));
        let limit = u64::from(self.capacity.sequence_tokens);
        assert!(prompt > 0, "an empty prompt was admitted");
        assert!(prompt + max_tokens <= limit, "{prompt} + {max_tokens} tokens; {limit} may be");
    }

    /// Plans the next step into an empty batch. Returns false if there is nothing to do; the batch
    /// is then still empty.
    pub fn schedule(&mut self, batch: &mut Batch) -> bool {
        assert!(batch.is_empty());
        self.step += 1;
        self.copied = false;
        for slot in self.slots.useless() {
            if self.cells.of(slot) > 0 {
                self.cells.truncate(slot, 0);
                batch.clears.push(slot).expect("one clear for each slot");
            }
        }
        batch.forgets.clone_from(&self.masks.forgets);
        self.masks.forgets.clear();
        self.make_room_to_decode(batch);
        let claimant = self.settle_claims(batch);
        self.restart(batch);
        self.end_following(batch);
        self.start_waiting(batch, claimant);
        self.plan_decode(batch);
        self.grant_guesses(batch);
        self.plan_prefill(batch);
        if batch.rows.is_empty() {
            self.free_a_standstill(batch);
        }
        if batch.is_empty() {
            return false;
        }
        // Rows are in the order of slots. If each sequence has a KV cache of its own, llama.cpp
        // computes only rows of neighbouring slots in this order together.
        batch.rows.sort_unstable_by_key(|row| (row.owner.slot, row.position));
        batch.step = self.step;
        // Many texts have few guesses, and other rows may need other threads.
        let guesses = f64::from(batch.guessed_rows) * self.guesses_made;
        batch.threads = self.cost.choose_threads(batch.rows.len() + guesses.round() as usize);
        true
    }

    /// Learns from the steps that ran at the start, before the first request.
    pub fn calibrate(&mut self, calibration: &Calibration) {
        self.cost.calibrate(calibration);
    }

    /// The compute threads of the last step, apart from trials, and the machine's slowdown.
    /// `None` before a calibration.
    pub fn threads(&self) -> Option<(Threads, f64)> {
        self.cost.threads()
    }

    /// Whether other programs slow the steps.
    pub fn is_busy(&self) -> bool {
        self.cost.is_busy()
    }

    /// Restarts the sequences of a failed step where they stood.
    fn restart(&mut self, batch: &mut Batch) {
        while let Some(id) = self.restarts.pop() {
            if !self.sequences.contains(id) {
                continue;
            }
            let sequence = self.sequences.get(id);
            if let State::Running(owner) = sequence.state {
                sequence.push_start(batch, owner.slot, sequence.planned);
            }
        }
    }

    /// Gives slots to waiting sequences in order, while there are slots and cells. `claimant` goes
    /// first. A sequence that does not fit holds up its own key; the others may overtake it for a
    /// while.
    fn start_waiting(&mut self, batch: &mut Batch, claimant: Option<SequenceId>) {
        let mut next = self.waiting.iter().position(|id| Some(*id) == claimant);
        let mut overtaken = Overtaken::new();
        while self.slots.free_count() > 0 {
            let first = next.take().or_else(|| self.first_for_a_free_slot(&overtaken));
            let Some(index) = first else { return };
            let id = self.waiting[index];
            let may_start = overtaken.is_empty() || self.may_overtake(id);
            let prefix = match self.prefix_if_it_fits(id) {
                Ok(prefix) if may_start => prefix,
                Err(cells) if overtaken.is_empty() && !self.may_be_overtaken(id, cells) => return,
                _ => match overtaken.push(self.sequences.get(id).asked.key) {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            if !self.start_one(batch, id, prefix) {
                return;
            }
            self.waiting.swap_remove(index);
            let sequence = self.sequences.get(id);
            self.shares.leave(sequence.asked.key, sequence.tokens.len());
        }
    }

    /// The cached prefix of a waiting sequence, if there are cells for the rest of it. Otherwise the
    /// cells that it needs.
    fn prefix_if_it_fits(&self, id: SequenceId) -> Result<Prefix, usize> {
        let prefix = self.find_prefix(id);
        let coming: usize = self.held.iter().map(|id| self.cells_coming(*id)).sum();
        let needed = self.sequences.get(id).cells_promised();
        let needed = needed - self.cells_shared(needed, prefix);
        let fits = self.cells.held() + coming + needed <= self.capacity.context_tokens as usize;
        if fits { Ok(prefix) } else { Err(needed) }
    }

    /// The index of the first waiting sequence for which `may_start` holds.
    fn first_waiting(&self, may_start: impl Fn(&Sequence) -> bool) -> Option<usize> {
        let order = |id: &SequenceId| {
            let sequence = self.sequences.get(*id);
            (sequence.asked.priority, self.shares.served(sequence.asked.key), sequence.admitted)
        };
        let smaller = |a: &(i32, f64, u64), b: &(i32, f64, u64)| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
        };
        (0..self.waiting.len())
            .filter(|index| may_start(self.sequences.get(self.waiting[*index])))
            .min_by(|a, b| smaller(&order(&self.waiting[*a]), &order(&self.waiting[*b])))
    }

    /// Gives a slot to a sequence, preferably one that holds a prefix of it. Returns false if it
    /// has to wait for the next step.
    fn start_one(&mut self, batch: &mut Batch, id: SequenceId, prefix: Prefix) -> bool {
        let key = self.sequences.get(id).asked.key;
        let free = self.free_slot(key).expect("there is a free slot");
        if let Some((leader, tokens)) = prefix.coming {
            let owner = self.take(free, id, 0);
            self.sequences.get_mut(id).state = State::Following { owner, leader, tokens };
            // Tokens that are still in the slot would take cells that nobody counts.
            self.sequences.get(id).push_start(batch, free, 0);
            return true;
        }
        let (source, tokens) = prefix.ready.unwrap_or((free, 0));
        // Take the slot that holds the prefix if it is free, unless most of its tokens would be
        // lost to later sequences.
        let is_free = self.slots.is_free(source);
        let in_place = is_free && 2 * tokens >= self.slots.kept_len(source);
        let place = if in_place { source } else { free };
        if place != source && !self.may_copy() {
            return false;
        }
        let owner = self.take(place, id, if place == source { tokens } else { 0 });
        self.start_running(batch, id, owner, source, tokens);
        true
    }

    /// Gives a free slot to `id`. The sequence reuses the first `reused` tokens that the slot kept.
    fn take(&mut self, slot: SlotId, id: SequenceId, reused: usize) -> Owner {
        self.tally.evicted_tokens += (self.slots.kept_len(slot) - reused) as u64;
        self.held.push(id).expect("one held slot for each slot");
        let sequence = self.sequences.get_mut(id);
        (sequence.started, sequence.draft_luck) = (self.step, self.draft_luck);
        self.cells.take(slot, reused, self.sequences.get(id).tokens_max());
        self.choose_mask_source(id);
        self.slots.take(slot, id)
    }

    fn decodes(&self, id: SequenceId) -> bool {
        let sequence = self.sequences.get(id);
        matches!(sequence.state, State::Running(_)) && sequence.rows_left() == 1
    }

    fn plan_decode(&mut self, batch: &mut Batch) {
        let mut decode = Rows::default();
        let decoding = self.held.iter().filter(|id| self.decodes(**id));
        decoding.for_each(|id| decode.add(self.sequences.get(*id).planned));
        self.evict(batch, decode.count);
        self.masks.planned = 0;
        batch.masks_max = self.masks_bound(decode);
        // There is room for all, except for sequences that started in this step.
        let mut room = self.cells.left().min(self.rows_max);
        for index in 0..self.held.len() {
            let id = self.held[index];
            if room > 0 && self.decodes(id) && self.take_mask(batch, id) {
                room -= 1;
                self.plan_row(batch, id);
            }
        }
    }

    /// Plans the next row of a sequence.
    fn plan_row(&mut self, batch: &mut Batch, id: SequenceId) {
        let sequence = self.sequences.get_mut(id);
        let logits = sequence.next_logits();
        let samples = logits == Logits::Sample;
        let input = match sequence.tokens.get(sequence.planned) {
            Some(token) => Input::Token(*token),
            None => Input::Carry,
        };
        let row = Row {
            owner: sequence.owner(),
            position: sequence.next_position(),
            input,
            logits,
            guesses: Guesses { in_flight: sequence.guessed as u8, ..Guesses::default() },
        };
        // The tokens that a preempted sequence had generated are computed like a prompt.
        if sequence.planned < sequence.prompt_tokens || !samples {
            batch.prefill_rows += 1;
            self.tally.prefilled_tokens += 1;
        } else {
            batch.decode_rows += 1;
        }
        sequence.planned += 1;
        sequence.in_flight += u32::from(samples);
        self.shares.serve(sequence.asked.key, 1.0);
        let cells = sequence.cells();
        self.grow(row.owner.slot, cells);
        batch.rows.push(row).expect("room was counted");
    }

    /// Gives a slot free cells until it has `cells`.
    fn grow(&mut self, slot: SlotId, cells: usize) {
        (self.cells.of(slot)..cells).for_each(|_| self.cells.grow(slot));
    }

    /// Ends a sequence on behalf of the caller. Does nothing if it has ended already.
    pub fn cancel(&mut self, id: SequenceId) {
        if self.sequences.contains(id) {
            self.release(id);
        }
    }

    fn release(&mut self, id: SequenceId) {
        let sequence = self.sequences.get(id);
        if !matches!(sequence.state, State::Waiting) {
            self.note_slots(sequence.asked.key);
        }
        let mut sequence = self.sequences.remove(id);
        match sequence.state {
            State::Waiting => {
                self.waiting.retain(|waiting| *waiting != id);
                self.shares.leave(sequence.asked.key, sequence.tokens.len());
            }
            State::Running(owner) | State::Following { owner, .. } => {
                let (cells, is_constrained) = (sequence.planned, sequence.is_constrained());
                sequence.tokens.truncate(cells);
                // Prefixes of a key that was removed are of no use.
                let key = sequence.asked.key;
                let may_return =
                    |scope: &CacheScope| scope.key != key || self.shares.has_place(key);
                let scope = sequence.asked.cache.filter(|_| self.capacity.reuse);
                let scope = scope.filter(may_return);
                let reused = 2 * sequence.cached >= sequence.prompt_tokens;
                let kept = scope.map(|scope| Kept { tokens: sequence.tokens, scope, reused });
                self.cells.release(owner.slot);
                self.slots.release(owner, kept, self.step);
                self.held.retain(|held| *held != id);
                if is_constrained {
                    self.drop_masks(owner.slot, sequence.masks);
                }
            }
        }
        if self.is_idle() {
            // Nothing is held, so all books must be empty.
            assert_eq!(self.shares.sequences.held(), 0, "nobody waits");
            assert_eq!(self.shares.tokens.held(), 0, "nor tokens");
            assert_eq!(self.slots.held_count(), 0, "slots held by nobody");
        }
    }

    /// A key was removed. Its place has no past for the next one: no prefixes, no charges and no
    /// slots of a moment ago. Sequences that it still has go on, and leave nothing behind.
    /// `has_own_cache` is false where all keys share the prefixes.
    pub fn forget(&mut self, key: KeyId, has_own_cache: bool) {
        self.shares.arrive(KeyId { generation: key.generation.saturating_add(1), ..key });
        self.recent[key.index()] = Recent::default();
        self.masks.distrust[key.index()] = 0;
        if has_own_cache {
            self.slots.forget(key);
        }
    }

    /// Whether there is one share alone.
    pub fn serves_one_key(&self) -> bool {
        self.capacity.weights.len() == 1
    }

    /// The waiting sequences.
    pub fn waiting(&self) -> impl Iterator<Item = (SequenceId, KeyId)> {
        self.waiting.iter().map(|id| (*id, self.sequences.get(*id).asked.key))
    }

    /// Sequences of a key that run, those that wait, and the cells that it holds.
    pub fn load(&self, key: KeyId) -> (usize, usize, usize) {
        let is_own = |id: &&SequenceId| self.sequences.get(**id).asked.key == key;
        let cells = |id: &SequenceId| self.cells.of(self.sequences.get(*id).owner().slot);
        let running = self.held.iter().filter(is_own);
        let waiting = self.waiting.iter().filter(is_own).count();
        (running.clone().count(), waiting, running.map(cells).sum())
    }

    /// The sequence that holds a slot in this generation.
    pub fn holder(&self, owner: Owner) -> Option<SequenceId> {
        self.slots.holder(owner)
    }

    /// Tokens of the prompt that were found in the KV cache.
    pub fn cached_tokens(&self, id: SequenceId) -> usize {
        self.sequences.get(id).cached
    }

    /// Tokens served to a key, divided by its weight.
    pub fn served_tokens(&self, key: KeyId) -> f64 {
        self.shares.served(key)
    }

    /// Sequences waiting for a slot.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Most sequences that may wait.
    pub fn queue_limit(&self) -> usize {
        self.capacity.queue_sequences
    }

    /// Sequences that hold a slot.
    pub fn running_count(&self) -> usize {
        self.held.len()
    }

    /// Sequences that could start in the next step.
    pub fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    /// True when no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }
}
