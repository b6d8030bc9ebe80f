//! Decides whether the front lane polls for events or sleeps until they come.
//!
//! A lane that polls on a core of its own sees an event sooner. If another program needs the core,
//! polling would take that program's time, and the kernel would later take the core from the lane.

use std::time::Duration;

use crate::clock::Micros;
use crate::pressure::Queued;

/// The state of the decision.
#[derive(Debug)]
pub(super) struct Polling {
    queued: Queued,
    looked: Micros,
    /// The lane does not poll until this time.
    rests_until: Micros,
}

/// The time between two measurements. If the lane spends more than `QUEUED_PART` of it in the
/// kernel's run queue, it stops polling.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const QUEUED_PART: f64 = 0.1;
/// The time for which the lane then does not poll.
const REST: Duration = Duration::from_secs(1);

impl Polling {
    /// For the calling thread.
    pub fn new(now: Micros) -> Self {
        Self { queued: Queued::of_this_thread(), looked: now, rests_until: now }
    }

    /// Whether the calling thread should go on polling. To be called between polls.
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
