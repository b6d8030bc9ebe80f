//! Memory: the memory available ([`available_bytes`], [`choose_context`]), and an allocator that
//! counts, which shows that running steps allocate nothing.
//!
//! The binary and the allocation tests install [`CountingAllocator`] as the global allocator. Each
//! allocation increments thread-local counters, so each lane can read its own.

mod available;
mod stack;

pub use available::{available_bytes, choose_context, gib, request_bytes};

pub use stack::Stack;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::limits::MMAP_BYTES_MIN;

/// The system allocator, with a count of allocations for each thread.
pub struct CountingAllocator;

thread_local! {
    // `const` initialised and without a destructor: reading it never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The number of Rust heap allocations (and reallocations) that this thread has made.
///
/// Always 0 if [`CountingAllocator`] is not the global allocator. llama.cpp allocates through the C
/// runtime and is not counted.
pub fn allocations_on_this_thread() -> u64 {
    ALLOCATIONS.get()
}

/// The bytes of all that [`allocations_on_this_thread`] counts, whether they were freed or not.
pub fn allocated_bytes_on_this_thread() -> u64 {
    BYTES.get()
}

/// Makes glibc give large blocks back to the kernel when they are freed. By default it keeps blocks
/// of up to 32 MiB once one of that size was freed, and each thread has some of its own: bodies of a
/// few megabytes then take twice as much memory as the server needs.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the C runtime. Nothing else in the process sets it.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_BYTES_MIN as i32); // far below 2^31
    }
}

fn count(bytes: usize) {
    // `try_with`, because a thread that is being torn down may still allocate.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes as u64));
}

// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract. Counting
// touches only thread-local integers.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract for `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract for `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: `ptr` came from this allocator, that is, from `System`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from this allocator, that is, from `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}
