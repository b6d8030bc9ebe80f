//! The compute threads of a step, and what they take for some steps on this machine.

use std::fmt;
use std::time::Duration;

/// The compute threads of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Their number.
    pub count: u16,
    /// Whether one thread leads and the others help when they have a core. Otherwise all wait for
    /// each other.
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
    /// Rows: one of each of some texts, or all of one prompt.
    pub rows: usize,
    /// Whether they are a prompt's.
    pub is_prompt: bool,
    /// The median time of some such steps.
    pub took: Duration,
}

/// The machine, measured at the start with the served model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// The threads to choose from: the most first, and those that lead last.
    pub candidates: Vec<Threads>,
    /// The steps that ran, those of one kind one after another. If steps are long, some candidates ran
    /// none.
    pub steps: Vec<TimedStep>,
}

impl Calibration {
    /// The kinds of steps that ran. The steps of a kind differ in their threads; the fastest is first.
    pub fn kinds(&self) -> Vec<Vec<TimedStep>> {
        let is_alike =
            |a: &TimedStep, b: &TimedStep| (a.rows, a.is_prompt) == (b.rows, b.is_prompt);
        let mut kinds: Vec<_> = self.steps.chunk_by(is_alike).map(<[_]>::to_vec).collect();
        kinds.iter_mut().for_each(|kind| kind.sort_by_key(|step| step.took));
        kinds
    }
}
