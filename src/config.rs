//! The server's configuration, already checked: a server can run it.

use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Clock;
use crate::kernels::KernelChoice;
use crate::keys::ApiKey;
use crate::limits::{
    CONNECTIONS, CONNECTIONS_MAX, CONTEXT_TOKENS_MAX, GUESSES_MAX, KEYS_MAX, PING_INTERVAL,
    QUEUE_SEQUENCES, QUEUE_TOKENS, REQUEST_MEMORY_BYTES_MIN, SLOTS_MAX, STEP_ROWS_MAX,
};
use crate::placement::Placement;
use crate::traces::Endpoint;
use crate::types::defaults::SamplingDefaults;
use crate::types::{
    CacheLayout, FlashAttention, Guessing, IoChoice, ItlTarget, Pooling, Speculation,
};

const MIB: usize = 1 << 20;

/// Most addresses to listen on.
const HOSTS_MAX: usize = 16;

/// A folder for files with texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFolder {
    /// The folder.
    pub path: PathBuf,
    /// Most MiB of the files.
    pub mib: usize,
}

/// The secret with which files with texts are encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct FilesKey(pub Vec<u8>);

impl std::fmt::Debug for FilesKey {
    /// Shows no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FilesKey")
    }
}

/// The settings of a server, except its model.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Addresses to listen on, and paths of Unix sockets. At least one.
    pub hosts: Vec<String>,
    /// Port to listen on; 0 chooses a free one.
    pub port: u16,
    /// Address of metrics, health and readiness; `None` turns them off.
    pub ops_addr: Option<String>,
    /// Whether `/metrics` is also on the port of the API.
    pub metrics: bool,
    /// The model's names for clients. The first one is in responses. Without any, it is the model's
    /// own name.
    pub aliases: Vec<String>,
    /// Tags of the model, for people.
    pub tags: Vec<String>,
    /// How the vectors of a text's tokens are pooled into one; `None` follows the model's metadata.
    pub pooling: Option<Pooling>,
    /// Whether clients may cut embeddings to fewer dimensions (Matryoshka embeddings).
    pub matryoshka: bool,
    /// The text before a query to embed.
    pub query_prefix: String,
    /// The text before a document to embed.
    pub document_prefix: String,
    /// A chat template in Jinja; `None` uses the model's own.
    pub chat_template: Option<String>,
    /// Whether a JSON object without a marker, bare or in a code fence, may be a tool call.
    pub fenced_calls: bool,
    /// The most tokens of reasoning of a request that does not say; `None` sets no limit.
    pub reasoning_budget: Option<u32>,
    /// API keys. Without any, no client needs one.
    pub keys: Vec<ApiKey>,
    /// KV cells of all sequences together; `None` chooses from the model and memory.
    pub context_tokens: Option<u32>,
    /// Sequences that run at once.
    pub parallel: usize,
    /// Most rows of one step.
    pub batch_rows: usize,
    /// Most rows that llama.cpp computes at once.
    pub ubatch_rows: usize,
    /// Longest time between two tokens of a running stream while prompts are computed.
    pub itl_target: ItlTarget,
    /// Most sequences that wait for a slot.
    pub queue_requests: usize,
    /// Most prompt tokens that wait for a slot.
    pub queue_tokens: usize,
    /// Time limit of a request that sets none; `None` sets no limit.
    pub request_timeout: Option<Duration>,
    /// Time limit of one step. After it, the model counts as hung.
    pub step_timeout: Duration,
    /// Most saved states for each of `parallel`; `None` chooses by memory.
    pub ctx_checkpoints: Option<usize>,
    /// MiB of memory for prefixes that the KV cache has no room for; `None` chooses by memory.
    pub cache_ram: Option<usize>,
    /// The files of such prefixes; `None` keeps them in memory only.
    pub cache_disk: Option<FileFolder>,
    /// The files in which clients save the texts of slots; `None` lets them save none.
    pub slot_save: Option<FileFolder>,
    /// The secret with which both are encrypted, if they are.
    pub files_key: Option<FilesKey>,
    /// Whether a request starts from a prefix of its prompt in the KV cache.
    pub cache_prompt: bool,
    /// The sources of guesses (speculative decoding).
    pub speculation: Speculation,
    /// The file of the draft model; `None` uses no draft model.
    pub model_draft: Option<PathBuf>,
    /// The limits on guesses of a request that sets none.
    pub guessing: Guessing,
    /// Whether requests of all keys share prefixes in the KV cache.
    pub share_cache: bool,
    /// The collector of spans of requests; `None` makes no spans.
    pub otlp: Option<Endpoint>,
    /// Whether the ops port takes profiles.
    pub profiling: bool,
    /// Whether there is a web page at `/`.
    pub ui: bool,
    /// Origins of web pages that may use the server, besides those of this machine; `*` is all.
    pub cors_origins: Vec<String>,
    /// Names to which a server without keys answers, besides `localhost`; `*` is all.
    pub allowed_hosts: Vec<String>,
    /// Silence of a stream after which a comment is sent; `None` sends none.
    pub ping_interval: Option<Duration>,
    /// Most open client connections.
    pub connections: usize,
    /// Bytes of memory for requests outside the KV cache. `None` takes the default
    /// ([`REQUEST_MEMORY_BYTES`](crate::limits::REQUEST_MEMORY_BYTES)), or an eighth of the
    /// machine's memory if that is less.
    pub request_memory: Option<usize>,
    /// Whether an infill prompt has the suffix before the prefix (suffix-prefix-middle).
    pub spm_infill: bool,
    /// The default for `max_tokens`; `None` uses the dialect's.
    pub n_predict: Option<u32>,
    /// The sampling of requests that do not say.
    pub sampling: SamplingDefaults,
    /// The system message of chats that begin with none.
    pub system_prompt: Option<String>,
    /// The seed of requests without one; `None` draws a seed for each of them.
    pub seed: Option<u64>,
    /// The seed of the generator that draws request ids and seeds.
    pub entropy: u64,
    /// How long running requests may take to finish after a drain started.
    pub drain: Duration,
    /// The core of each lane.
    pub placement: Placement,
    /// Whether each step has a thread on every decode core, because the user set their number.
    /// Otherwise the scheduler chooses the number by measurement.
    pub fixed_threads: bool,
    /// How the front lane reads and writes its sockets.
    pub io: IoChoice,
    /// The kernels for products with the weights.
    pub kernels: KernelChoice,
    /// The layout of the KV cache.
    pub cache: CacheLayout,
    /// How long idle compute threads poll for work: 0 (not at all) to 100, in steps of 40 us.
    pub poll: u32,
    /// The clock of all lanes.
    pub clock: Clock,
    /// The path of this program, which is started to try constraints in a process of their own.
    /// With `None`, constraints are compiled without a trial.
    pub program: Option<PathBuf>,
}

