//! Reads what the lanes count while a rung runs.

use std::time::Duration;

use super::rung::{Allocations, RungRun};
use corelane::metrics::{HistogramSnapshot, Metrics};

/// A reading of the lanes' counters.
pub struct Counts {
    bubble: HistogramSnapshot,
    model_us: u64,
    decode_allocations: u64,
    /// Rust heap allocations of the front lane.
    pub front_allocations: u64,
    /// Number of responses, with any status.
    pub responses: u64,
}

impl Counts {
    /// Reads the counters now.
    pub fn read(metrics: &Metrics) -> Self {
        Self {
            bubble: metrics.decode.bubble_us.snapshot(),
            model_us: metrics.decode.step_us.sum(),
            decode_allocations: metrics.decode.allocations.get(),
            front_allocations: metrics.front.allocations.get(),
            responses: metrics.front.responses.total(),
        }
    }

    /// The difference between now and this reading.
    pub fn until_now(&self, metrics: &Metrics) -> Self {
        let now = Self::read(metrics);
        Self {
            bubble: now.bubble.since(&self.bubble),
            model_us: now.model_us - self.model_us,
            decode_allocations: now.decode_allocations - self.decode_allocations,
            front_allocations: now.front_allocations - self.front_allocations,
            responses: now.responses - self.responses,
        }
    }

    /// Adds the counts to a run in which the measuring thread was the front lane.
    pub fn complete(&self, run: RungRun) -> RungRun {
        let per_token = |count: u64| Some(count as f64 / run.tokens as f64);
        let quantile = |q| self.bubble.quantile(q);
        RungRun {
            steps: Some(self.bubble.count),
            bubble_us: quantile(0.5).zip(quantile(0.99)),
            model_time: Some(Duration::from_micros(self.model_us)),
            allocations: Allocations {
                front: per_token(run.measured.allocations),
                decode: per_token(self.decode_allocations),
            },
            ..run
        }
    }
}
