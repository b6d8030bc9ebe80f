//! Predicts the time of a step with a small model, which is fitted to the steps that ran.
//!
//! Two curves give the time: one for steps with decode rows only, one for steps with prompt rows.
//! Both bend where the kernels change with the number of rows, so neither follows a formula. Each
//! is piecewise linear between knots at powers of two. A step moves the knots next to its number of
//! rows towards its time. A row also takes longer the more tokens are before it (its depth). That
//! slope is fitted by regression to the time that the curve leaves unexplained.
//!
//! If decode and prompt rows are one pass over the weights, the second curve is over all rows of a
//! step. If they are two passes, it is over the prompt rows, and the decode rows add their own
//! time.
//!
//! All of these times are for the fastest number of compute threads, alone on the machine: no other
//! program runs. `thread_choice.rs` multiplies them by a factor for the threads of the step and for
//! the machine's slowdown.
//!
//! Some steps take longer than expected. A margin follows the slowest one in a hundred, and bounds
//! on a step subtract it.

use std::ops::RangeInclusive;
use std::time::Duration;

pub use super::curve::Rows;
use super::curve::{Curve, Slope};
use super::thread_choice::ThreadChoice;
use super::tuning::{
    DECODE_SHARES_SPREAD, KNOT_RATE, MARGIN_MAX, MARGIN_RISE, MARGIN_START, STEP_SURPRISE_MAX,
    STEP_UNUSUAL, STEPS_WITHIN, UNUSED_FADES,
};
use crate::types::{Calibration, Threads};

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct StepCost {
    /// Decode and prompt rows of a step are one pass over the weights.
    one_pass: bool,
    decode: Kind,
    prefill: Kind,
    /// Extra microseconds of a decode row over a prompt row in the same pass: most prompt rows have
    /// no logits.
    decodes: Slope,
    /// The excess of the slowest mixed step in a hundred over its expected time, as a fraction of
    /// that time.
    margin: f64,
    /// Microseconds of a copy from one slot to another.
    copy: Option<f64>,
    /// Microseconds of the draft model for each of its guesses.
    draft: Option<f64>,
    threads: ThreadChoice,
}

impl StepCost {
    /// A model that knows nothing yet.
    pub fn new(one_pass: bool) -> Self {
        let decodes = Slope::with_spread(DECODE_SHARES_SPREAD);
        Self { one_pass, decodes, margin: MARGIN_START, ..Self::default() }
    }

    /// Learns from the steps that ran at the start.
    pub fn calibrate(&mut self, calibration: &Calibration) {
        self.threads.calibrate(calibration);
        for kind in calibration.kinds() {
            let fastest = kind[0];
            let (rows, none) = (Rows::of(0, fastest.rows), Rows::default());
            let took = fastest.took.as_secs_f64() * 1e6;
            // A few prompt rows take about as long as decode rows.
            self.learn(none, rows, 0, took, None);
            if !fastest.is_prompt {
                self.learn(rows, none, 0, took, None);
            }
        }
    }

    /// The compute threads for the next step, which has `rows` rows. `None` leaves them to the
    /// decode lane.
    pub fn choose_threads(&mut self, rows: usize) -> Option<Threads> {
        self.threads.choose(rows)
    }

    /// The compute threads of the last step, apart from trials, and the machine's slowdown.
    /// `None` before a calibration.
    pub fn threads(&self) -> Option<(Threads, f64)> {
        self.threads.state()
    }

    /// Whether other programs slow the steps.
    pub fn is_busy(&self) -> bool {
        self.threads.is_busy()
    }

