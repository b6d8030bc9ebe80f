//! The flags of `corelane bench serve`.
//!
//! A flag that `vllm bench serve` also has keeps its name and meaning there. Defaults suit a small
//! machine. An end-of-generation token ends a response unless `--ignore-eos` is given.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::goodput::Limit;
use super::latency::Latency;
use super::workload::Form;

const EXAMPLES: &str = "\
Examples:
  corelane bench serve --max-concurrency 8 --num-warmups 8 --ignore-eos
      40 requests of 32 + 50 tokens, 8 at a time, against http://127.0.0.1:8080
  corelane bench serve --request-rate 2 --max-concurrency 8 --goodput ttft:500 tpot:60
      two requests a second as a Poisson process; how many keep both limits
  corelane bench serve --scenario stall --ignore-eos
      4 streams run, then a prompt of 1890 tokens arrives: how long do they stop
      (a request must be able to have 1891 tokens)
  corelane bench serve --scenario burst --prefix-len 890
      8 requests that share 890 tokens arrive at once: how long does the last wait
  corelane bench serve --scenario turns
      a prompt of 1000 tokens, then the same with 32 more: how much is computed again
  corelane bench serve --max-concurrency 8 --vs http://127.0.0.1:8081 --rounds 5
      the same load against two servers in turns, and the ratio of each pair
  corelane bench serve --backend openai-chat --ignore-eos
      40 chats: one message of 32 words each

Definitions:
  TTFT  from just before a request is written to the first event with a choice
        (in a chat, one that says more than whose message it is)
  ITL   each gap between such events, all requests pooled
  TPOT  (E2EL - TTFT) / (output tokens - 1), per request
  E2EL  from just before the write to the last event with a choice
  Tokens are counted by the server (usage.completion_tokens). Percentiles
  interpolate linearly. A request that has to wait for --max-concurrency is late
  on this side; E2EL including client queue counts from when it should have been
  written.

Ends with status 1 when any request failed.";

/// The scenario to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Many independent requests, like vllm's benchmark
    Load,
    /// A long prompt arrives while streams run
    Stall,
    /// Requests that arrive at once and share a prefix
    Burst,
    /// Two turns of one conversation
    Turns,
}

impl Scenario {
    /// The scenario's name, as in the flag.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Load => "load",
            Scenario::Stall => "stall",
            Scenario::Burst => "burst",
            Scenario::Turns => "turns",
        }
    }
}

/// The kind of endpoint, with vllm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Completions
    Openai,
    /// Chats
    OpenaiChat,
}

impl Backend {
    /// The backend's name, as in the flag.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Openai => "openai",
            Backend::OpenaiChat => "openai-chat",
        }
    }
}

/// The end of a chat endpoint's path.
pub(super) const CHAT_PATH: &str = "/chat/completions";

