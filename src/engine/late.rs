//! Finds the causes of late tokens.
//!
//! A token is late if the time since the previous token of its text exceeds a bound. Each step
//! reports how much time it lost to which cause. [`Lost`] has the sums of these times since the
//! start. So the difference between the sums at two tokens shows the causes of the time between
//! them, even if several steps lie between.

use std::time::Duration;

use crate::clock::Micros;
use crate::metrics::{CAUSES, Cause, FrontMetrics};
use crate::ring::message::Batch;
use crate::scheduler::Lateness;

/// A cause explains a late token only if it took at least 1/8 of the time between the two tokens.
const PART_MIN: u64 = 8;

/// Microseconds by cause, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost([u64; CAUSES]);

impl Lost {
    pub fn add(&mut self, cause: Cause, us: u64) {
        self.0[cause as usize] += us;
    }

    /// Adds the times that a step lost. `prompt_part` is the part of the model's time that was
    /// spent on prompts. The step came back at `now`.
    pub fn add_step(&mut self, batch: &Batch, prompt_part: f64, now: Micros) {
        if batch.decode_us == 0 {
            return; // nothing ran, so it has no times
        }
        let decode_us = u64::from(batch.decode_us);
        let taken = u64::from(batch.queued_us).min(decode_us);
        let faults = u64::from(batch.faults_us).min(decode_us - taken);
        let prompt = (decode_us - taken - faults) as f64 * prompt_part; // never negative
        let masks = batch.masks_took.as_micros() as u64;
        let worked = [batch.guess_us, batch.decode_us, batch.sample_us].map(u64::from);
        let ended = Micros(batch.began.0 + worked.iter().sum::<u64>());
        self.add(Cause::CoreTaken, taken);
        self.add(Cause::PageFault, faults);
        self.add(Cause::Prompt, prompt as u64);
        self.add(Cause::Mask, masks);
        self.add(Cause::Sampling, u64::from(batch.sample_us).saturating_sub(masks));
        self.add(Cause::Server, u64::from(batch.bubble_us) + now.since(ended));
    }

    /// The cause that took most of the `gap` microseconds since `before`. [`Cause::Model`] if it
    /// took less than 1/8 of them.
    fn cause(&self, before: &Self, gap: u64) -> Cause {
        let lost = |cause: &Cause| self.0[*cause as usize] - before.0[*cause as usize];
        let most = Cause::ALL.into_iter().max_by_key(lost).expect("there are some");
        if lost(&most) * PART_MIN >= gap { most } else { Cause::Model }
    }
}

/// The lost times, the bound, and the late tokens of the newest step.
#[derive(Debug, Default)]
pub(super) struct Late {
    pub lost: Lost,
    /// The longest time between two tokens that is not late; `None` if there is no bound, or none
    /// is known yet.
    pub bound: Option<Duration>,
    /// Late tokens of the newest step, and the cause of the last one.
    pub of_step: (u32, Option<Cause>),
}

/// The time of a text's newest token, and the lost times at that moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub at: Micros,
    lost: Lost,
}

impl Late {
    /// Records a step that came back. Must be called before its tokens are judged.
    pub fn begin_step(
        &mut self,
        batch: &Batch,
        lateness: &Lateness,
        metrics: &FrontMetrics,
        now: Micros,
    ) {
        self.lost.add_step(batch, lateness.prompt_part, now);
        self.of_step = (0, None);
        // A step that continues no text has no bound.
        if let Some(bound) = lateness.late_after {
            self.bound = Some(bound);
            metrics.late_after_us.set(bound.as_micros() as u64); // far below 2^64
        }
    }

    /// The mark of a token that came at this time.
    pub fn mark(&self, at: Micros) -> Mark {
        Mark { at, lost: self.lost }
    }

