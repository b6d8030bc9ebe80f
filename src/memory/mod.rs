//! Memory: how much there is ([`available_bytes`], [`choose_context`]), and the counting
//! allocator, which proves that the steady state allocates nothing.
//!
//! The binary and the allocation tests install [`CountingAllocator`] as the
//! global allocator. It adds one thread-local increment to each allocation,
//! so each lane can read what it allocated itself.

mod available;

pub use available::{available_bytes, choose_context, gib};

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system allocator, counting allocations for each thread.
pub struct CountingAllocator;

thread_local! {
    // `const` initialised and without a destructor: reading it never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Rust heap allocations (and reallocations) that this thread has made.
///
/// Always 0 when [`CountingAllocator`] is not the global allocator. llama.cpp
/// allocates through the C runtime and is not counted.
pub fn allocations_on_this_thread() -> u64 {
    ALLOCATIONS.get()
}

fn count() {
    // `try_with`: a thread that is being torn down may still allocate.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is forwarded unchanged to `System`, which upholds the
// contract; counting touches only a thread-local integer.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract for `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: `ptr` came from this allocator, that is, from `System`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from this allocator, that is, from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}
