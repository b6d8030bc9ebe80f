//! Pressure: what sequences will need of the KV cache, and who gives way when it runs out of
//! cells.

use super::Scheduler;
use super::prefix::Prefix;
use super::sequence::{Sequence, SequenceId, State};
use crate::ring::message::Batch;

impl Scheduler {
    /// KV cells in use, for running sequences and for nobody in particular.
    pub fn cells(&self) -> (usize, usize) {
        (self.cells.held(), self.cells.kept())
    }

    /// Cells that a sequence with a slot should find free, beside those that it has.
    pub(super) fn cells_coming(&self, id: SequenceId) -> usize {
        let sequence = self.sequences.get(id);
        let promised = sequence.cells_promised();
        match sequence.state {
            State::Following { tokens, .. } if !self.cells.are_own() => promised - tokens,
            _ => promised.saturating_sub(sequence.planned),
        }
    }

    /// Of the cells that a sequence needs, those that another one's slot has or will have. What
    /// is kept for nobody counts as if it were free.
    pub(super) fn cells_shared(&self, needed: usize, prefix: Prefix) -> usize {
        if self.cells.are_own() {
            return 0;
        }
        let ready = prefix.ready.filter(|(slot, _)| !self.slots.is_free(*slot));
        let coming = prefix.coming.map(|(_, tokens)| tokens);
        ready.map(|(_, tokens)| tokens).max(coming).unwrap_or(0).min(needed)
    }

    /// Frees cells until `rows` are left, of what is kept for nobody.
    pub(super) fn evict(&mut self, batch: &mut Batch, rows: usize) {
        while self.cells.left() < rows {
            let Some(slot) = self.slots.evict(self.step) else { return };
            self.tally.evicted_tokens += self.cells.of(slot) as u64;
            self.cells.truncate(slot, 0);
            batch.clears.push(slot).expect("one clear for each slot");
        }
    }

    /// Frees cells for the next token of everybody who decodes.
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

    /// The youngest of the lowest priority among those that hold cells and are like
    /// this.
    fn last_of(&self, is_meant: impl Fn(&Sequence) -> bool) -> Option<SequenceId> {
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

    /// Nothing could be planned. Where that is because all cells belong to prompts
    /// that have to go on, one of them goes back to the queue.
    pub(super) fn free_a_standstill(&mut self, batch: &mut Batch) {
        let is_stuck = |sequence: &Sequence| {
            matches!(sequence.state, State::Running(_)) && sequence.rows_left() > 0
        };
        // What is kept and was of use just now can be evicted in the next step, and who
        // begins in this one is not to be found gone.
        if self.cells.left() == 0
            && self.cells.kept() == 0
            && batch.starts.is_empty()
            && let Some(id) = self.last_of(is_stuck)
        {
            self.preempt(batch, id);
        }
    }

    /// Takes a sequence's slot away. It goes back to the queue with all that it
    /// has, and later goes on as if nothing had happened.
    fn preempt(&mut self, batch: &mut Batch, id: SequenceId) {
        let sequence = self.sequences.get_mut(id);
        let owner = sequence.owner();
        sequence.state = State::Waiting;
        sequence.planned = 0;
        sequence.in_flight = 0;
        self.shares.wait(sequence.asked.key, sequence.tokens.len());
        self.cells.truncate(owner.slot, 0);
        self.cells.release(owner.slot);
        self.slots.release(owner, Vec::new(), self.step);
        batch.clears.push(owner.slot).expect("one clear for each slot");
        self.held.retain(|held| *held != id);
        self.waiting.push(id);
        self.tally.preemptions += 1;
    }
}
