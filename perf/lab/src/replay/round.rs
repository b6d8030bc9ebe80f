//! The work of a replay, and the numbers of its runs.

use super::record::Record;
use crate::ladder::Spread;
use corelane::config::ServeConfig;

/// The replay to run.
#[derive(Debug)]
pub struct Replay {
    /// The server's settings, guesses among them.
    pub config: ServeConfig,
    /// The records.
    pub records: Vec<Record>,
    /// Records of the stream beside them, which never guesses. There may be none.
    pub beside: Vec<Record>,
    /// The part of its guesses in which the draft model, if there is one, says what a record says.
    pub draft_accept: f64,
    /// Streams at once, without the one beside them.
    pub concurrency: usize,
    /// Rounds with guesses, and as many without.
    pub rounds: usize,
}

/// A run of all records.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Tokens of a stream for each second, the first ones and the prompts' time not counted.
    pub rate: f64,
    /// Gaps between tokens of the stream beside, in milliseconds: median and 99th percentile.
    pub beside: Option<[f64; 2]>,
    /// Tokens of the answers.
    pub tokens: u64,
    /// Guesses that were computed.
    pub made: u64,
    /// Guesses that came true.
    pub kept: u64,
}

/// One round: a run without guesses, and one with them.
pub type Round = [Run; 2];

/// The ratios of the second run of each round to the first.
pub fn ratios(rounds: &[Round], of: impl Fn(&Run) -> f64) -> Spread {
    Spread::of(rounds.iter().map(|[without, with]| of(with) / of(without)))
}
