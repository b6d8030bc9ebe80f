//! The KV cells: the cells of each slot, and how many are free.
//!
//! If slots share one cache, a sequence that starts with the prefix of another slot uses the same
//! cells for it, until neither needs them. If each slot has a cache of its own, the prefix is
//! copied to other cells.

use super::checkpoints::Checkpoints;
use crate::limits::SLOTS_MAX;
use crate::types::SlotId;

/// The cells of all slots.
pub(super) struct Cells {
    /// Each slot has a cache of its own.
    own: bool,
    /// The number of slots that use each cell.
    users: Vec<Users>, // [context_tokens]
    /// Cells that no slot uses.
    free: Vec<u32>, // capacity context_tokens
    /// Cells that running sequences use.
    held: usize,
    slots: heapless::Vec<SlotCells, SLOTS_MAX>,
    /// The saved states behind the first tokens of the slots.
    pub checkpoints: Checkpoints,
    /// The kept logits of the tokens behind them.
    pub logits: Checkpoints,
}

/// The number of slots that use a cell.
#[derive(Clone, Copy, Default)]
struct Users {
    all: u16,
    held: u16,
}

#[derive(Default)]
struct SlotCells {
    /// The slot's cells, in the order of its tokens.
    cells: Vec<u32>,
    /// A sequence holds the slot.
    is_held: bool,
}

impl Cells {
    /// `count` free cells for `slots` slots, and places for `checkpoints` saved states and for the
    /// `logits` of as many texts.
    pub fn new(count: u32, slots: usize, own: bool, checkpoints: usize, logits: usize) -> Self {
        Self {
            own,
            users: vec![Users::default(); count as usize],
            free: (0..count).rev().collect(),
            held: 0,
            slots: (0..slots).map(|_| SlotCells::default()).collect(),
            checkpoints: Checkpoints::new(checkpoints, slots),
            logits: Checkpoints::new(logits, slots),
        }
    }

    /// True if each slot has a cache of its own.
    pub fn are_own(&self) -> bool {
        self.own
    }

    /// Empty cells.
    pub fn left(&self) -> usize {
        self.free.len()
    }

    /// Cells that running sequences use.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Cells that only free slots use.
    pub fn kept(&self) -> usize {
        self.users.len() - self.free.len() - self.held
    }

    /// The number of cells of a slot.
    pub fn of(&self, slot: SlotId) -> usize {
        self.slots[slot.index()].cells.len()
    }

    /// A sequence takes a slot with its first `tokens` cells. It may grow to `tokens_max` cells.
    pub fn take(&mut self, slot: SlotId, tokens: usize, tokens_max: usize) {
        self.truncate(slot, tokens);
        let place = &mut self.slots[slot.index()];
        assert!(!place.is_held, "{slot:?} is held");
        place.is_held = true;
        // Reserved now, so that no step allocates.
        place.cells.reserve_exact(tokens_max.saturating_sub(tokens));
        for cell in &place.cells {
            let users = &mut self.users[*cell as usize];
            users.held += 1;
            self.held += usize::from(users.held == 1);
        }
    }

    /// The sequence leaves its slot. The cells stay.
    pub fn release(&mut self, slot: SlotId) {
        let place = &mut self.slots[slot.index()];
        assert!(place.is_held, "{slot:?} is not held");
        place.is_held = false;
        for cell in &place.cells {
            let users = &mut self.users[*cell as usize];
            users.held -= 1;
            self.held -= usize::from(users.held == 0);
        }
    }

    /// Adds a cell to a held slot. There must be a free one.
    pub fn grow(&mut self, slot: SlotId) {
        let cell = self.free.pop().expect("room was counted");
        self.users[cell as usize] = Users { all: 1, held: 1 };
        self.held += 1;
        let place = &mut self.slots[slot.index()];
        assert!(place.is_held, "{slot:?} is not held");
        place.cells.push(cell);
    }

    /// Gives a held slot without cells those of the first `tokens` tokens of another slot: the same
    /// cells, or copies. There must be room for copies.
    pub fn copy(&mut self, from: SlotId, to: SlotId, tokens: usize) {
        assert_eq!(self.of(to), 0, "{to:?} is empty");
        self.checkpoints.copy(from, to, tokens);
        self.logits.copy(from, to, tokens);
        if self.own {
            return (0..tokens).for_each(|_| self.grow(to));
        }
        let [from, to] = self
            .slots
            .get_disjoint_mut([from.index(), to.index()])
            .expect("two slots, both of them there");
        assert!(to.is_held, "the slot is not held");
        to.cells.extend_from_slice(&from.cells[..tokens]);
        for cell in &to.cells {
            let users = &mut self.users[*cell as usize];
            users.all += 1;
            users.held += 1;
            self.held += usize::from(users.held == 1);
        }
    }

    /// Frees the cells of a slot beyond the first `tokens`.
    pub fn truncate(&mut self, slot: SlotId, tokens: usize) {
        self.checkpoints.truncate(slot, tokens);
        self.logits.truncate(slot, tokens);
        let place = &mut self.slots[slot.index()];
        while place.cells.len() > tokens {
            let Some(cell) = place.cells.pop() else { return };
            let users = &mut self.users[cell as usize];
            users.all -= 1;
            if place.is_held {
                users.held -= 1;
                self.held -= usize::from(users.held == 0);
            }
            if users.all == 0 {
                self.free.push(cell);
            }
        }
    }

    /// Compares the counts with the cells of the slots. For tests.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self) {
        let mut users = vec![Users::default(); self.users.len()];
        for slot in &self.slots {
            for cell in &slot.cells {
                users[*cell as usize].all += 1;
                users[*cell as usize].held += u16::from(slot.is_held);
            }
        }
        self.checkpoints.check(|slot| self.of(slot));
        self.logits.check(|slot| self.of(slot));
        let same = |a: &Users, b: &Users| a.all == b.all && a.held == b.held;
        assert!(users.iter().zip(&self.users).all(|(a, b)| same(a, b)), "users of cells");
        assert_eq!(users.iter().filter(|users| users.all == 0).count(), self.left());
        assert_eq!(users.iter().filter(|users| users.held > 0).count(), self.held);
        assert!(!self.own || users.iter().all(|users| users.all <= 1), "a cell of two slots");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_beginning_takes_its_cells_once() {
        let (first, second) = (SlotId(0), SlotId(1));
        for (own, left) in [(false, 100 - 30), (true, 100 - 50)] {
            let mut cells = Cells::new(100, 2, own, 0, 0);
            cells.take(first, 0, 40);
            (0..30).for_each(|_| cells.grow(first));
            cells.take(second, 0, 40);
            cells.copy(first, second, 20);
            cells.check();
            assert_eq!((cells.of(second), cells.left()), (20, left));
            cells.release(first);
            cells.check();
            assert_eq!((cells.held(), cells.kept()), if own { (20, 30) } else { (20, 10) });
            // The second slot still uses the shared cells.
            cells.truncate(first, 0);
            cells.check();
            assert_eq!((cells.held(), cells.kept(), cells.left()), (20, 0, 80));
        }
    }
}
