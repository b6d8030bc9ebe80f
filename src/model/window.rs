//! Sliding windows: layers in which a token sees only the last ones before it.
//!
//! llama.cpp has a cache of its own for these layers, and reuses a cell of it when no later token
//! can see that. So a sequence can only go back as far as its cells are still there. If the cache has
//! no more cells than the windows of all sequences need, those of a window are the state of its
//! sequence.
//!
//! **Invariant:** when a step runs, no two sequences share a cell of such a small cache. llama.cpp reuses
//! none that has two.

use crate::types::Position;

/// The cells that the windows of `sequences` sequences need at most, beside a pass of `rows` rows.
pub fn cells(window: u32, sequences: u32, rows: u32) -> u32 {
    window * sequences + rows // below 2^20 * 2^9 + 2^12
}

/// The window of a context.
pub(super) struct Window {
    tokens: u32,
    /// Only its cells are kept.
    pub is_alone: bool,
    /// Room for a state that is copied.
    room: Vec<u8>,
}

impl Window {
    /// A window of `tokens` tokens. The cells of one take at most `state_bytes`.
    pub fn new(tokens: u32, is_alone: bool, state_bytes: usize) -> Self {
        Self { tokens, is_alone, room: Vec::with_capacity(state_bytes) }
    }

    /// The first token that the one at `position` sees.
    pub fn first_seen(&self, position: Position) -> i32 {
        (position.0 + 1).saturating_sub(self.tokens) as i32 // below SEQUENCE_TOKENS_MAX
    }

    /// Room for a state of this size.
    pub fn room_for_state(&mut self, bytes: usize) -> &mut [u8] {
        self.room.resize(bytes, 0);
        &mut self.room
    }
}
