//! The slots of the KV cache: their holders, and the prefixes that free slots keep.

use super::tuning::REUSED_STEPS;
use crate::limits::SLOTS_MAX;
use crate::types::{CacheScope, Generation, KeyId, Owner, SequenceId, SlotId, TokenId};

/// All slots.
pub(super) struct Slots {
    slots: heapless::Vec<Slot, SLOTS_MAX>,
    /// Each slot has KV cells of its own. Otherwise all share one cache.
    own_cells: bool,
}

struct Slot {
    generation: Generation,
    holder: Option<SequenceId>,
    /// The tokens that the last holder left, if the slot is free.
    kept: Vec<TokenId>,
    /// The rows that ran for them. While a sample that became a row is on its way, they are more
    /// than the kept tokens.
    rows: usize,
    /// The most rows that may have run.
    rows_max: usize,
    /// The prefix store may lack some of them.
    is_dirty: bool,
    /// They are copied there before another sequence takes the slot, because a client saves them.
    is_wanted: bool,
    /// The sequences that may use them.
    scope: CacheScope,
    /// The last step that used these tokens.
    used: u64,
    /// The tokens were reused before.
    reused: bool,
}

/// A free slot whose tokens the prefix store may lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirty {
    pub slot: SlotId,
    /// The slot with the generation of its last holder.
    pub owner: Owner,
    /// The sequences that may use the tokens.
    pub scope: CacheScope,
    /// No further row ran behind the tokens.
    pub is_all: bool,
}

/// The tokens that a sequence leaves in its slot.
pub(super) struct Kept {
    pub tokens: Vec<TokenId>,
    /// The rows that were planned for them, at least as many.
    pub rows: usize,
    /// The most rows that may run for them.
    pub rows_max: usize,
    /// The sequences that may use them.
    pub scope: CacheScope,
    /// The sequence itself began with a prefix that an earlier one had left.
    pub reused: bool,
}

impl Slot {
    /// The kept prefix with the lowest value is evicted first. A prefix that was reused, as in a
    /// chat, is likelier to be used again than one that was not. So it counts as used
    /// [`REUSED_STEPS`] later.
    fn value(&self) -> u64 {
        self.used + if self.reused { REUSED_STEPS } else { 0 }
    }
}

impl Slots {
    pub fn new(count: usize, own_cells: bool) -> Self {
        let slot = || Slot {
            generation: Generation::default(),
            holder: None,
            kept: Vec::new(),
            rows: 0,
            rows_max: 0,
            is_dirty: false,
            is_wanted: false,
            scope: CacheScope::default(),
            used: 0,
            reused: false,
        };
        Self { slots: (0..count).map(|_| slot()).collect(), own_cells }
    }

    /// The free slot whose loss costs least, by these rules in order: an empty slot; one that is
    /// not reserved for its key; among slots with cells of their own, a neighbour of a held slot,
    /// because llama.cpp computes neighbours together; one that the prefix store has; the lowest
    /// [`Slot::value`].
    pub fn free(&self, is_kept_for: impl Fn(KeyId) -> bool) -> Option<SlotId> {
        let is_held = |index: usize| self.slots.get(index).is_some_and(|s| s.holder.is_some());
        let alike = !self.own_cells || self.held_count() == 0;
        let cost = |index: usize, slot: &Slot| {
            let beside = is_held(index + 1) || (index > 0 && is_held(index - 1));
            let is_kept = !slot.kept.is_empty();
            let is_reserved = is_kept && is_kept_for(slot.scope.key);
            (is_kept, is_reserved, !alike && !beside, is_kept && slot.is_dirty, slot.value())
        };
        let free = self.slots.iter().enumerate().filter(|(_, slot)| slot.holder.is_none());
        let (index, _) = free.min_by_key(|(index, slot)| cost(*index, slot))?;
        Some(SlotId(index as u16)) // below SLOTS_MAX
    }

    /// Gives a free slot to `id`, with the tokens in it.
    pub fn take(&mut self, slot: SlotId, id: SequenceId) -> Owner {
        let place = &mut self.slots[slot.index()];
        assert!(place.holder.is_none(), "{slot:?} is held");
        place.holder = Some(id);
        place.kept = Vec::new();
        place.is_wanted = false;
        place.generation = place.generation.next();
        Owner { slot, generation: place.generation }
    }

