//! The command line: flags, environment variables and a configuration file, in
//! that order of precedence, to a checked configuration.
//!
//! Errors are sentences for the user that say what was wrong and what would be right.

pub mod bench;
pub mod complete;
pub mod doctor;
mod engine;
pub mod exposed;
pub mod hub;
mod ladder;
pub mod model;
pub mod profile;
mod replay;
mod serve;
pub mod tune;

use std::cmp::Ordering;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
pub use engine::first_of;
pub use serve::ServeArgs;

use self::engine::EngineArgs;

/// A lock-free, thread-per-core HTTP server for GGUF models.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model over HTTP.
    Serve(Box<ServeArgs>),
    /// Say what this machine is, and what to change for a server.
    Doctor(Box<doctor::DoctorArgs>),
    /// Measure which settings are fastest on this machine, and write them to a file.
    Tune(Box<tune::TuneArgs>),
    /// Draw a flamegraph of a running server's lane.
    Profile(profile::ProfileArgs),
    /// Download, list, describe and make models.
    Model(model::ModelArgs),
    /// Measure the speed of a server, or of a part of this one.
    Bench(bench::BenchArgs),
    /// Print completions for a shell.
    Completions(complete::CompletionsArgs),
    /// Write the manual pages.
    #[command(hide = true)]
    Man(complete::ManArgs),
}

impl Command {
    /// The flags of a model and its lanes, if this command runs one.
    fn engine(&mut self) -> Option<&mut EngineArgs> {
        match self {
            Self::Serve(args) => Some(&mut args.engine),
            Self::Doctor(args) => Some(&mut args.serve.engine),
            Self::Tune(args) => Some(&mut args.engine),
            Self::Bench(args) => args.engine(),
            _ => None,
        }
    }
}

/// Reads the process's arguments. Does not return for `--help`, `--version` and usage errors.
pub fn parse() -> Result<Cli, String> {
    let args: Vec<OsString> = expand_short_names(std::env::args_os());
    let mut command = with_variables(Cli::command());
    let file = config_file_of(&args);
    if let Some(path) = &file {
        command = with_defaults_from(command, path)?;
    }
    let parsed = command.try_get_matches_from(args).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        settle_model(&mut cli, &matches)?;
        Ok(cli)
    });
    parsed.map_err(|error| {
        if let (Some(path), true) = (&file, error.use_stderr()) {
            eprintln!("(flags not given here may come from {})", path.display());
        }
        error.exit()
    })
}

/// A model by its file and one by its name exclude each other. Where both have a value, that of the
/// higher place wins: the command line, then the environment, then the file.
fn settle_model(cli: &mut Cli, matches: &ArgMatches) -> Result<(), clap::Error> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    let Some(engine) = cli.command.engine() else { return Ok(()) };
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
            return Err(Cli::command().error(ErrorKind::ArgumentConflict, message));
        }
        Ordering::Equal => {}
    }
    Ok(())
}

/// Expands llama-server's two-letter short flags, which clap does not support.
fn expand_short_names(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let expand = |arg: OsString| match arg.to_str() {
        Some("-np") => "--parallel".into(),
        Some("-ub") => "--ubatch-size".into(),
        Some("-ctk") => "--cache-type-k".into(),
        Some("-ctv") => "--cache-type-v".into(),
        Some("-kvu") => "--kv-unified".into(),
        Some("-no-kvu") => "--no-kv-unified".into(),
        Some("-md") => "--model-draft".into(),
        Some("-fa") => "--flash-attn".into(),
        Some("-hf" | "-hfr") => "--hf-repo".into(),
        Some("-hff") => "--hf-file".into(),
        Some("-hft") => "--hf-token".into(),
        _ => arg,
    };
    args.map(expand).collect()
}

/// Gives each flag of `serve` an environment variable: `CORELANE_CTX_SIZE` for `--ctx-size`. The
/// doctor shares all of them, and the ladder those of the engine.
fn with_variables(command: clap::Command) -> clap::Command {
    let with_variable = |arg: Arg| {
        let name = format!("CORELANE_{}", arg.get_id().as_str().to_uppercase());
        match (arg.get_id().as_str(), arg.get_action()) {
            ("kv_unified", _) => arg, // undoes --no-kv-unified, which has a variable
            (_, ArgAction::SetTrue) => arg.env(name).value_parser(BoolishValueParser::new()),
            _ => arg.env(name),
        }
    };
    let engine = EngineArgs::augment_args(clap::Command::new("engine"));
    let is_shared = |arg: &Arg| engine.get_arguments().any(|other| other.get_id() == arg.get_id());
    let serve = ServeArgs::augment_args(clap::Command::new("serve"));
    let is_serves = |arg: &Arg| serve.get_arguments().any(|other| other.get_id() == arg.get_id());
    command
        .mut_subcommand("serve", |serve| serve.mut_args(with_variable))
        .mut_subcommand("doctor", |doctor| {
            doctor.mut_args(|arg| if is_serves(&arg) { with_variable(arg) } else { arg })
        })
        .mut_subcommand("bench", |bench| {
            bench.mut_subcommand("ladder", |ladder| {
                ladder.mut_args(|arg| if is_shared(&arg) { with_variable(arg) } else { arg })
            })
        })
}

/// Finds `--config`, which is needed before the other flags can be parsed.
fn config_file_of(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os("CORELANE_CONFIG").map(PathBuf::from)
}

/// Makes a file's values the defaults of the flags that they name. clap then checks them like
/// flags.
fn with_defaults_from(command: clap::Command, path: &Path) -> Result<clap::Command, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the configuration file {shown}: {error}"))?;
    let table: toml::Table =
        text.parse().map_err(|error| format!("{shown} is not valid TOML: {error}"))?;
    let mut flags: Vec<(String, Vec<String>)> = Vec::new();
    let serve = command.find_subcommand("serve").expect("defined above");
    for (key, value) in &table {
        let id = key.replace('-', "_");
        if id == "config" || !serve.get_arguments().any(|arg| arg.get_id() == id.as_str()) {
            let known: Vec<String> = serve
                .get_arguments()
                .filter_map(|arg| arg.get_long())
                .filter(|long| !matches!(*long, "config" | "help"))
                .map(|long| long.replace('-', "_"))
                .collect();
            return Err(format!("{shown}: unknown key {key:?}; known are {}", known.join(", ")));
        }
        let values = match value {
            toml::Value::Array(values) => values.iter().map(plain).collect::<Option<_>>(),
            value => plain(value).map(|value| vec![value]),
        };
        let values = values.ok_or_else(|| {
            format!("{shown}: {key} must be a string, a number, true or false, or a list of them")
        })?;
        // A negative flag has no value of its own.
        if id == "kv_unified" {
            let undone = values.iter().map(|value| (value != "true").to_string());
            flags.push(("no_kv_unified".to_owned(), undone.collect()));
        } else {
            flags.push((id, values));
        }
    }
    let with_defaults = |mut serve: clap::Command| {
        for (id, values) in &flags {
            serve = serve.mut_arg(id, |arg| arg.default_values(values));
        }
        serve
    };
    Ok(command.mut_subcommand("serve", with_defaults).mut_subcommand("doctor", with_defaults))
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}
