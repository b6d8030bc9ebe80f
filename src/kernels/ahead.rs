//! The prefetch distance of weights, and the cache that they are prefetched into.
//!
//! With the processor's own prefetcher alone, a core waits for memory, so the kernels prefetch,
//! too. The best way depends on the processor. A prefetch into the first-level cache occupies one
//! of a core's few miss buffers of that cache until memory has answered, and on some processors
//! these buffers limit the speed. A prefetch into the second-level cache does not, and can be
//! further ahead. [`choose_ahead`](super::choose_ahead) measures both on this machine.

use std::sync::OnceLock;

/// The cache and the distance of prefetches.
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
    /// The distance in bytes from the weights that are multiplied to those that are prefetched.
    #[inline(always)]
    pub fn bytes(self) -> usize {
        match self {
            Self::Near => 4 << 10,
            Self::Far => 16 << 10,
        }
    }

    /// The choice for this machine; [`Self::Far`] until it is made.
    pub fn of_this_machine() -> Self {
        CHOSEN.get().copied().unwrap_or(Self::Far)
    }

    /// Makes the choice. Only the first call in a process has an effect.
    pub(super) fn choose(choice: impl FnOnce() -> Self) {
        CHOSEN.get_or_init(choice);
    }
}
