//! The parts that the gate and the barrier synchronise with. `tests/loom` has a version of this
//! file that tries all interleavings.

pub(super) use std::hint::spin_loop as relax;
pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// Polls between two looks at the clock. A poll takes 20 to 70 ns.
pub(super) const POLLS: u32 = 32;

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

/// Sleeps until another thread wakes this one, if the number is still `number`. It may return early.
pub(super) fn sleep_while(word: &AtomicU32, number: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, number, None);
}

/// Wakes all threads that sleep at this number.
pub(super) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
