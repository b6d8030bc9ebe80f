//! Chooses the core of the decode lane's own thread while other programs compete for it.
//!
//! Each compute thread stays on its own core. While all threads share each operation, it does not
//! matter which of them has the core that another program uses. But a thread that leads, or
//! computes alone, should have an undisturbed core. Only a try shows which core is better. So the
//! thread swaps cores with a compute thread, and swaps back if that did not help.

use std::time::Duration;

use crate::clock::Micros;
use crate::pressure::Queued;

/// The window over which the time in the kernel's run queue is measured.
const WINDOW: Duration = Duration::from_millis(500);

/// A swap is tried if the thread spends at least this part of its time in the run queue. The swap
/// has helped if that part falls below `BETTER` times its former value.
const QUEUED_PART: f64 = 0.15;
const BETTER: f64 = 0.6;

/// The time until the next try: `REST` after a swap that helped. After each one that did not, the
/// time doubles, up to `REST_MAX`.
const REST: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(64);

/// Decides when the thread swaps cores. See the module's description.
pub(super) struct Seat {
    queued: Queued,
    looked: Micros,
    rule: Rule,
}

impl Seat {
    /// For the calling thread.
    pub fn new() -> Self {
        Self { queued: Queued::of_this_thread(), looked: Micros(0), rule: Rule::default() }
    }

    /// The compute thread (of `others`) with which the thread should swap cores now, if any.
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

/// The rule for swaps. It reads no clock.
#[derive(Debug, Default)]
struct Rule {
    /// The number of swaps tried. It selects the compute thread of the next swap.
    tries: usize,
    /// The part of time in the queue before the newest swap, until that swap is judged.
    before: Option<f64>,
    rest: Duration,
    rests_until: Micros,
}

impl Rule {
    /// Learns the part of a window that the thread spent in the queue. Returns the number of the
    /// swap to make. The same number again undoes the swap.
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

    /// Runs the rule for some windows on two cores. Other programs take a part of each. Returns the
    /// core at the end, and the number of swaps.
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
