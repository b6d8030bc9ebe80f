//! Turns the flags into one round: draws the requests, and runs them against a server.
//!
//! The requests are drawn once per round, so that all servers get the same ones.

use std::time::Duration;

use super::args::{BenchServeArgs, Scenario};
use super::load::{Load, run};
use super::load_report::{Shown, measured};
use super::metrics::{Metrics, Mode};
use super::progress::Progress;
use super::prompts::{Prompts, lengths};
use super::report::Measured;
use super::{arrivals, burst, stall, turns};

/// The requests of one round.
pub enum Plan {
    /// `--scenario load`
    Load(Traffic),
    /// `--scenario stall`
    Stall(stall::Plan),
    /// `--scenario burst`
    Burst(burst::Plan),
    /// `--scenario turns`
    Turns(turns::Plan),
}

/// The requests of the load scenario.
pub struct Traffic {
    prompts: Vec<Vec<u32>>,
    output_lens: Vec<u32>,
    arrivals: Vec<Duration>,
    warmups: Vec<Vec<u32>>,
}

impl Plan {
    /// Draws the requests of one round.
    pub fn draw(args: &BenchServeArgs, prompts: &mut Prompts) -> Result<Self, String> {
        let (prefix, own) = (args.prefix_len() as usize, args.random_input_len as usize);
        let warmups: Vec<Vec<u32>> = (0..args.num_warmups).map(|_| prompts.draw(own)).collect();
        Ok(match args.scenario {
            Scenario::Load => Plan::Load(traffic(args, prompts, warmups)?),
            Scenario::Stall => Plan::Stall(stall::Plan {
                warmups,
                streams: (0..args.streams()).map(|_| prompts.draw(own)).collect(),
                stream_tokens: args.output_len(),
                long: prompts.draw(args.long_input_len() as usize),
                long_alone: prompts.draw(args.long_input_len() as usize),
            }),
            Scenario::Burst => Plan::Burst(burst::Plan {
                warmups,
                alone: prompts.sharing(1, prefix, own).swap_remove(0),
                prompts: prompts.sharing(args.num_prompts(), prefix, own),
                prefix_len: prefix,
            }),
            Scenario::Turns => Plan::Turns(turns::Plan {
                warmups,
                first: prompts.draw(prefix),
                more: prompts.draw(own),
            }),
        })
    }

    /// Runs the round against the server that `base` names.
    pub fn measure(&self, args: &BenchServeArgs, base: &Load) -> Result<Measured, String> {
        let show_progress = !args.no_progress;
        match self {
            Plan::Load(traffic) => load(args, traffic, base, show_progress),
            Plan::Stall(plan) => stall::run(base, plan, show_progress),
            Plan::Burst(plan) => burst::run(base, plan, show_progress),
            Plan::Turns(plan) => turns::run(base, plan, show_progress),
        }
    }
}

fn traffic(
    args: &BenchServeArgs,
    prompts: &mut Prompts,
    warmups: Vec<Vec<u32>>,
) -> Result<Traffic, String> {
    let count = args.num_prompts();
    let input = lengths(args.random_input_len, args.range_ratio())?;
    let output = lengths(args.output_len(), args.range_ratio())?;
    let prefix = prompts.draw(args.prefix_len() as usize);
    let mut drawn = Vec::with_capacity(count);
    let mut output_lens = Vec::with_capacity(count);
    for _ in 0..count {
        let own = prompts.length(input.clone()) as usize;
        drawn.push([prefix.clone(), prompts.draw(own)].concat());
        output_lens.push(prompts.length(output.clone()));
    }
    let arrivals = match args.request_rate.is_infinite() {
        true => Vec::new(),
        false => arrivals::gamma(count, args.request_rate, args.burstiness(), prompts.random())?,
    };
    Ok(Traffic { prompts: drawn, output_lens, arrivals, warmups })
}

fn load(
    args: &BenchServeArgs,
    traffic: &Traffic,
    base: &Load,
    show_progress: bool,
) -> Result<Measured, String> {
    let load = Load {
        prompts: traffic.prompts.clone(),
        output_lens: traffic.output_lens.clone(),
        arrivals: traffic.arrivals.clone(),
        warmup_prompts: traffic.warmups.clone(),
        max_concurrency: args.max_concurrency.unwrap_or(usize::MAX),
        ..base.clone()
    };
    let progress = Progress::start(show_progress, load.prompts.len(), &base.address);
    let outcome = run(&load, |completed| progress.set(completed))?;
    drop(progress);
    let mode = Mode {
        streamed: load.stream,
        capped: args.max_concurrency.is_some(),
        paced: args.request_rate.is_finite(),
        goodput: args.goodput.clone(),
    };
    let shown = Shown {
        latencies: args.percentile_metrics.clone(),
        percentiles: args.percentiles(),
        max_concurrency: args.max_concurrency,
        request_rate: args.request_rate,
        detailed: args.save_detailed,
    };
    let metrics = Metrics::of(&outcome, &mode);
    Ok(measured(&outcome, metrics, &shown))
}
