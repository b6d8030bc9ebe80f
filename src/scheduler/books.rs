//! The scheduler's books: the sequences, and the slots and cells that each of them holds.
//!
//! The functions here keep the books consistent with each other, and choose nothing but the compute
//! threads.

use std::time::Duration;

use super::capacity::Capacity;
use super::cells::Cells;
use super::cost::StepCost;
use super::disk_state::Disk;
use super::luck::Luck;
use super::masks::Masks;
use super::sequence::{Sequences, Stage};
use super::shares::{Recent, Shares};
use super::slot_state::SlotTasks;
use super::slots::{Kept, Slots};
use super::store::Store;
use super::tally::Tally;
use super::tuning::{SLOT_KEPT_STEPS, SLOT_KEPT_TIME};
use super::windows::Windows;
use crate::fair::Turns;
use crate::limits::{QUEUE_SEQUENCES, SEQUENCES_MAX, SLOTS_MAX};
use crate::ring::message::{Batch, Guesses, Input, Row, Save, SaveKind};
use crate::types::{CacheScope, KeyId, Logits, SequenceId, SlotId};

/// See the module's description.
pub(super) struct Books {
    pub capacity: Capacity,
    pub sequences: Sequences,
    pub slots: Slots,
    pub cells: Cells,
    pub windows: Windows,
    pub shares: Shares,
    /// The prompt rows that each key got. Keys take turns by them ([`super::prefill`]).
    pub prompt_turns: Turns,
    pub store: Store,
    /// The files of the store, if it has any.
    pub disk: Option<Disk>,
    pub slot_tasks: SlotTasks,
    pub cost: StepCost,
    pub masks: Masks,
    pub waiting: Vec<SequenceId>, // capacity SEQUENCES_MAX, in no order
    pub held: heapless::Vec<SequenceId, SLOTS_MAX>, // those with slots, oldest first
    /// Sequences that failed, and restart or go back to the queue.
    pub restarts: heapless::Vec<SequenceId, SLOTS_MAX>,
    /// Most rows of a step. After failures it is less than `capacity.step_rows`.
    pub rows_max: usize,
    /// The step that is being planned has a copy from one slot to another.
    pub copied: bool,
    pub step: u64,
    /// The last step that was given to the decode lane, and the last one that came back.
    pub sent: u64,
    pub returned: u64,
    /// The time that all steps have taken.
    pub ran: Duration,
    /// For each key, the slots that it held recently.
    pub recent: Box<[Recent]>,
    /// The share of the granted guesses that the decode lane made, as a moving average over steps.
    pub guesses_made: f64,
    /// How often the draft model's guesses came true recently, over all sequences. A sequence that
    /// starts begins with this estimate.
    pub draft_luck: Luck,
    /// The time to save a state, of the last step that saved any.
    pub save_took: Duration,
    /// The time to copy a page of the prefix store, of the last step that copied any.
    pub page_took: Option<Duration>,
    pub tally: Tally,
}

impl Books {
    /// Books without sequences.
    pub fn new(capacity: Capacity) -> Self {
        assert!(capacity.slots <= capacity.step_rows, "every running sequence decodes in a step");
        assert!(capacity.queue_sequences <= QUEUE_SEQUENCES);
        assert!(capacity.sequence_tokens <= capacity.context_tokens);
        assert!(capacity.pages.count == 0 || !capacity.own_cells, "pages are of one cache");
        Self {
            sequences: Sequences::with_capacity(SEQUENCES_MAX),
            slots: Slots::new(capacity.slots, capacity.own_cells),
            cells: Cells::new(
                capacity.context_tokens,
                capacity.slots,
                capacity.own_cells,
                capacity.states.map_or(0, |states| states.checkpoints),
                capacity.logits,
            ),
            windows: Windows::new(capacity.slots),
            shares: Shares::new(&capacity.weights, capacity.queue_sequences, capacity.queue_tokens),
            prompt_turns: Turns::new(&capacity.weights),
            store: Store::new(capacity.pages.count, capacity.pages.tokens)
                .with_names(capacity.files.map(|sizes| sizes.seed)),
            disk: capacity.files.map(|sizes| Disk::new(sizes, capacity.pages.count)),
            slot_tasks: SlotTasks::default(),
            cost: StepCost::new(capacity.is_ragged()),
            masks: Masks::new(capacity.weights.len()),
            waiting: Vec::with_capacity(SEQUENCES_MAX),
            held: heapless::Vec::new(),
            restarts: heapless::Vec::new(),
            rows_max: capacity.step_rows,
            copied: false,
            step: 0,
            sent: 0,
            returned: 0,
            ran: Duration::ZERO,
            recent: vec![Recent::default(); capacity.weights.len()].into_boxed_slice(),
            guesses_made: 1.0,
            draft_luck: Luck::of_draft(),
            save_took: Duration::ZERO,
            page_took: None,
            tally: Tally::default(),
            capacity,
        }
    }

