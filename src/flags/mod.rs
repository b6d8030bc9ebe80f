//! Flags that several commands share: those of a model and its lanes.

pub mod complete;
pub mod engine;
pub mod hub;

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

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
    match place(matches, "model").cmp(&place(matches, "hf_repo")) {
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

/// The rank of the place that a flag's value comes from; 0 without a value.
fn place(matches: &ArgMatches, id: &str) -> u8 {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    match innermost.value_source(id) {
        Some(ValueSource::CommandLine) => 3,
        Some(ValueSource::EnvVariable) => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// Decides between a text and the file that has it, as [`settle_model`] does.
///
/// # Errors
/// A sentence for the user if both have a value from the same place.
pub fn settle_text(
    text: (&str, &mut Option<String>),
    file: (&str, &mut Option<PathBuf>),
    matches: &ArgMatches,
) -> Result<(), String> {
    match place(matches, text.0).cmp(&place(matches, file.0)) {
        Ordering::Less => *text.1 = None,
        Ordering::Greater => *file.1 = None,
        Ordering::Equal if text.1.is_some() && file.1.is_some() => {
            let flag = text.0.replace('_', "-");
            return Err(format!("--{flag} and --{flag}-file were both given; give one of them"));
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
        Some("-ngl") => "--n-gpu-layers".into(),
        Some("-hf" | "-hfr") => "--hf-repo".into(),
        Some("-hff") => "--hf-file".into(),
        Some("-hft") => "--hf-token".into(),
        _ => arg,
    };
    args.map(expand).collect()
}

/// The variables of flags that have an address of Kubernetes, such as `CORELANE_PORT=tcp://10.96.12.34:80` for a
/// Service named `corelane`. They are not meant for this program, which takes them as not set.
pub fn service_links(command: &clap::Command) -> Vec<String> {
    command.get_arguments().map(variable).filter(|name| is_service_link(name)).collect()
}

/// Whether a variable has such an address. A variable of keys is always read: a server must not start without its
/// keys.
pub fn is_service_link(variable: &str) -> bool {
    !variable.contains("KEY")
        && std::env::var(variable).is_ok_and(|value| {
            ["tcp://", "udp://", "sctp://"].iter().any(|protocol| value.starts_with(protocol))
        })
}

/// The name of a flag's variable.
fn variable(arg: &Arg) -> String {
    format!("CORELANE_{}", arg.get_id().as_str().to_uppercase())
}

/// Parses a number of a flag. The error for one that is negative or no number says the range. (It is checked with all
/// other settings.)
pub fn number<T: FromStr + Display + Clone + Send + Sync>(
    low: T,
    high: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync {
    move |text| text.parse().map_err(|_| format!("it must be from {low} to {high}"))
}

/// Refuses a flag that people bring along from programs for GPUs.
pub fn no_gpu(_: &str) -> Result<String, String> {
    Err("corelane computes on the CPU alone; leave -ngl out".into())
}

/// Refuses a model without `-m`.
pub fn no_file(path: &str) -> Result<String, String> {
    Err(format!("a model is named with -m, or with -hf for one of huggingface.co: -m {path}"))
}

/// Gives a flag an environment variable: `CORELANE_CTX_SIZE` for `--ctx-size`.
pub fn with_variable(arg: Arg) -> Arg {
    let name = variable(&arg);
    if arg.is_positional() || arg.is_hide_set() || is_service_link(&name) {
        return arg;
    }
    match (arg.get_id().as_str(), arg.get_action()) {
        ("kv_unified", _) => arg, // undoes --no-kv-unified, which has a variable
        (_, ArgAction::SetTrue) => arg.env(name).value_parser(BoolishValueParser::new()),
        _ => arg.env(name),
    }
}
