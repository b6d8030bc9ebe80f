//! `corelane bench` and `corelane model synth` start the program `corelane-bench`. It has the code
//! for measurements, which a server does not need.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

const PROGRAM: &str = "corelane-bench";

/// Arguments that are passed on unchanged, `--help` included.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PassedArgs {
    /// Command and flags of corelane-bench; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub passed: Vec<OsString>,
}

/// Turns `corelane help bench serve` into `corelane bench serve --help`, because only
/// `corelane-bench` knows its commands.
pub fn with_help_moved(mut args: Vec<OsString>) -> Vec<OsString> {
    let is = |at: usize, names: &[&str]| {
        names.iter().zip(at..).all(|(name, at)| args.get(at).is_some_and(|arg| arg == name))
    };
    if is(1, &["help", "bench"]) || is(1, &["help", "model", "synth"]) {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// Replaces this process by `corelane-bench`: the one beside this program, or else the one in
/// `PATH`. Its help shows `name` as the name of the program.
///
/// # Errors
/// A message for the user if the program cannot be started. Otherwise this does not return.
pub fn run(name: &str, args: Vec<OsString>) -> Result<(), String> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let program = beside.filter(|program| program.exists()).unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(program).arg0(name).args(args).exec();
    Err(format!(
        "cannot start {PROGRAM}: {error}; it must lie beside corelane, or in a folder of PATH (from \
         the sources, cargo build --release makes both)"
    ))
}
