//! Settings of all micro-benchmarks, which take about a minute together.

use std::time::Duration;

use criterion::Criterion;

/// A second for each figure, without plots: drawing them takes three times as long as measuring.
pub fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .nresamples(20_000)
        .without_plots()
}
