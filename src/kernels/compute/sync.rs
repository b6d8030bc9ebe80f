//! The primitives with which the gate, the barrier and the board synchronise. `tests/loom` replaces
//! this file by a version that tries all interleavings.

pub(super) use std::hint::spin_loop as relax;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub(super) use std::thread::yield_now as give_way;
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// Polls between two readings of the clock. A poll takes 20 to 70 ns.
pub(super) const POLLS: u32 = 32;

/// Most pieces of a task on a board.
pub const PIECES_MAX: usize = 4096;

/// The time since a moment.
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A cell whose accesses are marked as reads or writes, so that loom can check them.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Sleeps until another thread wakes this one, if the number is still `number`. It may return
/// early.
pub(super) fn sleep_while(word: &AtomicU32, number: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, number, None);
}

/// Wakes all threads that sleep at this number.
pub(super) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
