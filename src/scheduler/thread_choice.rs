//! Chooses the number of compute threads of a step, and follows the machine's slowdown.
//!
//! More threads are not always faster. In the short steps of a small model, threads wait for each
//! other longer than they compute. A thread whose core another program takes delays all others. At
//! the start, some numbers of threads are measured: the candidates. The slowdown of a candidate is
//! the time of its steps, divided by their time alone on the machine (without other programs). A
//! step gets the candidate with the least expected time.
//!
//! The other candidates are tried from time to time, for a few steps each. The time between trials
//! is short after the start and after each change of the machine, and then grows.

use std::time::Duration;

use super::curve::KNOTS;
use super::tuning::{
    ARITHMETIC_ROWS, LED_ROWS_MAX, SLOWDOWN_BUSY, SLOWDOWN_DIFFERS, SLOWDOWN_FREE, SLOWDOWN_MAX,
    SLOWDOWN_MIN, SLOWDOWN_STEPS, SLOWDOWN_STEPS_MIN, SLOWDOWN_WITNESSES, STEP_SHORT,
    THREADS_WORTH, THREADS_WORTH_SHORT, TRIAL_BUSY, TRIAL_FACTOR_MAX, TRIAL_FIRST, TRIAL_LATE,
    TRIAL_LOSS, TRIAL_SOON, TRIAL_STEPS, TRIAL_UNKNOWN_LOSS,
};
use crate::limits::THREAD_CANDIDATES_MAX;
use crate::types::{Calibration, Threads, TimedStep};

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct ThreadChoice {
    /// The one with the most threads first. Empty before a calibration; the decode lane then
    /// chooses.
    candidates: heapless::Vec<Candidate, THREAD_CANDIDATES_MAX>,
    /// Most rows of the steps at the start.
    measured_rows: usize,
    /// How many times as fast as one thread other candidates must be, for 1, 2, 4 … rows.
    worth: [f64; KNOTS],
    chosen: usize,
    /// Whether other programs take a part of the machine, as far as the steps tell.
    is_busy: bool,
    trial: Option<Trial>,
    /// Trials left that may also take candidates that seem slow. The machine had other work when
    /// they were measured.
    doubts: usize,
    /// The candidate that was tried last.
    tried: usize,
    /// Step time since the last trial, and until the next one.
    since: Duration,
    until: Duration,
}

/// A candidate that is tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    candidate: usize,
    steps_left: usize,
    /// The expected time of a step without the trial, and the time that the trial may still lose.
    /// The unit is the time of a step with the fastest candidate alone on the machine.
    factor: f64,
    may_lose: f64,
}

#[derive(Clone, Debug)]
struct Candidate {
    threads: Threads,
    /// Alone on the machine: the time of a step with these threads, divided by that with the
    /// fastest candidate, for 1, 2, 4 … rows.
    alone: [f64; KNOTS],
    /// It is the best candidate on a free machine for some step that ran.
    is_needed: bool,
    /// The time of a step, divided by that alone on the machine.
    slowdown: f64,
    /// The times of the last steps, each divided by that alone on the machine.
    last: heapless::HistoryBuf<f64, SLOWDOWN_STEPS>,
}

impl Candidate {
    fn new(threads: Threads, alone: [f64; KNOTS]) -> Self {
        Self { threads, alone, is_needed: false, slowdown: 1.0, last: heapless::HistoryBuf::new() }
    }

    /// The expected time of a step of `rows` rows, divided by that with the fastest candidate alone
    /// on the machine.
    fn factor(&self, rows: usize) -> f64 {
        self.alone[class(rows)] * self.slowdown
    }

    /// Whether a step of `rows` rows may run with it. See [`LED_ROWS_MAX`].
    fn suits(&self, rows: usize) -> bool {
        rows <= LED_ROWS_MAX || !self.threads.led
    }

    /// Resets the slowdown to that of a free machine.
    fn forget(&mut self) {
        self.last.clear();
        self.slowdown = 1.0;
    }

