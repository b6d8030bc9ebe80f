//! The ladder: where does the speed go? From the bare model to a client on
//! the network, a layer more on each rung, the same work on all of them.
//!
//! Every rung really runs what it names, and the run fails where one did not:
//! where tokens are missing, where the tokens of rungs 1 to 3 are not those of
//! rung 0 or the texts above do not begin like them (which rows run together
//! decides how a model rounds, so texts of random weights part after a while),
//! where a stream was not one event a token. The rungs are interleaved
//! (A B C … A B C …), so that a drift of the machine hits all alike, and
//! compared within a round.

mod check;
mod counts;
mod endpoint;
mod inner;
mod measure;
pub mod picture;
mod pipe;
mod run;
mod served;
pub mod table;
mod workload;

use std::time::Duration;

use crate::config::ServeConfig;
use crate::model::load::Source;
pub use measure::Measured;

/// A rung: its number and what it adds to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// What is on it.
    pub name: &'static str,
    /// What it adds.
    pub adds: &'static str,
}

/// All rungs, lowest first.
pub const RUNGS: [Rung; 11] = [
    Rung { name: "backend", adds: "llama_decode in a bare loop, largest logit" },
    Rung { name: "executor", adds: "batches in, batches out" },
    Rung { name: "sampler", adds: "the decode lane's step: checks, sampling chain" },
    Rung { name: "rings", adds: "both lanes pinned, batches over the SPSC pair" },
    Rung { name: "scheduler", adds: "requests arrive and finish, continuous batching" },
    Rung { name: "text", adds: "tokens to text, stop strings" },
    Rung { name: "endpoint", adds: "typed requests to JSON bytes" },
    Rung { name: "handler", adds: "HTTP bytes in memory to HTTP bytes" },
    Rung { name: "server", adds: "sockets, keep-alive, a client in this process" },
    Rung { name: "stream", adds: "server-sent events, one for each token" },
    Rung { name: "client", adds: "the load generator as another process" },
];

/// The last rung whose tokens are known one by one. Those above have texts, which are held
/// against the tokens.
const LAST_OF_TOKENS: usize = 5;

/// What to run.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// The model.
    pub source: Source,
    /// Lanes and step sizes, as `serve` has them, on any free port. The context
    /// size and the parallelism are the ladder's own, and prompts take as many rows of a
    /// step as there are, whoever waits, so that every rung makes the same steps.
    pub config: ServeConfig,
    /// Requests in each round.
    pub requests: usize,
    /// Requests at once.
    pub concurrency: usize,
    /// Tokens of each prompt.
    pub prompt_tokens: usize,
    /// Tokens generated for each.
    pub gen_tokens: u32,
    /// How often each rung runs.
    pub rounds: usize,
    /// Which rungs run, ascending.
    pub rungs: Vec<usize>,
    /// Seed of the prompts.
    pub seed: u64,
}

/// One run of one rung.
#[derive(Clone, Debug, Default)]
pub struct RungRun {
    /// Which rung.
    pub rung: usize,
    /// Generated tokens, counted.
    pub tokens: u64,
    /// Wall and CPU time.
    pub measured: Measured,
    /// CPU time of a client in another process.
    pub client_cpu: Option<Duration>,
    /// Steps of the model; `None` where nobody counts them.
    pub steps: Option<u64>,
    /// The decode lane's idle time before a step while there was work, in
    /// microseconds: median and 99th percentile.
    pub bubble_us: Option<(f64, f64)>,
    /// Time inside `llama_decode`; `None` where nobody counts it.
    pub model_time: Option<Duration>,
    /// Rust heap allocations for each generated token.
    pub allocations: Allocations,
}

/// Rust heap allocations for each generated token, lane by lane; `None` where
/// the lane does not exist.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocations {
    /// On the front lane.
    pub front: Option<f64>,
    /// On the decode lane.
    pub decode: Option<f64>,
}

impl RungRun {
    /// The part of the wall time inside `llama_decode`: the rest is all that a faster
    /// server could win. On a core that lanes share, what the front lane takes from
    /// a compute thread is inside, too.
    pub fn model_share(&self) -> Option<f64> {
        Some(self.model_time?.as_secs_f64() / self.measured.wall.as_secs_f64())
    }

    /// Generated tokens a second.
    pub fn rate(&self) -> f64 {
        self.tokens as f64 / self.measured.wall.as_secs_f64()
    }
}

/// Everything that was run.
#[derive(Clone, Debug)]
pub struct LadderReport {
    /// The model's name.
    pub model: String,
    /// `rounds[round][i]` is a run of `Ladder::rungs[i]`.
    pub rounds: Vec<Vec<RungRun>>,
}

/// Runs the ladder. `tell` is told of each run as it ends.
///
/// # Errors
/// A sentence, when a rung could not run or did not run what it names.
pub fn run(ladder: &Ladder, mut tell: impl FnMut(usize, &RungRun)) -> Result<LadderReport, String> {
    ladder.check()?;
    let stage = run::Stage::set(ladder)?;
    if ladder.rungs[0] > LAST_OF_TOKENS {
        stage.run(0)?; // not measured: what the texts above are held against
    }
    let mut rounds = Vec::with_capacity(ladder.rounds);
    for round in 0..ladder.rounds {
        let mut runs = Vec::with_capacity(ladder.rungs.len());
        for rung in &ladder.rungs {
            let run = stage.run(*rung).map_err(|error| {
                format!("rung {rung} ({}) did not run: {error}", RUNGS[*rung].name)
            })?;
            tell(round, &run);
            runs.push(run);
        }
        rounds.push(runs);
    }
    Ok(LadderReport { model: stage.model_name(), rounds })
}

impl Ladder {
    fn check(&self) -> Result<(), String> {
        let counts = [
            ("--requests", self.requests),
            ("--concurrency", self.concurrency),
            ("--prompt-tokens", self.prompt_tokens),
            ("--gen-tokens", self.gen_tokens as usize),
            ("--rounds", self.rounds),
        ];
        if let Some((flag, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("{flag} is 0; it must be at least 1"));
        }
        if let Some(rung) = self.rungs.iter().find(|rung| **rung >= RUNGS.len()) {
            return Err(format!("--rung {rung}: the rungs are 0 to {}", RUNGS.len() - 1));
        }
        if self.config.itl_target.is_some() {
            return Err("--itl-target-ms: prompts take whole steps on the ladder, so that every \
                        rung makes the same steps; leave it out"
                .into());
        }
        if self.rungs.is_empty() {
            return Err("--rung names no rung; leave it out for all of them".into());
        }
        Ok(())
    }
}

/// The median of some numbers, and the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; the mean of the two in the middle for an even count.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of at least one number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = |i: usize| values[i];
        let n = values.len();
        assert!(n > 0, "a spread of nothing");
        Self {
            median: (middle((n - 1) / 2) + middle(n / 2)) / 2.0,
            min: values[0],
            max: values[n - 1],
        }
    }
}

impl LadderReport {
    /// Place `index`'s tokens a second over the rounds.
    pub fn rate(&self, index: usize) -> Spread {
        Spread::of(self.rounds.iter().map(|runs| runs[index].rate()))
    }

    /// Place `index`'s rate as a part of place `base`'s, round by round.
    pub fn ratio(&self, index: usize, base: usize) -> Spread {
        Spread::of(self.rounds.iter().map(|runs| runs[index].rate() / runs[base].rate()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
    }
}
