//! `completions` and `man`: write the files that packages install beside a program.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

/// The shell to print completions for.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

/// Prints the completions of a program. Ignores that standard output is closed.
pub fn completions(args: &CompletionsArgs, mut program: Command) {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    let _ = std::io::stdout().write_all(&script);
}

/// The folder for manual pages.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder to write to
    folder: PathBuf,
}

/// Writes a manual page for each command of a program.
///
/// # Errors
/// A message for the user if a file cannot be written.
pub fn man(args: &ManArgs, program: Command) -> Result<(), String> {
    clap_mangen::generate_to(program.disable_help_subcommand(true), &args.folder)
        .map_err(|error| format!("cannot write to {}: {error}", args.folder.display()))
}