    /// Learns from a step that took `ratio` times as long as alone on the machine.
    fn observe(&mut self, ratio: f64) {
        self.last.write(ratio);
        let newest: heapless::Vec<f64, SLOWDOWN_WITNESSES> =
            self.last.oldest_ordered().rev().take(SLOWDOWN_WITNESSES).copied().collect();
        let least = newest.iter().copied().fold(f64::MAX, f64::min);
        if newest.is_full() && least > self.slowdown * SLOWDOWN_DIFFERS {
            self.slowdown = least.min(SLOWDOWN_MAX);
            self.last.clear(); // the machine has changed since the earlier steps
            self.last.extend(newest);
        } else if let Some(mean) = self.usual() {
            let is_slowed = !(1.0 / SLOWDOWN_DIFFERS..=SLOWDOWN_DIFFERS).contains(&mean);
            self.slowdown = if is_slowed { mean.clamp(SLOWDOWN_MIN, SLOWDOWN_MAX) } else { 1.0 };
        }
    }

    /// The mean of the last steps without the longest one, which may have met a page fault. `None`
    /// for too few.
    fn usual(&self) -> Option<f64> {
        let last = self.last.as_slice();
        let longest = last.iter().copied().max_by(f64::total_cmp)?;
        let sum: f64 = last.iter().sum();
        (last.len() >= SLOWDOWN_STEPS_MIN).then(|| (sum - longest) / (last.len() - 1) as f64)
    }
}

fn class(rows: usize) -> usize {
    (rows.max(1).ilog2() as usize).min(KNOTS - 1)
}

impl ThreadChoice {
    /// Learns the candidates from the steps that ran at the start.
    pub fn calibrate(&mut self, calibration: &Calibration) {
        let threads = &calibration.candidates;
        let kinds = calibration.kinds();
        let nearest = |rows: usize| {
            let distance = |kind: &&Vec<TimedStep>| class(kind[0].rows).abs_diff(class(rows));
            kinds.iter().min_by_key(distance)
        };
        self.measured_rows = kinds.iter().map(|kind| kind[0].rows).max().unwrap_or(0);
        self.worth = std::array::from_fn(|class| {
            let rows = 1_usize << class;
            // More rows than were measured take longer, in proportion.
            let times = |kind: &Vec<TimedStep>| rows.div_ceil(kind[0].rows) as u32; // at most 2^KNOTS
            let took = nearest(rows).map(|kind| kind[0].took * times(kind));
            if took.is_some_and(|took| took < STEP_SHORT) {
                THREADS_WORTH_SHORT
            } else {
                THREADS_WORTH
            }
        });
        let most = threads.iter().map(|threads| threads.count).max().unwrap_or(1);
        let measured = |threads: Threads, rows: usize| {
            // Memory limits steps of few rows, so they say little about steps of many rows.
            let may_tell =
                |kind: &&Vec<TimedStep>| kind[0].rows >= ARITHMETIC_ROWS || rows < ARITHMETIC_ROWS;
            let nearest = nearest(rows).filter(may_tell)?;
            let its = nearest.iter().find(|step| step.threads == threads)?;
            Some(its.took.as_secs_f64() / nearest[0].took.as_secs_f64().max(1e-9))
        };
        self.candidates = threads
            .iter()
            .map(|threads| {
                let shared = || f64::from(most) / f64::from(threads.count);
                let of_class = |class: usize| measured(*threads, 1 << class).unwrap_or_else(shared);
                Candidate::new(*threads, std::array::from_fn(of_class))
            })
            .collect();
        (self.chosen, self.is_busy, self.trial, self.until) = (0, false, None, TRIAL_FIRST);
    }

    /// The threads for the next step, which has `rows` rows. `None` leaves it to the decode lane.
    pub fn choose(&mut self, rows: usize) -> Option<Threads> {
        let (best, factor) = self.best(rows);
        self.chosen = best;
        // Another program slows the threads that would be chosen on a free machine, or did so when
        // they ran last.
        let is_pressed = self.is_busy || best != self.best_alone(rows);
        // Longer steps than those at the start would make a trial expensive.
        let may_try = is_pressed || rows <= self.measured_rows;
        if may_try && self.trial.is_none() && self.since >= self.until {
            self.begin_trial(rows, factor, is_pressed);
        }
        let suits = |index: usize| self.candidates[index].suits(rows);
        let trial = self.trial.filter(|trial| may_try && suits(trial.candidate));
        let index = trial.map_or(best, |trial| trial.candidate);
        self.candidates.get(index).map(|candidate| candidate.threads)
    }

