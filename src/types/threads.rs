//! The compute threads of a step, and the times of some steps on this machine.

use std::fmt;
use std::time::Duration;

/// The compute threads of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Their number.
    pub count: u16,
    /// Whether one thread leads, and the others help while they have a core. Otherwise all threads
    /// share each operation, and wait for each other.
    pub led: bool,
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, if self.led { " led" } else { "" })
    }
}

/// A step that ran at the start, to measure the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedStep {
    /// Its compute threads.
    pub threads: Threads,
    /// Rows: one row each of several texts, or all rows of one prompt.
    pub rows: usize,
    /// Whether the rows are those of one prompt.
    pub is_prompt: bool,
    /// The median time of some such steps.
    pub took: Duration,
}

/// The machine, measured at the start with the served model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// The candidates: the most threads first, those with a leader last.
    pub candidates: Vec<Threads>,
    /// The steps that ran, grouped by kind. If steps are long, some candidates ran none.
    pub steps: Vec<TimedStep>,
}

impl Calibration {
    /// The kinds of steps that ran. The steps of a kind differ in their threads; the fastest is
    /// first.
    pub fn kinds(&self) -> Vec<Vec<TimedStep>> {
        let is_alike =
            |a: &TimedStep, b: &TimedStep| (a.rows, a.is_prompt) == (b.rows, b.is_prompt);
        let mut kinds: Vec<_> = self.steps.chunk_by(is_alike).map(<[_]>::to_vec).collect();
        kinds.iter_mut().for_each(|kind| kind.sort_by_key(|step| step.took));
        kinds
    }
}
