//! Pressure: the cells that sequences will need, and preemption when cells run out.

use super::Scheduler;
use super::masks::MaskSource;
use super::prefix::Prefix;
use super::sequence::{Sequence, State};
use crate::ring::message::Batch;
use crate::types::SequenceId;

impl Scheduler {
    /// KV cells in use: those of running sequences, and those of kept prefixes.
    pub fn cells(&self) -> (usize, usize) {
        (self.cells.held(), self.cells.kept())
    }

    /// Cells that a sequence with a slot should find free, beyond those that it has.
    pub(super) fn cells_coming(&self, id: SequenceId) -> usize {
        let sequence = self.sequences.get(id);
        let promised = sequence.cells_promised();
        match sequence.state {
            State::Following { tokens, .. } if !self.cells.are_own() => promised - tokens,
            _ => promised.saturating_sub(sequence.planned),
        }
    }

    /// The part of the `needed` cells that another running sequence's slot has or will have. Cells
    /// of kept prefixes do not count, because they are as good as free.
    pub(super) fn cells_shared(&self, needed: usize, prefix: Prefix) -> usize {
        if self.cells.are_own() {
            return 0;
        }
        let ready = prefix.ready.filter(|(slot, _)| !self.slots.is_free(*slot));
        let coming = prefix.coming.map(|(_, tokens)| tokens);
        ready.map(|(_, tokens)| tokens).max(coming).unwrap_or(0).min(needed)
    }

    /// Evicts kept prefixes until `rows` cells are free.
    pub(super) fn evict(&mut self, batch: &mut Batch, rows: usize) {
        while self.cells.left() < rows {
            let Some(slot) = self.slots.evict(self.step) else { return };
            self.tally.evicted_tokens += self.cells.of(slot) as u64;
            self.cells.truncate(slot, 0);
            batch.clears.push(slot).expect("one clear for each slot");
        }
    }

    /// Frees cells for one row of each decoding sequence.
    pub(super) fn make_room_to_decode(&mut self, batch: &mut Batch) {
        loop {
            let rows = self.held.iter().filter(|id| self.decodes(**id)).count();
            self.evict(batch, rows);
            if self.cells.left() >= rows {
                return;
            }
            let last = self.last_of(|_| true);
            self.preempt(batch, last.expect("who decodes has cells"));
        }
    }

    /// The youngest sequence of the lowest priority that holds cells and for which `is_meant`
    /// holds.
    pub(super) fn last_of(&self, is_meant: impl Fn(&Sequence) -> bool) -> Option<SequenceId> {
        let order = |id: &SequenceId| {
            let sequence = self.sequences.get(*id);
            (sequence.asked.priority, sequence.admitted)
        };
        let is_meant = |id: &SequenceId| {
            let sequence = self.sequences.get(*id);
            sequence.planned > 0 && is_meant(sequence)
        };
        self.held.iter().copied().filter(is_meant).max_by_key(order)
    }

    /// If nothing could be planned because unfinished prompts have all the cells, preempts one of
    /// them.
    pub(super) fn free_a_standstill(&mut self, batch: &mut Batch) {
        let is_stuck = |sequence: &Sequence| {
            matches!(sequence.state, State::Running(_)) && sequence.rows_left() > 0
        };
        // A prefix that was used in this step becomes evictable in the next one. Never preempt a
        // sequence that started in this step.
        if self.cells.left() == 0
            && self.cells.kept() == 0
            && batch.starts.is_empty()
            && let Some(id) = self.last_of(is_stuck)
        {
            self.preempt(batch, id);
        }
    }

    /// Preempts a sequence: it loses its slot and returns to the queue with all its tokens.
    pub(super) fn preempt(&mut self, batch: &mut Batch, id: SequenceId) {
        let sequence = self.sequences.get_mut(id);
        let owner = sequence.owner();
        sequence.state = State::Waiting;
        sequence.planned = 0;
        sequence.in_flight = 0;
        sequence.guessed = 0;
        if sequence.constraint().is_some() {
            let begins = MaskSource::DecodeLane { us: 0 };
            let masks = std::mem::replace(&mut sequence.masks, begins);
            self.drop_masks(owner.slot, masks);
        }
        let sequence = self.sequences.get(id);
        self.shares.wait(sequence.asked.key, sequence.tokens.len());
        self.cells.truncate(owner.slot, 0);
        self.cells.release(owner.slot);
        self.slots.release(owner, None, self.step);
        batch.clears.push(owner.slot).expect("one clear for each slot");
        self.held.retain(|held| *held != id);
        self.waiting.push(id);
        self.tally.preemptions += 1;
    }
}