impl Default for ServeConfig {
    /// The defaults of the flags, except: no metrics, any free port, only the first core.
    fn default() -> Self {
        Self {
            hosts: vec!["127.0.0.1".into()],
            port: 0,
            ops_addr: None,
            metrics: false,
            aliases: Vec::new(),
            tags: Vec::new(),
            pooling: None,
            matryoshka: false,
            query_prefix: String::new(),
            document_prefix: String::new(),
            chat_template: None,
            fenced_calls: true,
            reasoning_budget: None,
            keys: Vec::new(),
            context_tokens: None,
            parallel: 8,
            batch_rows: 2048,
            ubatch_rows: 256,
            itl_target: ItlTarget::Chosen,
            queue_requests: QUEUE_SEQUENCES,
            queue_tokens: QUEUE_TOKENS,
            request_timeout: None,
            step_timeout: Duration::from_secs(60),
            ctx_checkpoints: None,
            cache_ram: None,
            cache_disk: None,
            slot_save: None,
            files_key: None,
            cache_prompt: true,
            speculation: Speculation::Auto,
            model_draft: None,
            guessing: Guessing { most: GUESSES_MAX as u8, least: 0, p_min: 0.0 },
            share_cache: false,
            otlp: None,
            profiling: false,
            ui: true,
            cors_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            ping_interval: Some(PING_INTERVAL),
            connections: CONNECTIONS,
            request_memory: None,
            spm_infill: false,
            n_predict: None,
            sampling: SamplingDefaults::default(),
            system_prompt: None,
            seed: None,
            entropy: 0,
            drain: Duration::from_secs(30),
            placement: Placement { front_core: 0, decode_cores: vec![0], pinned: true },
            fixed_threads: false,
            io: IoChoice::Auto,
            kernels: KernelChoice::Auto,
            cache: CacheLayout::default(),
            poll: 50,
            clock: Clock::start(),
            program: None,
        }
    }
}

