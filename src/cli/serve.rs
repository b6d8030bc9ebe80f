//! `corelane serve`: its flags, to a checked configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use corelane::config::{ApiKey, ServeConfig};
use corelane::limits::{PRIORITY_MAX, QUEUE_SEQUENCES, QUEUE_TOKENS};
use corelane::types::Pooling;

use super::engine::EngineArgs;

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
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Name of the model, as clients see it [default: the model's own]
    #[arg(short, long, env = "CORELANE_ALIAS", value_name = "NAME", help_heading = "Model")]
    alias: Option<String>,

    /// Serve embeddings, too: mean, cls or last says how the vectors of a text's tokens become
    /// one [default: as the model says; most that chat say nothing]
    #[arg(long, env = "CORELANE_POOLING", value_name = "HOW", help_heading = "Model")]
    pooling: Option<Pooling>,
    /// Chat template in Jinja [default: the model's own]
    #[arg(
        long,
        env = "CORELANE_CHAT_TEMPLATE",
        value_name = "JINJA",
        conflicts_with = "chat_template_file",
        help_heading = "Model"
    )]
    chat_template: Option<String>,
    /// File with a chat template
    #[arg(long, env = "CORELANE_CHAT_TEMPLATE_FILE", value_name = "FILE", help_heading = "Model")]
    chat_template_file: Option<PathBuf>,

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
    /// File with such keys, one in each line
    #[arg(long, env = "CORELANE_API_KEY_FILE", value_name = "FILE", help_heading = "HTTP")]
    api_key_file: Option<PathBuf>,
    /// Key with a name, for logs, a share of the server beside the others' [1], and the first
    /// priority that its requests may have [0]; may be given several times
    #[arg(
        long,
        env = "CORELANE_KEY",
        value_name = "NAME:SECRET[:WEIGHT[:PRIORITY]]",
        value_delimiter = ',',
        hide_env_values = true,
        help_heading = "HTTP"
    )]
    key: Vec<ApiKey>,
    /// After SIGTERM, time for running requests to finish
    #[arg(
        long,
        env = "CORELANE_DRAIN_SECONDS",
        value_name = "S",
        default_value_t = 30,
        help_heading = "HTTP"
    )]
    drain_seconds: u32,

    /// Tokens of context, for all running requests together; 0 chooses: 2048 for each of them, or
    /// as many as the model knows and memory allows
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
        default_value_t = ServeConfig::default().parallel,
        help_heading = "Scheduling"
    )]
    parallel: usize,

    /// Requests that wait for a slot, at most; more are answered 429
    #[arg(
        long,
        env = "CORELANE_QUEUE_REQUESTS",
        value_name = "N",
        default_value_t = QUEUE_SEQUENCES,
        help_heading = "Scheduling"
    )]
    queue_requests: usize,
    /// Prompt tokens of waiting requests, at most; more are answered 429
    #[arg(
        long,
        env = "CORELANE_QUEUE_TOKENS",
        value_name = "N",
        default_value_t = QUEUE_TOKENS,
        help_heading = "Scheduling"
    )]
    queue_tokens: usize,
    /// Time that a request may take, whatever its timeout_ms; 0 is without end
    #[arg(
        long,
        env = "CORELANE_REQUEST_TIMEOUT_S",
        value_name = "S",
        default_value_t = 0,
        help_heading = "Scheduling"
    )]
    request_timeout_s: u32,
    /// Compute every prompt from its beginning, whatever the KV cache has of it
    #[arg(
        long,
        env = "CORELANE_NO_CACHE_PROMPT",
        value_parser = BoolishValueParser::new(),
        help_heading = "KV cache"
    )]
    no_cache_prompt: bool,

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

impl ServeArgs {
    /// The configuration, checked against this machine.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn config(&self) -> Result<ServeConfig, String> {
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
            pooling: self.pooling,
            chat_template: self.chat_template()?,
            keys: self.keys()?,
            context_tokens: (self.ctx_size != 0).then_some(self.ctx_size),
            parallel: self.parallel,
            queue_requests: self.queue_requests,
            queue_tokens: self.queue_tokens,
            request_timeout: (self.request_timeout_s > 0)
                .then(|| Duration::from_secs(self.request_timeout_s.into())),
            cache_prompt: !self.no_cache_prompt,
            n_predict,
            entropy: u64::try_from(self.seed).map_or_else(|_| random(), Ok)?,
            drain: Duration::from_secs(u64::from(self.drain_seconds)),
            ..self.engine.config()?
        };
        config.check()?;
        Ok(config)
    }

    /// The template that the user gave, if any.
    fn chat_template(&self) -> Result<Option<String>, String> {
        match &self.chat_template_file {
            Some(path) => read(path, "the chat template").map(Some),
            None => Ok(self.chat_template.clone()),
        }
    }

    /// All keys; those without a name are called by their numbers.
    fn keys(&self) -> Result<Vec<ApiKey>, String> {
        let mut secrets = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let text = read(path, "the API keys")?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let before = secrets.len();
            secrets.extend(lines.map(str::to_owned));
            // To let everybody in is nothing that an empty file should do.
            if secrets.len() == before {
                return Err(format!(
                    "{} has no API key; it must have one in each line",
                    path.display()
                ));
            }
        }
        let plain = secrets.into_iter().enumerate().map(|(i, secret)| ApiKey {
            name: format!("{}", i + 1),
            secret,
            weight: 1.0,
            priority_min: -PRIORITY_MAX,
        });
        Ok(plain.chain(self.key.iter().cloned()).collect())
    }
}

fn read(path: &Path, what: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| format!("cannot read {what} from {}: {error}", path.display()))
}

fn random() -> Result<u64, String> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("the kernel has no random numbers: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}
