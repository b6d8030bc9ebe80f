//! Chooses the size of the KV cache.
//!
//! llama.cpp writes zeros to the whole cache at the start, so all of it takes memory at once. The
//! default is for one coding agent beside small requests. It has room for a text of the length that
//! the model was trained with, but takes much memory only where much more is left.

use super::size::step_rows;
use crate::config::ServeConfig;
use crate::limits::{CHECKPOINTS_MAX, CONTEXT_TOKENS_MAX, SEQUENCE_TOKENS_MAX};
use crate::memory::gib;
use crate::model::footprint::Footprint;
use crate::model::window;
use crate::types::{FlashAttention, ModelInfo, Speculation};

/// Tokens of a small request.
const SMALL_TOKENS: u64 = 2048;

/// Tokens that a coding agent needs at least. The first request of Claude Code has about 19,000.
const AGENT_TOKENS: u64 = 32 * 1024;

/// Most saved states for each slot, without `--ctx-checkpoints`.
const CHECKPOINTS_OF_SLOT: usize = 32;

/// The part of memory that they may take, without `--ctx-checkpoints`.
const CHECKPOINTS_PART: usize = 8;

/// The part of memory that the states behind the last tokens of each slot may take.
const ROLLBACK_PART: usize = 16;

/// Most tokens by which a recurrent state can go back. With three guesses, edits of files have 2.3
/// times the tokens per second, with eight 2.8 times. Eight states take more than twice the memory.
const ROLLBACK_MAX: usize = 3;

/// Fewest tokens of a long prompt between two saved states.
const CHECKPOINT_TOKENS: usize = 512;

/// Places for kept logits for each slot: those of a conversation's last two prompts.
const LOGITS_OF_SLOT: usize = 2;

/// Whether the server generates texts. A server of vectors does not. Neither does a model whose tokens see the tokens
/// behind them.
pub(super) fn generates(config: &ServeConfig, info: &ModelInfo) -> bool {
    !info.sees_ahead && config.pooling.or(info.pooling).is_none()
}

/// Chooses the number of places for kept logits. With recurrent layers, they are of use only with one of
/// the `checkpoints` saved states.
fn choose_logits(config: &ServeConfig, info: &ModelInfo, checkpoints: usize) -> usize {
    let generates = generates(config, info);
    let has_states = !info.is_recurrent || checkpoints > 0;
    let keeps = config.cache_prompt && generates && has_states;
    if keeps { LOGITS_OF_SLOT * config.parallel } else { 0 }
}

/// Chooses the number of places for saved states, each of `state_bytes`; 0 bytes mean that the
/// model has no states.
fn choose_checkpoints(config: &ServeConfig, state_bytes: usize, available_bytes: u64) -> usize {
    if state_bytes == 0 || !config.cache_prompt {
        return 0;
    }
    let fit = available_bytes as usize / CHECKPOINTS_PART / state_bytes;
    let default = (CHECKPOINTS_OF_SLOT * config.parallel).min(fit);
    let wanted = config.ctx_checkpoints.map(|number| number * config.parallel);
    wanted.unwrap_or(default).min(CHECKPOINTS_MAX)
}

/// The sizes of a server's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheSizes {
    /// Places for saved states.
    pub checkpoints: usize,
    /// Places for kept logits.
    pub logits: usize,
    /// Most tokens by which a recurrent state can go back.
    pub rollback: u32,
    /// KV cells of all slots together.
    pub context_tokens: u32,
    /// The cells that the sliding windows of all slots need at most; 0 without them.
    pub window_cells: u32,
    /// The bytes of memory that are left.
    pub spare: u64,
}

