//! `corelane completions` and `corelane man`: what packages install beside the program.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  corelane completions bash > /etc/bash_completion.d/corelane
  corelane completions fish > ~/.config/fish/completions/corelane.fish";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

/// Prints the completions of a program.
pub fn completions(args: &CompletionsArgs, mut program: Command) {
    clap_complete::generate(args.shell, &mut program, "corelane", &mut std::io::stdout());
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder to write to
    folder: PathBuf,
}

/// Writes a manual page for each command of a program.
pub fn man(args: &ManArgs, program: Command) -> Result<(), String> {
    clap_mangen::generate_to(program.disable_help_subcommand(true), &args.folder)
        .map_err(|error| format!("cannot write to {}: {error}", args.folder.display()))
}