    /// Learns from a step with these rows, with `copies` copies from one slot to another, and with
    /// `threads` compute threads.
    pub fn observe(
        &mut self,
        decode: Rows,
        prefill: Rows,
        copies: usize,
        threads: Option<Threads>,
        took: Duration,
    ) {
        let rows = decode.count + prefill.count;
        // Judge the machine only by steps whose expected time is known well.
        let knows = copies == 0 && self.knows(decode, prefill);
        let expected = self.alone(decode, prefill).filter(|us| *us > 0.0 && knows);
        let us = took.as_secs_f64() * 1e6;
        let usual = expected.filter(|_| self.threads.state().is_some());
        let usual = usual.map(|usual| match self.threads.is_slowed(threads) {
            true => usual..=usual,
            false => usual / STEP_UNUSUAL..=usual * STEP_UNUSUAL,
        });
        self.learn(decode, prefill, copies, us / self.threads.factor_of(threads, rows), usual);
        let part = expected.map(|expected| us / expected);
        let shorter = self.threads.observe(threads, rows, part, took);
        for kind in [&mut self.decode, &mut self.prefill] {
            kind.curve.scale(shorter);
            kind.depth.scale(shorter);
        }
        self.decodes.scale(shorter);
    }

    /// Learns from a step that took `took` microseconds with the fastest number of threads, alone
    /// on the machine. A time outside `usual` is cut to that range: the rest is not due to the
    /// rows.
    fn learn(
        &mut self,
        decode: Rows,
        prefill: Rows,
        copies: usize,
        took: f64,
        usual: Option<RangeInclusive<f64>>,
    ) {
        if copies > 0 {
            let Some(rows) = self.both(decode, prefill) else { return };
            follow(&mut self.copy, (took - rows).max(0.0) / copies as f64);
            return;
        }
        self.copy = self.copy.map(|copy| copy * (1.0 - UNUSED_FADES));
        let learned = usual.map_or(took, |usual| took.clamp(*usual.start(), *usual.end()));
        if prefill.count == 0 {
            self.decode.observe(decode, decode.count, learned);
            return;
        }
        if let Some(expected) = self.both(decode, prefill).filter(|_| decode.count > 0) {
            let is_beyond = took > expected * (1.0 + self.margin);
            self.margin += if is_beyond { MARGIN_RISE } else { -MARGIN_RISE / STEPS_WITHIN };
            self.margin = self.margin.clamp(0.0, MARGIN_MAX);
        }
        let took = learned;
        let count = self.pass(decode, prefill);
        let expected = self.both(decode, prefill);
        if let Some(apart) = self.apart_from_prompts(decode, count) {
            self.prefill.observe(prefill, count, (took - apart).max(0.0));
        }
        if let Some(expected) = expected.filter(|_| self.one_pass) {
            let took = took.min(STEP_SURPRISE_MAX * expected.max(1.0));
            self.decodes.observe(decode_share(decode, count), took - expected);
        }
    }

    /// Learns from a step before which the draft model made `guesses` guesses.
    pub fn observe_drafts(&mut self, guesses: usize, took: Duration) {
        follow(&mut self.draft, took.as_secs_f64() * 1e6 / guesses as f64);
    }

    /// Lowers the estimated cost of a drafted guess after a step without one, so that drafts are
    /// tried again.
    pub fn forget_drafts(&mut self) {
        self.draft = self.draft.map(|draft| draft * (1.0 - UNUSED_FADES));
    }

    /// The expected time of a drafted guess in microseconds, once one was made.
    pub fn draft(&self) -> Option<f64> {
        self.draft
    }

    /// The expected time of a step with these rows, once it is known.
    pub fn step(&self, decode: Rows, prefill: Rows) -> Option<Duration> {
        let us = self.alone(decode, prefill)?;
        Some(self.expected(us, decode.count + prefill.count))
    }

    /// Whether steps with about as many rows at about these depths have run recently.
    fn knows(&self, decode: Rows, prefill: Rows) -> bool {
        let (pass, prompt) = (self.pass(decode, prefill), prefill.count > 0);
        let decodes = decode.count == 0 || self.one_pass && prompt;
        (decodes || self.decode.curve.knows(decode.count))
            && (!prompt || self.prefill.curve.knows(pass) && self.prefill.depth.knows(prefill))
            && (decode.count == 0 || self.decode.depth.knows(decode))
    }