/// Chooses the sizes of the caches of a model and its draft model. Requests take `request_bytes`.
///
/// # Errors
/// As for [`choose_context`].
pub(super) fn choose_caches(
    config: &ServeConfig,
    info: &ModelInfo,
    draft: Option<&ModelInfo>,
    footprint: Footprint,
    request_bytes: u64,
    available: u64,
) -> Result<CacheSizes, String> {
    let checkpoints = choose_checkpoints(config, footprint.state, available);
    let logits = choose_logits(config, info, checkpoints);
    let logits_bytes = (logits * info.n_vocab * size_of::<f32>()) as u64;
    let rollback = choose_rollback(config, footprint, available);
    let (window, sequences) = (footprint.window as u32, config.parallel as u32 + 1); // one for pages
    let rows = step_rows(config.batch_rows, config.ubatch_rows, config.parallel) as u32;
    let window_cells = if window > 0 { window::cells(window, sequences, rows) } else { 0 };
    let states = match window {
        0 => sequences as usize * (1 + rollback as usize),
        _ => 1, // to copy one
    };
    let states_bytes = ((states + checkpoints) * footprint.state) as u64;
    let window_bytes = u64::from(window_cells) * footprint.window_cell as u64;
    let info = kept_info(config, info, footprint);
    let taken = request_bytes + states_bytes + window_bytes + logits_bytes;
    let context_tokens = choose_context(config, &info, draft, taken, available)?;
    let spare = spare_bytes(config, &info, draft, taken, available, context_tokens);
    Ok(CacheSizes { checkpoints, logits, rollback, context_tokens, window_cells, spare })
}

/// What a model tells of its cache. If some layers keep only the cells of a sliding window, a token
/// takes what it takes in the others.
fn kept_info(config: &ServeConfig, info: &ModelInfo, footprint: Footprint) -> ModelInfo {
    let in_f16 = footprint.cell as f64 / config.cache.relative_size();
    let kv_bytes = if footprint.window > 0 { in_f16 as u64 } else { info.kv_bytes_per_token };
    ModelInfo { kv_bytes_per_token: kv_bytes, ..info.clone() }
}

/// Chooses by how many tokens a recurrent state can go back, which bounds the guesses of a step.
/// For each of these tokens, llama.cpp keeps one more state for each sequence.
pub fn choose_rollback(config: &ServeConfig, footprint: Footprint, available_bytes: u64) -> u32 {
    let guesses = config.speculation != Speculation::Off && footprint.goes_back;
    if !guesses || !config.cache.unified {
        return 0;
    }
    let states_bytes = ((config.parallel + 1) * footprint.state).max(1);
    let fit = available_bytes as usize / ROLLBACK_PART / states_bytes;
    // llama.cpp computes the last tokens of a step at once, and one more.
    let rows = config.ubatch_rows.saturating_sub(2);
    let wanted = usize::from(config.guessing.most).min(ROLLBACK_MAX);
    let most = wanted.min(fit).min(rows);
    if fit < wanted {
        tracing::info!(most, of = wanted, "memory limits the guesses of a recurrent model");
    }
    most as u32 // at most ROLLBACK_MAX
}

/// The tokens of a long prompt between two saved states: as many as take as much memory themselves.
pub(super) fn checkpoint_interval(footprint: Footprint) -> usize {
    let tokens = footprint.state / footprint.cell.max(1);
    tokens.max(CHECKPOINT_TOKENS).next_power_of_two()
}

/// The memory that is left beside a KV cache of this size.
fn spare_bytes(
    config: &ServeConfig,
    info: &ModelInfo,
    draft: Option<&ModelInfo>,
    request_bytes: u64,
    available_bytes: u64,
    context_tokens: u32,
) -> u64 {
    let models = [Some(info), draft].into_iter().flatten();
    let token_bytes = models.map(|info| token_bytes(config, info)).sum::<u64>();
    let for_cache = bytes_for_cache(config, info, request_bytes, available_bytes);
    for_cache.saturating_sub(token_bytes * u64::from(context_tokens))
}

/// The memory for the KV cache, after what is set aside.
fn bytes_for_cache(
    config: &ServeConfig,
    info: &ModelInfo,
    request_bytes: u64,
    available_bytes: u64,
) -> u64 {
    // Four bytes for the history, and up to twelve for the index in which guesses are looked up.
    let slot_bytes = info.n_vocab as u64 * 4 + trained(info) * 16;
    let set_aside = config.parallel as u64 * slot_bytes + request_bytes + available_bytes / 10;
    available_bytes.saturating_sub(set_aside)
}

