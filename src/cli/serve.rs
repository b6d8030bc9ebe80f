//! `corelane serve`: makes a checked configuration from the flags.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, Args};
use corelane::config::{FileFolder, FilesKey, ServeConfig};
use corelane::flags::{EngineArgs, no_file, number};
use corelane::keys::{self, ApiKey, Given};
use corelane::limits::{
    CONNECTIONS, CONTEXT_TOKENS_MAX, KEY_FILE_BYTES_MAX, PING_INTERVAL, QUEUE_SEQUENCES,
    QUEUE_TOKENS, SLOTS_MAX,
};
use corelane::traces::Endpoint;
use corelane::types::{Guessing, IoChoice, Pooling, Speculation};

use super::random;
use super::sampling::SamplingArgs;
use super::template::TemplateArgs;

const MIB: usize = 1 << 20;

const SERVE_EXAMPLES: &str = "\
Examples:
  corelane serve                                the built-in model, on http://127.0.0.1:8080
  corelane serve -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M      from huggingface.co
  corelane serve -m qwen3-0.6b-q4_k_m.gguf -np 16 --host 0.0.0.0 --api-key s3cret
  corelane serve --config /etc/corelane.toml    keys are the long flags: port = 8081

Try it:
  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\"}'";

#[derive(Clone, Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Refused with an explanation
    #[arg(hide = true, value_name = "FILE", value_parser = no_file)]
    file: Option<String>,
    /// Names of the model for clients, separated by commas; responses have the first one
    /// [default: that of --hf-repo, or the model's own]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', help_heading = "Model")]
    alias: Vec<String>,
    /// Tags of the model in /v1/models, separated by commas; they change nothing
    #[arg(long, value_name = "TAG", value_delimiter = ',', help_heading = "Model")]
    tags: Vec<String>,

    /// Serve embeddings, too, and pool the vectors of a text's tokens by mean, cls, last or none
    /// (a vector for each token); or rank documents (rank) [default: from the model's metadata;
    /// most chat models set none]
    #[arg(long, value_name = "HOW", help_heading = "Model")]
    pooling: Option<Pooling>,
    /// Rank documents: the same as --pooling rank
    #[arg(long, visible_alias = "reranking", conflicts_with = "pooling", help_heading = "Model")]
    rerank: bool,
    /// Let clients ask for embeddings with fewer dimensions; only for models that were trained for
    /// this (Matryoshka)
    #[arg(long, help_heading = "Model")]
    matryoshka: bool,
    /// Text to put before each query to embed (input_type), as the model's card says
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        help_heading = "Model"
    )]
    query_prefix: String,
    /// Text to put before each document to embed (input_type)
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        help_heading = "Model"
    )]
    document_prefix: String,
    #[command(flatten)]
    template: TemplateArgs,
    /// Most tokens of reasoning, if the request does not say; 0 ends it at once, -1 sets no limit
    #[arg(
        long,
        value_name = "N",
        default_value_t = -1,
        value_parser = clap::value_parser!(i64).range(-1..),
        allow_negative_numbers = true,
        help_heading = "Model"
    )]
    reasoning_budget: i64,
    /// A tool call needs the model's own markers: a bare or fenced JSON object is none
    #[arg(long, help_heading = "Model")]
    no_fenced_calls: bool,

    /// Addresses to listen on, separated by commas; a path that ends in .sock is a Unix socket
    #[arg(long, default_value = "127.0.0.1", value_delimiter = ',', help_heading = "HTTP")]
    host: Vec<String>,
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 8080, help_heading = "HTTP")]
    port: u16,
    /// Address and port of /metrics, /health and /ready; none turns them off
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090", help_heading = "HTTP")]
    ops_addr: String,
    /// Show /metrics on the port of the API, too; clients need a key for it. With several keys,
    /// this also needs --share-cache
    #[arg(long, help_heading = "HTTP")]
    metrics: bool,
    /// OpenTelemetry collector that gets a span for each request, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", visible_alias = "otlp-traces-endpoint", help_heading = "HTTP")]
    otlp_endpoint: Option<String>,
    /// Header fields for the collector: NAME=VALUE, separated by commas
    #[arg(
        long,
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        hide_env_values = true,
        requires = "otlp_endpoint",
        help_heading = "HTTP"
    )]
    otlp_headers: Vec<String>,
    /// Allow profiles of the lanes at the address of --ops-addr (corelane profile)
    #[arg(long, help_heading = "HTTP")]
    profiling: bool,
    /// Serve no web page at / (also --no-webui)
    #[arg(long, alias = "no-webui", help_heading = "HTTP")]
    no_ui: bool,
    /// API key that clients must send; separate several keys with commas [default: no key]
    #[arg(
        long,
        value_name = "KEY",
        value_delimiter = ',',
        hide_env_values = true,
        help_heading = "HTTP"
    )]
    api_key: Vec<String>,
    /// File with API keys, one per line, or key NAME:SECRET[:WEIGHT[:PRIORITY]]; lines that begin
    /// with # are comments. SIGHUP reads it again
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub api_key_file: Option<PathBuf>,
    /// API key with a name for the logs, a share of the server relative to other keys [1], and the
    /// lowest priority number its requests may ask for [0]; repeat the flag for more keys
    #[arg(
        long,
        value_name = "NAME:SECRET[:WEIGHT[:PRIORITY]]",
        value_delimiter = ',',
        hide_env_values = true,
        help_heading = "HTTP"
    )]
    key: Vec<ApiKey>,
    /// Allow core dumps although they contain API keys and the token for the hub; without root,
    /// perf and debuggers need this flag, too
    #[arg(long, help_heading = "HTTP")]
    pub core_dumps: bool,
    /// Web pages that may use the server, such as https://chat.example; separate several with
    /// commas, * allows all. Pages of this machine and of desktop programs are always allowed
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', help_heading = "HTTP")]
    cors_origins: Vec<String>,
    /// Names to which a server without keys answers; separate several with commas, * is any. It
    /// always answers to addresses, to localhost and to the names in --cors-origins
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "HTTP")]
    allowed_hosts: Vec<String>,
    /// Seconds of silence after which a stream sends a comment; -1 sends none
    #[arg(
        long,
        value_name = "S",
        default_value_t = PING_INTERVAL.as_secs() as i64,
        allow_negative_numbers = true,
        help_heading = "HTTP"
    )]
    sse_ping_interval: i64,
    /// How sockets are read and written: uring (io_uring) or epoll; auto takes epoll where the kernel
    /// or a sandbox forbids io_uring
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "HTTP")]
    io: IoChoice,
    /// Most open connections; when there are more, the one that has been idle for longest is closed
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS, help_heading = "HTTP")]
    max_connections: usize,
    /// Seconds after SIGTERM for running requests to finish, and for files of --cache-disk
    #[arg(long, value_name = "S", default_value_t = 30, help_heading = "HTTP")]
    drain_seconds: u32,

    /// Tokens in the KV cache, shared by all running requests; 0 chooses the length that the model
    /// was trained with, and 2048 for each further request, as far as memory goes
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = number::<u32>(16, CONTEXT_TOKENS_MAX as u32),
        help_heading = "Scheduling"
    )]
    ctx_size: u32,
    /// Requests that run at once; the others wait in a queue (also -np)
    #[arg(
        long,
        value_name = "N",
        default_value_t = ServeConfig::default().parallel,
        allow_negative_numbers = true,
        value_parser = number::<usize>(1, SLOTS_MAX),
        help_heading = "Scheduling"
    )]
    parallel: usize,

    /// Most requests in the queue; further requests get status 429
    #[arg(long, value_name = "N", default_value_t = QUEUE_SEQUENCES, help_heading = "Scheduling")]
    queue_requests: usize,
    /// Most prompt tokens in the queue; further requests get status 429
    #[arg(long, value_name = "N", default_value_t = QUEUE_TOKENS, help_heading = "Scheduling")]
    queue_tokens: usize,
    /// Memory in MiB for requests outside the KV cache: bodies, prompts, answers and states of
    /// constraints; half of it is reserved for the keys by their weights. A request without room
    /// gets status 429 [default: 512, or an eighth of the memory available if that is less]
    #[arg(long, value_name = "MIB", help_heading = "Scheduling")]
    request_memory: Option<usize>,
    /// Longest time of a request in seconds, which its timeout_ms can only shorten; 0 sets no limit
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Scheduling")]
    request_timeout_s: u32,
    /// Most saved states of a model with recurrent layers or a sliding window for each of
    /// --parallel, from which later prompts start; llama-server's name for it (also -ctxcp)
    /// [default: 32, or what an eighth of the memory holds if that is less]
    #[arg(long, value_name = "N", help_heading = "KV cache")]
    ctx_checkpoints: Option<usize>,
    /// Memory in MiB for the prefixes of prompts that the KV cache has no room for; 0 keeps none
    /// (also -cram) [default: half of the memory left, at most 8192]
    #[arg(long, value_name = "MIB", help_heading = "KV cache")]
    cache_ram: Option<usize>,
    /// Folder for the prefixes of prompts, so that they are there after a restart, and more of them
    /// than memory holds. Each server needs a folder of its own [default: none]
    #[arg(long, value_name = "DIR", help_heading = "KV cache")]
    cache_disk: Option<PathBuf>,
    /// Most MiB of the files in --cache-disk [default: 8192]
    #[arg(long, value_name = "MIB", help_heading = "KV cache")]
    cache_disk_size: Option<usize>,
    /// Folder in which clients save the texts of slots, by POST /slots/ID?action=save [default: none]
    #[arg(long, value_name = "DIR", help_heading = "KV cache")]
    slot_save_path: Option<PathBuf>,
    /// Most MiB of the files in --slot-save-path [default: 8192]
    #[arg(long, value_name = "MIB", help_heading = "KV cache")]
    slot_save_size: Option<usize>,
    /// File with 16 to 4096 random bytes, with which the files in --cache-disk and --slot-save-path
    /// are encrypted [default: they are not]
    #[arg(long, value_name = "FILE", help_heading = "KV cache")]
    cache_disk_key_file: Option<PathBuf>,
    /// Compute every prompt in full, even if the KV cache holds a prefix of it
    #[arg(long, help_heading = "KV cache")]
    no_cache_prompt: bool,
    /// Source of guesses of the next tokens, which one step checks together: auto (all sources),
    /// off, lookup (the text itself) or draft (--model-draft). Guesses change no text, and are made
    /// only if they save time
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "Guesses")]
    spec: Speculation,
    /// Most guesses of a text in a step
    #[arg(
        long,
        visible_alias = "spec-draft-n-max",
        value_name = "N",
        default_value_t = ServeConfig::default().guessing.most,
        help_heading = "Guesses"
    )]
    draft_max: u8,
    /// Fewest guesses of a text in a step; fewer are dropped
    #[arg(
        long,
        visible_alias = "spec-draft-n-min",
        value_name = "N",
        default_value_t = 0,
        help_heading = "Guesses"
    )]
    draft_min: u8,
    /// Least probability of a guess of the draft model; it stops at a less probable one
    #[arg(
        long,
        visible_alias = "spec-draft-p-min",
        value_name = "P",
        default_value_t = 0.0,
        help_heading = "Guesses"
    )]
    draft_p_min: f32,
    /// GGUF file of a smaller model with the same vocabulary, which guesses where the text does not
    /// repeat itself (also -md)
    #[arg(long, visible_alias = "spec-draft-model", value_name = "FILE", help_heading = "Guesses")]
    model_draft: Option<PathBuf>,
    /// Let requests of all API keys share prefixes in the KV cache. A client then learns from the
    /// time to its first token whether another key sent the same beginning of a prompt
    #[arg(long, help_heading = "KV cache")]
    share_cache: bool,

    /// Tokens to generate if a request sets no maximum; -1 uses the default of the API
    #[arg(
        short = 'n',
        long,
        visible_alias = "predict",
        value_name = "N",
        default_value_t = -1,
        allow_negative_numbers = true,
        help_heading = "Generation"
    )]
    n_predict: i64,
    /// In a prompt to fill a gap, put the text after the gap first, as some models expect it
    #[arg(long, help_heading = "Generation")]
    spm_infill: bool,
    /// Sampling and system message of requests that leave them out.
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Seed of requests that set none; -1 draws a seed for each request
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = -1,
        allow_negative_numbers = true,
        help_heading = "Generation"
    )]
    seed: i64,

    /// Configuration file in TOML; flags and environment variables override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Log level: error, warn, info, debug or trace; per module: llama.cpp=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Log as JSON, one line per event
    #[arg(long)]
    pub log_json: bool,
}

