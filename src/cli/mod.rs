//! The command line: makes a checked configuration from flags, environment variables and a
//! configuration file, in that order of precedence.
//!
//! An error is a sentence for the user that says what is wrong and what would be right.

pub mod chat;
pub mod doctor;
pub mod exposed;
pub mod lab;
pub mod model;
pub mod profile;
pub mod progress;
mod random;
mod sampling;
mod serve;
mod template;
pub mod tune;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use corelane::flags::complete::{CompletionsArgs, ManArgs};
use corelane::flags::{
    EngineArgs, expand_short_names, is_service_link, service_links, settle_model, with_variable,
};
use corelane::types::printable::printable;
pub use serve::ServeArgs;

use self::lab::PassedArgs;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  corelane completions bash > /etc/bash_completion.d/corelane
  corelane completions fish > ~/.config/fish/completions/corelane.fish";

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
    /// Talk with a model in the terminal.
    Chat(Box<chat::ChatArgs>),
    /// Answer one question; also with the text of a pipe.
    Run(Box<chat::RunArgs>),
    /// Check this machine and model; say what to fix.
    Doctor(Box<doctor::DoctorArgs>),
    /// Measure which settings are fastest on this machine, and write them to a file.
    Tune(Box<tune::TuneArgs>),
    /// Draw a flamegraph of a running server's lane.
    Profile(profile::ProfileArgs),
    /// Download, list, describe and make models.
    Model(model::ModelArgs),
    /// Measure the speed of a server, or of a part of this one, with corelane-bench.
    Bench(PassedArgs),
    /// Print completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write the manual pages.
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// The flags that say whom to ask, if this command asks.
    fn talk(&mut self) -> Option<&mut chat::TalkArgs> {
        match self {
            Self::Chat(args) => Some(&mut args.talk),
            Self::Run(args) => Some(&mut args.talk),
            _ => None,
        }
    }

    /// The flags of a server, if this command has them.
    fn serve(&mut self) -> Option<&mut ServeArgs> {
        match self {
            Self::Serve(args) => Some(args),
            Self::Doctor(args) => Some(&mut args.serve),
            _ => None,
        }
    }

    /// The flags of the model and its lanes, if this command has them.
    fn engine(&mut self) -> Option<&mut EngineArgs> {
        match self {
            Self::Serve(args) => Some(&mut args.engine),
            Self::Chat(args) => Some(&mut args.talk.engine),
            Self::Run(args) => Some(&mut args.talk.engine),
            Self::Doctor(args) => Some(&mut args.serve.engine),
            Self::Tune(args) => Some(&mut args.engine),
            _ => None,
        }
    }
}

/// Reads the process's arguments. Does not return for `--help`, `--version` and usage errors.
pub fn parse() -> Result<Cli, String> {
    let args = with_model(lab::with_help_moved(expand_short_names(std::env::args_os())));
    let mut command = with_variables(Cli::command());
    let file = config_file_of(&args);
    if let Some(path) = &file {
        command = with_defaults_from(command, path)?;
    }
    let parsed = command.try_get_matches_from(args).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let Some(engine) = cli.command.engine() {
            settle_model(engine, &matches, Cli::command())?;
        }
        let conflict = |message| Cli::command().error(ErrorKind::ArgumentConflict, message);
        if let Some(talk) = cli.command.talk() {
            chat::settle_url(talk, &matches).map_err(conflict)?;
            talk.template.settle(&matches).map_err(conflict)?;
        }
        if let Some(serve) = cli.command.serve() {
            serve.settle(&matches).map_err(conflict)?;
        }
        Ok(cli)
    });
    parsed.map_err(|error| {
        if let (Some(path), true) = (&file, error.use_stderr()) {
            let path = printable(&path.display().to_string());
            let _ = writeln!(std::io::stderr(), "(flags not given here may come from {path})");
        }
        error.exit()
    })
}

/// Lets the commands of `corelane model` be typed without `model`, as people do who know Ollama.
fn with_model(mut args: Vec<OsString>) -> Vec<OsString> {
    let first = args.get(1).and_then(|arg| arg.to_str());
    let name = match first {
        Some("ls") => "list",
        Some(name @ ("pull" | "list" | "rm" | "show")) => name,
        _ => return args,
    };
    args.splice(1..2, ["model".into(), OsString::from(name.to_owned())]);
    args
}

