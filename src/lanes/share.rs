//! Keeps the embed lane's use of a processor small and even while streams run.
//!
//! A priority bounds the lane's share over seconds. But the kernel gives that share in slices of
//! milliseconds, and a step of the decode lane waits for its slowest thread. So the lane stops by
//! itself after a short time, for as long as its share asks.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The part of a processor that embeddings have while streams run. With it, the slowest steps take a
/// sixth longer.
const EMBED_SHARE: f64 = 0.05;

/// The processor time after which they look whether it was more.
const EMBED_SLICE: Duration = Duration::from_millis(1);

/// The time after which they look whether streams still run.
const EMBED_PAUSE: Duration = Duration::from_millis(10);

/// The processor time that the calling thread has had, and since when.
pub(super) struct Share {
    began: Instant,
    used: Duration,
}

impl Share {
    /// Begins to count.
    pub fn new() -> Self {
        Self { began: Instant::now(), used: used() }
    }

    /// Sleeps once the thread has had a slice of processor time, until that was its share of the
    /// time that has passed. `is_busy` is asked again and again: it returns false when there is
    /// nobody to make room for.
    pub fn keep(&mut self, is_busy: impl Fn() -> bool) {
        let had = used().saturating_sub(self.used);
        if had < EMBED_SLICE {
            return;
        }
        let until = self.began + had.div_f64(EMBED_SHARE);
        while is_busy() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(EMBED_PAUSE));
        }
        *self = Self::new();
    }
}

/// The processor time of the calling thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // A processor time is not negative, and its nanoseconds are below a second's.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn spin(time: Duration) {
        let began = used();
        while used() - began < time {}
    }

    #[test]
    fn a_thread_waits_until_its_time_was_its_share() {
        let began = Instant::now();
        let mut share = Share::new();
        share.keep(|| panic!("too early to ask"));
        spin(3 * EMBED_SLICE);
        share.keep(|| true);
        assert!(began.elapsed() >= (3 * EMBED_SLICE).div_f64(EMBED_SHARE));
    }

    #[test]
    fn it_continues_once_there_is_nobody_to_make_room_for() {
        let mut share = Share::new();
        spin(20 * EMBED_PAUSE); // its share would be seconds
        let (began, asked) = (Instant::now(), Cell::new(0));
        share.keep(|| asked.replace(asked.get() + 1) < 2);
        assert_eq!(asked.get(), 3);
        assert!(began.elapsed() >= 2 * EMBED_PAUSE);
    }
}
