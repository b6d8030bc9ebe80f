//! How long an idle engine waits for requests that arrive together.
//!
//! Clients whose requests ended in the same step send their next ones at once. A step for the first
//! request alone would delay the others by a whole step. So an idle engine first waits for 1/50 of
//! a step. If all its texts wait for masks, it waits for these in the same way, for at most one
//! step.

use std::time::Duration;

use crate::clock::Micros;

/// Longest wait for requests that arrive together.
const GATHER_MAX: Duration = Duration::from_millis(5);

/// A wait of an idle engine. It ends when everything expected has come, or at `until`.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// The number of sequences or masks that are still expected.
    expected: usize,
    /// The end of the wait.
    until: Micros,
    /// True if the engine waits for masks, false if for requests.
    for_masks: bool,
}

impl Gathering {
    /// A request with `sequences` sequences arrived. `idle_slots` is the number of free slots if
    /// the engine was idle, and otherwise `None`. `step` is the time of the shortest step.
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

    /// A step came back. Clients whose sequences ended in it may send their next requests.
    pub fn stepped(&mut self, step: Option<Duration>, now: Micros) {
        *self = Self { expected: 0, until: now + gather_time(step), for_masks: false };
    }

    /// A sequence ended.
    pub fn ended(&mut self) {
        self.expected += 1;
    }

    /// `asked` masks have not come back. If `waits`, the engine can run nothing without them, so it
    /// waits for one step's time.
    pub fn masks(&mut self, asked: usize, waits: bool, step: Option<Duration>, now: Micros) {
        if self.for_masks {
            self.expected = asked;
        } else if asked > 0 && waits {
            *self =
                Self { expected: asked, until: now + step.unwrap_or_default(), for_masks: true };
        }
    }

    /// The end of the wait; `None` if nothing is expected.
    pub fn until(&self) -> Option<Micros> {
        (self.expected > 0).then_some(self.until)
    }
}

/// How long an idle engine waits for requests: 1/50 of a step, at most [`GATHER_MAX`].
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
