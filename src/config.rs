//! The server's configuration, checked: what is in here can be run.

use std::time::Duration;

use crate::limits::{CONTEXT_TOKENS_MAX, SLOTS_MAX, STEP_ROWS_MAX};
use crate::placement::Placement;
use crate::types::{CacheLayout, CacheType, FlashAttention};

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
    /// Keys that clients must give one of; none lets everybody in.
    pub api_keys: Vec<String>,
    /// KV cells of all sequences together; `None` chooses.
    pub context_tokens: Option<u32>,
    /// Sequences that run at once.
    pub parallel: usize,
    /// Rows of one step.
    pub batch_rows: usize,
    /// Rows that llama.cpp computes at once.
    pub ubatch_rows: usize,
    /// Prompt rows of a step in which others decode.
    pub prefill_rows: usize,
    /// The default for `max_tokens`; `None` leaves it to the dialect.
    pub n_predict: Option<u32>,
    /// Where request ids and default seeds begin.
    pub entropy: u64,
    /// How long running requests may take to finish after a drain began.
    pub drain: Duration,
    /// Which lane runs where.
    pub placement: Placement,
    /// How the KV cache is laid out.
    pub cache: CacheLayout,
    /// How eagerly idle compute threads poll for work, 0 to 100.
    pub poll: u32,
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
        within("--prefill-rows", self.prefill_rows, 1, self.batch_rows)?;
        within("--poll", self.poll as usize, 0, 100)?;
        let plain = matches!(self.cache.values, CacheType::F32 | CacheType::F16);
        if !plain && self.cache.flash_attention == FlashAttention::Off {
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
