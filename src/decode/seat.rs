//! Which core the decode lane's own thread has, while other programs want it.
//!
//! Each compute thread stays on its own core. While all of them share each operation, it does not matter
//! which of them has the core that another program uses. But a thread that leads, or computes alone,
//! should have another one. Which core is better shows only there: so it changes places with a compute
//! thread, and back if that did not help.

use std::time::Duration;

use crate::clock::Micros;
use crate::pressure::Queued;

/// The time over which the time in a queue is looked at.
const WINDOW: Duration = Duration::from_millis(500);

/// The part of the time in a queue from which on another core may be better, and the factor by which it
/// must be less there.
const QUEUED_PART: f64 = 0.15;
const BETTER: f64 = 0.6;

/// The time until the next try, after a change that helped and at most. It doubles with each one that
/// did not.
const REST: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(64);

/// Says when the thread should change places. See the module's description.
pub(super) struct Seat {
    queued: Queued,
    looked: Micros,
    rule: Rule,
}

impl Seat {
    /// Of the calling thread.
    pub fn new() -> Self {
        Self { queued: Queued::of_this_thread(), looked: Micros(0), rule: Rule::default() }
    }

    /// Whether the thread should change places with a compute thread now, and with which of `others`.
    pub fn change(&mut self, others: usize, now: Micros) -> Option<usize> {
        let passed = Duration::from_micros(now.since(self.looked));
        if passed < WINDOW || others == 0 {
            return None;
        }
        self.looked = now;
        let part = self.queued.since_last().div_duration_f64(passed);
        self.rule.observe(part.min(1.0), now).map(|tries| tries % others)
    }
}

/// The rule without a clock.
#[derive(Debug, Default)]
struct Rule {
    /// Changes that were tried. It names the thread of the next one.
    tries: usize,
    /// The part in a queue before the newest change, until that is judged.
    before: Option<f64>,
    rest: Duration,
    rests_until: Micros,
}

impl Rule {
    /// Learns the part of a window that the thread spent in a queue. Returns the number of the change to
    /// make. The same number twice is a change and its opposite.
    fn observe(&mut self, part: f64, now: Micros) -> Option<usize> {
        if let Some(before) = self.before.take() {
            let helped = part < before * BETTER;
            self.rest = if helped { REST } else { (2 * self.rest).clamp(REST, REST_MAX) };
            self.rests_until = now + self.rest;
            let tried = self.tries;
            self.tries += 1;
            return (!helped).then_some(tried);
        }
        if part < QUEUED_PART || now < self.rests_until {
            return None;
        }
        self.before = Some(part);
        Some(self.tries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the rule for some windows on two cores, of which a program takes a part each. Returns the
    /// core at the end, and the changes.
    fn run(rule: &mut Rule, windows: u64, taken: [f64; 2]) -> (usize, usize) {
        let (mut core, mut changes) = (1, 0);
        for window in 0..windows {
            if rule.observe(taken[core], Micros(500_000 * window)).is_some() {
                core = 1 - core;
                changes += 1;
            }
        }
        (core, changes)
    }

    #[test]
    fn it_leaves_a_core_that_another_program_uses() {
        assert_eq!(run(&mut Rule::default(), 100, [0.0, 0.5]), (0, 1));
        assert_eq!(run(&mut Rule::default(), 100, [0.5, 0.0]), (1, 0), "and stays on a good one");
    }

    #[test]
    fn where_both_are_as_bad_it_tries_ever_more_rarely() {
        let (core, changes) = run(&mut Rule::default(), 1200, [0.5, 0.5]); // ten minutes
        assert_eq!(core, 1);
        assert!((8..40).contains(&changes), "{changes}");
    }
}