    /// Begins to plan a step: counts it, and tells the decode lane to clear free slots that keep no
    /// prefix, and constraint states that no sequence needs.
    pub fn begin_step(&mut self, batch: &mut Batch) {
        assert!(batch.is_empty());
        self.step += 1;
        self.copied = false;
        // States that sequences will load must stay.
        for index in 0..self.held.len() {
            let loads = self.sequences.get(self.held[index]).loads.as_ref();
            if let Some((state, serial)) = loads.and_then(|loads| loads.checkpoint)
                && self.cells.checkpoints.position(state, serial).is_some()
            {
                self.cells.checkpoints.touch(state, self.step);
            }
        }
        for slot in self.slots.useless() {
            if self.cells.of(slot) > 0 {
                self.cells.truncate(slot, 0);
                batch.clears.push(slot).expect("one clear for each slot");
            }
        }
        batch.forgets.clone_from(&self.masks.forgets);
        self.masks.forgets.clear();
    }

    /// Ends the plan of a step: puts its rows in order, and chooses its threads. Returns false if
    /// the step has nothing to do.
    pub fn end_step(&mut self, batch: &mut Batch) -> bool {
        if batch.is_empty() {
            return false;
        }
        // If each sequence has a KV cache of its own, llama.cpp computes only rows of neighbouring
        // slots in this order together.
        batch.rows.sort_unstable_by_key(|row| (row.owner.slot, row.position));
        (batch.step, self.sent) = (self.step, self.step);
        // Count only the guesses that will probably be made: the best threads depend on the rows.
        let guesses = f64::from(batch.guessed_rows) * self.guesses_made;
        batch.threads = self.cost.choose_threads(batch.rows.len() + guesses.round() as usize);
        true
    }

    /// Whether a sequence runs and has one row left: the next row of its text, or the last of its
    /// prompt. Not in the step that samples from kept logits.
    pub fn decodes(&self, id: SequenceId) -> bool {
        let sequence = self.sequences.get(id);
        let runs = matches!(sequence.state, Stage::Running(_)) && sequence.loads.is_none();
        runs && sequence.rows_left() == 1 && sequence.sampled_in < self.step
    }