    /// Begins to try the next candidate that may be faster, if there is one.
    fn begin_trial(&mut self, rows: usize, factor: f64, is_pressed: bool) {
        let most = if is_pressed { TRIAL_BUSY } else { TRIAL_LATE };
        (self.since, self.until) = (Duration::ZERO, (2 * self.until).min(most));
        for after in 1..=self.candidates.len() {
            let index = (self.tried + after) % self.candidates.len();
            let candidate = &mut self.candidates[index];
            let tries_all = is_pressed || self.doubts > 0;
            if index != self.chosen
                && candidate.suits(rows)
                && (tries_all || candidate.factor(rows) < TRIAL_FACTOR_MAX * factor)
            {
                candidate.last.clear();
                self.tried = index;
                self.doubts = self.doubts.saturating_sub(1);
                self.trial = Some(Trial {
                    candidate: index,
                    steps_left: TRIAL_STEPS,
                    factor,
                    may_lose: TRIAL_LOSS * factor,
                });
                return;
            }
        }
    }

    /// The fastest candidate now, and its factor.
    fn best(&self, rows: usize) -> (usize, f64) {
        let factor = |candidate: &Candidate| candidate.factor(rows);
        let now = self.best_by(rows, factor);
        let of = |index: usize| self.candidates.get(index).map_or(1.0, factor);
        let chosen = of(self.chosen);
        // On a busy machine the factors change often, so a choice stays until another is clearly
        // faster. This rule is not for short steps, where one thread wins unless others are much
        // faster.
        let may_stay = |one: &Candidate| one.suits(rows);
        let stays = self.is_busy
            && self.worth[class(rows)] < THREADS_WORTH_SHORT
            && self.candidates.get(self.chosen).is_some_and(may_stay)
            && chosen <= now.1 * THREADS_WORTH
            && chosen <= of(0);
        if stays { (self.chosen, chosen) } else { now }
    }