impl ServeArgs {
    /// Decides between texts and the files that have them, by the places where they are given.
    ///
    /// # Errors
    /// A sentence for the user if both are given in one place.
    pub fn settle(&mut self, matches: &ArgMatches) -> Result<(), String> {
        self.template.settle(matches)?;
        self.sampling.settle(matches)
    }

    /// The configuration, checked for this machine. Claims the cores of the lanes.
    pub fn config(&self) -> Result<ServeConfig, String> {
        self.config_with(self.engine.config()?)
    }

    /// The secret of files with texts, if there is one.
    fn files_key(&self) -> Result<Option<FilesKey>, String> {
        let has_folder = self.cache_disk.is_some() || self.slot_save_path.is_some();
        match &self.cache_disk_key_file {
            Some(path) if has_folder => Ok(Some(FilesKey(read_secret(path)?))),
            Some(_) => Err("--cache-disk-key-file has no use without --cache-disk or \
                            --slot-save-path"
                .into()),
            None => Ok(None),
        }
    }

    /// The configuration with these settings of the engine.
    pub fn config_with(&self, engine: ServeConfig) -> Result<ServeConfig, String> {
        let n_predict = match self.n_predict {
            -1 => None,
            n => Some(u32::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
                format!("--n-predict is {n}; it must be at least 1, or -1 to leave it to the API")
            })?),
        };
        for (flag, values) in
            [("--host", &self.host), ("--alias", &self.alias), ("--tags", &self.tags)]
        {
            if values.iter().any(String::is_empty) {
                return Err(format!("{flag} has an empty entry; leave it out"));
            }
        }
        if self.api_key.iter().any(String::is_empty) {
            return Err("--api-key is empty; leave it out to need no key".into());
        }
        let config = ServeConfig {
            hosts: self.host.clone(),
            port: self.port,
            ops_addr: (self.ops_addr != "none").then(|| self.ops_addr.clone()),
            metrics: self.metrics,
            aliases: self.names(),
            tags: self.tags.clone(),
            pooling: if self.rerank { Some(Pooling::Rank) } else { self.pooling },
            matryoshka: self.matryoshka,
            query_prefix: self.query_prefix.clone(),
            document_prefix: self.document_prefix.clone(),
            chat_template: self.template.read()?,
            fenced_calls: !self.no_fenced_calls,
            reasoning_budget: u32::try_from(self.reasoning_budget).ok(),
            keys: self.keys()?,
            context_tokens: (self.ctx_size != 0).then_some(self.ctx_size),
            parallel: self.parallel,
            queue_requests: self.queue_requests,
            queue_tokens: self.queue_tokens,
            request_timeout: (self.request_timeout_s > 0)
                .then(|| Duration::from_secs(self.request_timeout_s.into())),
            ctx_checkpoints: self.ctx_checkpoints,
            io: self.io,
            cache_ram: self.cache_ram,
            cache_disk: folder(
                ("--cache-disk", &self.cache_disk),
                ("--cache-disk-size", self.cache_disk_size),
            )?,
            slot_save: folder(
                ("--slot-save-path", &self.slot_save_path),
                ("--slot-save-size", self.slot_save_size),
            )?,
            files_key: self.files_key()?,
            cache_prompt: !self.no_cache_prompt,
            speculation: self.spec,
            guessing: Guessing {
                most: self.draft_max,
                least: self.draft_min,
                p_min: self.draft_p_min,
            },
            model_draft: self.model_draft.clone(),
            share_cache: self.share_cache,
            otlp: self.otlp()?,
            profiling: self.profiling,
            ui: !self.no_ui,
            cors_origins: self.cors_origins.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            ping_interval: match self.sse_ping_interval {
                -1 => None,
                s @ 1.. => Some(Duration::from_secs(s.cast_unsigned())),
                s => {
                    return Err(format!(
                        "--sse-ping-interval is {s}; it must be at least 1, or -1 for none"
                    ));
                }
            },
            connections: self.max_connections,
            request_memory: self.request_memory.map(|mib| mib.saturating_mul(MIB)),
            n_predict,
            sampling: self.sampling.defaults(),
            system_prompt: self.sampling.system_prompt()?,
            spm_infill: self.spm_infill,
            seed: u64::try_from(self.seed).ok(),
            entropy: u64::from_ne_bytes(random::bytes()?),
            drain: Duration::from_secs(u64::from(self.drain_seconds)),
            ..engine
        };
        config.check()?;
        Ok(config)
    }

    /// The names of the model for clients: those of `--alias`, or else the name in `--hf-repo`, if
    /// any.
    fn names(&self) -> Vec<String> {
        match (self.alias.as_slice(), self.engine.source()) {
            ([], Err(wanted)) => vec![wanted.name.to_string()],
            (names, _) => names.to_vec(),
        }
    }

    /// The collector of spans, if any.
    fn otlp(&self) -> Result<Option<Endpoint>, String> {
        let url = self.otlp_endpoint.as_deref();
        url.map(|url| Endpoint::new(url, &self.otlp_headers)).transpose()
    }

    /// All API keys, from the flags and from the key file.
    pub fn keys(&self) -> Result<Vec<ApiKey>, String> {
        let given = |flag, number, key| Given { key, place: format!("{flag} number {number}") };
        let plain = self.api_key.iter().map(|secret| ApiKey::plain(secret));
        let mut all: Vec<Given> =
            (1..).zip(plain).map(|(number, key)| given("--api-key", number, key)).collect();
        if let Some(path) = &self.api_key_file {
            let of_file = |error: String| format!("{}: {error}", path.display());
            let keys = keys::read_file(&read_keys(path)?).map_err(of_file)?;
            all.extend(keys.into_iter().map(|Given { key, place }| Given {
                key,
                place: format!("{place} of {}", path.display()),
            }));
        }
        let named = (1..).zip(self.key.iter().cloned());
        all.extend(named.map(|(number, key)| given("--key", number, key)));
        Ok(keys::distinct(all)?.into_iter().map(|given| given.key).collect())
    }

    /// All API keys, after the key file is read again.
    pub fn keys_again(&self) -> Result<Vec<ApiKey>, String> {
        if let Some(path) = &self.api_key_file
            && path.metadata().is_ok_and(|file| !file.is_file())
        {
            // Opening a pipe would wait for a writer.
            return Err(format!("{} is no file that can be read again", path.display()));
        }
        self.keys()
    }
}

