//! Which saved recurrent state each place holds. The model holds the states.

use crate::types::{CheckpointId, Position};

/// A saved recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub id: CheckpointId,
    /// The tokens before it.
    pub position: Position,
    /// The number of this save. A later one into the same place has another number.
    serial: u64,
}

/// The state that each place holds, if it holds one.
#[derive(Default)]
pub(super) struct Checkpoints {
    held: Box<[Option<Checkpoint>]>, // [checkpoints]
    saves: u64,
}

impl Checkpoints {
    /// `count` empty places.
    pub fn new(count: usize) -> Self {
        Self { held: vec![None; count].into(), saves: 0 }
    }

    /// Notes that a place holds a state behind `position` tokens.
    pub fn put(&mut self, id: CheckpointId, position: Position) -> Checkpoint {
        self.saves += 1;
        let checkpoint = Checkpoint { id, position, serial: self.saves };
        self.held[id.index()] = Some(checkpoint);
        checkpoint
    }

    /// Notes that a place holds no state.
    pub fn clear(&mut self, id: CheckpointId) {
        self.held[id.index()] = None;
    }

    /// The state behind `position` tokens that a place holds.
    pub fn get(&self, id: CheckpointId, position: Position) -> Option<Checkpoint> {
        self.held[id.index()].filter(|held| held.position == position)
    }

    /// Whether its place still holds this state.
    pub fn holds(&self, checkpoint: Checkpoint) -> bool {
        self.held[checkpoint.id.index()] == Some(checkpoint)
    }
}
