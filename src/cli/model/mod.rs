//! `corelane model`: commands for the models in the cache and for model files.

mod list;
mod output;
mod pull;
mod remove;
mod show;

use clap::{Args, Subcommand};

use super::lab::{self, PassedArgs};

#[derive(Debug, Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Download the newest version of a model from huggingface.co.
    Pull(pull::PullArgs),
    /// List the models that are downloaded.
    List(list::ListArgs),
    /// Remove a downloaded model.
    Rm(remove::RemoveArgs),
    /// Describe a model.
    Show(show::ShowArgs),
    /// Make a model with random weights and the shape of a real one, to measure speed with.
    Synth(PassedArgs),
}

/// Runs `corelane model`.
pub fn run(args: ModelArgs) -> Result<(), String> {
    match args.command {
        ModelCommand::Pull(args) => pull::run(&args),
        ModelCommand::List(args) => list::run(&args),
        ModelCommand::Rm(args) => remove::run(&args),
        ModelCommand::Show(args) => show::run(&args),
        ModelCommand::Synth(args) => {
            let passed = std::iter::once("synth".into()).chain(args.passed);
            lab::run("corelane model", passed.collect())
        }
    }
}
