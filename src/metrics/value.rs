//! A number that one lane writes and anybody reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
///
/// **Invariant:** one thread writes. So a write is a plain load and a plain
/// store, and no locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one. For the writer alone.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `n`. For the writer alone.
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes over a total that is counted elsewhere. For the writer alone.
    pub fn advance_to(&self, total: u64) {
        assert!(total >= self.get(), "a counter went from {} to {total}", self.get());
        self.0.store(total, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. The same invariant holds.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it. For the writer alone.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_and_gauges_follow() {
        let counter = Counter::default();
        counter.increment();
        counter.add(4);
        assert_eq!(counter.get(), 5);
        counter.advance_to(9);
        assert_eq!(counter.get(), 9);
        let gauge = Gauge::default();
        gauge.set(7);
        gauge.set(3);
        assert_eq!(gauge.get(), 3);
    }
}