/// Says which variables are not read, because Kubernetes set them.
pub fn service_link_warnings() -> impl Iterator<Item = String> {
    let names = service_links(&ServeArgs::augment_args(clap::Command::new("serve")));
    names.into_iter().map(|name| {
        format!(
            "the variable {name} is ignored: it has the address of a Service of Kubernetes; \
             enableServiceLinks: false in the pod's spec leaves it out"
        )
    })
}

/// Gives each flag of `serve` an environment variable. The same flags of other commands read the same
/// variables.
fn with_variables(command: clap::Command) -> clap::Command {
    let serve = ServeArgs::augment_args(clap::Command::new("serve"));
    let is_serves = |arg: &Arg| serve.get_arguments().any(|other| other.get_id() == arg.get_id());
    command
        .mut_subcommand("serve", |serve| serve.mut_args(with_variable))
        .mut_subcommand("doctor", |doctor| {
            doctor.mut_args(|arg| if is_serves(&arg) { with_variable(arg) } else { arg })
        })
        .mut_subcommand("chat", with_variables_to_ask)
        .mut_subcommand("run", with_variables_to_ask)
}

/// Gives the flags that say whom to ask, and how the model runs, an environment variable.
fn with_variables_to_ask(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| match arg.get_help_heading() {
        Some("Server" | "Model" | "KV cache" | "Lanes" | "Scheduling") if arg.get_id() != "log" => {
            with_variable(arg)
        }
        _ => arg,
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
    let path = std::env::var_os("CORELANE_CONFIG").map(PathBuf::from)?;
    (!is_service_link("CORELANE_CONFIG")).then_some(path)
}

/// Makes a file's values the defaults of the flags that the keys name. clap then checks them like
/// flags.
fn with_defaults_from(command: clap::Command, path: &Path) -> Result<clap::Command, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the configuration file {shown}: {error}"))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let hint = if error.message().contains("quoted") { QUOTES } else { "" };
        format!("{shown} is not valid TOML: {error}{hint}")
    })?;
    let mut flags: Vec<(String, Vec<String>)> = Vec::new();
    let serve = command.find_subcommand("serve").expect("defined above");
    for (key, value) in &table {
        let id = key.replace('-', "_");
        if id == "config"
            || !serve.get_arguments().any(|arg| is_key(arg) && arg.get_id() == id.as_str())
        {
            return Err(format!("{shown}: {}", unknown_key(serve, key, value)));
        }
        let values = match value {
            toml::Value::Array(values) => values.iter().map(plain).collect::<Option<_>>(),
            value => plain(value).map(|value| vec![value]),
        };
        let values = values.ok_or_else(|| {
            format!("{shown}: {key} must be a string, a number, true or false, or a list of them")
        })?;
        // The value is stored in the opposite flag.
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

/// Added to what the parser says.
const QUOTES: &str = "(a text stands in quotes: alias = \"name\")";

/// Whether a flag may stand in a configuration file.
fn is_key(arg: &Arg) -> bool {
    !arg.is_positional() && !arg.is_hide_set()
}

/// What is wrong with a key that names no flag.
fn unknown_key(serve: &clap::Command, key: &str, value: &toml::Value) -> String {
    if value.is_table() {
        return format!(
            "the section [{key}] is unknown; all keys stand at the top, without a section"
        );
    }
    // clap knows which flag is alike.
    let flag = format!("--{}", key.replace('_', "-"));
    let alike = serve.clone().try_get_matches_from(["serve", &flag]).err().and_then(|error| {
        match error.get(ContextKind::SuggestedArg) {
            Some(ContextValue::String(flag)) => Some(flag.trim_start_matches('-').to_owned()),
            _ => None,
        }
    });
    if let Some(alike) = alike {
        return format!("unknown key {key:?}; did you mean {alike}?");
    }
    let known = serve.get_arguments().filter(|arg| is_key(arg)).filter_map(Arg::get_long);
    let known: Vec<&str> = known.filter(|long| !matches!(*long, "config" | "help")).collect();
    format!("unknown key {key:?}; known are {}", known.join(", "))
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
