//! Places in the decode lane's memory: slots, saved states and pages. And names of files.

/// The sequence id that a running sequence holds in the KV cache, `0..parallel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SlotId(pub u16);

impl SlotId {
    /// The slot as an index into per-slot tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A place for a saved state, or one for kept logits, below
/// [`CHECKPOINTS_MAX`](crate::limits::CHECKPOINTS_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointId(pub u16);

impl CheckpointId {
    /// The place as an index into a table.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A page of the prefix store, below [`PAGES_MAX`](crate::limits::PAGES_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

impl PageId {
    /// The page as an index into a table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
