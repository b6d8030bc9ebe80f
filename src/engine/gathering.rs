//! How long an idle engine waits for requests that arrive together.
//!
//! Clients whose requests ended in the same step send their next ones at once. A step for the first
//! of them alone would delay the others by a whole step. So an idle engine waits for a moment. In
//! the same way it waits for the masks of constrained texts, if it has nothing else to run.

use std::time::Duration;

use crate::clock::Micros;

/// Longest wait for requests that arrive together.
const GATHER_MAX: Duration = Duration::from_millis(5);

/// A wait of an idle engine. It ends when all that it waits for has come, or at its time.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Sequences or masks that are expected to come.
    expected: usize,
    /// The end of the wait.
    until: Micros,
    /// The engine waits for masks of sequences that are here.
    for_masks: bool,
}

impl Gathering {
    /// A request with `sequences` sequences arrived. `idle_slots` is the number of free slots if the
    /// engine had nothing to do before, and `step` the time of the shortest step.
    pub fn arrived(
        &mut self,
        sequences: usize,
        idle_slots: Option<usize>,
        step: Option<Duration>,
        now: Micros,
    ) {
        if self.for_masks {
            *self = Self::default();
        }
        if let Some(slots) = idle_slots.filter(|_| now >= self.until) {
            *self = Self { expected: slots, until: now + gather_time(step), for_masks: false };
        }
        self.expected = self.expected.saturating_sub(sequences);
    }

    /// A step came back. The clients of the sequences that end with it may send their next requests.
    pub fn stepped(&mut self, step: Option<Duration>, now: Micros) {
        *self = Self { expected: 0, until: now + gather_time(step), for_masks: false };
    }

    /// A sequence ended.
    pub fn ended(&mut self) {
        self.expected += 1;
    }

    /// `asked` masks have not come back. `waits` is true if the engine can run nothing without them;
    /// then it waits for one step's time.
    pub fn masks(&mut self, asked: usize, waits: bool, step: Option<Duration>, now: Micros) {
        if self.for_masks {
            self.expected = asked;
        } else if asked > 0 && waits {
            *self =
                Self { expected: asked, until: now + step.unwrap_or_default(), for_masks: true };
        }
    }

    /// The end of the wait, if there is something to wait for.
    pub fn until(&self) -> Option<Micros> {
        (self.expected > 0).then_some(self.until)
    }
}

/// How long an idle engine waits for requests that arrive together: a fiftieth of a step.
fn gather_time(step: Option<Duration>) -> Duration {
    step.map_or(Duration::ZERO, |step| (step / 50).min(GATHER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_idle_engine_waits_a_fiftieth_of_a_step_and_no_more_than_its_bound() {
        assert_eq!(gather_time(None), Duration::ZERO);
        assert_eq!(gather_time(Some(50 * MS)), MS);
        assert_eq!(gather_time(Some(10_000 * MS)), GATHER_MAX);
    }

    #[test]
    fn the_wait_ends_when_every_slot_has_a_sequence() {
        let mut gathering = Gathering::default();
        let (now, step) = (Micros(1000), Some(50 * MS));
        gathering.arrived(1, Some(3), step, now);
        assert_eq!(gathering.until(), Some(now + MS));
        gathering.arrived(1, Some(2), step, now); // the wait does not begin again
        gathering.arrived(1, Some(1), step, now);
        assert_eq!(gathering.until(), None);
    }

    #[test]
    fn clients_whose_sequences_ended_are_waited_for() {
        let mut gathering = Gathering::default();
        gathering.ended();
        gathering.stepped(Some(50 * MS), Micros(0));
        assert_eq!(gathering.until(), None, "none ended with this step");
        gathering.ended();
        assert_eq!(gathering.until(), Some(Micros(1000)));
        gathering.arrived(1, None, Some(50 * MS), Micros(10));
        assert_eq!(gathering.until(), None);
    }

    #[test]
    fn a_request_ends_the_wait_for_masks() {
        let mut gathering = Gathering::default();
        gathering.masks(2, true, Some(4 * MS), Micros(0));
        assert_eq!(gathering.until(), Some(Micros(4000)));
        gathering.masks(1, false, Some(4 * MS), Micros(1000));
        assert_eq!(gathering.until(), Some(Micros(4000)), "one is missing");
        gathering.arrived(1, None, Some(4 * MS), Micros(2000));
        assert_eq!(gathering.until(), None);
    }
}
