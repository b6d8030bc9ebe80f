//! The parts of the model of a step's time: a curve over the number of rows, and slopes over other
//! facts.

use super::tuning::{
    DEPTH_BEYOND, DEPTH_RATE, DEPTH_STEPS, DEPTHS_SPREAD, KNOT_KNOWS, KNOT_RATE, KNOT_STALES,
    KNOT_TELLS,
};
use crate::limits::STEP_ROWS_MAX;

/// Knots at 1, 2, 4 … `STEP_ROWS_MAX` rows.
pub const KNOTS: usize = STEP_ROWS_MAX.ilog2() as usize + 1;

/// Rows of one kind in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The number of rows.
    pub count: usize,
    /// The sum of the tokens before each of them.
    pub depths: usize,
}

impl Rows {
    /// `count` rows of a prompt with `depth` computed tokens.
    pub fn of(depth: usize, count: usize) -> Self {
        Self { count, depths: count * (depth + count / 2) }
    }

    /// Adds a row with `depth` tokens before it.
    pub fn add(&mut self, depth: usize) {
        self.count += 1;
        self.depths += depth;
    }

    /// Adds guesses behind the last row. They add no depth: depth costs the reading of keys and
    /// values, and they share that row's.
    pub fn add_guesses(&mut self, guesses: u8) {
        self.count += usize::from(guesses);
    }

    /// The mean of the tokens before a row.
    pub fn mean_depth(self) -> f64 {
        self.depths as f64 / self.count.max(1) as f64
    }
}

/// Microseconds that each token before a row adds to the row's time, fitted by normalised least
/// mean squares. A sample is a whole step, so a step with many rows counts more than one with few.
/// The fit uses the distance of a step's depth from the mean depth. The curve holds the rest of the
/// time.
#[derive(Clone, Debug)]
pub struct Slope {
    mean: Option<f64>,
    /// The mean square of the distances.
    power: f64,
    slope: f64,
    /// Distances from the mean that are shorter than this are noise.
    spread: f64,
    /// The number of steps with a distance longer than `spread`.
    taught: usize,
    /// The greatest mean depth of a step.
    deepest: f64,
}

impl Default for Slope {
    /// A slope over depths.
    fn default() -> Self {
        Self::with_spread(DEPTHS_SPREAD)
    }
}

impl Slope {
    /// A slope that learns only from distances above `spread`.
    pub fn with_spread(spread: f64) -> Self {
        Self { mean: None, power: 0.0, slope: 0.0, spread, taught: 0, deepest: 0.0 }
    }

    pub fn at(&self, rows: Rows) -> f64 {
        self.slope * rows.depths as f64
    }

    /// Multiplies all times.
    pub fn scale(&mut self, factor: f64) {
        self.slope *= factor;
    }

    /// Whether the slope is known well enough at these depths to judge the machine by a step's
    /// time.
    pub fn knows(&self, rows: Rows) -> bool {
        let is_known =
            self.taught >= DEPTH_STEPS && rows.mean_depth() <= DEPTH_BEYOND * self.deepest;
        is_known || self.mean.is_none_or(|mean| !self.is_far(rows, mean))
    }

    fn is_far(&self, rows: Rows, mean: f64) -> bool {
        (rows.mean_depth() - mean).abs() > self.spread
    }

    /// Learns from a step that took `error` microseconds more than expected.
    pub fn observe(&mut self, rows: Rows, error: f64) {
        self.deepest = self.deepest.max(rows.mean_depth());
        let mean = self.mean.get_or_insert(rows.mean_depth());
        let beyond = rows.depths as f64 - *mean * rows.count as f64;
        let before = *mean;
        *mean += DEPTH_RATE * (rows.mean_depth() - *mean);
        self.power += DEPTH_RATE * (beyond * beyond - self.power);
        let least = self.spread * rows.count as f64;
        let step = error * beyond / (self.power.max(beyond * beyond) + least * least);
        self.slope = (self.slope + DEPTH_RATE * step).max(0.0);
        self.taught += usize::from(self.is_far(rows, before));
    }
}

/// Microseconds by number of rows: a line through the known knots.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    knots: [Option<f64>; KNOTS],
    /// How well each knot is known, from 0 to 1.
    known: [f64; KNOTS],
}

