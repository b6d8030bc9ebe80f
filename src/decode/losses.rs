//! What a step loses to other programs and to the kernel, so that a late token has a cause.

use std::time::Duration;

use super::mask::saturating;
use crate::clock::Micros;
use crate::memory::faults_on_this_thread;
use crate::pressure::Taken;
use crate::ring::message::Batch;

/// A step that takes so many times its expected time is looked at.
const LONGER: f64 = 1.25;
/// Others are looked at after this time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What steps lose to other programs and to the kernel.
pub(super) struct Losses {
    taken: Taken,
    looked: Micros,
    /// Faults, and time in the kernel.
    before: (u64, Duration),
}

impl Losses {
    /// Of the calling thread, which decodes, and its compute threads.
    pub fn new() -> Self {
        let (taken, before) = (Taken::from_this_threads_name(), faults_on_this_thread());
        Self { taken, looked: Micros(0), before }
    }

    /// Fills in what a step lost. It looks closely at steps that took longer than expected, and from
    /// time to time at others, so that little else counts.
    pub fn fill(&mut self, batch: &mut Batch, now: Micros) {
        let (faults, kernel) = faults_on_this_thread();
        if faults > self.before.0 {
            batch.faults_us = saturating(kernel.saturating_sub(self.before.1).as_micros() as u64);
        }
        self.before = (faults, kernel);
        let took = Duration::from_micros(now.since(batch.began));
        let is_late = batch.expected.is_some_and(|expected| took > expected.mul_f64(LONGER));
        if is_late || now.since(self.looked) > LOOK_EVERY.as_micros() as u64 {
            let leads = batch.threads.is_some_and(|threads| threads.led);
            let taken = self.taken.since_last(leads);
            self.looked = now;
            batch.queued_us = saturating(taken.as_micros() as u64);
        }
    }
}
