//! The server's configuration, checked: what is in here can be run.

use std::time::Duration;

use crate::clock::Clock;
use crate::kernels::Choice;
use crate::limits::{
    CONTEXT_TOKENS_MAX, KEYS_MAX, PRIORITY_MAX, QUEUE_SEQUENCES, QUEUE_TOKENS, SLOTS_MAX,
    STEP_ROWS_MAX,
};
use crate::placement::Placement;
use crate::types::{CacheLayout, FlashAttention, Pooling};

/// Everything that `serve` needs to know, besides the model.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 for any free one.
    pub port: u16,
    /// Where metrics, health and readiness are shown; `None` for nowhere.
    pub ops_addr: Option<String>,
    /// The name that clients see; `None` for the model's own.
    pub alias: Option<String>,
    /// How the vectors of a text's tokens become one, instead of as the model says.
    pub pooling: Option<Pooling>,
    /// A chat template, in Jinja, instead of the model's own.
    pub chat_template: Option<String>,
    /// Keys that clients must give one of; none lets everybody in.
    pub keys: Vec<ApiKey>,
    /// KV cells of all sequences together; `None` chooses.
    pub context_tokens: Option<u32>,
    /// Sequences that run at once.
    pub parallel: usize,
    /// Rows of one step.
    pub batch_rows: usize,
    /// Rows that llama.cpp computes at once.
    pub ubatch_rows: usize,
    /// How long a running stream may wait between two tokens while prompts are
    /// computed; `None` is twice what a step takes without any.
    pub itl_target: Option<Duration>,
    /// Sequences that wait for a slot, at most.
    pub queue_requests: usize,
    /// Their tokens, at most.
    pub queue_tokens: usize,
    /// How long a request may take that does not say so itself; `None` is for ever.
    pub request_timeout: Option<Duration>,
    /// How long a step may take before it is given up.
    pub step_timeout: Duration,
    /// A request begins with what the KV cache has of its prompt.
    pub cache_prompt: bool,
    /// The default for `max_tokens`; `None` leaves it to the dialect.
    pub n_predict: Option<u32>,
    /// Where request ids and default seeds begin.
    pub entropy: u64,
    /// How long running requests may take to finish after a drain began.
    pub drain: Duration,
    /// Which lane runs where.
    pub placement: Placement,
    /// Which kernels multiply with the weights.
    pub kernels: Choice,
    /// How the KV cache is laid out.
    pub cache: CacheLayout,
    /// How eagerly idle compute threads poll for work, 0 to 100.
    pub poll: u32,
    /// The clock of all lanes.
    pub clock: Clock,
}

impl Default for ServeConfig {
    /// The flags' defaults, but without metrics, on any free port and on the first core.
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 0,
            ops_addr: None,
            alias: None,
            pooling: None,
            chat_template: None,
            keys: Vec::new(),
            context_tokens: None,
            parallel: 8,
            batch_rows: 2048,
            ubatch_rows: 256,
            itl_target: None,
            queue_requests: QUEUE_SEQUENCES,
            queue_tokens: QUEUE_TOKENS,
            request_timeout: None,
            step_timeout: Duration::from_secs(60),
            cache_prompt: true,
            n_predict: None,
            entropy: 0,
            drain: Duration::from_secs(30),
            placement: Placement { front_core: 0, decode_cores: vec![0] },
            kernels: Choice::Auto,
            cache: CacheLayout::default(),
            poll: 50,
            clock: Clock::start(),
        }
    }
}

/// A key that clients may give.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiKey {
    /// What logs and metrics call it.
    pub name: String,
    /// What clients send.
    pub secret: String,
    /// Its share of the server, beside those of the others.
    pub weight: f64,
    /// The lowest number that its requests may have for a priority: 0, unless it is
    /// given, so that no key goes before the others on its own account.
    pub priority_min: i32,
}

impl std::str::FromStr for ApiKey {
    type Err = String;

    /// `NAME:SECRET[:WEIGHT[:PRIORITY]]`
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (name, secret) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (weight, priority) = (parts.next().unwrap_or("1"), parts.next());
        if name.is_empty() || secret.is_empty() || parts.next().is_some() {
            return Err("it must be NAME:SECRET, NAME:SECRET:WEIGHT or \
                        NAME:SECRET:WEIGHT:PRIORITY"
                .into());
        }
        let weight = weight.parse().ok().filter(|weight: &f64| (0.001..=1000.0).contains(weight));
        let weight = weight.ok_or("the weight must be a number from 0.001 to 1000")?;
        let range = -PRIORITY_MAX..=PRIORITY_MAX;
        let priority = priority.map_or(Some(0), |text| text.parse().ok());
        let priority_min =
            priority.filter(|priority| range.contains(priority)).ok_or_else(|| {
                format!(
                    "the priority must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
                )
            })?;
        Ok(Self { name: name.into(), secret: secret.into(), weight, priority_min })
    }
}

impl ServeConfig {
    /// Checks what the types do not.
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
        within("--parallel", self.parallel, 1, SLOTS_MAX)?;
        within("--batch-size", self.batch_rows, self.parallel, STEP_ROWS_MAX)?;
        within("--ubatch-size", self.ubatch_rows, 1, self.batch_rows)?;
        within("--queue-requests", self.queue_requests, 0, QUEUE_SEQUENCES)?;
        within("--queue-tokens", self.queue_tokens, 1, QUEUE_TOKENS)?;
        if self.step_timeout.is_zero() {
            return Err("--step-timeout-s is 0; it must be at least 1".into());
        }
        within("--key and --api-key: keys", self.keys.len(), 0, KEYS_MAX)?;
        within("--poll", self.poll as usize, 0, 100)?;
        if !self.cache.values.is_plain() && self.cache.flash_attention == FlashAttention::Off {
            return Err("--cache-type-v of less than 16 bits needs --flash-attn on or auto".into());
        }
        if let Some(tokens) = self.context_tokens {
            // Each sequence needs a token of prompt and one of text.
            let least = 2 * self.parallel;
            within("--ctx-size", tokens as usize, least, CONTEXT_TOKENS_MAX)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_name_its_secret_its_weight_and_its_priority() {
        let key = |text: &str| text.parse::<ApiKey>();
        let whole = key("batch:s3cret:0.5:2").unwrap();
        assert_eq!((whole.name.as_str(), whole.secret.as_str()), ("batch", "s3cret"));
        assert_eq!((whole.weight, whole.priority_min), (0.5, 2));
        let short = key("a:b").unwrap();
        assert_eq!((short.weight, short.priority_min), (1.0, 0));
        for wrong in ["", "a", "a:", ":b", "a:b:0", "a:b:x", "a:b:nan", "a:b:1:9999", "a:b:1:2:3"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
