//! Percentiles, means and standard deviations, with numpy's definitions.

use std::time::Duration;

/// Numbers in ascending order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sorted(Vec<f64>);

impl FromIterator<f64> for Sorted {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }
}

impl Sorted {
    /// Collects durations as milliseconds.
    pub fn of_times(times: impl IntoIterator<Item = Duration>) -> Self {
        times.into_iter().map(|time| time.as_secs_f64() * 1e3).collect()
    }

    /// The number of values.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The `p`-th percentile (0 to 100), or `None` without values.
    ///
    /// Interpolates linearly between the two values next to rank p / 100 · (n − 1), which is the
    /// default of `numpy.percentile`.
    pub fn percentile(&self, p: f64) -> Option<f64> {
        assert!((0.0..=100.0).contains(&p), "the {p}-th percentile does not exist");
        let last = self.0.len().checked_sub(1)?;
        let rank = p / 100.0 * last as f64;
        let below = (rank.floor() as usize).min(last); // a rank is from 0 to `last`
        let above = (below + 1).min(last);
        let (low, high) = (self.0[below], self.0[above]);
        Some(low + (high - low) * (rank - below as f64))
    }

    /// The 50th percentile, or `None` without values.
    pub fn median(&self) -> Option<f64> {
        self.percentile(50.0)
    }

    /// The smallest value, or `None` without values.
    pub fn min(&self) -> Option<f64> {
        self.0.first().copied()
    }

    /// The largest value, or `None` without values.
    pub fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }

    /// The arithmetic mean, or `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// The population standard deviation (the default of `numpy.std`), or `None` without values.
    pub fn std(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares = self.0.iter().map(|number| (number - mean).powi(2)).sum::<f64>();
        Some((squares / self.0.len() as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < 1e-12 * expected.abs().max(1.0), "{found} {expected}");
    }

    /// The expected numbers come from numpy, for the same list.
    #[test]
    fn percentiles_interpolate_as_numpys_do() {
        let sorted: Sorted = [15.0, 20.0, 35.0, 40.0, 50.0].into_iter().rev().collect();
        for (p, expected) in [
            (0.0, 15.0),
            (25.0, 20.0),
            (40.0, 29.0),
            (50.0, 35.0),
            (90.0, 46.0),
            (99.0, 49.6),
            (99.9, 49.96),
            (100.0, 50.0),
        ] {
            close(sorted.percentile(p), expected);
        }
        let sorted: Sorted = (1..=100).map(f64::from).collect();
        close(sorted.percentile(99.0), 99.01);
        close(sorted.median(), 50.5);
        let one: Sorted = [7.0].into_iter().collect();
        close(one.percentile(99.0), 7.0);
    }

    #[test]
    fn means_and_deviations_are_numpys() {
        let sorted: Sorted = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().collect();
        close(sorted.mean(), 5.0);
        close(sorted.std(), 2.0);
        assert_eq!((sorted.min(), sorted.max(), sorted.count()), (Some(2.0), Some(9.0), 8));
    }

    #[test]
    fn without_numbers_there_is_nothing() {
        let none = Sorted::default();
        for value in [none.percentile(50.0), none.mean(), none.std(), none.min(), none.max()] {
            assert_eq!(value, None);
        }
    }

    #[test]
    fn times_are_milliseconds() {
        let sorted = Sorted::of_times([Duration::from_micros(1500), Duration::from_secs(1)]);
        assert_eq!((sorted.min(), sorted.max()), (Some(1.5), Some(1000.0)));
    }
}
