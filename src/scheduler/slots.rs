//! The slots of the KV cache: who holds each, and which must be cleared.

use super::sequence::SequenceId;
use crate::limits::SLOTS_MAX;
use crate::types::{Generation, Owner, SlotId};

/// All slots.
pub(super) struct Slots {
    slots: heapless::Vec<Slot, SLOTS_MAX>,
}

struct Slot {
    generation: Generation,
    state: SlotState,
}

enum SlotState {
    /// No cells; may be taken.
    Free,
    Held(SequenceId),
    /// Its cells are still there. It is free once a batch that clears it has
    /// been planned.
    Released,
}

impl Slots {
    pub fn new(count: usize) -> Self {
        let slot = || Slot { generation: Generation::default(), state: SlotState::Free };
        Self { slots: (0..count).map(|_| slot()).collect() }
    }

    /// Gives the lowest free slot to `id`.
    pub fn take(&mut self, id: SequenceId) -> Option<Owner> {
        let index = self.slots.iter().position(|slot| matches!(slot.state, SlotState::Free))?;
        let slot = &mut self.slots[index];
        slot.state = SlotState::Held(id);
        slot.generation = slot.generation.next();
        Some(Owner { slot: SlotId(index as u16), generation: slot.generation }) // below SLOTS_MAX
    }

    pub fn release(&mut self, owner: Owner) {
        let slot = &mut self.slots[owner.slot.index()];
        assert_eq!(slot.generation, owner.generation, "release by an earlier holder");
        assert!(matches!(slot.state, SlotState::Held(_)), "release of a slot nobody holds");
        slot.state = SlotState::Released;
    }

    /// Hands every released slot to `clear`, which must put it into the batch
    /// being planned, and frees it.
    pub fn clear_released(&mut self, mut clear: impl FnMut(Owner)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if matches!(slot.state, SlotState::Released) {
                clear(Owner { slot: SlotId(index as u16), generation: slot.generation });
                slot.state = SlotState::Free;
            }
        }
    }

    /// The sequence that holds a slot under this very generation.
    pub fn holder(&self, owner: Owner) -> Option<SequenceId> {
        let slot = &self.slots[owner.slot.index()];
        match slot.state {
            SlotState::Held(id) if slot.generation == owner.generation => Some(id),
            _ => None,
        }
    }

    /// Slots that a sequence could take now or after their clearing.
    pub fn free_count(&self) -> usize {
        self.slots.len() - self.held_count()
    }

    pub fn held_count(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot.state, SlotState::Held(_))).count()
    }
}
