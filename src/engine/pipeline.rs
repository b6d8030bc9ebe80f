//! The steps in flight, and the time to plan the next one: as late as is safe.
//!
//! A request that arrives during a step can join the next step only if the next step is not planned
//! yet. But a step that is planned too late leaves the decode lane without work. So the next step
//! is planned after three quarters of the running step's expected time, and at least 2 ms before
//! its end.
//!
//! If all slots are taken, no request could join. Then the next step is planned at once, which
//! saves the front lane a wake-up.

use std::time::Duration;

use crate::clock::Micros;
use crate::limits::STEPS_IN_FLIGHT;

/// The next step is planned at least this long before the running one is expected to end. This is
/// longer than the delay of a timer and of a wake-up.
const PLAN_MARGIN: Duration = Duration::from_millis(2);

/// The steps in flight.
#[derive(Debug, Default)]
pub struct Pipeline {
    /// The number and the expected time of each step, the running one first. The time is `None` if
    /// it is not known.
    in_flight: heapless::Deque<(u64, Option<Duration>), STEPS_IN_FLIGHT>,
    /// The time at which the running step began.
    began: Micros,
}

impl Pipeline {
    /// Notes that a step was sent.
    pub fn sent(&mut self, step: u64, expected: Option<Duration>, now: Micros) {
        if self.in_flight.is_empty() {
            self.began = now;
        }
        self.in_flight.push_back((step, expected)).expect("no more steps are in flight than this");
    }

    /// The running step came back, and the next one begins.
    pub fn received(&mut self, now: Micros) {
        self.in_flight.pop_front().expect("it was sent");
        self.began = now;
    }

    /// The number of the running step, and the time at which it began. `None` if no step runs.
    pub fn running(&self) -> Option<(u64, Micros)> {
        self.in_flight.front().map(|(step, _)| (*step, self.began))
    }

    /// Steps sent and not yet received.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// True when the next step may be planned now.
    pub fn may_plan(&self, free_slots: usize, now: Micros) -> bool {
        let has_room = !self.in_flight.is_full();
        self.in_flight.is_empty() || has_room && (free_slots == 0 || now >= self.plan_at())
    }

    /// The time at which to plan the next step. `None` if no step runs, or if the next one is
    /// already sent.
    pub fn wake_at(&self) -> Option<Micros> {
        (1..STEPS_IN_FLIGHT).contains(&self.in_flight.len()).then(|| self.plan_at())
    }

    /// The moment from which the next step may be planned.
    fn plan_at(&self) -> Micros {
        let Some((_, Some(expected))) = self.in_flight.front() else { return self.began };
        let margin = (*expected / 4).max(PLAN_MARGIN);
        self.began + expected.saturating_sub(margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_step_is_followed_late_and_not_too_late() {
        let mut pipeline = Pipeline::default();
        let now = Micros(1_000);
        pipeline.sent(1, Some(60 * MS), now);
        let late = now + 45 * MS;
        assert_eq!(pipeline.wake_at(), Some(late));
        assert!(!pipeline.may_plan(1, now), "somebody could join");
        assert!(pipeline.may_plan(1, late));
        assert!(pipeline.may_plan(0, now), "nobody could");
        assert_eq!(pipeline.in_flight(), 1);
    }

    #[test]
    fn short_steps_and_unknown_ones_are_followed_at_once() {
        for expected in [None, Some(MS), Some(2 * MS)] {
            let mut pipeline = Pipeline::default();
            pipeline.sent(1, expected, Micros(70));
            assert_eq!(pipeline.wake_at(), Some(Micros(70)), "{expected:?}");
        }
        let mut pipeline = Pipeline::default();
        pipeline.sent(1, Some(5 * MS), Micros(0));
        assert_eq!(pipeline.wake_at(), Some(Micros(3_000)), "a timer and a wake-up take time");
    }

    #[test]
    fn the_second_of_two_steps_begins_when_the_first_is_back() {
        let mut pipeline = Pipeline::default();
        pipeline.sent(1, Some(40 * MS), Micros(0));
        pipeline.sent(2, Some(40 * MS), Micros(30_000));
        assert_eq!(pipeline.wake_at(), None, "two are in flight");
        pipeline.received(Micros(41_000));
        assert_eq!(pipeline.running(), Some((2, Micros(41_000))));
        assert_eq!(pipeline.wake_at(), Some(Micros(71_000)));
    }
}