    /// The expected time of a step of `rows` rows with its threads on this machine now. `us` is its
    /// time with the fastest number of threads, alone on the machine.
    fn expected(&self, us: f64, rows: usize) -> Duration {
        Duration::from_secs_f64(us * self.threads.factor(rows) / 1e6)
    }

    /// The expected microseconds of a step with the fastest number of threads, alone on the
    /// machine.
    fn alone(&self, decode: Rows, prefill: Rows) -> Option<f64> {
        if prefill.count == 0 {
            return self.decode.at(decode, decode.count);
        }
        self.both(decode, prefill)
    }

    /// The expected microseconds of a step with prompt rows, with the fastest threads, alone on the
    /// machine.
    fn both(&self, decode: Rows, prefill: Rows) -> Option<f64> {
        let count = self.pass(decode, prefill);
        Some(self.apart_from_prompts(decode, count)? + self.prefill.at(prefill, count)?)
    }

    /// Rows of the pass over the weights that has the prompt rows.
    fn pass(&self, decode: Rows, prefill: Rows) -> usize {
        prefill.count + if self.one_pass { decode.count } else { 0 }
    }

    /// The microseconds of the decode rows that the curve for prompts does not cover. In one pass
    /// of `rows` rows these are the extra costs of decode rows. In two passes this is the whole
    /// decode pass.
    fn apart_from_prompts(&self, decode: Rows, rows: usize) -> Option<f64> {
        if !self.one_pass {
            return self.decode.at(decode, decode.count);
        }
        Some(self.decode.depth.at(decode) + self.decodes.at(decode_share(decode, rows)))
    }

    /// The expected time of a copy from one slot to another, once one was made.
    pub fn copy(&self) -> Option<Duration> {
        self.copy.map(|us| Duration::from_secs_f64(us / 1e6))
    }

    /// The expected time of a step with these decode rows only, once such a step has run.
    pub fn decode(&self, rows: Rows) -> Option<Duration> {
        self.step(rows, Rows::default())
    }

    /// The expected time of a step with these decode rows only, with the fastest threads, alone on
    /// the machine.
    pub fn decode_alone(&self, rows: Rows) -> Option<Duration> {
        self.alone(rows, Rows::default()).map(|us| Duration::from_secs_f64(us / 1e6))
    }

    /// The optimistic microseconds of a step with these decode rows only, once any such step has
    /// run. See `Curve::hoped_at`.
    pub fn hoped_decode(&self, rows: Rows) -> Option<f64> {
        let us = self.decode.hoped_at(rows, rows.count)?;
        Some(us * self.threads.factor(rows.count))
    }

    /// The most rows (up to `most`) of a prompt with `depth` computed tokens that may join the
    /// decode rows `decode`, so that 99 of 100 such steps stay within `bound`. `None` until both
    /// kinds have run.
    pub fn prefill_rows_within(
        &self,
        bound: Duration,
        decode: Rows,
        depth: usize,
        most: usize,
    ) -> Option<usize> {
        self.decode.at(decode, decode.count)?;
        self.most_rows(bound, most, |count| {
            let us = self.both(decode, Rows::of(depth, count))?;
            Some(us * self.threads.factor(decode.count + count))
        })
    }

    /// The most rows with logits (up to `most`) of a prompt with `depth` computed tokens that may
    /// join the decode rows `decode`, so that 99 of 100 such steps stay within `bound`. `None`
    /// until steps with decode rows have run.
    pub fn decode_rows_within(
        &self,
        bound: Duration,
        decode: Rows,
        depth: usize,
        most: usize,
    ) -> Option<usize> {
        self.most_rows(bound, most, |count| {
            let more = Rows::of(depth, count);
            let all =
                Rows { count: decode.count + more.count, depths: decode.depths + more.depths };
            let us = self.decode.at(all, all.count)?;
            Some(us * self.threads.factor(all.count))
        })
    }

