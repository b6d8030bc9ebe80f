//! Memory: the memory available ([`available_bytes`]), the prefix store's pages and the saved
//! states ([`Kept`]), and a counting allocator, with which tests show that steps allocate
//! nothing.
//!
//! The binary and the allocation tests install [`CountingAllocator`] as the global allocator. Each
//! allocation increments thread-local counters, so each lane can read its own.

mod arena;
mod available;
mod kept;
mod stack;

pub use arena::{Arena, Block, BlockMut};
pub use available::{available_bytes, gib, request_bytes};
pub use kept::{Kept, KeptSizes, PageNote, ReadyBytes, StateNote};

pub use stack::Stack;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// Blocks of at least this many bytes are mapped from the kernel, and returned to it when they are
/// freed. This is glibc's initial value.
const MMAP_BYTES_MIN: usize = 128 * 1024;

/// The system allocator, with a count of allocations for each thread.
pub struct CountingAllocator;

thread_local! {
    // `const` initialised and without a destructor: reading it never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The number of Rust heap allocations (and reallocations) that this thread has made.
///
/// Always 0 if [`CountingAllocator`] is not the global allocator. llama.cpp allocates through the C
/// runtime and is not counted.
pub fn allocations_on_this_thread() -> u64 {
    ALLOCATIONS.get()
}

/// Page faults of a thread, and its processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Faults that the kernel resolved without a disk, for instance with an empty page.
    pub minor: u64,
    /// Faults that waited for a disk.
    pub major: u64,
    /// Processor time in the kernel, including page faults.
    pub kernel: Duration,
    /// Processor time outside the kernel.
    pub user: Duration,
}

/// The faults and times of the calling thread since its start.
pub fn faults_of_this_thread() -> Faults {
    // SAFETY: all zeros are a valid value, and the call writes into it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    // None of these numbers is ever negative.
    let time = |of: libc::timeval| Duration::new(of.tv_sec as u64, 1_000 * of.tv_usec as u32);
    Faults {
        minor: usage.ru_minflt as u64,
        major: usage.ru_majflt as u64,
        kernel: time(usage.ru_stime),
        user: time(usage.ru_utime),
    }
}

/// The bytes of all allocations that [`allocations_on_this_thread`] counts, freed or not.
pub fn allocated_bytes_on_this_thread() -> u64 {
    BYTES.get()
}

/// The bytes that this thread has allocated, minus the bytes that it has freed (which another
/// thread may have allocated). The difference between two moments is the memory that a piece of
/// work has kept.
pub fn live_bytes_on_this_thread() -> i64 {
    LIVE_BYTES.get()
}

/// Makes glibc return large blocks to the kernel when they are freed. By default, once a block of
/// up to 32 MiB was freed, glibc keeps later blocks of that size, separately for each thread.
/// Bodies of a few megabytes would then take twice as much memory as the server needs.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the C runtime. Nothing else in the process sets it.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_BYTES_MIN as i32); // far below 2^31
    }
}

/// Counts an allocation, which may replace one of `old` bytes.
fn count(bytes: usize, old: usize) {
    // `try_with`, because a thread that is being torn down may still allocate.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes as u64));
    let _ = LIVE_BYTES.try_with(|n| n.set(n.get() + bytes as i64 - old as i64)); // below 2^63
}

// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract. Counting
// touches only thread-local integers.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract for `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract for `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        // SAFETY: `ptr` came from this allocator, that is, from `System`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let _ = LIVE_BYTES.try_with(|n| n.set(n.get() - layout.size() as i64));
        // SAFETY: `ptr` came from this allocator, that is, from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}
