//! The threads that compute one operation: ggml's own, or only the calling one.

use std::ffi::c_void;
use std::ops::Range;

unsafe extern "C" {
    fn corelane_ggml_barrier(pool: *mut c_void);
    fn corelane_ggml_set_piece(pool: *mut c_void, value: i32);
    fn corelane_ggml_next_piece(pool: *mut c_void) -> i32;
}

/// One thread's view of its team.
pub struct Team {
    /// Its number, from 0.
    pub thread: usize,
    /// Number of threads.
    pub threads: usize,
    /// ggml's `ggml_threadpool`; unused with one thread.
    pool: *mut c_void,
}

impl Team {
    /// One thread of a ggml pool.
    ///
    /// # Safety
    /// The pool lives as long as the team, and its `threads` threads make the same calls in the
    /// same order.
    pub unsafe fn new(thread: usize, threads: usize, pool: *mut c_void) -> Self {
        Self { thread, threads, pool }
    }

    /// A team of the calling thread only.
    pub fn alone() -> Self {
        Self { thread: 0, threads: 1, pool: std::ptr::null_mut() }
    }

    /// This thread's part of `items`; all parts are about equal.
    pub fn share(&self, items: usize) -> Range<usize> {
        let at = |thread: usize| items * thread / self.threads;
        at(self.thread)..at(self.thread + 1)
    }

    /// Waits for all threads. Each thread then has the piece with its own number, and takes more by
    /// [`Team::next_piece`].
    pub fn begin_pieces(&self) {
        if self.threads == 1 {
            return;
        }
        // SAFETY: the pool is alive. No thread takes a piece before the barrier, so the first
        // thread may set the start; the number of threads is at most 512.
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

    /// Takes a piece that no thread has taken yet. `piece` is this thread's previous piece. The
    /// result may be beyond the last piece: then none is left.
    pub fn next_piece(&self, piece: usize) -> usize {
        if self.threads == 1 {
            return piece + 1;
        }
        // SAFETY: the pool is alive.
        let next = unsafe { corelane_ggml_next_piece(self.pool) };
        next as usize // starts at the number of threads, and grows
    }
}
