//! Sliding windows: layers in which a token sees only the last ones before it.
//!
//! llama.cpp keeps two caches for such a model, and the one of these layers needs no more cells than
//! the windows of all sequences have. It reuses a cell when no later token can see it. The cells that
//! are left are the state of a sequence: as that of a recurrent layer, it stands behind the last token.
//!
//! **Invariant:** no two sequences share a cell of these layers. llama.cpp reuses none that has two.

use crate::types::Position;

/// The cells that the windows of `sequences` sequences need at most, and a pass of `rows` rows.
/// llama.cpp keeps no more of them than it has of other layers.
pub fn cells(window: u32, sequences: u32, rows: u32) -> u32 {
    window * sequences + rows // both bounded in `limits`, and a window by the model's length
}

/// The window of a context.
pub(super) struct Window {
    tokens: u32,
    /// Room for a state that is copied.
    room: Vec<u8>,
}

impl Window {
    /// A window of `tokens` tokens. The cells of one take `state_bytes`.
    pub fn new(tokens: u32, state_bytes: usize) -> Self {
        Self { tokens, room: Vec::with_capacity(state_bytes) }
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
