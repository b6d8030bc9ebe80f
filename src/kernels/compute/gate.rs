//! A number that threads wait for: they poll for a while, and then sleep.
//!
//! A thread that polls occupies a core that another thread could use, sometimes the very thread
//! that it waits for. A thread that sleeps needs some microseconds to wake up. So a wait polls for
//! about as long as a wake-up takes, and then sleeps.
//!
//! The sleeper announces itself, and then compares the number once more (in the kernel, by
//! `futex`). The setter sets the number, and then looks for sleepers. Both sides have a
//! sequentially consistent fence in between, so at least one of them sees the other.

use std::time::Duration;

use super::sync::{AtomicU32, Ordering, POLLS, Stopwatch, fence, relax, sleep_while, wake_all};

/// See the module's description. It fills a cache line, so that a poll does not delay writes to
/// data beside it.
#[derive(Debug, Default)]
#[repr(align(128))] // processors fetch two lines of 64 bytes at once
pub(super) struct Gate {
    number: AtomicU32,
    sleepers: AtomicU32,
}

impl Gate {
    /// The number. All writes of the thread that set it, up to then, are visible.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    /// Sets the number, and wakes the threads that sleep.
    pub fn set(&self, number: u32) {
        self.number.store(number, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            wake_all(&self.number);
        }
    }

    /// Waits until the number differs from `old`: polls for `patience`, then sleeps.
    pub fn wait(&self, old: u32, patience: Duration) {
        for _ in 0..POLLS {
            if self.number() != old {
                return;
            }
            relax();
        }
        let watch = Stopwatch::start();
        while watch.elapsed() < patience {
            for _ in 0..POLLS {
                if self.number() != old {
                    return;
                }
                relax();
            }
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.number() == old {
            sleep_while(&self.number, old);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
