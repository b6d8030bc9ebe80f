//! The beginning of a sequence that the KV cache has already, or is about to have.

use super::sequence::SequenceId;
use crate::types::SlotId;

/// The longest beginnings of a sequence in the KV cache, each with its tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefix {
    /// The slot that holds it.
    pub ready: Option<(SlotId, usize)>,
    /// The sequence that is about to compute it, where it is so much longer that waiting is
    /// faster.
    pub coming: Option<(SequenceId, usize)>,
}
