//! Blocks of equal size that take memory only once they are written. Lanes share them: at a time,
//! one lane writes a block, or some read it. No lane waits for a block.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// The lanes that read the block, or [`WRITER`].
    holders: AtomicU32,
    note: UnsafeCell<T>,
}

/// In place of a number of readers: a lane writes the block.
const WRITER: u32 = u32::MAX;

/// A block to read. Dropping it gives it back.
#[derive(Debug)]
pub struct Block<'a, T> {
    note: &'a T,
    bytes: &'a [u8],
    holders: &'a AtomicU32,
}

/// A block to write. Dropping it gives it back.
#[derive(Debug)]
pub struct BlockMut<'a, T> {
    note: &'a mut T,
    bytes: &'a mut [u8],
    holders: &'a AtomicU32,
}

/// The size of a huge page on x86-64.
const HUGE_PAGE: usize = 2 << 20;

/// The size of other pages there.
const PAGE: usize = 4096;

// SAFETY: any thread may borrow a note and a block. `Arena::write` lends them to one holder alone,
// and `Arena::read` to others only while nobody writes.
unsafe impl<T: Send + Sync> Sync for Arena<T> {}
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
        let mut place = || Place { holders: AtomicU32::new(0), note: UnsafeCell::new(note()) };
        let places = (0..blocks).map(|_| place()).collect();
        Ok(Self { places, start, layout, block_bytes })
    }

    /// The bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Asks the kernel for memory for a part of the first `blocks`, behind the first `ready` bytes,
    /// which have it. Returns false if all of them have it. No lane need hold them: their bytes stay
    /// the same.
    pub fn make_ready(&self, blocks: usize, ready: &mut usize) -> bool {
        let end = blocks.min(self.places.len()) * self.block_bytes;
        if *ready >= end {
            return false;
        }
        let from = *ready;
        *ready = end.min(from + HUGE_PAGE);
        // SAFETY: both lie inside the allocation, or right behind it.
        let [from, to] = [from, *ready].map(|bytes| unsafe { self.start.add(bytes) });
        populate(from, to);
        true
    }

    /// A block to read, unless a lane writes it.
    pub fn read(&self, block: usize) -> Option<Block<'_, T>> {
        let Place { holders, note } = &self.places[block];
        let one_more = |holders| if holders == WRITER { None } else { Some(holders + 1) };
        holders.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).ok()?;
        let start = self.start_of(block);
        // SAFETY: `holders` counts this reader until the returned block is dropped, so nobody gets
        // the block to write before. The bytes lie inside the allocation.
        let (note, bytes) = unsafe { (&*note.get(), from_raw_parts(start, self.block_bytes)) };
        Some(Block { note, bytes, holders })
    }

    /// A block to write, unless a lane reads or writes it.
    pub fn write(&self, block: usize) -> Option<BlockMut<'_, T>> {
        let Place { holders, note } = &self.places[block];
        holders.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let start = self.start_of(block);
        // SAFETY: nobody held the block, and nobody gets it until the returned one is dropped. The
        // bytes lie inside the allocation.
        let (note, bytes) =
            unsafe { (&mut *note.get(), from_raw_parts_mut(start, self.block_bytes)) };
        Some(BlockMut { note, bytes, holders })
    }

    fn start_of(&self, block: usize) -> *mut u8 {
        assert!(block < self.places.len());
        // SAFETY: the allocation has `block_bytes` bytes for each place.
        unsafe { self.start.add(block * self.block_bytes) }
    }
}

// References that these return end before the block is given back.
impl<T> Block<'_, T> {
    /// The note about the block.
    pub fn note(&self) -> &T {
        self.note
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl<T> BlockMut<'_, T> {
    /// The note about the block, and its bytes.
    pub fn parts(&mut self) -> (&mut T, &mut [u8]) {
        (self.note, self.bytes)
    }
}

