//! Measures the time that a step loses to other programs and to page faults, so that a late token
//! has a known cause.

use std::time::Duration;

use super::mask::saturating;
use crate::clock::Micros;
use crate::memory::{Faults, faults_of_this_thread};
use crate::pressure::Taken;
use crate::ring::message::Batch;

/// If a step takes longer than expected by this factor, the kernel is asked how long its threads
/// waited for a core.
const LONGER: f64 = 1.25;

/// After other steps the kernel is asked at most once in this time: asking after each of the
/// built-in model's short steps would cost too much.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The most time that a page fault without disk access takes: the kernel clears a huge page of 2
/// MiB.
const MINOR_FAULT_MAX: Duration = Duration::from_micros(500);

/// The counters from which losses are computed.
pub(super) struct Losses {
    taken: Taken,
    looked: Micros,
    before: Faults,
}

impl Losses {
    /// For the calling thread, which is the decode lane, and its compute threads.
    pub fn new() -> Self {
        let (taken, before) = (Taken::from_this_threads_name(), faults_of_this_thread());
        Self { taken, looked: Micros(0), before }
    }

    /// Fills in the losses of a step that ended `now`.
    pub fn fill(&mut self, batch: &mut Batch, now: Micros) {
        let took = Duration::from_micros(now.since(batch.began));
        let is_long = batch.expected.is_some_and(|expected| took > expected.mul_f64(LONGER));
        let mut taken = Duration::ZERO;
        if is_long || now.since(self.looked) > LOOK_EVERY.as_micros() as u64 {
            taken = self.taken.since_last(batch.threads.is_some_and(|threads| threads.led));
            self.looked = now;
        }
        let faults = faults_of_this_thread();
        let waited = time_of_faults(&self.before, &faults, took.saturating_sub(taken));
        self.before = faults;
        batch.queued_us = saturating(taken.as_micros() as u64); // far below 2^64, as the next
        batch.faults_us = saturating(waited.as_micros() as u64);
    }
}

/// Estimates the time of page faults in a step. `took` is the step's time without waits for a core.
fn time_of_faults(before: &Faults, after: &Faults, took: Duration) -> Duration {
    let kernel = after.kernel.saturating_sub(before.kernel);
    if after.major > before.major {
        // While a thread waits for the disk it uses no processor time, so all time but user time
        // counts.
        return took.saturating_sub(after.user.saturating_sub(before.user));
    }
    // Kernel time also includes sleeps and wake-ups, so the number of faults limits it.
    let minor = u32::try_from(after.minor - before.minor).unwrap_or(u32::MAX);
    kernel.min(MINOR_FAULT_MAX.saturating_mul(minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_faults_is_not_that_of_other_calls() {
        let ms = Duration::from_millis;
        let before = Faults { minor: 7, major: 1, kernel: ms(100), user: ms(900) };
        let after = |minor, major, kernel, user| {
            let (kernel, user) = (before.kernel + ms(kernel), before.user + ms(user));
            Faults { minor: before.minor + minor, major: before.major + major, kernel, user }
        };
        let time = |after| time_of_faults(&before, &after, ms(50));
        assert_eq!(time(after(0, 0, 20, 30)), Duration::ZERO);
        assert_eq!(time(after(2, 0, 20, 30)), ms(1), "the rest is for something else");
        assert_eq!(time(after(5_000, 0, 20, 30)), ms(20), "all of it");
        assert_eq!(time(after(0, 3, 1, 10)), ms(40), "and the disk");
    }
}
