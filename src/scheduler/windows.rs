//! How far the sliding windows of the slots reach back.
//!
//! A slot whose cells of the window are still there can be cut to fewer tokens, so another sequence
//! can start with those without a saved state. The decode lane tells after each step how far each
//! slot can be cut. Steps in flight may have reused cells since; the decode lane then refuses the start.

use crate::limits::SLOTS_MAX;
use crate::types::{Position, SlotId};

/// See the module's description.
pub(super) struct Windows {
    slots: heapless::Vec<Window, SLOTS_MAX>,
}

#[derive(Clone, Copy)]
struct Window {
    /// The fewest tokens above 0 to which the slot can be cut.
    least: usize,
    /// The last step that replaced its tokens. What earlier steps tell is out of date.
    replaced: u64,
}

impl Windows {
    /// `count` slots that cannot be cut, as far as is known.
    pub fn new(count: usize) -> Self {
        let window = Window { least: usize::MAX, replaced: 0 };
        Self { slots: (0..count).map(|_| window).collect() }
    }

    /// Notes that step `step` replaces the tokens of a slot by `tokens` other ones, of which only the
    /// window comes along.
    pub fn replace(&mut self, slot: SlotId, tokens: usize, step: u64) {
        self.slots[slot.index()] = Window { least: tokens, replaced: step };
    }

    /// Notes that step `step` gives a slot tokens without their window.
    pub fn lose(&mut self, slot: SlotId, step: u64) {
        self.replace(slot, usize::MAX, step);
    }

    /// Takes what step `step` tells of each slot. `least` is empty if the model has no windows.
    pub fn learn(&mut self, least: &[Position], step: u64) {
        for (window, least) in self.slots.iter_mut().zip(least) {
            if step >= window.replaced {
                window.least = least.index();
            }
        }
    }

    /// Whether a slot can be cut to its first `tokens` tokens.
    pub fn reaches(&self, slot: SlotId, tokens: usize) -> bool {
        tokens > 0 && self.slots[slot.index()].least <= tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_tells_counts_until_a_later_one_replaces_the_tokens() {
        let slot = SlotId(0);
        let mut windows = Windows::new(1);
        assert!(!windows.reaches(slot, 500), "nothing is known yet");
        windows.learn(&[], 1);
        assert!(!windows.reaches(slot, 500));
        windows.learn(&[Position(100)], 1);
        assert_eq!([0, 99, 100].map(|tokens| windows.reaches(slot, tokens)), [false, false, true]);
        windows.replace(slot, 300, 3);
        windows.learn(&[Position(0)], 2);
        assert_eq!([299, 300].map(|tokens| windows.reaches(slot, tokens)), [false, true]);
        windows.learn(&[Position(0)], 3);
        assert!(windows.reaches(slot, 1));
    }
}
