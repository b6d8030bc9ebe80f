//! Predicts when the queue will have room.

use crate::clock::Micros;
use crate::limits::RETRY_AFTER_S_MAX;

/// The pace at which sequences finish: an exponential mean of the time between two ends, while
/// there is work.
#[derive(Debug, Default)]
pub struct Pace {
    last: Option<Micros>,
    mean_s: Option<f64>,
}

impl Pace {
    /// Counts a finished sequence.
    pub fn finished(&mut self, now: Micros) {
        if let Some(last) = self.last.replace(now) {
            let gap = now.seconds_since(last);
            let mean = self.mean_s.get_or_insert(gap);
            *mean += 0.1 * (gap - *mean);
        }
    }

    /// The engine is idle. Idle time does not count.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Seconds, rounded up, until `waiting` sequences have left the queue.
    pub fn seconds_until_free(&self, waiting: usize) -> u64 {
        let seconds = self.mean_s.unwrap_or(1.0) * waiting as f64;
        (seconds.ceil() as u64).clamp(1, RETRY_AFTER_S_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_follows_the_measured_rate_and_not_the_idle_time() {
        let mut pace = Pace::default();
        for i in 0..50 {
            pace.finished(Micros(i * 500_000));
        }
        assert_eq!(pace.seconds_until_free(10), 5);
        pace.pause();
        pace.finished(Micros(3_600_000_000));
        pace.finished(Micros(3_600_500_000));
        assert_eq!(pace.seconds_until_free(10), 5);
        assert_eq!(pace.seconds_until_free(0), 1);
        assert_eq!(pace.seconds_until_free(100_000), RETRY_AFTER_S_MAX);
    }
}
