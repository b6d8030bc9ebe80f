//! Sliding windows: layers in which a token sees only the last ones before it.
//!
//! llama.cpp has a cache of its own for these layers, and reuses a cell of it when no later token
//! can see that. So a sequence can only go back as far as its cells are still there. If the cache has
//! no more cells than the windows of all sequences need, those of a window are the state of its
//! sequence.
//!
//! **Invariant:** when a step runs, no two sequences share a cell of such a small cache. llama.cpp reuses
//! none that has two.

use crate::types::{Position, SlotId};

/// The cells that the windows of `sequences` sequences need at most, beside a pass of `rows` rows.
pub fn cells(window: u32, sequences: u32, rows: u32) -> u32 {
    window * sequences + rows // below 2^20 * 2^9 + 2^12
}

/// The window of a context.
pub(super) struct Window {
    tokens: u32,
    /// Only its cells are kept.
    pub is_alone: bool,
    /// Whether the cells of each slot belong to other tokens than its own.
    is_lost: Box<[bool]>, // [slots]
    /// Room for a state that is copied.
    room: Vec<u8>,
}

impl Window {
    /// A window of `tokens` tokens in `slots` slots. The cells of one take at most `state_bytes`.
    pub fn new(tokens: u32, is_alone: bool, slots: usize, state_bytes: usize) -> Self {
        let is_lost = vec![false; slots].into();
        Self { tokens, is_alone, is_lost, room: Vec::with_capacity(state_bytes) }
    }

    /// Notes whether the cells of a slot belong to other tokens than its own.
    pub fn set_lost(&mut self, slot: SlotId, is_lost: bool) {
        self.is_lost[slot.index()] = is_lost;
    }

    /// The fewest tokens above 0 to which a slot can be cut whose first cell is that of token `first`,
    /// -1 if it has none. The next token sees those from `self.tokens - 1` before it.
    pub fn least_left(&self, slot: SlotId, first: i32) -> Position {
        match u32::try_from(first) {
            _ if self.is_lost[slot.index()] => Position(u32::MAX),
            Ok(first) if first > 0 => Position(first + self.tokens - 1), // below 2^20 + 2^20
            _ => Position(0),
        }
    }

    /// Room for a state of this size.
    pub fn room_for_state(&mut self, bytes: usize) -> &mut [u8] {
        self.room.resize(bytes, 0);
        &mut self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_can_be_cut_where_the_next_token_sees_no_cell_that_has_gone() {
        let slot = SlotId(1);
        let mut window = Window::new(64, true, 2, 0);
        let least = |window: &Window, first| window.least_left(slot, first).0;
        assert_eq!([-1, 0, 1, 100].map(|first| least(&window, first)), [0, 0, 64, 163]);
        window.set_lost(slot, true);
        assert_eq!([-1, 0, 100].map(|first| least(&window, first)), [u32::MAX; 3]);
        assert_eq!(window.least_left(SlotId(0), 0), Position(0));
    }
}
