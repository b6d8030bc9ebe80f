//! A histogram that one lane writes and others read.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, Ordering};

/// A histogram of whole numbers (microseconds, rows) with fixed bounds.
///
/// **Invariant:** one thread writes. A value costs a search of the bounds, two plain loads and two
/// plain stores.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    buckets: [AtomicU64; N],
    /// Values above the last bound.
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    /// An empty histogram with ascending `bounds`. A value falls into the first bucket whose bound
    /// is at least the value.
    pub fn new(bounds: &'static [u64; N]) -> Self {
        assert!(bounds.is_sorted_by(|a, b| a < b), "bounds ascend");
        Self {
            bounds,
            buckets: [const { AtomicU64::new(0) }; N],
            beyond: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value. For the writer only.
    pub fn observe(&self, value: u64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        let bucket = self.buckets.get(index).unwrap_or(&self.beyond);
        bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
        self.sum.store(self.sum.load(Relaxed).wrapping_add(value), Relaxed);
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts().map(|(_, count)| count).sum()
    }

    /// The bounds, each with the number of values in its bucket. `None` is the bucket without a
    /// bound. Does not allocate.
    pub fn counts(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = self.bounds.iter().map(|bound| Some(*bound)).chain([None]);
        let buckets = self.buckets.iter().chain([&self.beyond]);
        bounds.zip(buckets.map(|bucket| bucket.load(Ordering::Relaxed)))
    }

    /// The current contents. Each bucket is read once and the count is their sum, so these agree.
    /// [`HistogramSnapshot::sum`] is read separately, and may differ by a value being counted.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Vec<u64> = self.counts().map(|(_, count)| count).collect();
        let count = buckets.iter().sum();
        HistogramSnapshot { bounds: self.bounds, buckets, sum: self.sum(), count }
    }
}

/// The contents of a histogram at one moment, or the difference of two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The upper bounds, ascending. A bound belongs to its bucket.
    pub bounds: &'static [u64],
    /// Values in each bucket, and above the last bound: one element more than `bounds`.
    pub buckets: Vec<u64>,
    /// The sum of the values.
    pub sum: u64,
    /// The number of values.
    pub count: u64,
}

impl HistogramSnapshot {
    /// The values between two snapshots of one histogram: `earlier` and this one.
    pub fn since(&self, earlier: &Self) -> Self {
        assert_eq!(self.bounds, earlier.bounds, "two snapshots of the same histogram");
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Self {
            bounds: self.bounds,
            buckets: pairs.map(|(now, then)| now - then).collect(),
            sum: self.sum.wrapping_sub(earlier.sum),
            count: self.count - earlier.count,
        }
    }

    /// The value below which a fraction `q` (0 to 1) of all values lies. Computed as Prometheus'
    /// `histogram_quantile` does: linear within a bucket. The first bucket starts at 0. Values
    /// above the last bound count as that bound. `None` without values.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        assert!((0.0..=1.0).contains(&q), "a quantile lies between 0 and 1, not at {q}");
        if self.count == 0 {
            return None;
        }
        let rank = q * self.count as f64;
        let (mut below, mut lower) = (0, 0);
        for (bound, count) in self.bounds.iter().zip(&self.buckets) {
            if *count > 0 && (below + count) as f64 >= rank {
                let share = (rank - below as f64) / *count as f64;
                return Some(lower as f64 + (bound - lower) as f64 * share);
            }
            below += count;
            lower = *bound;
        }
        Some(lower as f64)
    }

    /// The mean of the values; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [u64; 3] = [10, 20, 100];

    fn of(values: &[u64]) -> Histogram<3> {
        let histogram = Histogram::new(&BOUNDS);
        values.iter().for_each(|value| histogram.observe(*value));
        histogram
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let snapshot = of(&[0, 10, 11, 20, 21, 100, 101, u64::from(u32::MAX)]).snapshot();
        assert_eq!(snapshot.buckets, [2, 2, 2, 2]);
        assert_eq!(snapshot.count, 8);
        assert_eq!(snapshot.sum, 10 + 11 + 20 + 21 + 100 + 101 + u64::from(u32::MAX));
    }

    #[test]
    fn quantiles_are_linear_within_a_bucket() {
        // Four values up to 10, four up to 20.
        let snapshot = of(&[1, 2, 3, 4, 12, 13, 14, 15]).snapshot();
        assert_eq!(snapshot.quantile(0.0), Some(0.0));
        assert_eq!(snapshot.quantile(0.25), Some(5.0));
        assert_eq!(snapshot.quantile(0.5), Some(10.0));
        assert_eq!(snapshot.quantile(0.75), Some(15.0));
        assert_eq!(snapshot.quantile(1.0), Some(20.0));
        assert_eq!(snapshot.mean(), Some(8.0));
        // Empty buckets are skipped. Values above the last bound count as that bound.
        assert_eq!(of(&[50, 50]).snapshot().quantile(0.5), Some(60.0));
        assert_eq!(of(&[500]).snapshot().quantile(0.5), Some(100.0));
        assert_eq!(of(&[]).snapshot().quantile(0.5), None);
        assert_eq!(of(&[]).snapshot().mean(), None);
    }

    #[test]
    fn a_difference_holds_what_came_between() {
        let histogram = of(&[1, 15, 500]);
        let before = histogram.snapshot();
        [2, 3, 30].iter().for_each(|value| histogram.observe(*value));
        let between = histogram.snapshot().since(&before);
        assert_eq!(between.buckets, [2, 0, 1, 0]);
        assert_eq!((between.sum, between.count), (35, 3));
        assert_eq!(histogram.count(), 6);
    }

    /// A concurrent reader never sees a count go down.
    #[test]
    fn a_snapshot_may_be_taken_at_any_time() {
        let histogram = std::sync::Arc::new(of(&[]));
        let writer = std::thread::spawn({
            let histogram = histogram.clone();
            move || (0..100_000).for_each(|i| histogram.observe(i % 200))
        });
        let mut last = histogram.snapshot();
        while !writer.is_finished() {
            let next = histogram.snapshot();
            assert!(next.count >= last.count && next.sum >= last.sum);
            last = next;
        }
        writer.join().unwrap();
        assert_eq!(histogram.count(), 100_000);
    }
}
