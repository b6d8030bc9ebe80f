//! Claims: each key's part of the slots and of the KV cells, taken back from keys that have more.
//!
//! Each key that wants to run has a claim to its part of the slots and of the KV cells, by weight.
//! A key may take more than its part while nobody else wants it. A key that has less than its part
//! and finds nothing free takes it back: the youngest sequence of a key that has more, and was
//! served as much, is preempted.
//! A slot that a key had a moment ago stays free for it, with the prefix in it, while the key has
//! less than its part. So a client that sends one request after another preempts once, and not each
//! time.

use super::Scheduler;
use super::shares::{Overtaken, Recent};
use crate::limits::{KEYS_MAX, MAKE_WAY_MAX, OVERTAKEN_STEPS_MAX, SLOT_KEPT_STEPS, SLOT_KEPT_TIME};
use crate::ring::message::Batch;
use crate::types::{KeyId, SequenceId, SlotId};

/// The slots and cells of a key, and its claim to them.
#[derive(Clone, Copy, Default)]
struct Claim {
    slots: usize,
    cells: usize,
    /// Its part of the slots, at least one.
    slots_claimed: usize,
    /// Its part of the cells.
    cells_claimed: usize,
    /// Most slots that it had at once in the last steps.
    slots_recent: usize,
}

impl Claim {
    fn has_less(&self) -> bool {
        self.slots < self.slots_claimed
    }

    /// Slots that stay free for it.
    fn kept(&self) -> usize {
        self.slots_recent.min(self.slots_claimed).saturating_sub(self.slots)
    }

    fn has_more(&self) -> bool {
        self.slots > self.slots_claimed || self.cells > self.cells_claimed
    }
}

type Claims = heapless::Vec<Claim, KEYS_MAX>; // by KeyId::index

impl Scheduler {
    /// The claims of all keys. A key takes part if it has a slot, waits for one, or had one a moment
    /// ago.
    fn claims(&self) -> Claims {
        let weights = &self.capacity.weights;
        let recent = self.recent.iter().map(|recent| Claim {
            slots_recent: if self.is_recent(*recent) { recent.slots } else { 0 },
            ..Claim::default()
        });
        let mut claims: Claims = recent.collect();
        for id in &self.held {
            let sequence = self.sequences.get(*id);
            let claim = &mut claims[sequence.asked.key.index()];
            claim.slots += 1;
            claim.cells += self.cells.of(sequence.owner().slot);
        }
        let takes_part = |index: usize, claim: &Claim| {
            let waiting = self.shares.sequences.held_at(index);
            claim.slots > 0 || waiting > 0 || claim.slots_recent > 0
        };
        let present = claims.iter().enumerate().filter(|(index, claim)| takes_part(*index, claim));
        let all: f64 = present.map(|(index, _)| weights[index]).sum();
        for (index, claim) in claims.iter_mut().enumerate() {
            let part = |whole: usize| (whole as f64 * weights[index] / all) as usize;
            claim.slots_claimed = part(self.capacity.slots).max(1);
            claim.cells_claimed = part(self.capacity.context_tokens as usize);
        }
        claims
    }

    fn is_recent(&self, recent: Recent) -> bool {
        let is_fresh =
            self.step < recent.step + SLOT_KEPT_STEPS || self.ran < recent.ran + SLOT_KEPT_TIME;
        recent.slots > 0 && is_fresh
    }

