//! The commands and their flags.

mod ladder;
mod replay;
mod synth;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use corelane::flags::complete::{self, CompletionsArgs, ManArgs};
use corelane::flags::{EngineArgs, expand_short_names, settle_model, with_variable};
use corelane_bench::generator::{args, serve};

/// Measure the speed of a server, or of a part of corelane.
#[derive(Debug, Parser)]
#[command(name = "corelane-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load an OpenAI-style server over HTTP: throughput, latencies, stalls, bursts.
    Serve(Box<args::BenchServeArgs>),
    /// Find where the speed goes: from the bare model to a client, one layer per rung.
    Ladder(Box<ladder::LadderArgs>),
    /// Find out what guesses bring on recorded texts: with and without them, in turns.
    Replay(Box<replay::ReplayArgs>),
    /// Make a model with random weights and the shape of a real one, to measure speed with.
    Synth(Box<synth::SynthArgs>),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages.
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// The flags of the model, if this command runs one.
    fn engine(&mut self) -> Option<&mut EngineArgs> {
        match self {
            Self::Ladder(args) => Some(&mut args.engine),
            Self::Replay(args) => Some(&mut args.engine),
            _ => None,
        }
    }
}

/// Reads the process's arguments and runs the command. Does not return for `--help`, `--version`
/// and usage errors.
pub fn run() -> Result<(), String> {
    match parse().unwrap_or_else(|error| error.exit()).command {
        Command::Serve(args) => serve::run(&args),
        Command::Ladder(args) => ladder::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Completions(args) => {
            complete::completions(&args, Cli::command());
            Ok(())
        }
        Command::Man(args) => complete::man(&args, Cli::command()),
    }
}

fn parse() -> Result<Cli, clap::Error> {
    // The ladder takes the variables of the flags that it shares with `corelane serve`.
    let engine = EngineArgs::augment_args(clap::Command::new("engine"));
    let is_shared = |arg: &clap::Arg| engine.get_arguments().any(|e| e.get_id() == arg.get_id());
    let command = Cli::command().mut_subcommand("ladder", |ladder| {
        ladder.mut_args(|arg| if is_shared(&arg) { with_variable(arg) } else { arg })
    });
    let matches = command.try_get_matches_from(expand_short_names(std::env::args_os()))?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let Some(engine) = cli.command.engine() {
        settle_model(engine, &matches, Cli::command())?;
    }
    Ok(cli)
}