    /// The best candidate by `factor`, and its factor. One thread never waits for another, and
    /// leaves the other cores to the front lane. So it wins unless the fastest candidate is faster
    /// by `worth`. Next, the candidate with the most threads wins unless the fastest one is faster
    /// by [`THREADS_WORTH`].
    fn best_by(&self, rows: usize, factor: impl Fn(&Candidate) -> f64) -> (usize, f64) {
        let of = |index: usize| (index, self.candidates.get(index).map_or(1.0, &factor));
        let suits = |index: &usize| self.candidates[*index].suits(rows);
        let all = (0..self.candidates.len()).filter(suits).map(of);
        let fastest = all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 1.0));
        let is_one = |candidate: &Candidate| candidate.threads == Threads { count: 1, led: false };
        let one = of(self.candidates.iter().position(is_one).unwrap_or(0));
        if one.1 <= fastest.1 * self.worth[class(rows)] {
            return one;
        }
        let most = of(0);
        if most.1 <= fastest.1 * THREADS_WORTH { most } else { fastest }
    }

    /// The best candidate alone on the machine.
    fn best_alone(&self, rows: usize) -> usize {
        self.best_by(rows, |candidate| candidate.alone[class(rows)]).0
    }

    /// The expected time of a step of `rows` rows with the threads that it would get now, divided
    /// by that with the fastest candidate alone on the machine.
    pub fn factor(&self, rows: usize) -> f64 {
        self.best(rows).1
    }

    /// Whether other programs slow steps with these threads. Their times then say little about the
    /// rows.
    pub fn is_slowed(&self, threads: Option<Threads>) -> bool {
        let mut its = self.candidates.iter().filter(|one| Some(one.threads) == threads);
        its.any(|candidate| candidate.slowdown > SLOWDOWN_FREE)
    }

    /// [`ThreadChoice::factor`] of a step that ran with `threads`. 1 if these are no candidate.
    pub fn factor_of(&self, threads: Option<Threads>, rows: usize) -> f64 {
        self.candidates
            .iter()
            .find(|candidate| Some(candidate.threads) == threads)
            .map_or(1.0, |candidate| candidate.factor(rows))
    }

    /// Learns from a step of `rows` rows that took `took`. `part` is its time divided by the
    /// expected time with the fastest candidate alone on the machine, if that is known. Returns the
    /// factor by which all times alone on the machine are to be corrected: 1, or less if the
    /// machine had other work at the start and was measured too slow.
    pub fn observe(
        &mut self,
        threads: Option<Threads>,
        rows: usize,
        part: Option<f64>,
        took: Duration,
    ) -> f64 {
        self.since += took;
        let is_its = |candidate: &Candidate| Some(candidate.threads) == threads;
        let Some(index) = self.candidates.iter().position(is_its) else { return 1.0 };
        let class = class(rows);
        let is_no_trial = self.best(rows).0 == index;
        let is_best_alone = self.best_alone(rows) == index;
        let candidate = &mut self.candidates[index];
        let before = candidate.slowdown;
        if let Some(part) = part {
            candidate.observe(part / candidate.alone[class]);
        }
        if candidate.slowdown < 1.0 {
            candidate.alone.iter_mut().for_each(|alone| *alone *= candidate.slowdown);
            candidate.forget();
            self.doubts = THREAD_CANDIDATES_MAX;
        }
        candidate.is_needed |= is_best_alone;
        let slowdown = candidate.slowdown;
        if is_no_trial {
            // Another candidate may be faster now.
            if slowdown > SLOWDOWN_BUSY && !self.is_busy
                || slowdown < SLOWDOWN_FREE && before > SLOWDOWN_FREE
            {
                self.until = TRIAL_SOON;
            }
            // A candidate that was never slowed does not show that a slowed one is free again.
            let mut needed = self.candidates.iter().filter(|candidate| candidate.is_needed);
            let all_are_free = before > SLOWDOWN_FREE
                || !needed.any(|candidate| candidate.slowdown > SLOWDOWN_BUSY);
            let is_free = slowdown < SLOWDOWN_FREE && is_best_alone && all_are_free;
            if self.is_busy && is_free {
                // The other programs have ended, so the slowdowns of all candidates are out of
                // date.
                self.candidates.iter_mut().for_each(Candidate::forget);
            }
            self.is_busy = if self.is_busy { !is_free } else { slowdown > SLOWDOWN_BUSY };
        }
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.candidate == index) {
            trial.steps_left -= usize::from(part.is_some());
            trial.may_lose -= part.map_or(TRIAL_UNKNOWN_LOSS, |part| part - trial.factor);
            if trial.steps_left == 0 || trial.may_lose < 0.0 {
                self.trial = None;
            }
        }
        let shorter = self.candidates[index].alone[class].min(1.0);
        let alone = self.candidates.iter_mut().flat_map(|candidate| &mut candidate.alone);
        alone.for_each(|alone| *alone /= shorter);
        shorter
    }

    /// Whether other programs take a part of the machine, as far as the steps tell.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The number of threads of the last step, apart from trials, and its slowdown. `None` before a
    /// calibration.
    pub fn state(&self) -> Option<(Threads, f64)> {
        self.candidates.get(self.chosen).map(|candidate| (candidate.threads, candidate.slowdown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn of(count: u16) -> Threads {
        Threads { count, led: false }
    }

    /// Two threads are twice as fast as one, except for a single row.
    fn calibrated() -> ThreadChoice {
        let step = |threads, rows, ms| TimedStep {
            threads: of(threads),
            rows,
            is_prompt: false,
            took: ms * MS,
        };
        let steps = vec![
            step(2, 1, 13),
            step(1, 1, 10),
            step(2, 8, 20),
            step(1, 8, 40),
            step(2, 64, 100),
            step(1, 64, 200),
        ];
        let mut candidates = ThreadChoice::default();
        candidates.calibrate(&Calibration { candidates: vec![of(2), of(1)], steps });
        candidates
    }

    /// Runs steps on a machine on which each candidate has a slowdown. Returns the steps with each
    /// number of threads.
    fn run(
        candidates: &mut ThreadChoice,
        rows: usize,
        steps: usize,
        slowdown: impl Fn(u16) -> f64,
    ) -> [usize; 3] {
        let mut ran = [0; 3];
        for _ in 0..steps {
            let threads = candidates.choose(rows).unwrap();
            let alone = candidates
                .candidates
                .iter()
                .find(|candidate| candidate.threads == threads)
                .unwrap()
                .alone;
            let part = alone[class(rows)] * slowdown(threads.count);
            candidates.observe(Some(threads), rows, Some(part), (20.0 * part) as u32 * MS);
            ran[usize::from(threads.count)] += 1;
        }
        ran
    }

    #[test]
    fn without_a_calibration_there_is_no_choice() {
        let mut candidates = ThreadChoice::default();
        candidates.calibrate(&Calibration::default());
        assert_eq!(candidates.choose(8), None);
        candidates.observe(Some(of(2)), 8, Some(3.0), MS);
        assert_eq!(
            (candidates.factor(8), candidates.factor_of(Some(of(2)), 8), candidates.state()),
            (1.0, 1.0, None)
        );
    }

    #[test]
    fn alone_each_number_of_rows_has_its_fastest_candidate() {
        let mut candidates = calibrated();
        for (rows, threads) in [(1, 1), (8, 2), (7, 2), (64, 2), (300, 2), (1, 1)] {
            assert_eq!(candidates.choose(rows), Some(of(threads)), "{rows} rows");
            assert!((candidates.factor(rows) - 1.0).abs() < 1e-9);
        }
        let ran = run(&mut candidates, 1, 30_000, |_| 1.0); // ten minutes
        assert!(ran[2] <= TRIAL_STEPS * 14, "{ran:?}: the other one is tried ever more rarely");
        let ran = run(&mut candidates, 8, 30_000, |_| 1.0);
        assert_eq!(ran[1], 0, "one that is much slower is not tried");
    }

    /// A program that ran at the start only made one candidate look bad.
    #[test]
    fn a_wrong_calibration_is_found_out() {
        let mut candidates = calibrated();
        let wrong = |threads| if threads == 2 { 0.6 } else { 1.0 };
        run(&mut candidates, 1, 300, wrong);
        assert!(run(&mut candidates, 1, 100, wrong)[2] > 90);
    }

    #[test]
    fn the_slowdown_follows_the_machine_in_three_steps_and_not_in_one() {
        let mut candidates = calibrated();
        run(&mut candidates, 8, 10, |_| 1.0);
        run(&mut candidates, 8, 1, |_| 9.0);
        assert!((candidates.factor(8) - 1.0).abs() < 1e-9, "one long step says nothing");
        run(&mut candidates, 8, 3, |_| 1.0);
        run(&mut candidates, 8, 3, |_| 1.5);
        assert!((candidates.factor(8) - 1.5).abs() < 1e-9, "{}", candidates.factor(8));
        run(&mut candidates, 8, 30, |_| 1.0);
        assert!((candidates.factor(8) - 1.0).abs() < 1e-9, "and back");
    }

    /// Another program takes one core: two threads are three times as slow, one is as fast as
    /// before.
    #[test]
    fn threads_that_cost_more_than_they_bring_are_left_out_while_they_do() {
        let mut candidates = calibrated();
        run(&mut candidates, 8, 100, |_| 1.0);
        let taken = |threads| if threads == 2 { 3.0 } else { 1.0 };
        run(&mut candidates, 8, 200, taken);
        let ran = run(&mut candidates, 8, 1_000, taken);
        assert!(ran[1] > 970 && ran[2] >= 2, "{ran:?}: mostly one, and two are tried");
        run(&mut candidates, 8, 450, |_| 1.0); // 18 s
        assert!(run(&mut candidates, 8, 100, |_| 1.0)[2] > 90, "the machine is free again");
    }

    /// All candidates are equally slowed: the one that is fastest alone stays, others are tried
    /// rarely.
    #[test]
    fn a_trial_that_fails_is_short() {
        let mut candidates = calibrated();
        let ran = run(&mut candidates, 8, 1_000, |_| 2.0); // 40 s
        assert!((8..20).contains(&ran[1]), "{ran:?}");
    }

    /// A step for a long prompt takes a second.
    #[test]
    fn others_are_not_tried_in_longer_steps_than_those_at_the_start() {
        let step = |threads, ms| TimedStep {
            threads: of(threads),
            rows: 64,
            is_prompt: true,
            took: ms * MS,
        };
        let mut candidates = ThreadChoice::default();
        let steps = vec![step(2, 100), step(1, 120)];
        candidates.calibrate(&Calibration { candidates: vec![of(2), of(1)], steps });
        assert_eq!(run(&mut candidates, 256, 1_000, |_| 1.0)[1], 0, "20 s");
        assert_eq!(run(&mut candidates, 64, 100, |_| 1.0)[1], TRIAL_STEPS, "2 s");
        let ran = run(&mut candidates, 256, 1_000, |_| 2.0);
        assert!((3..60).contains(&ran[1]), "on a busy machine they may be much faster: {ran:?}");
    }

    /// The start had no time for a prompt.
    #[test]
    fn a_prompt_that_was_not_measured_takes_as_long_as_its_arithmetic() {
        let step = |threads, ms| TimedStep {
            threads: of(threads),
            rows: 1,
            is_prompt: false,
            took: ms * MS,
        };
        let mut candidates = ThreadChoice::default();
        let steps = vec![step(2, 18), step(1, 20)];
        candidates.calibrate(&Calibration { candidates: vec![of(2), of(1)], steps });
        let ran = run(&mut candidates, 4, 100, f64::from);
        assert!(ran[1] > 80, "a neighbour slows two threads: {ran:?}");
        assert_eq!(candidates.choose(4), Some(of(1)));
        assert!((candidates.candidates[1].alone[class(128)] - 2.0).abs() < 1e-9);
    }

    #[test]
    fn nobody_leads_in_steps_for_long_prompts() {
        let step = |led, ms| TimedStep {
            threads: Threads { count: 2, led },
            rows: 64,
            is_prompt: true,
            took: ms * MS,
        };
        let mut candidates = ThreadChoice::default();
        let (led, shared) = (step(true, 100), step(false, 200));
        candidates.calibrate(&Calibration {
            candidates: vec![shared.threads, led.threads],
            steps: vec![led, shared],
        });
        let is_led = |threads: Option<Threads>| threads.is_some_and(|threads| threads.led);
        for is_busy in [false, true] {
            candidates.is_busy = is_busy;
            assert!(is_led(candidates.choose(64)), "busy: {is_busy}");
            assert!(!is_led(candidates.choose(65)), "busy: {is_busy}");
        }
    }

    /// One step of a large model took all the time at the start.
    #[test]
    fn candidates_that_were_not_measured_are_tried_on_a_busy_machine() {
        let steps = vec![TimedStep { threads: of(2), rows: 1, is_prompt: false, took: 900 * MS }];
        let mut candidates = ThreadChoice::default();
        candidates.calibrate(&Calibration { candidates: vec![of(2), of(1)], steps });
        assert_eq!(run(&mut candidates, 1, 1_000, |_| 1.0), [0, 0, 1_000]);
        let ran = run(&mut candidates, 1, 1_000, |threads| if threads == 2 { 3.0 } else { 1.0 });
        assert!(ran[1] > 800, "two threads now take 3 times as long: {ran:?}");
    }

    /// Short steps run on one thread and long ones on two. Another program slows the long ones for
    /// a while. The short steps do not show that.
    #[test]
    fn a_candidate_comes_back_although_others_are_chosen_meanwhile() {
        let mut candidates = calibrated();
        let alternate = |candidates: &mut ThreadChoice, steps: usize, slow: f64| {
            let slowdown = |threads| if threads == 2 { slow } else { 1.0 };
            (0..steps).fold([0; 3], |all, _| {
                run(candidates, 1, 1, slowdown);
                let ran = run(candidates, 200, 1, slowdown);
                std::array::from_fn(|index| all[index] + ran[index])
            })
        };
        assert!(alternate(&mut candidates, 100, 3.0)[1] > 70, "while it is slow, one is faster");
        assert!(alternate(&mut candidates, 1_000, 1.0)[2] > 500, "40 s later, two are");
        assert!(!candidates.is_busy);
    }

    /// The second best candidate is not slowed. That does not make the machine free.
    #[test]
    fn a_candidate_that_others_do_not_slow_is_kept() {
        let mut candidates = calibrated();
        let busy = |threads| if threads == 1 { 3.0 } else { 1.0 };
        run(&mut candidates, 1, 300, busy); // two threads take 1.3 times as long as one alone
        let ran = run(&mut candidates, 1, 2_000, busy); // 52 s
        assert!(ran[1] < 30, "{ran:?}");
    }

    /// The chosen candidate sees that the machine is free again.
    #[test]
    fn what_others_lost_on_a_busy_machine_is_forgotten() {
        let mut candidates = calibrated();
        let busy = |threads| if threads == 2 { 9.0 } else { 2.0 };
        run(&mut candidates, 1, 1_000, busy);
        assert_eq!(run(&mut candidates, 1, 10, busy)[2], 0);
        let wrong = |threads| if threads == 2 { 0.6 } else { 1.0 };
        assert!(run(&mut candidates, 1, 200, wrong)[2] > 50, "4 s");
        assert!(!candidates.is_busy);
    }
}