impl Curve {
    /// Multiplies all times.
    pub fn scale(&mut self, factor: f64) {
        self.knots.iter_mut().flatten().for_each(|us| *us *= factor);
    }

    /// Learns that `rows` rows took `took` microseconds.
    pub fn observe(&mut self, rows: usize, took: f64) {
        let below = rows.ilog2() as usize;
        // The position between the knot below and the knot above, from 0 to 1.
        let share = rows as f64 / (1 << below) as f64 - 1.0;
        self.known.iter_mut().for_each(|known| *known *= 1.0 - KNOT_STALES);
        let Some(predicted) = self.at(rows) else {
            (self.knots[below], self.known[below]) = (Some(took), KNOT_TELLS);
            return;
        };
        let error = took - predicted;
        for (knot, weight) in [(below, 1.0 - share), (below + 1, share)] {
            if weight == 0.0 || knot == KNOTS {
                continue;
            }
            let value = self.knots[knot].or_else(|| self.at(1 << knot)).unwrap_or(took);
            // An unknown knot takes all of its weight of the error, a known one less, down to
            // `KNOT_RATE` of it.
            let rate = weight * KNOT_RATE.max(1.0 - self.known[knot]);
            self.knots[knot] = Some((value + rate * error).max(0.0));
            self.known[knot] += KNOT_TELLS * weight * (1.0 - self.known[knot]);
        }
        self.agree(if share < 0.5 { below } else { (below + 1).min(KNOTS - 1) });
    }

    /// Moves knots that contradict the knot `seen` by [`KNOT_RATE`] of the way to the nearest
    /// possible value. More rows never take less time, and never more than in proportion to their
    /// number.
    fn agree(&mut self, seen: usize) {
        let Some(value) = self.knots[seen] else { return };
        for (index, knot) in self.knots.iter_mut().enumerate() {
            let Some(other) = knot else { continue };
            let times = (1u64 << index.abs_diff(seen)) as f64;
            let possible = if index < seen {
                other.clamp(value / times, value)
            } else {
                other.clamp(value, value * times)
            };
            *other += KNOT_RATE * (possible - *other);
        }
    }

    /// The microseconds of `rows` rows, once any have run. Between two known knots the time is
    /// linear, beyond the largest one it is proportional to the rows, and below the smallest one it
    /// is constant.
    pub fn at(&self, rows: usize) -> Option<f64> {
        self.on_line(rows, |_, value, _| value)
    }

    /// Whether enough steps of about `rows` rows have run recently to judge the machine by their
    /// time.
    pub fn knows(&self, rows: usize) -> bool {
        let below = rows.ilog2() as usize;
        let above = if rows.is_power_of_two() { below } else { (below + 1).min(KNOTS - 1) };
        self.known[below].min(self.known[above]) >= KNOT_KNOWS
    }

    /// Like [`Curve::at`], but optimistic where little is known, so that optional rows (guesses)
    /// are tried. Up to twice as many rows as the largest known knot take as long as that knot. The
    /// excess of a knot over the one below is multiplied by how well the knot is known (0 to 1).
    pub fn hoped_at(&self, rows: usize) -> Option<f64> {
        let largest = self.knots.iter().rposition(Option::is_some)?;
        let rows = if rows <= 2 << largest { rows.min(1 << largest) } else { rows };
        self.on_line(rows, |knot, value, below| below + self.known[knot] * (value - below))
    }

    /// Interpolates between the known knots. `height` returns the value of a knot from its index,
    /// its time and the value of the knot below.
    fn on_line(&self, rows: usize, height: impl Fn(usize, f64, f64) -> f64) -> Option<f64> {
        let mut below: Option<(usize, f64)> = None;
        for (index, knot) in self.knots.iter().enumerate() {
            let (at, Some(value)) = (1 << index, *knot) else { continue };
            let value = below.map_or(value, |(_, below)| height(index, value, below));
            if at == rows {
                return Some(value);
            }
            if at > rows {
                let Some((from, start)) = below else { return Some(value) };
                let share = (rows - from) as f64 / (at - from) as f64;
                return Some(start + share * (value - start));
            }
            below = Some((at, value));
        }
        below.map(|(at, value)| value * rows as f64 / at as f64)
    }
}
