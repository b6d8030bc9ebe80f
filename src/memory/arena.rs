//! Blocks of equal size that take memory only once they are written.

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::c_void;
use std::ptr::slice_from_raw_parts_mut;

use rustix::mm::{Advice, madvise};

use super::available::gib;

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
    ///
    /// # Errors
    /// The beginning of a sentence with the size, if the system refuses it.
    pub fn new(blocks: usize, block_bytes: usize) -> Result<Self, String> {
        let bytes = blocks.saturating_mul(block_bytes);
        if bytes == 0 {
            return Ok(Self { bytes: Box::default(), block_bytes });
        }
        let refused = || format!("the system refuses {:.1} GiB", gib(bytes as u64));
        let layout = Layout::array::<u8>(bytes).map_err(|_| refused())?;
        // SAFETY: the layout has at least one byte. The zeros come from the kernel, which has no
        // memory behind them until they are written.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(refused());
        }
        advise_huge_pages(start, bytes);
        // SAFETY: the global allocator gave this memory, of this size and alignment, and its bytes
        // are zero.
        let bytes = unsafe { Box::from_raw(slice_from_raw_parts_mut(start, bytes)) };
        Ok(Self { bytes, block_bytes })
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

/// With pages of 4 KiB, the first write to a block would meet hundreds of page faults.
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    let skipped = start.align_offset(HUGE_PAGE);
    let length = bytes.saturating_sub(skipped) / HUGE_PAGE * HUGE_PAGE;
    if length == 0 {
        return;
    }
    // SAFETY: the range lies inside an allocation of `bytes` bytes. The advice changes none of them.
    let advised =
        unsafe { madvise(start.add(skipped).cast::<c_void>(), length, Advice::LinuxHugepage) };
    if let Err(error) = advised {
        tracing::debug!(%error, "no huge pages for an arena");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart() {
        let mut arena = Arena::new(3, 3 << 20).unwrap();
        arena.get_mut(1).fill(7);
        assert!(arena.get(0).iter().chain(arena.get(2)).all(|byte| *byte == 0));
        assert!(arena.get(1).iter().all(|byte| *byte == 7));
        Arena::new(0, 0).unwrap();
    }

    #[test]
    fn what_the_system_refuses_is_an_error_with_the_size() {
        let error = Arena::new(usize::MAX, 2).unwrap_err();
        assert!(error.starts_with("the system refuses "), "{error}");
    }
}
