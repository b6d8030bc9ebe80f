//! Blocks of equal size that take memory only once they are written. Lanes share them: each block
//! is with one lane at a time, and no lane waits for one.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::slice::from_raw_parts_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, madvise};

use super::available::gib;

/// See the module's description. Each block has a note of type `T`.
#[derive(Debug)]
pub struct Arena<T> {
    places: Box<[Place<T>]>, // [blocks]
    start: *mut u8,          // [blocks][block_bytes]; dangling without bytes
    layout: Layout,
    block_bytes: usize,
}

#[derive(Debug)]
struct Place<T> {
    is_taken: AtomicBool,
    note: UnsafeCell<T>,
}

/// A block that the holder alone may read and write. Dropping it gives it back.
pub struct Block<'a, T> {
    /// What the lanes note about the block.
    pub note: &'a mut T,
    /// Its bytes.
    pub bytes: &'a mut [u8],
    is_taken: &'a AtomicBool,
}

/// The size of a huge page on x86-64.
const HUGE_PAGE: usize = 2 << 20;

// SAFETY: `Arena::take` lends each note and each block to one holder at a time, on any thread.
unsafe impl<T: Send> Sync for Arena<T> {}
// SAFETY: it owns its memory and its notes.
unsafe impl<T: Send> Send for Arena<T> {}

impl<T> Arena<T> {
    /// `blocks` blocks of zeros, each with a note that `note` makes.
    ///
    /// # Errors
    /// The beginning of a sentence with the size, if the system refuses it.
    pub fn new(
        blocks: usize,
        block_bytes: usize,
        mut note: impl FnMut() -> T,
    ) -> Result<Self, String> {
        let bytes = blocks.saturating_mul(block_bytes);
        let refused = || format!("the system refuses {:.1} GiB", gib(bytes as u64));
        let layout = Layout::array::<u8>(bytes).map_err(|_| refused())?;
        let mut start = ptr::dangling_mut();
        if bytes > 0 {
            // SAFETY: the layout has at least one byte. The zeros come from the kernel, which has
            // no memory behind them until they are written.
            start = unsafe { alloc_zeroed(layout) };
            if start.is_null() {
                return Err(refused());
            }
            advise_huge_pages(start, bytes);
        }
        let mut place =
            || Place { is_taken: AtomicBool::new(false), note: UnsafeCell::new(note()) };
        let places = (0..blocks).map(|_| place()).collect();
        Ok(Self { places, start, layout, block_bytes })
    }

    /// A block, unless another lane has it.
    pub fn take(&self, block: usize) -> Option<Block<'_, T>> {
        let place = &self.places[block];
        if place.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the flag was false, and stays true until the returned block is dropped. So nobody
        // else has a reference to this note or to these bytes, which lie inside the allocation.
        let (note, bytes) = unsafe {
            let start = self.start.add(block * self.block_bytes);
            (&mut *place.note.get(), from_raw_parts_mut(start, self.block_bytes))
        };
        Some(Block { note, bytes, is_taken: &place.is_taken })
    }
}

impl<T> Drop for Block<'_, T> {
    fn drop(&mut self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `new` allocated it with this layout, and no block outlives the arena.
            unsafe { dealloc(self.start, self.layout) };
        }
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
    fn blocks_are_apart_and_with_one_holder_at_a_time() {
        let arena = Arena::new(3, 3 << 20, || 0).unwrap();
        {
            let block = arena.take(1).unwrap();
            block.bytes.fill(7);
            *block.note = 5;
            assert!(arena.take(1).is_none());
            let others = [arena.take(0).unwrap(), arena.take(2).unwrap()];
            assert!(others.iter().all(|other| other.bytes.iter().all(|byte| *byte == 0)));
        }
        let block = arena.take(1).unwrap();
        assert!(*block.note == 5 && block.bytes.iter().all(|byte| *byte == 7));
        assert!(Arena::new(1, 0, || ()).unwrap().take(0).unwrap().bytes.is_empty());
    }

    #[test]
    fn threads_never_have_the_same_block() {
        const TURNS: u64 = 10_000;
        let arena = Arena::new(1, 8, || 0).unwrap();
        let count = || {
            let mut done = 0;
            while done < TURNS {
                let Some(block) = arena.take(0) else { continue };
                *block.note += 1;
                block.bytes.copy_from_slice(&u64::to_le_bytes(*block.note));
                done += 1;
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        let block = arena.take(0).unwrap();
        assert_eq!((*block.note, &*block.bytes), (2 * TURNS, &(2 * TURNS).to_le_bytes()[..]));
    }

    #[test]
    fn what_the_system_refuses_is_an_error_with_the_size() {
        let error = Arena::new(usize::MAX, 2, || ()).unwrap_err();
        assert!(error.starts_with("the system refuses "), "{error}");
    }
}