impl<T> Drop for Block<'_, T> {
    fn drop(&mut self) {
        self.holders.fetch_sub(1, Ordering::Release);
    }
}

impl<T> Drop for BlockMut<'_, T> {
    fn drop(&mut self) {
        self.holders.store(0, Ordering::Release);
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

/// Asks the kernel for memory behind the whole pages of a range.
fn populate(from: *mut u8, to: *mut u8) {
    let skipped = from.align_offset(PAGE);
    let length = (to.addr() - from.addr()).saturating_sub(skipped) / PAGE * PAGE;
    if length == 0 {
        return;
    }
    // SAFETY: the pages lie inside an allocation, and no byte changes.
    let done =
        unsafe { madvise(from.add(skipped).cast::<c_void>(), length, Advice::LinuxPopulateWrite) };
    if let Err(error) = done {
        tracing::debug!(%error, "memory comes when it is first written"); // before Linux 5.14
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
    use crate::memory::faults_of_this_thread;

    #[test]
    fn blocks_are_apart_and_written_by_one_holder_alone() {
        let arena = Arena::new(3, 3 << 20, || 0).unwrap();
        {
            let mut block = arena.write(1).unwrap();
            let (note, bytes) = block.parts();
            bytes.fill(7);
            *note = 5;
            assert!(arena.write(1).is_none() && arena.read(1).is_none());
            let others = [arena.read(0).unwrap(), arena.read(2).unwrap()];
            assert!(others.iter().all(|other| other.bytes().iter().all(|byte| *byte == 0)));
        }
        let readers = [arena.read(1).unwrap(), arena.read(1).unwrap()];
        assert!(arena.write(1).is_none());
        for block in readers {
            assert!(*block.note() == 5 && block.bytes().iter().all(|byte| *byte == 7));
        }
        assert!(arena.write(1).is_some());
        assert!(Arena::new(1, 0, || ()).unwrap().read(0).unwrap().bytes().is_empty());
    }

    #[test]
    fn blocks_that_are_ready_meet_no_page_faults() {
        const BLOCK: usize = 15 << 20;
        let arena = Arena::new(3, BLOCK, || ()).unwrap();
        arena.write(0).unwrap().parts().1.fill(7);
        let mut ready = 0;
        while arena.make_ready(2, &mut ready) {}
        assert_eq!(ready, 2 * BLOCK);
        assert!(arena.read(0).unwrap().bytes().iter().all(|byte| *byte == 7));
        let faults_of = |block: usize| {
            let mut block = arena.write(block).unwrap();
            let before = faults_of_this_thread().minor;
            block.parts().1.fill(9);
            faults_of_this_thread().minor - before
        };
        let [ready, other] = [1, 2].map(faults_of);
        assert!(ready < 4 && other > ready, "{ready} and {other}");
        let mut all = 2 * BLOCK;
        while arena.make_ready(9, &mut all) {}
        assert_eq!(all, 3 * BLOCK, "there are no more");
    }

    #[test]
    fn threads_never_write_what_others_hold() {
        const TURNS: u64 = 10_000;
        let arena = Arena::new(1, 8, || 0).unwrap();
        let count = || {
            let mut done = 0;
            while done < TURNS {
                if let Some(block) = arena.read(0) {
                    assert_eq!(u64::to_le_bytes(*block.note()), *block.bytes());
                }
                let Some(mut block) = arena.write(0) else { continue };
                let (note, bytes) = block.parts();
                *note += 1;
                bytes.copy_from_slice(&u64::to_le_bytes(*note));
                done += 1;
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(count);
            scope.spawn(count);
        });
        assert_eq!(*arena.read(0).unwrap().note(), 2 * TURNS);
    }

    #[test]
    fn what_the_system_refuses_is_an_error_with_the_size() {
        let error = Arena::new(usize::MAX, 2, || ()).unwrap_err();
        assert!(error.starts_with("the system refuses "), "{error}");
    }
}
