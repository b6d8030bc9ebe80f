//! The benchmark ladder: the same work on eleven rungs, from the bare model to a client on the
//! network.
//!
//! Each rung adds one layer of the server, so the difference between two rungs is the cost of a
//! layer.
//!
//! Every rung checks that it did its work, and the run fails otherwise:
//! - No token may be missing.
//! - The tokens of rungs 1 to 3 equal those of rung 0. On higher rungs most texts begin like rung
//!   0's. They may differ later, because the set of rows in a step changes how the model rounds.
//! - A stream has about one event per token.
//!
//! The rungs are interleaved (A B C … A B C …) and compared within a round. A drift of the
//! machine's speed then affects all of them alike.

mod check;
mod counts;
mod endpoint;
mod inner;
pub(super) mod measure;
pub mod picture;
pub(super) mod pipe;
pub(super) mod requests;
mod run;
mod rung;
mod served;
pub mod table;
mod workload;

pub use measure::Measured;
use rung::LAST_OF_TOKENS;
pub use rung::{Allocations, Ladder, RUNGS, Rung, RungRun};

/// The runs of all rungs in all rounds.
#[derive(Clone, Debug)]
pub struct LadderReport {
    /// The model's name.
    pub model: String,
    /// `rounds[round][i]` is a run of `Ladder::rungs[i]`.
    pub rounds: Vec<Vec<RungRun>>,
}

/// Runs the ladder. Calls `tell` with the round and the run after each run.
pub fn run(ladder: &Ladder, mut tell: impl FnMut(usize, &RungRun)) -> Result<LadderReport, String> {
    ladder.check()?;
    let stage = run::Stage::set(ladder)?;
    if ladder.rungs[0] > LAST_OF_TOKENS {
        stage.run(0)?; // not measured: the reference for the texts of the higher rungs
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
        if self.config.itl_target != corelane::types::ItlTarget::Chosen {
            return Err("--itl-target-ms: prompts take whole steps on the ladder, so that every \
                        rung makes the same steps; leave it out"
                .into());
        }
        if self.rungs.is_empty() {
            return Err("--rung names no rung; leave it out to run all rungs".into());
        }
        Ok(())
    }
}

/// The median, minimum and maximum of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; for an even count, the mean of the two middle numbers.
    pub median: f64,
    /// The smallest number.
    pub min: f64,
    /// The largest number.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of at least one number.
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
    /// Generated tokens per second of the rung at `index`, over the rounds.
    pub fn rate(&self, index: usize) -> Spread {
        Spread::of(self.rounds.iter().map(|runs| runs[index].rate()))
    }

    /// The rate at `index` divided by the rate at `base`, round by round.
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
