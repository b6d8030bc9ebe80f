//! States that this lane has saved, or that came from a file.

use crate::memory::{Block, Kept, StateNote};
use crate::types::{CheckpointId, Position};

/// A saved state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub id: CheckpointId,
    /// The tokens before it.
    pub position: Position,
    /// The number of its save. A later one into the same place has another number.
    serial: u64,
}

impl Checkpoint {
    /// Notes that `state`, at this place, is now the one behind `position` tokens, of `length` bytes.
    pub fn put(
        state: &mut StateNote,
        id: CheckpointId,
        position: Position,
        length: usize,
        kept: &Kept,
    ) -> Self {
        let serial = kept.next_save();
        *state = StateNote { position, serial, length };
        Self { id, position, serial }
    }

    /// The state behind `position` tokens, if this place holds it.
    pub fn find(
        kept: &Kept,
        id: CheckpointId,
        position: Position,
    ) -> Option<(Self, Block<'_, StateNote>)> {
        let block = kept.state(id).filter(|block| block.note().is_behind(position))?;
        Some((Self { id, position, serial: block.note().serial }, block))
    }

    /// The state, if its place still holds it.
    pub fn state(self, kept: &Kept) -> Option<Block<'_, StateNote>> {
        let (found, block) = Self::find(kept, self.id, self.position)?;
        (found == self).then_some(block)
    }
}
