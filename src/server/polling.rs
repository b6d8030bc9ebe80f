//! Whether the front lane polls, or sleeps between events.
//!
//! A lane that polls on a core of its own sees an event sooner. Where another program wants the core, it
//! would only take the other's time, and lose its own.

use std::time::Duration;

use crate::clock::Micros;
use crate::pressure::Queued;

/// Says whether the lane should poll.
#[derive(Debug)]
pub(super) struct Polling {
    queued: Queued,
    looked: Micros,
    /// It rests until this time.
    rests_until: Micros,
}

/// Time between two looks, and the part of it in a queue above which the lane rests.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const QUEUED_PART: f64 = 0.1;
/// How long it rests.
const REST: Duration = Duration::from_secs(1);

impl Polling {
    /// Of the calling thread.
    pub fn new(now: Micros) -> Self {
        Self { queued: Queued::of_this_thread(), looked: now, rests_until: now }
    }

    /// Whether the calling thread should poll. It asks often.
    pub fn is_fine(&mut self, now: Micros) -> bool {
        if now.since(self.looked) >= LOOK_EVERY.as_micros() as u64 {
            let queued = self.queued.since_last();
            self.observe(now, queued);
        }
        now >= self.rests_until
    }

    fn observe(&mut self, now: Micros, queued: Duration) {
        let passed = Duration::from_micros(now.since(self.looked));
        self.looked = now;
        if queued.as_secs_f64() > QUEUED_PART * passed.as_secs_f64() {
            self.rests_until = now + REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_rests_while_others_want_its_core() {
        let at = |ms: u64| Micros(1000 * ms);
        let mut polling = Polling::new(at(0));
        polling.observe(at(20), Duration::from_millis(1));
        assert!(polling.is_fine(at(21)));
        polling.observe(at(40), Duration::from_millis(9));
        assert!(!polling.is_fine(at(41)) && !polling.is_fine(at(1039)));
        assert!(polling.is_fine(at(1041)), "it tries again");
    }
}