/// Reads a key file, but at most one byte more than its bound.
fn read_keys(path: &Path) -> Result<Vec<u8>, String> {
    let (mut content, most) = (Vec::new(), KEY_FILE_BYTES_MAX as u64 + 1);
    let file = File::open(path).map(|file| file.take(most));
    file.and_then(|mut file| file.read_to_end(&mut content))
        .map_err(|error| format!("cannot read the API keys from {}: {error}", path.display()))?;
    Ok(content)
}

/// Fewest and most MiB of `--cache-disk-size` and of `--slot-save-size`.
const FILES_MIB_RANGE: std::ops::RangeInclusive<usize> = 64..=1 << 30;

/// The default of both.
const FILES_MIB: usize = 8192;

/// Fewest and most bytes of the secret in `--cache-disk-key-file`.
const SECRET_BYTES: std::ops::RangeInclusive<u64> = 16..=4096;

/// A folder for files with texts, if one is given, and the MiB that they may have. Each comes with the
/// name of its flag.
fn folder(
    (flag, path): (&str, &Option<PathBuf>),
    (size_flag, mib): (&str, Option<usize>),
) -> Result<Option<FileFolder>, String> {
    let Some(path) = path.clone() else {
        return match mib {
            Some(_) => Err(format!("{size_flag} has no use without {flag}")),
            None => Ok(None),
        };
    };
    let mib = mib.unwrap_or(FILES_MIB);
    if !FILES_MIB_RANGE.contains(&mib) {
        let (least, most) = FILES_MIB_RANGE.into_inner();
        return Err(format!("{size_flag} is {mib}; it must be {least} to {most} MiB"));
    }
    Ok(Some(FileFolder { path, mib }))
}

/// Reads the secret of `--cache-disk-key-file`.
fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error| format!("--cache-disk-key-file {}: {error}", path.display());
    let mut secret = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(SECRET_BYTES.end() + 1).read_to_end(&mut secret).map_err(failed)?;
    let (least, most) = SECRET_BYTES.into_inner();
    if !(least..=most).contains(&(secret.len() as u64)) {
        let path = path.display();
        return Err(format!(
            "--cache-disk-key-file {path}: a secret has {least} to {most} bytes; `openssl rand -out \
             FILE 32` makes one"
        ));
    }
    Ok(secret)
}