/// Chooses the KV cache's size in tokens: `--ctx-size`, or else the default, or as much of that as
/// fits into `available_bytes`.
///
/// The weights are already in memory and are not part of `available_bytes`. Set aside first: the
/// logits and the token history of each slot with its index, the memory of requests
/// (`request_bytes`), and a tenth for everything else.
///
/// # Errors
/// A sentence with the memory needed, the memory available, and a size that would fit.
pub fn choose_context(
    config: &ServeConfig,
    info: &ModelInfo,
    draft: Option<&ModelInfo>,
    request_bytes: u64,
    available_bytes: u64,
) -> Result<u32, String> {
    let slots = config.parallel as u64;
    let for_cache = bytes_for_cache(config, info, request_bytes, available_bytes);
    // Both models hold a text.
    let models = [Some(info), draft].into_iter().flatten();
    let token_bytes = models.map(|info| token_bytes(config, info)).sum::<u64>().max(1);
    let fits = for_cache / token_bytes;
    let (least, most) = default_tokens(config, info);
    let default = most.min(fits / 2).max(least).min(fits).min(CONTEXT_TOKENS_MAX as u64);
    let tokens = config.context_tokens.map_or(default, u64::from);
    if tokens > fits {
        return Err(format!(
            "--ctx-size {tokens} needs {:.1} GiB of memory for the KV cache; of the {:.1} GiB \
             available, {:.1} are left for it: at most {fits} tokens fit",
            gib(tokens * token_bytes),
            gib(available_bytes),
            gib(for_cache),
        ));
    }
    if tokens < 2 * slots {
        return Err(format!(
            "memory has room for {tokens} tokens of context, too few for {slots} sequences: of \
             {:.1} GiB available, --request-memory takes {:.1}; lower it or --parallel",
            gib(available_bytes),
            gib(request_bytes),
        ));
    }
    if config.context_tokens.is_none() && tokens < most {
        tracing::info!(tokens, of = most, "memory limits the context; --ctx-size sets another one");
    }
    Ok(tokens as u32) // at most CONTEXT_TOKENS_MAX
}

/// The default size of the cache in tokens: the least, for which all that fits may be used, and the
/// most, for which half of it may.
fn default_tokens(config: &ServeConfig, info: &ModelInfo) -> (u64, u64) {
    let slots = config.parallel as u64;
    let small = trained(info).min(SMALL_TOKENS);
    let agent = trained(info).min(AGENT_TOKENS);
    if config.pooling.or(info.pooling).is_some() {
        return (small * slots, small * slots); // texts for vectors take no part of this cache
    }
    if config.cache.unified {
        let others = small * (slots - 1);
        (agent + others, trained(info) + others)
    } else {
        // Each sequence has an equal share, so any of them must have room for an agent.
        (small * slots, agent * slots)
    }
}

/// The most tokens of one sequence of a model.
pub(super) fn trained(info: &ModelInfo) -> u64 {
    u64::from(info.context_trained).clamp(1, SEQUENCE_TOKENS_MAX as u64)
}