    /// Plans the next row of a sequence.
    pub fn plan_row(&mut self, batch: &mut Batch, id: SequenceId) {
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

    /// Saves the state of a running sequence behind its planned rows. Returns false if there is no
    /// place for it.
    pub fn save_state(&mut self, batch: &mut Batch, id: SequenceId) -> bool {
        let sequence = self.sequences.get(id);
        let slot = sequence.owner().slot;
        let place = self.cells.checkpoints.save(slot, sequence.planned, self.step);
        self.push_save(batch, id, place.map(SaveKind::State));
        place.is_some()
    }

    /// Keeps the logits of the last planned row of a running sequence. They save one row, whatever the
    /// prompt was, so those that were not used for longest make room.
    pub fn keep_logits(&mut self, batch: &mut Batch, id: SequenceId) {
        let sequence = self.sequences.get(id);
        let slot = sequence.owner().slot;
        let place = self.cells.logits.save_worth(slot, sequence.planned, 1, self.step);
        self.push_save(batch, id, place.map(SaveKind::Logits));
    }

    fn push_save(&self, batch: &mut Batch, id: SequenceId, what: Option<SaveKind>) {
        let Some(what) = what else { return };
        let sequence = self.sequences.get(id);
        let (owner, position) = (sequence.owner(), sequence.next_position());
        let save = Save { owner, position, what, is_made: false };
        batch.saves.push(save).expect("at most three states and the logits of each slot");
    }

    /// Gives a slot free cells until it has `cells`.
    pub fn grow(&mut self, slot: SlotId, cells: usize) {
        (self.cells.of(slot)..cells).for_each(|_| self.cells.grow(slot));
    }

    /// Evicts kept prefixes until `rows` cells are free.
    pub fn evict(&mut self, batch: &mut Batch, rows: usize) {
        while self.cells.left() < rows {
            let Some(slot) = self.slots.evict(self.step) else { return };
            self.tally.evicted_tokens += self.cells.of(slot) as u64;
            self.cells.truncate(slot, 0);
            batch.clears.push(slot).expect("one clear for each slot");
        }
    }

    /// Lets a sequence load no further pages of the prefix store.
    pub fn drop_loads(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(id);
        if let Some(loads) = sequence.loads.take() {
            sequence.lose_cached();
            self.store.unpin(&loads.pages);
        }
    }

    /// Keeps no pages any longer for a sequence that waited for files, and starts or ends.
    pub fn end_fetch(&mut self, id: SequenceId) {
        if let Some(fetch) = self.sequences.get_mut(id).fetch.take() {
            self.store.unpin(&fetch.pages);
        }
    }

    /// Ends a sequence: it leaves its slot and the books. Its tokens stay in the slot, as a prefix
    /// for later sequences.
    pub fn release(&mut self, id: SequenceId) {
        let sequence = self.sequences.get(id);
        if !matches!(sequence.state, Stage::Waiting) {
            self.note_slots(sequence.asked.key);
        }
        // Its state comes with the last page.
        let lacks_state = self.capacity.states.is_some() && self.sequences.get(id).loads.is_some();
        self.drop_loads(id);
        self.end_fetch(id);
        let mut sequence = self.sequences.remove(id);
        match sequence.state {
            Stage::Waiting => {
                self.waiting.retain(|waiting| *waiting != id);
                self.shares.leave(sequence.asked.key, sequence.tokens.len());
            }
            Stage::Running(owner) | Stage::Following { owner, .. } => {
                let is_constrained = sequence.is_constrained();
                let rows_max = sequence.rows_max();
                let cells = sequence.planned.min(rows_max);
                sequence.tokens.truncate(cells);
                // Prefixes of a key that was removed are of no use.
                let key = sequence.asked.key;
                let may_return =
                    |scope: &CacheScope| scope.key != key || self.shares.has_place(key);
                let keeps = self.capacity.reuse && !lacks_state;
                let scope = sequence.asked.cache.filter(|_| keeps);
                let scope = scope.filter(may_return);
                let reused = 2 * sequence.cached >= sequence.prompt_tokens;
                let (tokens, rows) = (sequence.tokens, cells);
                let kept = scope.map(|scope| Kept { tokens, rows, rows_max, scope, reused });
                self.cells.release(owner.slot);
                self.slots.release(owner, kept, self.step);
                self.held.retain(|held| *held != id);
                if is_constrained {
                    self.masks.leave(owner.slot, sequence.masks);
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

    /// Notes the most slots that a key held recently. Must be called before it gives up a slot.
    pub fn note_slots(&mut self, key: KeyId) {
        if !self.shares.has_place(key) {
            return;
        }
        let has_key = |id: &&SequenceId| self.sequences.get(**id).asked.key == key;
        let slots = self.held.iter().filter(has_key).count();
        let recent = self.recent[key.index()];
        if slots >= recent.slots || !self.is_recent(recent) {
            self.recent[key.index()] = Recent { slots, step: self.step, ran: self.ran };
        }
    }

    /// Whether a key held the slots of `recent` within the last [`SLOT_KEPT_STEPS`] steps, or
    /// within the last [`SLOT_KEPT_TIME`] of step time.
    pub fn is_recent(&self, recent: Recent) -> bool {
        let is_fresh =
            self.step < recent.step + SLOT_KEPT_STEPS || self.ran < recent.ran + SLOT_KEPT_TIME;
        recent.slots > 0 && is_fresh
    }

    /// True when no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }

    /// Forgets a removed key; see [`super::Scheduler::forget`].
    pub fn forget(&mut self, key: KeyId, has_own_cache: bool) {
        self.shares.arrive(KeyId { generation: key.generation.saturating_add(1), ..key });
        self.recent[key.index()] = Recent::default();
        self.masks.distrust[key.index()] = 0;
        if has_own_cache {
            self.slots.forget(key);
            self.store.forget(key);
        }
    }
}
