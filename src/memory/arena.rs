//! Blocks of equal size that take memory only once they are written.

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};

/// See the module's description.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Box<[u8]>, // [blocks][block_bytes]
    block_bytes: usize,
}

/// The size of a huge page on x86-64.
const HUGE_PAGE: usize = 2 << 20;

impl Arena {
    /// `blocks` blocks of zeros.
    pub fn new(blocks: usize, block_bytes: usize) -> Self {
        // Zeros from the kernel, which has no page behind them yet.
        let mut bytes = vec![0; blocks * block_bytes].into_boxed_slice();
        let start = bytes.as_mut_ptr();
        let skipped = start.align_offset(HUGE_PAGE);
        let length = bytes.len().saturating_sub(skipped) / HUGE_PAGE * HUGE_PAGE;
        if length > 0 {
            // With pages of 4 KiB, the first write to a block takes ten times as long.
            // SAFETY: the range lies inside the allocation. The advice changes no byte of it.
            let advised = unsafe {
                madvise(start.add(skipped).cast::<c_void>(), length, Advice::LinuxHugepage)
            };
            if let Err(error) = advised {
                tracing::debug!(%error, "no huge pages for the prefix store");
            }
        }
        Self { bytes, block_bytes }
    }

    /// A block.
    pub fn get(&self, block: usize) -> &[u8] {
        &self.bytes[block * self.block_bytes..][..self.block_bytes]
    }

    /// A block, to change.
    pub fn get_mut(&mut self, block: usize) -> &mut [u8] {
        &mut self.bytes[block * self.block_bytes..][..self.block_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart() {
        let mut arena = Arena::new(3, 3 << 20);
        arena.get_mut(1).fill(7);
        assert!(arena.get(0).iter().chain(arena.get(2)).all(|byte| *byte == 0));
        assert!(arena.get(1).iter().all(|byte| *byte == 7));
        Arena::new(0, 0);
    }
}
