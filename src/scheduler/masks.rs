//! The times of masks, in microseconds.

/// See [`super::constrained`].
pub(super) struct Masks {
    /// Time that slow masks took from other work, which has not had it back.
    pub owed: u64,
    /// The expected slow masks of the step that is being planned.
    pub planned: u64,
    /// The expected first mask of a text, for each key.
    pub first: Box<[u32]>,
}

impl Masks {
    /// Nothing is owed to `keys` keys, and their masks are expected to be fast.
    pub fn new(keys: usize) -> Self {
        Self { owed: 0, planned: 0, first: vec![0; keys].into_boxed_slice() }
    }
}
