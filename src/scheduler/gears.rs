//! Chooses the number of compute threads of a step, and follows the machine's pace.
//!
//! More threads are not always faster: the steps of a small model are shorter than the threads' waits
//! for each other, and a thread whose core another program wants delays all others. So each possible
//! number of threads is a gear. The start measures all gears. While the server runs, a gear's pace
//! says how much longer its steps take than they did alone on the machine. A step gets the gear in
//! which it should take the least time.
//!
//! The other gears are tried from time to time, for a few steps each: soon after the start and after
//! each change, and then ever more rarely.

use std::time::Duration;

use super::curve::KNOTS;
use crate::types::Calibration;

/// Most gears.
const GEARS_MAX: usize = 8;

/// Steps in a row that must all take longer, or all shorter, than expected before the pace changes.
/// One step may have met a page fault.
const WITNESSES: usize = 3;

/// The factor by which a step differs from the expected time to be such a witness.
const DIFFERS: f64 = 1.15;

/// The pace from which on the machine counts as busy.
const BUSY: f64 = 1.25;

/// Another gear must be faster by this factor. The measurements have such errors.
const WORTH: f64 = 1.1;

/// Step time until a trial: after the machine became busy, after the start, and at most while it is
/// busy and while it is not. It doubles with each trial.
const TRY_SOON: Duration = Duration::from_secs(1);
const TRY_FIRST: Duration = Duration::from_secs(4);
const TRY_BUSY: Duration = Duration::from_secs(8);
const TRY_LATE: Duration = Duration::from_secs(64);

/// Steps of a trial.
const TRIAL_STEPS: usize = WITNESSES;

/// A gear in which steps should take longer by this factor is not tried, unless the machine is busy.
const TRY_MAX: f64 = 1.4;

/// Bounds of a pace.
const PACES: std::ops::RangeInclusive<f64> = 0.1..=100.0;

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Gears {
    /// The one with the most threads first. Empty before a calibration: one number of threads.
    gears: heapless::Vec<Gear, GEARS_MAX>,
    chosen: usize,
    /// The gear that is tried, and the steps left of the trial.
    trial: Option<(usize, usize)>,
    /// The gear that was tried last.
    tried: usize,
    /// Step time since the last trial, and until the next one.
    since: Duration,
    until: Duration,
}

#[derive(Clone, Debug)]
struct Gear {
    threads: u16,
    /// Time of a step in this gear to that in the fastest one, alone on the machine, for 1, 2, 4 …
    /// rows.
    alone: [f64; KNOTS],
    /// Time of a step to that alone on the machine.
    pace: f64,
    /// The last steps' times, as parts of those expected at a pace of 1, newest first.
    last: heapless::Deque<f64, WITNESSES>,
}

impl Gear {
    fn new(threads: u16, alone: [f64; KNOTS]) -> Self {
        Self { threads, alone, pace: 1.0, last: heapless::Deque::new() }
    }

    /// The time of a step of `rows` rows, as a part of that in the fastest gear alone on the
    /// machine.
    fn factor(&self, rows: usize) -> f64 {
        self.alone[class(rows)] * self.pace
    }

    /// Learns that a step took `ratio` of its time at a pace of 1. Returns whether the pace changed.
    fn observe(&mut self, ratio: f64) -> bool {
        if self.last.is_full() {
            self.last.pop_back();
        }
        self.last.push_front(ratio).expect("there is room");
        let all = |differ: fn(f64, f64) -> bool| {
            self.last.is_full() && self.last.iter().all(|ratio| differ(*ratio, self.pace))
        };
        let changes =
            all(|ratio, pace| ratio > pace * DIFFERS) || all(|ratio, pace| ratio < pace / DIFFERS);
        if changes {
            let mut last: heapless::Vec<f64, WITNESSES> = self.last.iter().copied().collect();
            last.sort_unstable_by(f64::total_cmp);
            self.pace = last[WITNESSES / 2].clamp(*PACES.start(), *PACES.end());
        }
        changes
    }
}

fn class(rows: usize) -> usize {
    (rows.max(1).ilog2() as usize).min(KNOTS - 1)
}

