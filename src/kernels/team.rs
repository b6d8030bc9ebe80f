//! The threads that compute one operation: ggml's own, or the calling one alone.

use std::ffi::c_void;
use std::ops::Range;

unsafe extern "C" {
    fn corelane_ggml_barrier(pool: *mut c_void);
    fn corelane_ggml_set_piece(pool: *mut c_void, value: i32);
    fn corelane_ggml_next_piece(pool: *mut c_void) -> i32;
}

/// One thread's view of those that work with it.
pub struct Team {
    /// Its number, from 0.
    pub thread: usize,
    /// How many there are.
    pub threads: usize,
    /// Their `ggml_threadpool`; not looked at where there is one thread.
    pool: *mut c_void,
}

impl Team {
    /// One thread of a pool of ggml's.
    ///
    /// # Safety
    /// The pool lives as long as the team, and its `threads` threads make the same calls
    /// in the same order.
    pub unsafe fn new(thread: usize, threads: usize, pool: *mut c_void) -> Self {
        Self { thread, threads, pool }
    }

    /// The calling thread, alone.
    pub fn alone() -> Self {
        Self { thread: 0, threads: 1, pool: std::ptr::null_mut() }
    }

    /// This thread's part of `items`, all parts alike.
    pub fn share(&self, items: usize) -> Range<usize> {
        let at = |thread: usize| items * thread / self.threads;
        at(self.thread)..at(self.thread + 1)
    }

    /// Waits for all threads. Then each has the piece of its own number, and
    /// [`Team::next_piece`] gives the others.
    pub fn begin_pieces(&self) {
        if self.threads == 1 {
            return;
        }
        // SAFETY: the pool is alive. Nobody takes a piece before the barrier, so the first
        // thread may set where they begin; the count of threads is at most 512.
        unsafe {
            if self.thread == 0 {
                corelane_ggml_set_piece(self.pool, self.threads as i32);
            }
            corelane_ggml_barrier(self.pool);
        }
    }

    /// Waits for all threads.
    pub fn barrier(&self) {
        if self.threads > 1 {
            // SAFETY: the pool is alive.
            unsafe { corelane_ggml_barrier(self.pool) };
        }
    }

    /// A piece that no thread has taken yet. `piece` is the one that this thread had.
    pub fn next_piece(&self, piece: usize) -> usize {
        if self.threads == 1 {
            return piece + 1;
        }
        // SAFETY: the pool is alive.
        let next = unsafe { corelane_ggml_next_piece(self.pool) };
        next as usize // begins at the count of threads, and grows
    }
}
