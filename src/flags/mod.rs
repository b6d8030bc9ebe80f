//! Flags that several commands share: those of a model and its lanes.

pub mod complete;
pub mod engine;
pub mod hub;

use std::cmp::Ordering;
use std::ffi::OsString;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

pub use self::engine::{EngineArgs, first_of};

/// Decides between `--model` and `--hf-repo`, which exclude each other. If both have a value, the
/// one from the place of higher precedence wins: the command line, then the environment, then the
/// configuration file.
///
/// `command` is the whole program. An error shows its usage.
///
/// # Errors
/// If both have a value from the same place.
pub fn settle_model(
    engine: &mut EngineArgs,
    matches: &ArgMatches,
    mut command: clap::Command,
) -> Result<(), clap::Error> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    let place = |id| match innermost.value_source(id) {
        Some(ValueSource::CommandLine) => 3,
        Some(ValueSource::EnvVariable) => 2,
        Some(_) => 1,
        None => 0,
    };
    match place("model").cmp(&place("hf_repo")) {
        Ordering::Less => engine.model = None,
        Ordering::Greater => engine.hub.hf_repo = None,
        Ordering::Equal if engine.model.is_some() => {
            let message = "--model and --hf-repo both name a model; give one of them";
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Ordering::Equal => {}
    }
    Ok(())
}

/// Expands llama-server's short flags of several letters, which clap does not support.
pub fn expand_short_names(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let expand = |arg: OsString| match arg.to_str() {
        Some("-np") => "--parallel".into(),
        Some("-ub") => "--ubatch-size".into(),
        Some("-ctk") => "--cache-type-k".into(),
        Some("-ctv") => "--cache-type-v".into(),
        Some("-cram") => "--cache-ram".into(),
        Some("-ctxcp") => "--ctx-checkpoints".into(),
        Some("-kvu") => "--kv-unified".into(),
        Some("-no-kvu") => "--no-kv-unified".into(),
        Some("-md") => "--model-draft".into(),
        Some("-fa") => "--flash-attn".into(),
        Some("-sys") => "--system-prompt".into(),
        Some("-hf" | "-hfr") => "--hf-repo".into(),
        Some("-hff") => "--hf-file".into(),
        Some("-hft") => "--hf-token".into(),
        _ => arg,
    };
    args.map(expand).collect()
}

/// Gives a flag an environment variable: `CORELANE_CTX_SIZE` for `--ctx-size`.
pub fn with_variable(arg: Arg) -> Arg {
    let name = format!("CORELANE_{}", arg.get_id().as_str().to_uppercase());
    match (arg.get_id().as_str(), arg.get_action()) {
        ("kv_unified", _) => arg, // undoes --no-kv-unified, which has a variable
        (_, ArgAction::SetTrue) => arg.env(name).value_parser(BoolishValueParser::new()),
        _ => arg.env(name),
    }
}
