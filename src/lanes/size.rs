//! Sizes that follow from a configuration: cells, rows, slots, and the model's context.

use std::sync::Arc;
use std::time::Duration;

use crate::abort::StepAbort;
use crate::config::ServeConfig;
use crate::limits::GUESSES_MAX;
use crate::memory::KeptSizes;
use crate::model::llama::ContextConfig;
use crate::model::load::Loaded;
use crate::placement::by_speed;
use crate::scheduler::{Capacity, Pages, States};
use crate::types::{FlashAttention, Guessing, ModelInfo, Speculation};

/// Texts whose embeddings are computed at once.
const EMBEDDING_TEXTS_MAX: usize = 32;

/// Time that a lane on a core of its own polls before it parks.
const SPIN_BEFORE_PARK: Duration = Duration::from_micros(200);

/// The sizes of a server's caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub context_tokens: u32,
    pub sequence_tokens: u32,
    pub states: Option<States>,
    pub pages: Pages,
    /// Most tokens by which a recurrent state can go back.
    pub rollback: u32,
    /// The sizes of what is kept outside the KV cache.
    pub kept: KeptSizes,
}

/// The model's context for a server of `config`.
pub fn context_config(
    config: &ServeConfig,
    loaded: &Loaded,
    context_tokens: u32,
    abort: Arc<StepAbort>,
) -> ContextConfig {
    let theirs = config.cache.flash_attention == FlashAttention::Llama;
    // A later pass of a step may take cells of a window that a wrong guess of the first one needs.
    let rows = match loaded.info.window {
        0 => config.ubatch_rows,
        _ => step_rows(config.batch_rows, config.ubatch_rows, config.parallel),
    };
    ContextConfig {
        context_tokens,
        slots: config.parallel as u32,       // at most SLOTS_MAX
        step_rows: config.batch_rows as u32, // at most STEP_ROWS_MAX
        ubatch_rows: rows as u32,
        decode_cores: by_speed(&config.placement.decode_cores),
        pinned: config.placement.pinned,
        poll: config.poll,
        cache: config.cache,
        state_bytes: 0,
        rollback: 0,
        window: 0,
        stores_pages: false,
        attention: loaded.kernels.filter(|_| !theirs),
        abort,
    }
}

/// The most KV cells of one sequence: its share, or all.
pub(super) fn cells_of_one(config: &ServeConfig, context_tokens: u32) -> u32 {
    let share = if config.cache.unified { 1 } else { config.parallel as u32 }; // at most SLOTS_MAX
    context_tokens / share
}

/// The embed lane's context, beside one that generates.
pub(super) fn embed_config(context: &ContextConfig, tokens: u32) -> ContextConfig {
    let slots = EMBEDDING_TEXTS_MAX as u32; // a handful
    // llama.cpp reserves this many rows for each sequence, and ends the process if there are more
    // than it was told.
    let rows = tokens.next_multiple_of(slots);
    ContextConfig {
        context_tokens: rows,
        slots,
        step_rows: rows,
        ubatch_rows: rows,
        state_bytes: 0,
        rollback: 0,
        window: 0,
        stores_pages: false,
        ..context.clone()
    }
}

/// The scheduler's capacity in a server of `config`.
pub fn capacity(config: &ServeConfig, context_tokens: u32, sequence_tokens: u32) -> Capacity {
    Capacity {
        slots: config.parallel,
        step_rows: step_rows(config.batch_rows, config.ubatch_rows, config.parallel),
        itl_target: config.itl_target,
        context_tokens,
        sequence_tokens,
        queue_sequences: config.queue_requests,
        queue_tokens: config.queue_tokens,
        reuse: config.cache_prompt,
        states: None,
        logits: 0,
        pages: Pages::default(),
        files: None,
        own_cells: !config.cache.unified,
        looks_up: config.speculation.looks_up(),
        drafts: config.speculation.drafts() && config.model_draft.is_some(),
        weights: config.weights(),
    }
}

/// The most rows of a step. llama.cpp would split more than it computes at once. But a prompt needs
/// room beside all other sequences, each with a row of its own.
pub(super) fn step_rows(batch_rows: usize, ubatch_rows: usize, slots: usize) -> usize {
    batch_rows.min(ubatch_rows.max(2 * slots))
}

/// How the requests that do not say guess.
pub fn guessing(config: &ServeConfig, info: &ModelInfo, rollback: u32) -> Guessing {
    if config.speculation == Speculation::Off {
        return Guessing::default();
    }
    // A recurrent state must go back behind wrong guesses.
    let most = if info.is_recurrent { rollback } else { GUESSES_MAX as u32 };
    Guessing { most: config.guessing.most.min(most as u8), ..config.guessing } // at most GUESSES_MAX
}

/// The time that the front lane and the decode lane poll before they park.
pub fn spin(config: &ServeConfig) -> Duration {
    if config.placement.is_shared() { Duration::ZERO } else { SPIN_BEFORE_PARK }
}

#[cfg(test)]
mod tests {
    use super::step_rows;

    #[test]
    fn prompts_have_room_beside_as_many_streams_as_there_are_slots() {
        assert_eq!(step_rows(2048, 256, 8), 256);
        assert_eq!(step_rows(2048, 256, 128), 256);
        assert_eq!(step_rows(2048, 256, 250), 500);
        // --batch-size is kept as given, and never less than --parallel.
        assert_eq!(step_rows(64, 64, 60), 64);
    }
}
