//! The command line: flags, environment variables and a configuration file, in
//! that order of precedence, to a checked configuration.

pub mod model;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use corelane::config::ServeConfig;
use corelane::model::load::Source;
use corelane::placement::{self, Topology, Wishes};
use corelane::types::{CacheLayout, CacheType, FlashAttention};

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
    /// Make model files.
    Model(model::ModelArgs),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  corelane serve                                the built-in model, on http://127.0.0.1:8080
  corelane serve -m qwen3-0.6b-q4_k_m.gguf -np 16 --host 0.0.0.0 --api-key s3cret
  corelane serve --config /etc/corelane.toml    keys are the long flags: port = 8081

Try it:
  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\"}'";

#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// Model to serve, a GGUF file [default: the small one inside the binary]
    #[arg(short, long, env = "CORELANE_MODEL", value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Name of the model, as clients see it [default: the model's own]
    #[arg(short, long, env = "CORELANE_ALIAS", value_name = "NAME", help_heading = "Model")]
    alias: Option<String>,

    /// Address to listen on
    #[arg(long, env = "CORELANE_HOST", default_value = "127.0.0.1", help_heading = "HTTP")]
    host: String,
    /// Port to listen on; 0 takes any free one
    #[arg(long, env = "CORELANE_PORT", default_value_t = 8080, help_heading = "HTTP")]
    port: u16,
    /// Address of /metrics, /health and /ready, with its port; none shows them nowhere
    #[arg(
        long,
        env = "CORELANE_OPS_ADDR",
        value_name = "ADDR",
        default_value = "127.0.0.1:9090",
        help_heading = "HTTP"
    )]
    ops_addr: String,
    /// Key that clients must send; give several with commas [default: none needed]
    #[arg(
        long,
        env = "CORELANE_API_KEY",
        value_name = "KEY",
        value_delimiter = ',',
        hide_env_values = true,
        help_heading = "HTTP"
    )]
    api_key: Vec<String>,
    /// After SIGTERM, time for running requests to finish
    #[arg(
        long,
        env = "CORELANE_DRAIN_SECONDS",
        value_name = "S",
        default_value_t = 30,
        help_heading = "HTTP"
    )]
    drain_seconds: u32,

    /// Tokens of context, shared by all requests; 0 chooses: 2048 for each, as memory allows
    #[arg(
        short,
        long,
        env = "CORELANE_CTX_SIZE",
        value_name = "N",
        default_value_t = 0,
        help_heading = "Scheduling"
    )]
    ctx_size: u32,
    /// Requests that run at once (also -np); more wait in a queue
    #[arg(
        long,
        env = "CORELANE_PARALLEL",
        value_name = "N",
        default_value_t = 8,
        help_heading = "Scheduling"
    )]
    parallel: usize,
    /// Tokens of one step at most; --ubatch-size bounds it, too
    #[arg(
        short,
        long,
        env = "CORELANE_BATCH_SIZE",
        value_name = "N",
        default_value_t = 2048,
        help_heading = "Scheduling"
    )]
    batch_size: usize,
    /// Tokens that llama.cpp computes at once (also -ub)
    #[arg(
        long,
        env = "CORELANE_UBATCH_SIZE",
        value_name = "N",
        default_value_t = 512,
        help_heading = "Scheduling"
    )]
    ubatch_size: usize,
    /// Prompt tokens of a step in which others generate; fewer is smoother for them
    #[arg(
        long,
        env = "CORELANE_PREFILL_ROWS",
        value_name = "N",
        default_value_t = 64,
        help_heading = "Scheduling"
    )]
    prefill_rows: usize,

    /// Numbers of the cached keys: f32, f16, q8_0 or q4_0 (also -ctk)
    #[arg(
        long,
        env = "CORELANE_CACHE_TYPE_K",
        value_name = "TYPE",
        default_value = "f16",
        help_heading = "KV cache"
    )]
    cache_type_k: CacheType,
    /// Numbers of the cached values, likewise (also -ctv)
    #[arg(
        long,
        env = "CORELANE_CACHE_TYPE_V",
        value_name = "TYPE",
        default_value = "f16",
        help_heading = "KV cache"
    )]
    cache_type_v: CacheType,
    /// Flash attention: on, off or auto (also -fa)
    #[arg(
        long,
        env = "CORELANE_FLASH_ATTN",
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "KV cache"
    )]
    flash_attn: FlashAttention,
    /// Give each request a KV cache of its own instead of one for all
    #[arg(
        long,
        env = "CORELANE_NO_KV_UNIFIED",
        value_parser = BoolishValueParser::new(),
        help_heading = "KV cache"
    )]
    no_kv_unified: bool,

    /// Tokens to generate where a request does not say; -1 leaves it to the API
    #[arg(
        short = 'n',
        long,
        visible_alias = "predict",
        env = "CORELANE_N_PREDICT",
        value_name = "N",
        default_value_t = -1,
        allow_negative_numbers = true,
        help_heading = "Generation"
    )]
    n_predict: i64,
    /// Where the seeds of requests without one begin; -1 for a random place
    #[arg(
        short,
        long,
        env = "CORELANE_SEED",
        value_name = "N",
        default_value_t = -1,
        allow_negative_numbers = true,
        help_heading = "Generation"
    )]
    seed: i64,

    /// Compute threads, one on each decode core [default: all decode cores]
    #[arg(short, long, env = "CORELANE_THREADS", value_name = "N", help_heading = "Lanes")]
    threads: Option<usize>,
    /// Core of the front lane: HTTP and scheduling [default: the first]
    #[arg(long, env = "CORELANE_FRONT_CORE", value_name = "CORE", help_heading = "Lanes")]
    front_core: Option<usize>,
    /// Cores of the decode lane, such as 1-3,6 [default: all others; all below four cores]
    #[arg(
        long,
        env = "CORELANE_DECODE_CORES",
        value_name = "CORES",
        value_parser = parse_cores,
        help_heading = "Lanes"
    )]
    decode_cores: Option<Cores>,
    /// How eagerly idle compute threads poll for work, 0 (sleep) to 100
    #[arg(
        long,
        env = "CORELANE_POLL",
        value_name = "LEVEL",
        default_value_t = 50,
        help_heading = "Lanes"
    )]
    poll: u32,

    /// Configuration file in TOML; flags and environment variables go before it
    #[arg(long, env = "CORELANE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, or per module: llama.cpp=debug
    #[arg(long, env = "CORELANE_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Log in JSON, a line for each event
    #[arg(long, env = "CORELANE_LOG_JSON", value_parser = BoolishValueParser::new())]
    pub log_json: bool,
}

