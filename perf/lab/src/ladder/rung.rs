//! The rungs of the ladder, the settings of a run, and the result of one rung.

use std::time::Duration;

use super::measure::Measured;
use corelane::config::ServeConfig;
use corelane::model::load::Source;

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
pub(super) const LAST_OF_TOKENS: usize = 5;

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
