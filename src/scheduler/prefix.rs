//! The prefix of a sequence that the KV cache holds, or will hold soon.

use crate::types::{SequenceId, SlotId};

/// The longest prefixes of a sequence in the KV cache, each with its number of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefix {
    /// The slot that holds the prefix.
    pub ready: Option<(SlotId, usize)>,
    /// The running sequence that will compute a longer prefix, if waiting for it is faster.
    pub coming: Option<(SequenceId, usize)>,
}