    /// The most rows, up to `most`, whose time with the margin is within `bound`. `took` returns
    /// the microseconds of a number of rows.
    fn most_rows(
        &self,
        bound: Duration,
        most: usize,
        took: impl Fn(usize) -> Option<f64>,
    ) -> Option<usize> {
        let bound = bound.as_secs_f64() * 1e6 / (1.0 + self.margin);
        took(1)?;
        // More rows take longer, so bisect for the largest number that fits.
        let (mut fits, mut beyond) = (0, most + 1);
        while beyond - fits > 1 {
            let middle = fits.midpoint(beyond);
            if took(middle)? <= bound {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        Some(fits)
    }
}

/// Corrects an estimate by a part of its error. One measurement may be far off, so it counts as
/// [`STEP_SURPRISE_MAX`] times the estimate at most.
fn follow(estimate: &mut Option<f64>, seen: f64) {
    let known = estimate.get_or_insert(seen);
    *known += KNOT_RATE * (seen.min(STEP_SURPRISE_MAX * known.max(1.0)) - *known);
}

/// Encodes the share of decode rows in a pass of `rows` rows, for a [`Slope`] over that share.
fn decode_share(decode: Rows, rows: usize) -> Rows {
    Rows { count: rows, depths: decode.count }
}

/// The curve and the slope of one kind of row.
#[derive(Clone, Debug, Default)]
struct Kind {
    curve: Curve,
    depth: Slope,
}

impl Kind {
    /// The microseconds of a pass of `count` rows over the weights, with the depths of `rows`.
    fn at(&self, rows: Rows, count: usize) -> Option<f64> {
        if count == 0 {
            return Some(0.0);
        }
        let more = self.depth.at(rows);
        self.curve.at(count).map(|us| us + more)
    }

    /// Like [`Kind::at`], with [`Curve::hoped_at`].
    fn hoped_at(&self, rows: Rows, count: usize) -> Option<f64> {
        let more = self.depth.at(rows);
        self.curve.hoped_at(count).map(|us| us + more)
    }

    fn observe(&mut self, rows: Rows, count: usize, took: f64) {
        let Some(expected) = self.at(rows, count) else {
            return self.curve.observe(count, took);
        };
        let took = took.min(STEP_SURPRISE_MAX * expected.max(1.0));
        self.curve.observe(count, (took - self.depth.at(rows)).max(0.0));
        self.depth.observe(rows, took - expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TimedStep;

    fn rows(count: usize, depth: usize) -> Rows {
        Rows { count, depths: count * depth }
    }

    /// The time on a machine whose kernels work on four rows at a time.
    fn machine(decode: Rows, prefill: Rows) -> Duration {
        let fours = 17_000 * decode.count.next_multiple_of(4) / 4;
        let prompt = if prefill.count == 0 { 0 } else { 20_000 + 6_000 * prefill.count };
        let attention = 20 * decode.depths + 3 * prefill.depths;
        Duration::from_micros((18_000 + fours + prompt + attention) as u64)
    }

    fn trained() -> StepCost {
        let mut cost = StepCost::new(false);
        for step in 0..6_000 {
            let decode = rows(1 + step % 12, 100 + step * 7 % 400);
            let count = if step % 3 == 0 { [8, 20, 64, 200][step / 3 % 4] } else { 0 };
            let prefill = rows(count, step * 11 % 3000);
            cost.observe(decode, prefill, 0, None, machine(decode, prefill));
        }
        cost
    }

    /// Steps take their usual time. Beside another program, some take a time slice of the kernel
    /// longer.
    #[test]
    fn long_steps_do_not_drive_the_times_and_the_slowdown_apart() {
        let threads = Threads { count: 2, led: false };
        let step = |rows, took| TimedStep { threads, rows, is_prompt: false, took };
        let ms = Duration::from_millis;
        let mut cost = StepCost::new(false);
        cost.calibrate(&Calibration {
            candidates: vec![threads],
            steps: vec![step(1, ms(20)), step(8, ms(30))],
        });
        let one = rows(1, 100);
        for number in 0..5_000 {
            let took = match number {
                ..100 => ms(20),
                _ if number % 5 == 0 => ms(70),
                _ => ms(28),
            };
            cost.observe(one, rows(0, 0), 0, Some(threads), took);
        }
        let (_, slowdown) = cost.threads().unwrap();
        assert!((1.2..1.7).contains(&slowdown), "{slowdown}");
        let expected = cost.decode(one).unwrap();
        assert!(ms(26) < expected && expected < ms(42), "{expected:?}");
    }

    /// The deep rows of the first long prompts take longer than all rows before. The machine is
    /// free.
    #[test]
    fn long_prompts_are_not_taken_for_a_busy_machine() {
        let threads = Threads { count: 2, led: false };
        let step = |rows, is_prompt, us| TimedStep {
            threads,
            rows,
            is_prompt,
            took: Duration::from_micros(us),
        };
        let mut cost = StepCost::new(true);
        let took = |prompt: Rows| {
            Duration::from_micros(20_000 + 1_800 * prompt.count as u64 + prompt.depths as u64)
        };
        cost.calibrate(&Calibration {
            candidates: vec![threads],
            steps: vec![step(1, false, 20_000), step(64, true, 135_000)],
        });
        for prompt in 0..40 {
            for part in 0..8 {
                let part = rows(256, 128 + 256 * part);
                let before = cost.step(rows(0, 0), part);
                cost.observe(rows(0, 0), part, 0, Some(threads), took(part));
                let (_, slowdown) = cost.threads().unwrap();
                assert!(slowdown < 1.15, "prompt {prompt}, {part:?}: {slowdown}");
                if prompt > 20 {
                    let error = before.unwrap().as_secs_f64() / took(part).as_secs_f64() - 1.0;
                    assert!(error.abs() < 0.15, "prompt {prompt}, {part:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn it_comes_to_know_a_machine() {
        let cost = trained();
        for count in [1, 2, 4, 8, 12] {
            for depth in [100, 300, 500] {
                let decode = rows(count, depth);
                let (known, real) = (cost.decode(decode).unwrap(), machine(decode, rows(0, 0)));
                let error = known.as_secs_f64() / real.as_secs_f64() - 1.0;
                // The curve is linear where the real times go up in steps of four rows, so it errs
                // by that much.
                assert!(error.abs() < 0.3, "{decode:?}: {known:?}, and really {real:?}");
            }
        }
    }

    #[test]
    fn a_step_is_filled_up_to_the_bound_and_not_beyond() {
        let cost = trained();
        for count in [1, 4, 8] {
            for depth in [0, 1500, 3000] {
                let decode = rows(count, 300);
                let bound = 4 * machine(decode, rows(0, 0));
                let fit = cost.prefill_rows_within(bound, decode, depth, 512).unwrap();
                let took = machine(decode, rows(fit, depth + fit / 2));
                let part = took.as_secs_f64() / bound.as_secs_f64();
                assert!((0.6..1.25).contains(&part), "{count} + {fit} at {depth}: {part}");
            }
        }
        let far = Duration::from_secs(1000);
        let four = rows(4, 300);
        let most = cost.prefill_rows_within(far, four, 0, 300);
        assert_eq!(most, Some(300), "no more than there is room");
        assert_eq!(cost.prefill_rows_within(Duration::ZERO, four, 0, 300), Some(0));
    }

    #[test]
    fn the_bound_holds_for_the_slow_steps_and_no_slower_ones_are_feared() {
        let four = rows(4, 300);
        let bound = Duration::from_millis(300);
        // Every `between`-th step takes 1.3 times as long as the others.
        let part_of_bound = |between: usize| {
            let mut cost = trained();
            let mut took = Duration::ZERO;
            for step in 0..2_000 {
                let fit = cost.prefill_rows_within(bound, four, 100, 512).unwrap();
                took = machine(four, rows(fit, 100));
                let slower = if step % between == 0 { 1.3 } else { 1.0 };
                cost.observe(four, rows(fit, 100), 0, None, took.mul_f64(slower));
            }
            took.as_secs_f64() / bound.as_secs_f64()
        };
        let (often, rarely) = (part_of_bound(30), part_of_bound(500));
        assert!((0.7..0.8).contains(&often), "{often}");
        assert!((0.9..1.05).contains(&rarely), "{rarely}");
    }

    #[test]
    fn a_deeper_prompt_gets_fewer_rows() {
        let cost = trained();
        let bound = Duration::from_millis(400);
        let fit = |depth| cost.prefill_rows_within(bound, rows(4, 300), depth, 512).unwrap();
        assert!(fit(100) > fit(2900), "{} and {}", fit(100), fit(2900));
    }

    #[test]
    fn nothing_is_known_of_what_never_ran() {
        let mut cost = StepCost::new(false);
        let four = rows(4, 0);
        assert_eq!(cost.decode(four), None);
        assert_eq!(cost.prefill_rows_within(Duration::from_secs(1), four, 0, 100), None);
        cost.observe(rows(0, 0), rows(64, 0), 0, None, Duration::from_millis(640));
        // Steps with prompts only predict the cost of prompts beside decode rows. The cost of more
        // rows than ever ran is extrapolated in proportion.
        cost.observe(four, rows(0, 0), 0, None, Duration::from_millis(40));
        let bound = Duration::from_millis(1320).mul_f64(1.0 + MARGIN_START);
        let fit = cost.prefill_rows_within(bound, four, 0, 500).unwrap();
        assert!((120..=128).contains(&fit), "{fit}");
    }

    #[test]
    fn it_follows_a_machine_that_grows_slower() {
        let mut cost = trained();
        let four = rows(4, 300);
        let real = machine(four, rows(0, 0));
        for _ in 0..60 {
            cost.observe(four, rows(0, 0), 0, None, 2 * real);
        }
        assert!(cost.decode(four).unwrap().as_secs_f64() > 1.9 * real.as_secs_f64());
        for _ in 0..60 {
            cost.observe(four, rows(0, 0), 0, None, real);
        }
        let known = cost.decode(four).unwrap().as_secs_f64();
        assert!(known < 1.1 * real.as_secs_f64(), "and faster again");
    }

    #[test]
    fn a_copy_is_what_the_rows_do_not_explain() {
        let mut cost = trained();
        let (four, some) = (rows(4, 300), rows(16, 100));
        assert_eq!(cost.copy(), None);
        let took = machine(four, some) + 2 * Duration::from_millis(50);
        (0..50).for_each(|_| cost.observe(four, some, 2, None, took));
        let copy = cost.copy().unwrap().as_secs_f64();
        assert!((0.035..0.065).contains(&copy), "{copy}");
        (0..1_000).for_each(|_| cost.observe(four, rows(0, 0), 0, None, machine(four, rows(0, 0))));
        assert!(cost.copy().unwrap().as_secs_f64() < copy / 4.0, "it is tried again");
    }

    /// A page fault of five seconds must not starve prompts. With only the fewest rows (8 here), no
    /// step would ever show that more rows fit.
    #[test]
    fn one_long_step_is_soon_forgotten() {
        let mut cost = trained();
        let four = rows(4, 300);
        let bound = machine(four, rows(16, 100));
        let before = cost.prefill_rows_within(bound, four, 100, 512).unwrap();
        cost.observe(four, rows(before, 100), 0, None, Duration::from_secs(5));
        let mut fit = 0;
        for _ in 0..100 {
            fit = cost.prefill_rows_within(bound, four, 100, 512).unwrap().max(8);
            cost.observe(four, rows(fit, 100), 0, None, machine(four, rows(fit, 100)));
        }
        assert!(10 * fit >= 8 * before, "{fit} rows after it, {before} before");
    }
}