impl Gears {
    /// Learns the gears from the steps that ran at the start.
    pub fn calibrate(&mut self, calibration: &Calibration) {
        let mut threads: Vec<u16> = calibration.steps.iter().map(|step| step.threads).collect();
        threads.sort_unstable_by(|a, b| b.cmp(a));
        threads.dedup();
        let time = |threads: u16, rows: usize| {
            let its = calibration.steps.iter().filter(|step| step.threads == threads);
            let nearest = its.min_by_key(|step| class(step.rows).abs_diff(class(rows)))?;
            let best = calibration.steps.iter().filter(|step| step.rows == nearest.rows);
            let best = best.map(|step| step.took).min()?;
            Some(nearest.took.as_secs_f64() / best.as_secs_f64().max(1e-9))
        };
        self.gears = threads
            .iter()
            .take(GEARS_MAX)
            .map(|threads| {
                let of_class = |class: usize| time(*threads, 1 << class).unwrap_or(1.0);
                Gear::new(*threads, std::array::from_fn(of_class))
            })
            .collect();
        (self.chosen, self.trial, self.until) = (0, None, TRY_FIRST);
    }

    /// The threads for the next step, which has `rows` rows. `None` leaves it to the decode lane.
    pub fn choose(&mut self, rows: usize) -> Option<u16> {
        let (best, factor) = self.best(rows);
        self.chosen = best;
        if self.trial.is_none() && self.since >= self.until {
            self.begin_trial(rows, factor);
        }
        let index = self.trial.map_or(best, |(gear, _)| gear);
        self.gears.get(index).map(|gear| gear.threads)
    }

    /// Begins to try the next gear that may be faster, if there is one.
    fn begin_trial(&mut self, rows: usize, factor: f64) {
        let is_busy = self.gears.iter().any(|gear| gear.pace > BUSY);
        let most = if is_busy { TRY_BUSY } else { TRY_LATE };
        (self.since, self.until) = (Duration::ZERO, (2 * self.until).min(most));
        for after in 1..=self.gears.len() {
            let index = (self.tried + after) % self.gears.len();
            let gear = &mut self.gears[index];
            if index != self.chosen && (is_busy || gear.factor(rows) < TRY_MAX * factor) {
                gear.last.clear();
                (self.tried, self.trial) = (index, Some((index, TRIAL_STEPS)));
                return;
            }
        }
    }

