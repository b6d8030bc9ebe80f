//! `corelane bench`: measure a server.

use clap::{Args, Subcommand};
use corelane::bench::{args, serve};

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Load an OpenAI-style completions server over HTTP: throughput, latencies, stalls, bursts.
    Serve(Box<args::ServeArgs>),
}

/// Runs it.
///
/// # Errors
/// A sentence that says what went wrong.
pub fn run(args: &BenchArgs) -> Result<(), String> {
    match &args.command {
        BenchCommand::Serve(args) => serve::run(args),
    }
}
