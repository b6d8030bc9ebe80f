//! `corelane bench`: measure a server, or a part of this one.

use clap::{Args, Subcommand};
use corelane::bench::{args, serve};

use super::engine::EngineArgs;
use super::ladder::{self, LadderArgs};
use super::replay::{self, ReplayArgs};

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Load an OpenAI-style server over HTTP: throughput, latencies, stalls, bursts.
    Serve(Box<args::BenchServeArgs>),
    /// Find where the speed goes: from the bare model to a client, one layer per rung.
    Ladder(Box<LadderArgs>),
    /// Find out what guesses bring on recorded texts: with and without them, in turns.
    Replay(Box<ReplayArgs>),
}

impl BenchArgs {
    /// The flags of the model, if this benchmark runs one.
    pub fn engine(&mut self) -> Option<&mut EngineArgs> {
        match &mut self.command {
            BenchCommand::Serve(_) => None,
            BenchCommand::Ladder(args) => Some(&mut args.engine),
            BenchCommand::Replay(args) => Some(&mut args.engine),
        }
    }
}

/// Runs `corelane bench`.
pub fn run(args: &BenchArgs) -> Result<(), String> {
    match &args.command {
        BenchCommand::Serve(args) => serve::run(args),
        BenchCommand::Ladder(args) => ladder::run(args),
        BenchCommand::Replay(args) => replay::run(args),
    }
}
