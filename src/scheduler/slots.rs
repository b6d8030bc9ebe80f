//! The slots of the KV cache: who holds each, and what is left in those that
//! nobody holds.

use super::sequence::SequenceId;
use crate::limits::SLOTS_MAX;
use crate::types::{Generation, Owner, SlotId, TokenId};

/// All slots.
pub(super) struct Slots {
    slots: heapless::Vec<Slot, SLOTS_MAX>,
    /// Each has KV cells of its own; otherwise they share all.
    own_cells: bool,
}

struct Slot {
    generation: Generation,
    holder: Option<SequenceId>,
    /// What its last holder left, when nobody holds it.
    kept: Vec<TokenId>,
    /// The step in which that was of use for the last time.
    used: u64,
}

impl Slots {
    pub fn new(count: usize, own_cells: bool) -> Self {
        let generation = Generation::default();
        let slot = || Slot { generation, holder: None, kept: Vec::new(), used: 0 };
        Self { slots: (0..count).map(|_| slot()).collect(), own_cells }
    }

    /// The free slot whose loss costs least: an empty one, or else one beside a slot
    /// that is held, because llama.cpp computes neighbours together where they have
    /// cells of their own; or else the one that was of use longest ago.
    pub fn free(&self) -> Option<SlotId> {
        let is_held = |index: usize| self.slots.get(index).is_some_and(|s| s.holder.is_some());
        let alike = !self.own_cells || self.held_count() == 0;
        let cost = |index: usize, slot: &Slot| {
            let beside = is_held(index + 1) || (index > 0 && is_held(index - 1));
            (!slot.kept.is_empty(), !alike && !beside, slot.used)
        };
        let free = self.slots.iter().enumerate().filter(|(_, slot)| slot.holder.is_none());
        let (index, _) = free.min_by_key(|(index, slot)| cost(*index, slot))?;
        Some(SlotId(index as u16)) // below SLOTS_MAX
    }

    /// Gives a free slot to `id`, with whatever is in it.
    pub fn take(&mut self, slot: SlotId, id: SequenceId) -> Owner {
        let place = &mut self.slots[slot.index()];
        assert!(place.holder.is_none(), "{slot:?} is held");
        place.holder = Some(id);
        place.kept = Vec::new();
        place.generation = place.generation.next();
        Owner { slot, generation: place.generation }
    }

    /// The same holder begins anew: what was sent for it before is late.
    pub fn renew(&mut self, owner: Owner) -> Owner {
        let slot = &mut self.slots[owner.slot.index()];
        assert_eq!(slot.generation, owner.generation, "renewal by an earlier holder");
        slot.generation = slot.generation.next();
        Owner { generation: slot.generation, ..owner }
    }

    /// Nobody holds the slot any more; `kept` are the tokens in it, if they may be of use to
    /// somebody.
    pub fn release(&mut self, owner: Owner, kept: Vec<TokenId>, step: u64) {
        let slot = &mut self.slots[owner.slot.index()];
        assert_eq!(slot.generation, owner.generation, "release by an earlier holder");
        assert!(slot.holder.is_some(), "release of a slot nobody holds");
        slot.holder = None;
        slot.kept = kept;
        slot.used = step;
    }

    /// Forgets what the slot that was of use longest ago has kept. What is of use in `step`
    /// itself stays.
    pub fn evict(&mut self, step: u64) -> Option<SlotId> {
        let slots = self.slots.iter_mut().enumerate();
        let kept = slots.filter(|(_, slot)| !slot.kept.is_empty() && slot.used < step);
        let (index, slot) = kept.min_by_key(|(_, slot)| slot.used)?;
        slot.kept = Vec::new();
        Some(SlotId(index as u16)) // below SLOTS_MAX
    }

    /// Slots that nobody holds, with nothing in them that may be of use to somebody.
    pub fn useless(&self) -> impl Iterator<Item = SlotId> {
        let slots = self.slots.iter().enumerate();
        let useless = slots.filter(|(_, slot)| slot.holder.is_none() && slot.kept.is_empty());
        useless.map(|(index, _)| SlotId(index as u16)) // as above
    }

    /// True when nobody holds the slot.
    pub fn is_free(&self, slot: SlotId) -> bool {
        self.slots[slot.index()].holder.is_none()
    }

    /// Tokens that a slot has kept.
    pub fn kept_len(&self, slot: SlotId) -> usize {
        self.slots[slot.index()].kept.len()
    }

    /// What is left of earlier holders, slot by slot.
    pub fn kept(&self) -> impl Iterator<Item = (SlotId, &[TokenId])> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(index, slot)| (SlotId(index as u16), slot.kept.as_slice()))
    }

    /// For each slot, its holder.
    pub fn holders(&self) -> impl Iterator<Item = (SlotId, Option<SequenceId>)> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(index, slot)| (SlotId(index as u16), slot.holder)) // as above
    }

    /// What a slot kept was of use in this step.
    pub fn touch(&mut self, slot: SlotId, step: u64) {
        self.slots[slot.index()].used = step;
    }

    /// The sequence that holds a slot under this very generation.
    pub fn holder(&self, owner: Owner) -> Option<SequenceId> {
        let slot = &self.slots[owner.slot.index()];
        slot.holder.filter(|_| slot.generation == owner.generation)
    }

    pub fn free_count(&self) -> usize {
        self.slots.len() - self.held_count()
    }

    pub fn held_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.holder.is_some()).count()
    }
}
