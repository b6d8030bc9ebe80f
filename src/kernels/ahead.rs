//! How far ahead of the arithmetic weights are fetched from memory.
//!
//! The processor's own prefetcher leaves a core waiting, so the kernels prefetch. What is best differs:
//! a prefetch into the first-level cache takes one of a core's few slots for misses of that cache until
//! memory has answered, and on some processors those slots alone limit the speed. One into the
//! second-level cache does not, and can be further ahead. [`choose_ahead`](super::choose_ahead) measures
//! both on this machine.

use std::sync::OnceLock;

/// Where to, and how far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Into the first-level cache, 4 KiB ahead.
    Near,
    /// Into the second-level cache, 16 KiB ahead.
    Far,
}

/// The choice for this process.
static CHOSEN: OnceLock<Ahead> = OnceLock::new();

impl Ahead {
    /// Bytes from the weights that are computed to those that are prefetched.
    #[inline(always)]
    pub fn bytes(self) -> usize {
        match self {
            Self::Near => 4 << 10,
            Self::Far => 16 << 10,
        }
    }

    /// The choice for this machine. Before the first one, it is [`Self::Far`].
    pub fn of_this_machine() -> Self {
        CHOSEN.get().copied().unwrap_or(Self::Far)
    }

    /// Makes the choice, once in a process.
    pub(super) fn choose(choice: impl FnOnce() -> Self) {
        CHOSEN.get_or_init(choice);
    }
}