    /// The cause if the token after `mark` is late; `None` if it is in time. `own` has the
    /// microseconds since `mark` that only this text lost, by cause.
    pub fn judge(&mut self, mark: &Mark, own: &[(Cause, u64)], now: Micros) -> Option<Cause> {
        let gap = now.since(mark.at);
        let bound = self.bound?.as_micros() as u64; // far below 2^64
        if gap <= bound {
            return None;
        }
        let mut lost = self.lost;
        own.iter().for_each(|(cause, us)| lost.add(*cause, *us));
        let cause = lost.cause(&mark.lost, gap);
        self.of_step = (self.of_step.0 + 1, Some(cause));
        Some(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of a step, in milliseconds.
    #[derive(Clone, Copy, Default)]
    struct Step {
        decode: u32,
        sample: u32,
        bubble: u32,
        queued: u32,
        faults: u32,
        masks: u32,
        prompt_part: f64,
    }

    /// The cause if a token after these steps is late, with a bound of 50 ms.
    fn cause_of(steps: &[Step], own: &[(Cause, u64)]) -> Option<Cause> {
        let mut late = Late { bound: Some(Duration::from_millis(50)), ..Late::default() };
        let mark = late.mark(Micros(0));
        let mut batch = Box::<Batch>::default();
        let mut now = Micros(0);
        for step in steps {
            batch.began = now + Duration::from_millis(step.bubble.into());
            (batch.decode_us, batch.sample_us) = (1_000 * step.decode, 1_000 * step.sample);
            (batch.bubble_us, batch.queued_us) = (1_000 * step.bubble, 1_000 * step.queued);
            batch.faults_us = 1_000 * step.faults;
            batch.masks_took = Duration::from_millis(step.masks.into());
            now = batch.began + Duration::from_millis((step.decode + step.sample).into());
            late.lost.add_step(&batch, step.prompt_part, now);
        }
        late.judge(&mark, own, now)
    }

    #[test]
    fn the_largest_part_of_the_gap_is_the_cause() {
        let step = Step { decode: 20, ..Step::default() };
        let long = |decode, prompt_part| Step { decode, prompt_part, ..step };
        let causes = [
            (vec![step], None),
            (vec![long(200, 0.9)], Some(Cause::Prompt)),
            (vec![long(200, 0.0)], Some(Cause::Model)),
            (vec![step, step, long(20, 0.4)], Some(Cause::Prompt)),
            (vec![Step { queued: 60, ..long(80, 0.5) }], Some(Cause::CoreTaken)),
            (vec![Step { faults: 60, ..long(80, 0.0) }], Some(Cause::PageFault)),
            (vec![Step { sample: 40, ..step }], Some(Cause::Sampling)),
            (vec![Step { sample: 40, masks: 39, ..step }], Some(Cause::Mask)),
            (vec![Step { bubble: 40, ..step }], Some(Cause::Server)),
        ];
        for (index, (steps, cause)) in causes.into_iter().enumerate() {
            assert_eq!(cause_of(&steps, &[]), cause, "{index}");
        }
        let waited = [(Cause::Mask, 30_000)];
        assert_eq!(cause_of(&[long(60, 0.3)], &waited), Some(Cause::Mask));
    }

    /// Such a batch has no times: its `began` is 0.
    #[test]
    fn a_batch_without_rows_loses_nothing() {
        let mut lost = Lost::default();
        lost.add_step(&Box::<Batch>::default(), 0.0, Micros(1_000_000_000));
        assert_eq!(lost, Lost::default());
    }

    #[test]
    fn what_was_lost_before_the_last_token_does_not_count() {
        let mut late = Late { bound: Some(Duration::from_millis(50)), ..Late::default() };
        late.lost.add(Cause::Prompt, 500_000);
        let mark = late.mark(Micros(0));
        late.lost.add(Cause::CoreTaken, 20_000);
        assert_eq!(late.judge(&mark, &[], Micros(60_000)), Some(Cause::CoreTaken));
        assert_eq!(late.of_step, (1, Some(Cause::CoreTaken)));
        late.bound = None;
        assert_eq!(late.judge(&mark, &[], Micros(60_000)), None, "there is no bound");
    }
}