    /// Notes how many slots a key has. To be called before it gives one of them up.
    pub(super) fn note_slots(&mut self, key: KeyId) {
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

    /// A free slot for a sequence of this key, preferably one that is not kept for another key.
    pub(super) fn free_slot(&self, key: KeyId) -> Option<SlotId> {
        let claims = self.claims();
        let is_kept =
            |keeper: KeyId| claims.get(keeper.index()).is_some_and(|claim| claim.kept() > 0);
        self.slots.free(|keeper| keeper != key && is_kept(keeper))
    }

    /// The first waiting sequence that may have a free slot. Some stay free for keys that had them
    /// a moment ago. A key may overtake the `overtaken` ones, within its part of the slots.
    pub(super) fn first_for_a_free_slot(&self, overtaken: &Overtaken) -> Option<usize> {
        if self.capacity.weights.len() == 1 {
            return self.first_waiting(|_| overtaken.is_empty());
        }
        let claims = self.claims();
        let kept: usize = claims.iter().map(Claim::kept).sum();
        let free = self.slots.free_count();
        let has_slots = free > kept.min(self.capacity.slots / 2);
        self.first_waiting(|sequence| {
            let key = sequence.asked.key;
            let may_start = has_slots && overtaken.is_empty() || claims[key.index()].has_less();
            may_start && !overtaken.contains(&key)
        })
    }

    /// Whether a sequence may start before one of another key that is first and does not fit: within
    /// its key's part of the cells.
    pub(super) fn may_overtake(&self, id: SequenceId) -> bool {
        let sequence = self.sequences.get(id);
        let own = self.claims()[sequence.asked.key.index()];
        own.cells + sequence.cells_promised() <= own.cells_claimed
    }

    /// Whether other keys may start before a sequence that is first and needs `cells` cells, which
    /// are not free: for a while, or as long as its own key holds them.
    pub(super) fn may_be_overtaken(&mut self, id: SequenceId, cells: usize) -> bool {
        let sequence = self.sequences.get_mut(id);
        sequence.overtaken = sequence.overtaken.saturating_add(1);
        let (key, steps) = (sequence.asked.key, sequence.overtaken);
        let is_own = |held: &&SequenceId| self.sequences.get(**held).asked.key == key;
        let own = self.held.iter().filter(is_own).map(|held| {
            self.cells.of(self.sequences.get(*held).owner().slot) + self.cells_coming(*held)
        });
        steps <= OVERTAKEN_STEPS_MAX
            || own.sum::<usize>() + cells > self.capacity.context_tokens as usize
    }

    /// Preempts sequences so that a waiting one can start whose key has less than its part: the
    /// first of them for which there is enough to preempt. Returns it, if anything was preempted.
    ///
    /// This comes before any start of the step. A sequence that starts may copy from another one,
    /// or follow it.
    pub(super) fn settle_claims(&mut self, batch: &mut Batch) -> Option<SequenceId> {
        if self.capacity.weights.len() == 1 || self.waiting.is_empty() {
            return None;
        }
        let claims = self.claims();
        let mut refused = Overtaken::new();
        loop {
            let first = self.first_waiting(|sequence| {
                let key = sequence.asked.key;
                claims[key.index()].has_less() && !refused.contains(&key)
            })?;
            let (id, mut claimant) = (self.waiting[first], None);
            loop {
                let needed = self.prefix_if_it_fits(id).err();
                if needed.is_none() && self.slots.free_count() > 0 {
                    return claimant;
                }
                if !self.make_way(batch, id, needed.unwrap_or(0)) {
                    break;
                }
                claimant = Some(id);
            }
            if claimant.is_some() || refused.push(self.sequences.get(id).asked.key).is_err() {
                return claimant;
            }
        }
    }

    /// Preempts one sequence for another one that waits and needs `cells` cells, if the waiting
    /// sequence's key has a claim to them. Returns false if there is none to preempt.
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
                && (sequence.made_way < MAKE_WAY_MAX || sequence.has_gone_on())
                // What started in the previous step has not run: that step may still wait.
                && sequence.started + 1 < self.step
        });
        let Some(last) = last else { return false };
        let sequence = self.sequences.get_mut(last);
        sequence.made_way += 1;
        sequence.made_way_at = sequence.tokens.len();
        // It computes these rows again, and is not charged for them twice.
        let (key, rows) = (sequence.asked.key, sequence.planned - sequence.cached);
        self.shares.refund(key, rows);
        self.preempt(batch, last);
        true
    }
}