/// Bytes that a token of context takes in a model: its keys and values, and a column of the mask
/// for each row that llama.cpp computes at once. Without flash attention, the mask has larger
/// numbers, and so do the scores of each head.
fn token_bytes(config: &ServeConfig, info: &ModelInfo) -> u64 {
    let cache = info.kv_bytes_per_token as f64 * config.cache.relative_size();
    let scores = config.cache.flash_attention == FlashAttention::Off;
    let row_bytes = if scores { 4 + 4 * u64::from(info.n_head) } else { 2 };
    cache as u64 + row_bytes * config.ubatch_rows as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CacheLayout, CacheType, Pooling};

    const GIB: u64 = 1 << 30;

    fn info() -> ModelInfo {
        ModelInfo {
            n_vocab: 1000,
            n_head: 16,
            context_trained: 131_072,
            kv_bytes_per_token: 100_000,
            ..ModelInfo::default()
        }
    }

    /// The choice without `--ctx-size`.
    fn chosen(config: &ServeConfig, info: &ModelInfo, available_bytes: u64) -> u32 {
        choose_context(config, info, None, 0, available_bytes).unwrap()
    }

    #[test]
    fn a_context_too_large_for_memory_is_refused_with_what_fits() {
        let choose = |tokens, request_bytes| {
            let config = ServeConfig { context_tokens: Some(tokens), ..ServeConfig::default() };
            choose_context(&config, &info(), None, request_bytes, 4 * GIB)
        };
        assert_eq!(choose(10_000, 0), Ok(10_000));
        let error = choose(1_000_000, 0).unwrap_err();
        assert!(error.starts_with("--ctx-size 1000000 needs 93.6 GiB"), "{error}");
        let fits: u32 =
            error.split("at most ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(choose(fits, 0), Ok(fits));
        assert!(choose(fits + 1, 0).is_err());
        assert!(choose(fits, 1_000_000).is_err(), "requests need room");
    }

    #[test]
    fn the_default_is_one_whole_text_beside_small_ones_as_far_as_memory_goes() {
        let config = ServeConfig::default();
        assert_eq!(chosen(&config, &info(), 64 * GIB), 131_072 + 7 * 2048);
        // Half of what fits: 100,512 bytes for each token.
        let half = chosen(&config, &info(), 16 * GIB);
        assert!((76_000..77_000).contains(&half), "{half}");
        // An agent may have more than half.
        assert_eq!(chosen(&config, &info(), 6 * GIB), 32_768 + 7 * 2048);
        let all = chosen(&config, &info(), 2 * GIB);
        assert!((19_000..19_300).contains(&all), "{all}");
        let little = choose_context(&config, &info(), None, 0, GIB / 1024);
        assert!(little.unwrap_err().contains("lower it or --parallel"));
        let short = ModelInfo { context_trained: 512, ..info() };
        assert_eq!(chosen(&config, &short, 64 * GIB), 8 * 512);
        let alone = ServeConfig { parallel: 1, ..config };
        assert_eq!(chosen(&alone, &info(), 64 * GIB), 131_072);
    }

    #[test]
    fn sequences_with_caches_of_their_own_have_room_for_an_agent_each() {
        let cache = CacheLayout { unified: false, ..CacheLayout::default() };
        let config = ServeConfig { cache, ..ServeConfig::default() };
        assert_eq!(chosen(&config, &info(), 64 * GIB), 8 * 32_768);
        assert_eq!(chosen(&config, &info(), 3 * GIB), 8 * 2048, "more than half of the memory");
    }

    #[test]
    fn layers_with_a_sliding_window_leave_memory_to_the_others() {
        let config = ServeConfig::default();
        let chosen =
            |footprint| choose_caches(&config, &info(), None, footprint, 0, 16 * GIB).unwrap();
        let full = chosen(Footprint::default());
        assert_eq!((full.window_cells, full.checkpoints), (0, 0));
        let (window, window_cell) = (512, 83_000);
        let state = window * window_cell;
        let footprint =
            Footprint { cell: 17_000, window, window_cell, state, ..Footprint::default() };
        let sizes = chosen(footprint);
        assert_eq!(sizes.window_cells, 9 * 512 + 256);
        assert_eq!(sizes.checkpoints, (2 * GIB / state as u64) as usize);
        assert_eq!(
            (full.context_tokens < 80_000, sizes.context_tokens),
            (true, 131_072 + 7 * 2048)
        );
        let taken = u64::from(sizes.window_cells) * window_cell as u64
            + (sizes.checkpoints as u64 + 1) * state as u64
            + u64::from(sizes.context_tokens) * (17_000 + 512);
        assert!(sizes.spare < (16 * GIB) * 9 / 10 - taken);
        assert!(sizes.spare > (16 * GIB) * 8 / 10 - taken);
    }

    #[test]
    fn a_model_for_embeddings_gets_a_small_context() {
        let embeds = ModelInfo { pooling: Some(Pooling::Last), ..info() };
        assert_eq!(chosen(&ServeConfig::default(), &embeds, 64 * GIB), 8 * 2048);
    }

    #[test]
    fn what_a_token_takes_decides_how_many_fit() {
        let fits = |config: &ServeConfig, draft: Option<&ModelInfo>| {
            choose_context(config, &info(), draft, 0, 16 * GIB).unwrap()
        };
        let plain = ServeConfig::default();
        let of_half = fits(&plain, None);
        assert_eq!(fits(&plain, Some(&info())), 32_768 + 7 * 2048, "a draft model of that size");
        let cache = CacheLayout { keys: CacheType::Q8_0, ..plain.cache };
        assert!(fits(&ServeConfig { cache, ..plain.clone() }, None) > of_half * 5 / 4);
        let cache = CacheLayout { flash_attention: FlashAttention::Off, ..plain.cache };
        assert!(fits(&ServeConfig { cache, ..plain }, None) < of_half * 9 / 10);
    }
}