/// The flags of `corelane bench serve`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help has examples and definitions")]
pub struct BenchServeArgs {
    /// URL of the server [default: http://HOST:PORT]
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub base_url: Option<String>,
    /// Host of the server, if --base-url is not given
    #[arg(long, default_value = "127.0.0.1", help_heading = "Server")]
    pub host: String,
    /// Port of the server, if --base-url is not given
    #[arg(long, default_value_t = 8080, help_heading = "Server")]
    pub port: u16,
    /// Kind of endpoint
    #[arg(long, value_enum, default_value_t = Backend::Openai, alias = "endpoint-type",
          help_heading = "Server")]
    pub backend: Backend,
    /// Path of the endpoint [default: /v1/completions; openai-chat: /v1/chat/completions]
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    pub endpoint: Option<String>,
    /// Model to name in requests [default: the first of /v1/models]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub model: Option<String>,
    /// Size of the vocabulary in tokens [default: meta.n_vocab from /v1/models]
    #[arg(long, value_name = "N", help_heading = "Server")]
    pub vocab_size: Option<u32>,
    /// API key to send [default: the first key in CORELANE_API_KEY, else OPENAI_API_KEY]
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    pub api_key: Option<String>,

    /// Scenario to run; flags of other scenarios are refused
    #[arg(long, value_enum, default_value_t = Scenario::Load, help_heading = "Scenario")]
    pub scenario: Scenario,
    /// stall: number of running streams [default: 4]
    #[arg(long, value_name = "N", help_heading = "Scenario")]
    pub streams: Option<usize>,
    /// stall: tokens of the long prompt [default: 1890]
    #[arg(long, value_name = "N", help_heading = "Scenario")]
    pub long_input_len: Option<u32>,
    /// Tokens at the start that all prompts share [default: 0; burst: 890; turns: 1000]
    #[arg(long, value_name = "N", alias = "random-prefix-len", help_heading = "Scenario")]
    pub prefix_len: Option<u32>,
    /// URL of a second server. Each round runs on both servers in turn, and the result has their
    /// ratios. The second server gets --vs-api-key, never --api-key
    #[arg(long, value_name = "URL", help_heading = "Scenario")]
    pub vs: Option<String>,
    /// API key for the second server [default: the value of CORELANE_VS_API_KEY]
    #[arg(long, value_name = "KEY", help_heading = "Scenario")]
    pub vs_api_key: Option<String>,
    /// Number of rounds to run [default: 1; with --vs: 3]
    #[arg(long, value_name = "N", help_heading = "Scenario")]
    pub rounds: Option<usize>,

    /// Number of requests [default: 40; burst: 8]
    #[arg(long, value_name = "N", help_heading = "Requests")]
    pub num_prompts: Option<usize>,
    /// Tokens of each prompt after the shared prefix, drawn at random from the lower middle of the
    /// vocabulary
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Requests")]
    pub random_input_len: u32,
    /// Tokens to generate for each request (max_tokens) [default: 50; stall: 1024]
    #[arg(long, value_name = "N", help_heading = "Requests")]
    pub random_output_len: Option<u32>,
    /// Vary both lengths uniformly from (1 - R) to (1 + R) times their value [default: 0]
    #[arg(long, value_name = "R", help_heading = "Requests")]
    pub random_range_ratio: Option<f64>,
    /// Send words instead of token ids, for servers that accept no ids. Chats always send words.
    /// Prompt lengths then count words, and a word is about one token. The server reports its token
    /// count in usage.prompt_tokens
    #[arg(long, help_heading = "Requests")]
    pub text_prompts: bool,
    /// Random seed. The same seed sends the same prompts. Use a new seed for each run against a
    /// server that caches prefixes
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Requests")]
    pub seed: u64,
    /// Ask the server to continue after an end-of-generation token
    #[arg(long, help_heading = "Requests")]
    pub ignore_eos: bool,
    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0, help_heading = "Requests")]
    pub temperature: f32,
    /// Request responses without streaming; only E2EL can then be measured
    #[arg(long, help_heading = "Requests")]
    pub no_stream: bool,
    /// Additional fields for each request's body, such as '{"cache_prompt": false}'
    #[arg(long, value_name = "JSON", value_parser = parse_object, help_heading = "Requests")]
    pub extra_body: Option<Object>,

    /// Average requests per second; inf sends each request as soon as --max-concurrency allows
    #[arg(long, value_name = "R", default_value_t = f64::INFINITY, help_heading = "Traffic")]
    pub request_rate: f64,
    /// Shape of the Gamma process of arrivals: 1 is Poisson, below 1 is burstier, above 1 is more
    /// even [default: 1]
    #[arg(long, value_name = "SHAPE", help_heading = "Traffic")]
    pub burstiness: Option<f64>,
    /// Most requests in flight at once [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub max_concurrency: Option<usize>,
    /// Warm-up requests to send first; their results do not count
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Traffic")]
    pub num_warmups: usize,
    /// Time limit of one request in seconds
    #[arg(long, value_name = "S", default_value_t = 600.0, help_heading = "Traffic")]
    pub timeout_s: f64,

    /// Latencies to show, separated by commas [default: all that were measured]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Results")]
    pub percentile_metrics: Option<Vec<Latency>>,
    /// Percentiles of each latency, separated by commas [default: 99]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Results")]
    pub metric_percentiles: Option<Vec<f64>>,
    /// Limits in milliseconds on ttft, tpot and e2el. Goodput counts the requests that meet all
    /// limits
    #[arg(long, value_name = "NAME:MS", num_args = 1.., help_heading = "Results")]
    pub goodput: Vec<Limit>,
    /// Write the result to a JSON file
    #[arg(long, help_heading = "Results")]
    pub save_result: bool,
    /// Include each request's numbers and text in the JSON file
    #[arg(long, help_heading = "Results")]
    pub save_detailed: bool,
    /// Name of the JSON file [default: made from label, rate, concurrency, model and date]
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub result_filename: Option<PathBuf>,
    /// Directory of the JSON file, created if missing [default: the current directory]
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    pub result_dir: Option<PathBuf>,
    /// Label in the JSON file [default: the value of --backend]
    #[arg(long, value_name = "TEXT", help_heading = "Results")]
    pub label: Option<String>,
    /// Additional entries for the JSON file, such as commit=1a2b3c4
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., value_parser = parse_pair,
          help_heading = "Results")]
    pub metadata: Vec<(String, String)>,
    /// Show no progress bar
    #[arg(long, visible_alias = "disable-tqdm", help_heading = "Results")]
    pub no_progress: bool,
}