/// A list of cores, as one value (clap would read a `Vec` as a repeated flag).
#[derive(Clone, Debug)]
struct Cores(Vec<usize>);

fn parse_cores(list: &str) -> Result<Cores, String> {
    placement::parse_list(list).map(Cores)
}

/// Reads the process's arguments. Does not return for `--help`, `--version`
/// and usage errors.
///
/// # Errors
/// A sentence, when the configuration file cannot be used.
pub fn parse() -> Result<Cli, String> {
    let args: Vec<OsString> = expand_short_names(std::env::args_os());
    let mut command = Cli::command();
    let file = config_file_of(&args);
    if let Some(path) = &file {
        command = with_defaults_from(command, path)?;
    }
    let parsed = command.try_get_matches_from(args).and_then(|m| Cli::from_arg_matches(&m));
    parsed.map_err(|error| {
        if let (Some(path), true) = (&file, error.use_stderr()) {
            eprintln!("(flags not given here may come from {})", path.display());
        }
        error.exit()
    })
}

/// llama-server's two-letter short flags, which clap does not know.
fn expand_short_names(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let expand = |arg: OsString| match arg.to_str() {
        Some("-np") => "--parallel".into(),
        Some("-ub") => "--ubatch-size".into(),
        Some("-ctk") => "--cache-type-k".into(),
        Some("-ctv") => "--cache-type-v".into(),
        Some("-fa") => "--flash-attn".into(),
        _ => arg,
    };
    args.map(expand).collect()
}

/// `--config`, needed before the rest can be parsed.
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

/// Makes a file's values the defaults of the flags they name, so that clap
/// checks them as it checks flags.
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
        flags.push((id, values));
    }
    Ok(command.mut_subcommand("serve", |mut serve| {
        for (id, values) in flags {
            serve = serve.mut_arg(id, |arg| arg.default_values(values));
        }
        serve
    }))
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

impl ServeArgs {
    /// The model to serve.
    pub fn source(&self) -> Source {
        self.model.clone().map_or(Source::BuiltIn, Source::File)
    }

    /// The configuration, checked against this machine.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn config(&self) -> Result<ServeConfig, String> {
        let wishes = Wishes {
            front_core: self.front_core,
            decode_cores: self.decode_cores.as_ref().map(|cores| cores.0.clone()),
            threads: self.threads,
        };
        let n_predict = match self.n_predict {
            -1 => None,
            n => Some(u32::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
                format!("--n-predict is {n}; it must be at least 1, or -1 to leave it to the API")
            })?),
        };
        if self.api_key.iter().any(String::is_empty) {
            return Err("--api-key is empty; leave it out to need no key".into());
        }
        let config = ServeConfig {
            host: self.host.clone(),
            port: self.port,
            ops_addr: (self.ops_addr != "none").then(|| self.ops_addr.clone()),
            alias: self.alias.clone(),
            api_keys: self.api_key.clone(),
            context_tokens: (self.ctx_size != 0).then_some(self.ctx_size),
            parallel: self.parallel,
            batch_rows: self.batch_size,
            ubatch_rows: self.ubatch_size.min(self.batch_size),
            prefill_rows: self.prefill_rows.min(self.batch_size),
            n_predict,
            entropy: u64::try_from(self.seed).map_or_else(|_| random(), Ok)?,
            drain: Duration::from_secs(u64::from(self.drain_seconds)),
            placement: Topology::read()?.place(&wishes)?,
            cache: CacheLayout {
                unified: !self.no_kv_unified,
                keys: self.cache_type_k,
                values: self.cache_type_v,
                flash_attention: self.flash_attn,
            },
            poll: self.poll,
        };
        config.check()?;
        Ok(config)
    }
}

fn random() -> Result<u64, String> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("the kernel has no random numbers: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