    /// Starts a new generation for the same holder, so that answers to earlier batches are dropped.
    pub fn renew(&mut self, owner: Owner) -> Owner {
        let slot = &mut self.slots[owner.slot.index()];
        assert_eq!(slot.generation, owner.generation, "renewal by an earlier holder");
        slot.generation = slot.generation.next();
        Owner { generation: slot.generation, ..owner }
    }

    /// Frees the slot. Later sequences may reuse the tokens in `kept`.
    pub fn release(&mut self, owner: Owner, kept: Option<Kept>, step: u64) {
        let slot = &mut self.slots[owner.slot.index()];
        assert_eq!(slot.generation, owner.generation, "release by an earlier holder");
        assert!(slot.holder.is_some(), "release of a slot nobody holds");
        slot.holder = None;
        slot.is_dirty = true;
        slot.used = step;
        slot.reused = false;
        if let Some(kept) = kept {
            let Kept { tokens, rows, rows_max, scope, reused } = kept;
            (slot.kept, slot.rows, slot.rows_max) = (tokens, rows, rows_max);
            (slot.scope, slot.reused) = (scope, reused);
        }
    }

    /// Takes a sample behind `position` that came after its sequence had left its slot. It belongs
    /// to the kept tokens if it became a row.
    pub fn take_late(&mut self, owner: Owner, position: usize, token: TokenId, end: bool) {
        let slot = &mut self.slots[owner.slot.index()];
        let is_next = slot.kept.len() == position + 1 && slot.kept.len() < slot.rows;
        if slot.generation != owner.generation || slot.holder.is_some() || !is_next {
            return;
        }
        if end {
            slot.rows = slot.kept.len(); // the decode lane drops such a row
        } else {
            slot.kept.push(token);
            slot.is_dirty = true;
        }
    }

    /// Takes a row that came after its sequence had left its slot: a guess that came true, with this
    /// token.
    pub fn take_late_guess(&mut self, owner: Owner, position: usize, token: TokenId) {
        let slot = &mut self.slots[owner.slot.index()];
        if slot.generation != owner.generation || slot.holder.is_some() || slot.kept.is_empty() {
            return;
        }
        slot.rows = slot.rows_max.min(slot.rows + 1);
        if slot.kept.len() == position {
            slot.kept.push(token);
            slot.is_dirty = true;
        }
    }

    /// Of the slots whose tokens the prefix store may lack, one for which a client waits, or the one
    /// with the fewest tokens: it is stored soonest, and can then be evicted before the others.
    pub fn dirty(&self) -> Option<Dirty> {
        let slots = (0..self.slots.len() as u16).map(SlotId); // at most SLOTS_MAX
        let dirty = slots.filter_map(|slot| self.dirty_in(slot));
        dirty.min_by_key(|dirty| {
            let slot = &self.slots[dirty.slot.index()];
            (!slot.is_wanted, slot.kept.len(), slot.value())
        })
    }

    /// A free slot, if the prefix store may lack some of its tokens.
    pub fn dirty_in(&self, slot: SlotId) -> Option<Dirty> {
        let place = &self.slots[slot.index()];
        let is_dirty = place.holder.is_none() && place.is_dirty && !place.kept.is_empty();
        let owner = Owner { slot, generation: place.generation };
        let is_all = place.rows == place.kept.len();
        is_dirty.then_some(Dirty { slot, owner, scope: place.scope, is_all })
    }

    /// Notes that the prefix store has what it can have of a slot.
    pub fn clean(&mut self, slot: SlotId) {
        let slot = &mut self.slots[slot.index()];
        (slot.is_dirty, slot.is_wanted) = (false, false);
    }

    /// Lets the tokens of a free slot be copied into the prefix store before another sequence takes
    /// the slot.
    pub fn want(&mut self, slot: SlotId) {
        let slot = &mut self.slots[slot.index()];
        (slot.is_dirty, slot.is_wanted) = (true, true);
    }

    /// Whether the tokens of a slot must still be copied.
    pub fn is_wanted(&self, slot: SlotId) -> bool {
        let slot = &self.slots[slot.index()];
        slot.is_wanted && slot.holder.is_none() && !slot.kept.is_empty()
    }

