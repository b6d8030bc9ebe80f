//! The bounds of the histograms. Times are in microseconds.
//!
//! Metrics that vLLM has, too, have vLLM's bounds (`vllm/v1/metrics/loggers.py`), so that its
//! dashboards work. Below its first bound they have smaller ones, because requests here may wait
//! less than a millisecond.
//!
//! No bound is exactly 1 or 10 µs: OpenMetrics requires the form 1e-06 and 1e-05, but the library
//! writes 0.000001.

/// Time from the request to its first token; vLLM's bounds.
pub const TTFT_US: [u64; 22] = [
    1_000,
    5_000,
    10_000,
    20_000,
    40_000,
    60_000,
    80_000,
    100_000,
    250_000,
    500_000,
    750_000,
    1_000_000,
    2_500_000,
    5_000_000,
    7_500_000,
    10_000_000,
    20_000_000,
    40_000_000,
    80_000_000,
    160_000_000,
    640_000_000,
    2_560_000_000,
];

/// Time between two tokens; vLLM's bounds from 10 ms on.
pub const ITL_US: [u64; 22] = [
    1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000,
    400_000, 500_000, 750_000, 1_000_000, 2_500_000, 5_000_000, 7_500_000, 10_000_000, 20_000_000,
    40_000_000, 80_000_000,
];

/// A request's whole time, and its parts; vLLM's bounds from 0.3 s on.
pub const REQUEST_US: [u64; 29] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    300_000,
    500_000,
    800_000,
    1_000_000,
    1_500_000,
    2_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    15_000_000,
    20_000_000,
    30_000_000,
    40_000_000,
    50_000_000,
    60_000_000,
    120_000_000,
    240_000_000,
    480_000_000,
    960_000_000,
    1_920_000_000,
    7_680_000_000,
];

/// The bubble. The bounds are fine around its target (20 µs) and its limit (200 µs).
pub const BUBBLE_US: [u64; 32] = [
    2, 3, 4, 6, 8, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 600,
    1_000, 2_000, 4_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000,
];

/// Time to find the guesses of a step: some microseconds from the text, many milliseconds with a
/// draft model.
pub const GUESS_US: [u64; 16] = [
    2, 5, 10, 20, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000,
];

/// One step of the model.
pub const STEP_US: [u64; 22] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000, 50_000, 75_000,
    100_000, 150_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
];

/// Sampling the tokens of one step.
pub const SAMPLE_US: [u64; 13] =
    [5, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];

/// One tick of the front lane. It should stay below a millisecond.
pub const TICK_US: [u64; 12] = [2, 5, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000];

/// Reading and tokenising one long body.
pub const PREPARE_US: [u64; 10] =
    [100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// Rows of one step.
pub const ROWS: [u64; 13] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Steps in flight when one more is planned.
pub const STEPS_IN_FLIGHT: [u64; 2] = [0, 1];