/// A JSON object as one flag value.
#[derive(Clone, Debug)]
pub struct Object(pub Map<String, Value>);

fn parse_object(text: &str) -> Result<Object, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(Object(object)),
        Ok(_) => Err("it must be a JSON object".into()),
        Err(error) => Err(format!("it must be a JSON object: {error}")),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.trim().is_empty());
    let (key, value) = pair.ok_or("it must be KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// The value of an environment variable, or `None` when it is unset or empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl BenchServeArgs {
    /// `--base-url`, or the URL made from `--host` and `--port`.
    pub fn url(&self) -> String {
        let of_host = || match self.host.contains(':') {
            true => format!("http://[{}]:{}", self.host, self.port), // IPv6
            false => format!("http://{}:{}", self.host, self.port),
        };
        self.base_url.clone().unwrap_or_else(of_host)
    }

    /// `--endpoint`, or the backend's usual path.
    pub fn endpoint(&self) -> &str {
        self.endpoint.as_deref().unwrap_or(match self.backend {
            Backend::Openai => "/v1/completions",
            Backend::OpenaiChat => "/v1/chat/completions",
        })
    }

    /// The form in which prompts are sent.
    pub fn form(&self) -> Form {
        match self.backend {
            Backend::OpenaiChat => Form::Chat,
            Backend::Openai if self.text_prompts => Form::Text,
            Backend::Openai => Form::Ids,
        }
    }

    /// The API key to send: the flag, or an environment variable. `CORELANE_API_KEY` may hold
    /// several keys separated by commas, because corelane's server reads it too; the first key is
    /// used.
    pub fn key(&self) -> Option<String> {
        let first = |keys: String| keys.split(',').next().unwrap_or_default().to_owned();
        let of_environment =
            || variable("CORELANE_API_KEY").map(first).or_else(|| variable("OPENAI_API_KEY"));
        self.api_key.clone().or_else(of_environment)
    }

    /// The API key for the second server. It is never the first server's key.
    pub fn vs_key(&self) -> Option<String> {
        self.vs_api_key.clone().or_else(|| variable("CORELANE_VS_API_KEY"))
    }

    /// Number of requests in one round.
    pub fn num_prompts(&self) -> usize {
        self.num_prompts.unwrap_or(if self.scenario == Scenario::Burst { 8 } else { 40 })
    }

    /// Number of running streams in the stall scenario.
    pub fn streams(&self) -> usize {
        self.streams.unwrap_or(4)
    }

    /// Tokens of the long prompt in the stall scenario.
    pub fn long_input_len(&self) -> u32 {
        self.long_input_len.unwrap_or(1890)
    }

    /// `--label`, or the name of the backend.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(self.backend.name())
    }

    /// `--random-range-ratio`, or 0.
    pub fn range_ratio(&self) -> f64 {
        self.random_range_ratio.unwrap_or(0.0)
    }

    /// `--burstiness`, or 1.
    pub fn burstiness(&self) -> f64 {
        self.burstiness.unwrap_or(1.0)
    }

    /// The percentiles to compute, each from 0 to 100.
    pub fn percentiles(&self) -> Vec<f64> {
        self.metric_percentiles.clone().unwrap_or_else(|| vec![99.0])
    }

    /// Tokens to generate for each request (`max_tokens`).
    pub fn output_len(&self) -> u32 {
        self.random_output_len.unwrap_or(if self.scenario == Scenario::Stall { 1024 } else { 50 })
    }

    /// Tokens at the start that all prompts share.
    pub fn prefix_len(&self) -> u32 {
        self.prefix_len.unwrap_or(match self.scenario {
            Scenario::Burst => 890,
            Scenario::Turns => 1000,
            Scenario::Load | Scenario::Stall => 0,
        })
    }

    /// Number of rounds to run.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.vs.is_some() { 3 } else { 1 })
    }

    /// `--timeout-s` as a duration.
    pub fn timeout(&self) -> Result<Duration, String> {
        let time = Duration::try_from_secs_f64(self.timeout_s).ok();
        time.filter(|time| !time.is_zero())
            .ok_or_else(|| format!("--timeout-s is {}; it must be above 0", self.timeout_s))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        serve: BenchServeArgs,
    }

    /// Parses the flags of a command line.
    pub(crate) fn parse(flags: &str) -> BenchServeArgs {
        Command::try_parse_from(["bench"].into_iter().chain(flags.split_whitespace()))
            .unwrap()
            .serve
    }

    #[test]
    fn defaults_fit_the_scenario() {
        let load = parse("");
        assert_eq!(load.url(), "http://127.0.0.1:8080");
        assert_eq!((load.num_prompts(), load.output_len(), load.prefix_len()), (40, 50, 0));
        assert_eq!((load.rounds(), load.request_rate), (1, f64::INFINITY));
        assert!(load.check().is_ok());
        assert_eq!(parse("--scenario stall").output_len(), 1024);
        let burst = parse("--scenario burst --vs http://b");
        assert_eq!((burst.num_prompts(), burst.prefix_len(), burst.rounds()), (8, 890, 3));
        assert_eq!(parse("--host ::1 --port 9").url(), "http://[::1]:9");
        assert_eq!(parse("--base-url http://x").url(), "http://x");
        assert_eq!((load.endpoint(), load.form()), ("/v1/completions", Form::Ids));
        let chat = parse("--endpoint-type openai-chat");
        assert_eq!((chat.endpoint(), chat.form()), ("/v1/chat/completions", Form::Chat));
        assert!(chat.check().is_ok());
        assert_eq!(parse("--text-prompts").form(), Form::Text);
    }

    /// Each server gets its own key, and never the other server's.
    #[test]
    fn each_server_has_its_own_key() {
        let both = parse("--api-key a --vs http://b --vs-api-key b");
        assert_eq!((both.key(), both.vs_key()), (Some("a".into()), Some("b".into())));
        assert_ne!(parse("--api-key a --vs http://b").vs_key().as_deref(), Some("a"));
    }

    #[test]
    fn vllms_forms_are_read() {
        let args = parse(
            "--goodput ttft:200 tpot:50 --percentile-metrics ttft,e2el_including_client_queue \
             --metric-percentiles 25,50,99.9 --metadata commit=1a model=q4=k --request-rate inf \
             --disable-tqdm --extra-body {\"top_k\":1}",
        );
        assert_eq!(args.goodput.len(), 2);
        let metrics = args.percentile_metrics.as_deref().unwrap();
        assert_eq!(metrics, [Latency::Ttft, Latency::E2elIncludingClientQueue]);
        assert_eq!(args.percentiles(), [25.0, 50.0, 99.9]);
        assert_eq!(args.metadata[1], ("model".to_owned(), "q4=k".to_owned()));
        assert_eq!(args.extra_body.unwrap().0["top_k"], 1);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let parse = |flags: [&str; 2]| Command::try_parse_from(["bench", flags[0], flags[1]]);
        for flags in [
            ["--goodput", "itl:1"],
            ["--extra-body", "[1]"],
            ["--metadata", "x"],
            ["--scenario", "x"],
        ] {
            assert!(parse(flags).is_err(), "{flags:?}");
        }
    }
}
