//! Claims: nobody waits until the texts of another key end.
//!
//! Each key that wants to run has a claim to its part of the slots and of the KV cells, by weight.
//! A key may take more than its part while nobody else wants it. A key that has less than its part
//! and finds nothing free takes it back: the youngest sequence of a key that has more, and was
//! served as much, is preempted.
//! A key that was here a moment ago keeps one slot, so that a client that sends one request after
//! another preempts once, and not each time.

use super::Scheduler;
use crate::limits::{KEYS_MAX, MAKE_WAY_MAX, SLOT_KEPT_STEPS};
use crate::ring::message::Batch;
use crate::types::{KeyId, SequenceId};

/// What a key has, and what it may claim.
#[derive(Clone, Copy, Default)]
struct Claim {
    slots: usize,
    cells: usize,
    /// Its part of the slots, at least one.
    slots_claimed: usize,
    /// Its part of the cells.
    cells_claimed: usize,
    /// It had a slot a moment ago.
    is_recent: bool,
}

impl Claim {
    fn has_more(&self) -> bool {
        self.slots > self.slots_claimed || self.cells > self.cells_claimed
    }
}

type Claims = heapless::Vec<Claim, KEYS_MAX>; // by KeyId::index

impl Scheduler {
    /// The claims of all keys. A key takes part if it has a slot or waits for one.
    fn claims(&self) -> Claims {
        let weights = &self.capacity.weights;
        let mut claims: Claims = weights.iter().map(|_| Claim::default()).collect();
        for id in &self.held {
            let sequence = self.sequences.get(*id);
            let claim = &mut claims[sequence.asked.key.index()];
            claim.slots += 1;
            claim.cells += self.cells.of(sequence.owner().slot);
        }
        let wants = |index: usize, claim: &Claim| {
            claim.slots > 0 || self.shares.sequences.held_by(KeyId(index as u16)) > 0 // below KEYS_MAX
        };
        let present = claims.iter().enumerate().filter(|(index, claim)| wants(*index, claim));
        let all: f64 = present.map(|(index, _)| weights[index]).sum();
        for (index, claim) in claims.iter_mut().enumerate() {
            let part = |whole: usize| (whole as f64 * weights[index] / all) as usize;
            claim.slots_claimed = part(self.capacity.slots).max(1);
            claim.cells_claimed = part(self.capacity.context_tokens as usize);
            let left = self.left[index];
            claim.is_recent = left > 0 && self.step < left + SLOT_KEPT_STEPS;
        }
        claims
    }

    /// The first waiting sequence that may have a free slot: one slot each stays free for the keys
    /// that had one a moment ago.
    pub(super) fn first_for_a_free_slot(&self) -> Option<usize> {
        if self.capacity.weights.len() == 1 {
            return self.first_waiting(|_| true);
        }
        let claims = self.claims();
        let kept = claims.iter().filter(|claim| claim.is_recent && claim.slots == 0).count();
        let free = self.slots.free_count();
        let kept = kept.min(self.capacity.slots / 2);
        self.first_waiting(|sequence| free > kept || claims[sequence.asked.key.index()].slots == 0)
    }

    /// Preempts sequences so that the first waiting one whose key has less than its part can start.
    /// Returns it, if anything was preempted for it.
    ///
    /// This comes before any start of the step. A sequence that starts may copy from another one,
    /// or follow it.
    pub(super) fn settle_claims(&mut self, batch: &mut Batch) -> Option<SequenceId> {
        if self.capacity.weights.len() == 1 || self.waiting.is_empty() {
            return None;
        }
        let claims = self.claims();
        let first = self.first_waiting(|sequence| {
            let own = claims[sequence.asked.key.index()];
            own.slots < own.slots_claimed
        })?;
        let (id, mut claimant) = (self.waiting[first], None);
        loop {
            let needed = self.prefix_if_it_fits(id).err();
            if needed.is_none() && self.slots.free_count() > 0 {
                return claimant;
            }
            if !self.make_way(batch, id, needed.unwrap_or(0)) {
                return claimant;
            }
            claimant = Some(id);
        }
    }

    /// Preempts one sequence for another one that waits and needs `cells` cells, if its key has a
    /// claim to them. Returns false if there is none to preempt.
    fn make_way(&mut self, batch: &mut Batch, id: SequenceId, cells: usize) -> bool {
        let claims = self.claims();
        let waiting = &self.sequences.get(id).asked;
        let (own, priority) = (claims[waiting.key.index()], waiting.priority);
        if own.cells + cells > own.cells_claimed {
            return false;
        }
        let served = self.shares.served(waiting.key);
        let last = self.last_of(|sequence| {
            let key = sequence.asked.key;
            claims[key.index()].has_more()
                // A key that has more because it was served less keeps it.
                && self.shares.served(key) >= served
                && sequence.asked.priority >= priority
                && sequence.made_way < MAKE_WAY_MAX
                // What starts in the step that waits for its turn has not run at all.
                && sequence.started + 1 < self.step
        });
        let Some(last) = last else { return false };
        let sequence = self.sequences.get_mut(last);
        sequence.made_way += 1;
        // It computes these rows again, and is not charged for them twice.
        let (key, rows) = (sequence.asked.key, sequence.planned - sequence.cached);
        self.shares.refund(key, rows);
        self.preempt(batch, last);
        true
    }
}
