//! The decode lane's metrics.

use super::bounds::{BUBBLE_US, GUESS_US, ROWS, SAMPLE_US, STEP_US};
use super::histogram::Histogram;
use super::value::Counter;
use crate::limits::GUESSES_MAX;

/// Written by the decode lane once per step.
#[derive(Debug)]
#[repr(align(128))] // two cache lines: processors fetch them in pairs
pub struct DecodeMetrics {
    /// The bubble before each step, in microseconds: the time in which the lane had work, but was
    /// not inside a model, sampling or looking for guesses. It ends at the start of the model. It
    /// starts when the previous step ended or when this step's work existed, whichever is later.
    /// Work that continues a sequence existed when the previous step ended. Other work existed when
    /// the front lane sent it.
    pub bubble_us: Histogram<{ BUBBLE_US.len() }>,
    /// Time to find guesses, in microseconds per step that is granted any.
    pub guess_us: Histogram<{ GUESS_US.len() }>,
    /// Time inside the model, in microseconds per step. The count is the number of steps.
    pub step_us: Histogram<{ STEP_US.len() }>,
    /// Time of sampling, in microseconds per step.
    pub sample_us: Histogram<{ SAMPLE_US.len() }>,
    /// Time to copy pages into the prefix store or back, in microseconds per step that does so.
    pub page_us: Histogram<{ STEP_US.len() }>,
    /// Time to save states, in microseconds per step that saves any.
    pub checkpoint_us: Histogram<{ STEP_US.len() }>,
    /// Rows of a step that continue a text.
    pub decode_rows: Histogram<{ ROWS.len() }>,
    /// Rows of a step that compute a prompt.
    pub prefill_rows: Histogram<{ ROWS.len() }>,
    /// Steps and their time, by number of rows.
    pub by_rows: [RowClass; ROW_CLASSES.len()],
    /// Rows planned for sequences that ended in the previous step.
    pub rows_dropped: Counter,
    /// Steps that the model could not run.
    pub steps_failed: Counter,
    /// Moves of the lane's own thread to another core.
    pub core_changes: Counter,
    /// Rust heap allocations of the lane since its first step.
    pub allocations: Counter,
    /// Guessed tokens.
    pub guesses: GuessMetrics,
}

/// Guessed tokens.
#[derive(Debug, Default)]
pub struct GuessMetrics {
    /// Rows with guesses behind them.
    pub rows: Counter,
    /// Guesses that ran.
    pub made: Counter,
    /// Guesses that came true: the first ones of their rows, the second ones, and so on.
    pub kept: [Counter; GUESSES_MAX],
}

/// Classes of steps by their number of rows: the largest number in the class, and its name.
pub const ROW_CLASSES: [(u64, &str); 8] = [
    (1, "1"),
    (4, "2-4"),
    (8, "5-8"),
    (16, "9-16"),
    (32, "17-32"),
    (64, "33-64"),
    (256, "65-256"),
    (u64::MAX, ">256"),
];

/// Steps of one class.
#[derive(Debug, Default)]
pub struct RowClass {
    /// Their number.
    pub steps: Counter,
    /// Their time inside the model, in microseconds.
    pub time_us: Counter,
}

impl DecodeMetrics {
    /// The class of a step with this many rows.
    pub fn class(&self, rows: u64) -> &RowClass {
        &self.by_rows[ROW_CLASSES.partition_point(|(last, _)| *last < rows)]
    }
}

impl Default for DecodeMetrics {
    fn default() -> Self {
        Self {
            bubble_us: Histogram::new(&BUBBLE_US),
            guess_us: Histogram::new(&GUESS_US),
            step_us: Histogram::new(&STEP_US),
            sample_us: Histogram::new(&SAMPLE_US),
            page_us: Histogram::new(&STEP_US),
            checkpoint_us: Histogram::new(&STEP_US),
            decode_rows: Histogram::new(&ROWS),
            prefill_rows: Histogram::new(&ROWS),
            by_rows: Default::default(),
            rows_dropped: Counter::default(),
            steps_failed: Counter::default(),
            core_changes: Counter::default(),
            allocations: Counter::default(),
            guesses: GuessMetrics::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_rows_has_its_class() {
        let metrics = DecodeMetrics::default();
        for rows in [1, 2, 4, 5, 8, 9, 64, 65, 256, 257, 2048] {
            metrics.class(rows).steps.increment();
        }
        let steps: Vec<u64> = metrics.by_rows.iter().map(|class| class.steps.get()).collect();
        assert_eq!(steps, [1, 2, 2, 1, 0, 1, 2, 2]);
    }
}
