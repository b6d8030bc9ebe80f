//! When to plan the step after the running one: as late as is safe.
//!
//! What arrives while a step runs can join the next one only if that has not
//! been planned yet. Planned too late, it leaves the decode lane without work.
//! So the running step's time is forecast, too short rather than too long, and
//! the next is planned when most of it has passed.
//!
//! Where every slot is taken nothing could join: the next step is planned at
//! once, which spares the front lane a wake-up.

use std::time::Duration;

use crate::clock::Micros;
use crate::limits::{GATHER_MAX, PLAN_MARGIN, STEPS_IN_FLIGHT};

/// Steps that the forecast looks back on.
const STEPS: usize = 8;

/// What is known of the last steps and of the running one.
#[derive(Debug, Default)]
pub struct Forecast {
    recent: heapless::HistoryBuf<Step, STEPS>,
    /// Rows of the steps in flight, the running one first.
    in_flight: heapless::Deque<u32, STEPS_IN_FLIGHT>,
    /// When the running one began.
    began: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    rows: u32,
    micros: u32,
}

impl Forecast {
    /// A step was sent.
    pub fn sent(&mut self, rows: u32, now: Micros) {
        if self.in_flight.is_empty() {
            self.began = now;
        }
        self.in_flight.push_back(rows).expect("no more steps are in flight than this");
    }

    /// The running step came back, having taken `micros`; the next one runs.
    pub fn received(&mut self, micros: u32, now: Micros) {
        let rows = self.in_flight.pop_front().expect("it was sent");
        self.began = now;
        if rows > 0 && micros > 0 {
            self.recent.write(Step { rows, micros });
        }
    }

    /// When the running step began, if one runs.
    pub fn running_since(&self) -> Option<Micros> {
        (!self.in_flight.is_empty()).then_some(self.began)
    }

    /// Steps sent and not yet received.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// A moment, beside the steps: a fiftieth of the shortest recent one.
    pub fn moment(&self) -> Duration {
        let shortest = self.recent.iter().map(|step| step.micros).min().unwrap_or(0);
        Duration::from_micros(u64::from(shortest / 50)).min(GATHER_MAX)
    }

    /// True when the decode lane can take another step.
    fn has_room(&self) -> bool {
        !self.in_flight.is_full()
    }

    /// True when the next step may be planned now: late, but for who could join it.
    pub fn may_plan(&self, free_slots: usize, now: Micros) -> bool {
        self.in_flight.is_empty() || self.has_room() && (free_slots == 0 || now >= self.plan_at())
    }

    /// When the step after the running one may be planned, if one runs and
    /// none is planned behind it.
    pub fn wake_at(&self) -> Option<Micros> {
        (1..STEPS_IN_FLIGHT).contains(&self.in_flight.len()).then(|| self.plan_at())
    }

    /// The moment from which the next step may be planned.
    pub fn plan_at(&self) -> Micros {
        let Some(rows) = self.in_flight.front() else { return self.began };
        // A step never costs more a row than a smaller one does, so this is a
        // lower bound, whichever of the recent steps was like it.
        let bound = |step: &Step| {
            u64::from(step.micros) * u64::from(*rows.min(&step.rows)) / u64::from(step.rows)
        };
        let shortest = self.recent.iter().map(bound).min().unwrap_or(0);
        let margin = (shortest / 4).max(PLAN_MARGIN.as_micros() as u64); // milliseconds
        Micros(self.began.0 + shortest.saturating_sub(margin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of so many rows and microseconds, one after another.
    fn after(steps: &[(u32, u32)]) -> (Forecast, Micros) {
        let mut forecast = Forecast::default();
        let mut now = Micros(0);
        for (rows, micros) in steps {
            forecast.sent(*rows, now);
            now = Micros(now.0 + u64::from(*micros));
            forecast.received(*micros, now);
        }
        (forecast, now)
    }

    #[test]
    fn a_steady_step_is_followed_late_and_not_too_late() {
        let (mut forecast, now) = after(&[(8, 60_000), (8, 62_000), (8, 58_000)]);
        forecast.sent(8, now);
        assert_eq!(forecast.plan_at(), Micros(now.0 + 58_000 * 3 / 4));
        assert!(!forecast.may_plan(1, now), "somebody could join");
        assert!(forecast.may_plan(1, forecast.plan_at()));
        assert!(forecast.may_plan(0, now), "nobody could");
        assert_eq!(forecast.in_flight(), 1);
    }

    #[test]
    fn a_smaller_step_may_be_as_much_shorter() {
        let (mut forecast, now) = after(&[(8, 60_000)]);
        forecast.sent(1, now);
        assert_eq!(forecast.plan_at(), Micros(now.0 + 60_000 / 8 - 2_000));
        // A larger one is not taken to be longer.
        let (mut forecast, now) = after(&[(8, 60_000)]);
        forecast.sent(512, now);
        assert_eq!(forecast.plan_at(), Micros(now.0 + 45_000));
    }

    #[test]
    fn short_steps_and_unknown_ones_are_followed_at_once() {
        let (mut forecast, now) = after(&[(8, 1_500), (8, 1_600)]);
        forecast.sent(8, now);
        assert_eq!(forecast.plan_at(), now);
        let mut forecast = Forecast::default();
        forecast.sent(8, Micros(70));
        assert_eq!(forecast.plan_at(), Micros(70));
    }

    #[test]
    fn the_second_of_two_steps_begins_when_the_first_is_back() {
        let (mut forecast, now) = after(&[(4, 40_000)]);
        forecast.sent(4, now);
        forecast.sent(4, Micros(now.0 + 30_000));
        let later = Micros(now.0 + 40_000);
        forecast.received(40_000, later);
        assert_eq!(forecast.plan_at(), Micros(later.0 + 30_000));
    }
}