    /// The fastest gear now, and its factor.
    fn best(&self, rows: usize) -> (usize, f64) {
        let of = |index: usize| (index, self.gears.get(index).map_or(1.0, |g| g.factor(rows)));
        let others = (0..self.gears.len()).map(of);
        let fastest = others.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 1.0));
        // With as many threads as possible, unless fewer are clearly faster.
        let usual = of(0);
        let now = if usual.1 <= fastest.1 * WORTH { usual } else { fastest };
        let chosen = of(self.chosen);
        if chosen.1 <= now.1 * WORTH && chosen.1 <= usual.1 { chosen } else { now }
    }

    /// The expected time of a step of `rows` rows in the gear that it will have, as a part of that
    /// in the fastest gear alone on the machine.
    pub fn factor(&self, rows: usize) -> f64 {
        self.best(rows).1
    }

    /// The same for a step that had `threads` threads.
    pub fn factor_of(&self, threads: u16, rows: usize) -> f64 {
        self.gears.iter().find(|gear| gear.threads == threads).map_or(1.0, |gear| gear.factor(rows))
    }

    /// Learns that a step of `rows` rows took `took`: `part` of the time in the fastest gear alone on
    /// the machine, if that is known.
    pub fn observe(&mut self, threads: u16, rows: usize, part: Option<f64>, took: Duration) {
        self.since += took;
        let Some(index) = self.gears.iter().position(|gear| gear.threads == threads) else {
            return;
        };
        let gear = &mut self.gears[index];
        let changed = part.is_some_and(|part| gear.observe(part / gear.alone[class(rows)]));
        if changed && gear.pace > BUSY {
            self.until = TRY_SOON;
        }
        if let Some((tried, left)) = &mut self.trial
            && *tried == index
        {
            *left -= 1;
            if *left == 0 {
                self.trial = None;
            }
        }
    }

    /// The threads of most steps, and how much longer these take than alone on the machine. `None`
    /// before a calibration.
    pub fn state(&self) -> Option<(u16, f64)> {
        self.gears.get(self.chosen).map(|gear| (gear.threads, gear.pace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TimedStep;

    const MS: Duration = Duration::from_millis(1);

    /// Two threads are twice as fast as one, except for a single row.
    fn calibrated() -> Gears {
        let step = |threads, rows, ms| TimedStep { threads, rows, is_prompt: false, took: ms * MS };
        let steps = vec![
            step(2, 1, 13),
            step(1, 1, 10),
            step(2, 8, 20),
            step(1, 8, 40),
            step(2, 64, 100),
            step(1, 64, 200),
        ];
        let mut gears = Gears::default();
        gears.calibrate(&Calibration { steps });
        gears
    }

    /// Runs steps on a machine on which each gear has a pace. Returns the steps with each number
    /// of threads.
    fn run(gears: &mut Gears, rows: usize, steps: usize, pace: impl Fn(u16) -> f64) -> [usize; 3] {
        let mut ran = [0; 3];
        for _ in 0..steps {
            let threads = gears.choose(rows).unwrap();
            let alone = gears.gears.iter().find(|gear| gear.threads == threads).unwrap().alone;
            let part = alone[class(rows)] * pace(threads);
            gears.observe(threads, rows, Some(part), (20.0 * part) as u32 * MS);
            ran[usize::from(threads)] += 1;
        }
        ran
    }

    #[test]
    fn without_a_calibration_there_is_no_choice() {
        let mut gears = Gears::default();
        gears.calibrate(&Calibration::default());
        assert_eq!(gears.choose(8), None);
        gears.observe(2, 8, Some(3.0), MS);
        assert_eq!((gears.factor(8), gears.factor_of(2, 8), gears.state()), (1.0, 1.0, None));
    }

    #[test]
    fn alone_each_number_of_rows_has_its_fastest_gear() {
        let mut gears = calibrated();
        for (rows, threads) in [(1, 1), (8, 2), (7, 2), (64, 2), (300, 2), (1, 1)] {
            assert_eq!(gears.choose(rows), Some(threads), "{rows} rows");
            assert!((gears.factor(rows) - 1.0).abs() < 1e-9);
        }
        let ran = run(&mut gears, 1, 30_000, |_| 1.0); // ten minutes
        assert!(ran[2] <= TRIAL_STEPS * 14, "{ran:?}: the other one is tried ever more rarely");
        let ran = run(&mut gears, 8, 30_000, |_| 1.0);
        assert_eq!(ran[1], 0, "one that is much slower is not tried");
    }

    /// A program that ran at the start only made one gear look bad.
    #[test]
    fn a_wrong_calibration_is_found_out() {
        let mut gears = calibrated();
        let wrong = |threads| if threads == 2 { 0.6 } else { 1.0 };
        run(&mut gears, 1, 300, wrong);
        assert!(run(&mut gears, 1, 100, wrong)[2] > 90);
    }

    #[test]
    fn the_pace_follows_the_machine_in_three_steps_and_not_in_one() {
        let mut gears = calibrated();
        run(&mut gears, 8, 10, |_| 1.0);
        run(&mut gears, 8, 1, |_| 9.0);
        assert!((gears.factor(8) - 1.0).abs() < 1e-9, "one long step says nothing");
        run(&mut gears, 8, 3, |_| 1.0);
        run(&mut gears, 8, 3, |_| 1.5);
        assert!((gears.factor(8) - 1.5).abs() < 1e-9, "{}", gears.factor(8));
        run(&mut gears, 8, 3, |_| 1.0);
        assert!((gears.factor(8) - 1.0).abs() < 1e-9, "and back");
    }

    /// One core is taken: two threads are three times as slow, and one thread as fast as ever.
    #[test]
    fn threads_that_cost_more_than_they_bring_are_left_out_while_they_do() {
        let mut gears = calibrated();
        run(&mut gears, 8, 100, |_| 1.0);
        let taken = |threads| if threads == 2 { 3.0 } else { 1.0 };
        run(&mut gears, 8, 200, taken);
        let ran = run(&mut gears, 8, 1_000, taken);
        assert!(ran[1] > 950 && ran[2] >= TRIAL_STEPS, "{ran:?}: mostly one, and two are tried");
        run(&mut gears, 8, 2_000, |_| 1.0);
        assert!(run(&mut gears, 8, 100, |_| 1.0)[2] > 90, "the machine is free again");
    }

    /// All gears are as slow: the fastest alone stays, and others are tried rarely.
    #[test]
    fn a_trial_takes_a_small_part_of_the_time() {
        let mut gears = calibrated();
        let ran = run(&mut gears, 8, 1_000, |_| 2.0);
        assert!(ran[1] < 50 && ran[1] >= TRIAL_STEPS, "{ran:?}");
    }
}
