//! Numbers that one lane writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
///
/// **Invariant:** one thread writes. So a write is a plain load and a plain store, without a locked
/// instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds 1. For the writer only.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`. For the writer only.
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the count to a total counted elsewhere. For the writer only.
    pub fn advance_to(&self, total: u64) {
        assert!(total >= self.get(), "a counter went from {} to {total}", self.get());
        self.0.store(total, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. One thread writes it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value. For the writer only.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
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
