//! Time as a value that is passed in.
//!
//! Each lane reads the clock and passes the time down. The scheduler, the parsers and the dialects
//! never read a clock, so a simulation can give them any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// Microseconds since the clock was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Microseconds from `earlier` to this time; 0 if `earlier` is later.
    pub fn since(self, earlier: Micros) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Seconds from `earlier` to this time; 0 if `earlier` is later.
    pub fn seconds_since(self, earlier: Micros) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e6
    }
}

impl std::ops::Add<Duration> for Micros {
    type Output = Micros;

    fn add(self, duration: Duration) -> Micros {
        Micros(self.0 + duration.as_micros() as u64) // durations here are hours at most
    }
}

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Microseconds that a test has added.
    ahead: Option<&'static AtomicU64>,
}

impl Clock {
    /// A clock that starts at 0.
    pub fn start() -> Self {
        Self { start: Instant::now(), ahead: None }
    }

    /// A clock that a test can move forward: it adds microseconds to the returned number.
    pub fn adjustable() -> (Self, &'static AtomicU64) {
        let ahead: &AtomicU64 = Box::leak(Box::default());
        (Self { ahead: Some(ahead), ..Self::start() }, ahead)
    }

    /// The time since [`Clock::start`].
    pub fn now(&self) -> Micros {
        // A u64 of microseconds lasts 584,000 years.
        let elapsed = self.start.elapsed().as_micros() as u64;
        Micros(elapsed + self.ahead.map_or(0, |ahead| ahead.load(Ordering::Relaxed)))
    }
}

/// Seconds since 1970, for the `created` field of responses.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The current date and time, for chat templates that show them.
pub fn utc_now() -> OffsetDateTime {
    OffsetDateTime::from(SystemTime::now())
}

/// The CPU time used by this thread.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32) // from 0 to 10^9
}