    /// The sequences that may use the tokens that a free slot keeps, if it keeps any.
    pub fn scope_of(&self, slot: SlotId) -> Option<CacheScope> {
        let slot = &self.slots[slot.index()];
        (slot.holder.is_none() && !slot.kept.is_empty()).then_some(slot.scope)
    }

    /// Drops a text and its beginnings from the free slots that keep them. Returns whether any did.
    pub fn erase(&mut self, scope: CacheScope, text: &[TokenId]) -> bool {
        let mut any = false;
        for slot in self.slots.iter_mut().filter(|slot| slot.scope == scope) {
            if !slot.kept.is_empty() && text.starts_with(&slot.kept) {
                slot.kept = Vec::new();
                any = true;
            }
        }
        any
    }

    /// The tokens of the kept prefix.
    pub fn text(&self, slot: SlotId) -> &[TokenId] {
        &self.slots[slot.index()].kept
    }

    /// Drops kept tokens from `tokens` on, which a step that failed lost after its sequence had left
    /// its slot. Returns false if another sequence has held the slot since.
    pub fn shorten(&mut self, owner: Owner, tokens: usize) -> bool {
        let slot = &mut self.slots[owner.slot.index()];
        let is_same = slot.generation == owner.generation && slot.holder.is_none();
        if is_same {
            slot.kept.truncate(tokens);
            slot.rows = tokens.min(slot.rows);
        }
        is_same
    }

    /// Evicts the kept prefix of the lowest [`Slot::value`], of those that the prefix store has if
    /// there are any. Prefixes used in `step` stay.
    pub fn evict(&mut self, step: u64) -> Option<SlotId> {
        let slots = self.slots.iter_mut().enumerate();
        let kept = slots.filter(|(_, slot)| !slot.kept.is_empty() && slot.used < step);
        let (index, slot) =
            kept.min_by_key(|(_, slot)| (slot.is_wanted, slot.is_dirty, slot.value()))?;
        slot.kept = Vec::new();
        Some(SlotId(index as u16)) // below SLOTS_MAX
    }

    /// Drops the kept prefixes of a key.
    pub fn forget(&mut self, key: KeyId) {
        let own = self.slots.iter_mut().filter(|slot| slot.scope.key == key);
        own.for_each(|slot| slot.kept = Vec::new());
    }

    /// Free slots without a kept prefix.
    pub fn useless(&self) -> impl Iterator<Item = SlotId> {
        let slots = self.slots.iter().enumerate();
        let useless = slots.filter(|(_, slot)| slot.holder.is_none() && slot.kept.is_empty());
        useless.map(|(index, _)| SlotId(index as u16)) // as above
    }

    /// The sequence that holds the slot.
    pub fn holder_of(&self, slot: SlotId) -> Option<SequenceId> {
        self.slots[slot.index()].holder
    }

    /// True if no sequence holds the slot.
    pub fn is_free(&self, slot: SlotId) -> bool {
        self.slots[slot.index()].holder.is_none()
    }

    /// Tokens of the kept prefix.
    pub fn kept_len(&self, slot: SlotId) -> usize {
        self.slots[slot.index()].kept.len()
    }

    /// The kept prefixes that sequences of this scope may use. True stands for those behind which
    /// no further row ran.
    pub fn kept(&self, scope: CacheScope) -> impl Iterator<Item = (SlotId, &[TokenId], bool)> {
        let slots = self.slots.iter().enumerate().filter(move |(_, slot)| slot.scope == scope);
        let is_all = |slot: &Slot| slot.rows == slot.kept.len();
        slots.map(move |(index, slot)| (SlotId(index as u16), slot.kept.as_slice(), is_all(slot)))
    }

    /// The key whose tokens a free slot keeps.
    pub fn keeper(&self, slot: SlotId) -> Option<KeyId> {
        let slot = &self.slots[slot.index()];
        (!slot.kept.is_empty()).then_some(slot.scope.key)
    }

    /// For each slot, its holder.
    pub fn holders(&self) -> impl Iterator<Item = (SlotId, Option<SequenceId>)> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(index, slot)| (SlotId(index as u16), slot.holder)) // as above
    }

    /// Marks the kept prefix of a slot as reused in this step.
    pub fn touch(&mut self, slot: SlotId, step: u64) {
        let slot = &mut self.slots[slot.index()];
        slot.used = step;
        slot.reused = true;
    }

    /// The sequence that holds a slot in this generation.
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