impl ServeConfig {
    /// The weight of each key.
    pub fn weights(&self) -> Vec<f64> {
        match self.keys.as_slice() {
            [] => vec![1.0], // all clients share one place
            keys => keys.iter().map(|key| key.weight).collect(),
        }
    }

    /// Checks the rules that types cannot express.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn check(&self) -> Result<(), String> {
        let within = |flag: &str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{flag} is {value}; it must be from {low} to {high}"))
        };
        within("--host: addresses", self.hosts.len(), 1, HOSTS_MAX)?;
        within("--parallel", self.parallel, 1, SLOTS_MAX)?;
        within("--batch-size", self.batch_rows, self.parallel, STEP_ROWS_MAX)?;
        within("--ubatch-size", self.ubatch_rows, 1, self.batch_rows)?;
        within("--queue-requests", self.queue_requests, 0, QUEUE_SEQUENCES)?;
        within("--queue-tokens", self.queue_tokens, 1, QUEUE_TOKENS)?;
        within("--max-connections", self.connections, 1, CONNECTIONS_MAX)?;
        if let Some(bytes) = self.request_memory {
            let most = usize::MAX / MIB;
            within("--request-memory", bytes / MIB, REQUEST_MEMORY_BYTES_MIN / MIB, most)?;
        }
        if self.step_timeout.is_zero() {
            return Err("--step-timeout-s is 0; it must be at least 1".into());
        }
        within("--key and --api-key: keys", self.keys.len(), 0, KEYS_MAX)?;
        within("--poll", self.poll as usize, 0, 100)?;
        let Guessing { most, least, p_min } = self.guessing;
        within("--draft-max", most.into(), 0, GUESSES_MAX)?;
        within("--draft-min", least.into(), 0, most.into())?;
        if !(0.0..=1.0).contains(&p_min) {
            return Err(format!("--draft-p-min is {p_min}; it must be from 0 to 1"));
        }
        self.check_drafts()?;
        if !self.cache.values.is_plain() && self.cache.flash_attention == FlashAttention::Off {
            return Err("--cache-type-v of less than 16 bits needs --flash-attn on or auto".into());
        }
        if let Some(tokens) = self.context_tokens {
            // A sequence needs a token of prompt and a token of text.
            let least = 2 * self.parallel;
            within("--ctx-size", tokens as usize, least, CONTEXT_TOKENS_MAX)?;
        }
        Ok(())
    }

    /// Checks that a draft model and its use go together.
    ///
    /// # Errors
    /// As for [`ServeConfig::check`].
    pub fn check_drafts(&self) -> Result<(), String> {
        match (self.speculation, &self.model_draft) {
            (Speculation::Draft, None) => {
                Err("--spec draft needs a draft model; --model-draft names its file".into())
            }
            (Speculation::Off | Speculation::Lookup, Some(_)) => {
                Err("--model-draft has no use with this --spec; it must be auto or draft".into())
            }
            _ => Ok(()),
        }
    }
}
