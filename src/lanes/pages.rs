//! Chooses the size of the prefix store.

use crate::config::ServeConfig;
use crate::limits::{PAGE_TOKENS_MAX, PAGES_MAX, SLOTS_MAX};
use crate::memory::gib;
use crate::model::footprint::Footprint;
use crate::scheduler::Pages;
use crate::types::FlashAttention;

/// About the bytes of a page. Copying one takes about a millisecond.
const PAGE_BYTES: usize = 4 << 20;

/// Fewest and most tokens of a page.
const PAGE_TOKENS: (usize, usize) = (32, PAGE_TOKENS_MAX);

/// Most bytes of the store, without `--cache-ram`.
const STORE_BYTES: u64 = 8 << 30;

/// The part of the memory left that the store may take, without `--cache-ram`.
const STORE_PART: u64 = 2;

const MIB: u64 = 1 << 20;

/// Whether a server of `config` may have a store: it needs one KV cache for all requests, and a
/// sequence id more.
pub(super) fn stores_prefixes(config: &ServeConfig) -> bool {
    let is_wanted = config.cache_prompt && config.cache_ram != Some(0);
    // Without it, llama.cpp copies the values of a page one by one.
    let is_fast = config.cache.flash_attention != FlashAttention::Off;
    is_wanted && is_fast && config.cache.unified && config.parallel < SLOTS_MAX
}

/// Chooses the pages of the store, and the bytes of one. `spare_bytes` of memory are left.
///
/// # Errors
/// A sentence with both numbers, if `--cache-ram` is more than is left.
pub(super) fn choose_pages(
    config: &ServeConfig,
    footprint: Footprint,
    spare_bytes: u64,
) -> Result<(Pages, usize), String> {
    let Footprint { cell, header, .. } = footprint;
    if !stores_prefixes(config) || cell == 0 {
        return Ok((Pages::default(), 0));
    }
    let asked = config.cache_ram.map(|mib| mib as u64 * MIB);
    if let Some(asked) = asked.filter(|asked| *asked > spare_bytes) {
        return Err(format!(
            "--cache-ram {} is {:.1} GiB; beside the KV cache {:.1} are left: at most {} MiB fit",
            asked / MIB,
            gib(asked),
            gib(spare_bytes),
            spare_bytes / MIB,
        ));
    }
    let bytes = asked.unwrap_or(STORE_BYTES.min(spare_bytes / STORE_PART));
    let tokens = (PAGE_BYTES / cell).clamp(PAGE_TOKENS.0, PAGE_TOKENS.1);
    let tokens = 1 << tokens.ilog2();
    let page_bytes = header + tokens * cell;
    let count = usize::try_from(bytes).unwrap_or(usize::MAX) / page_bytes;
    Ok((Pages { count: count.min(PAGES_MAX), tokens }, page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn pages(cache_ram: Option<usize>, cell: usize, spare: u64) -> Result<Pages, String> {
        let config = ServeConfig { cache_ram, ..ServeConfig::default() };
        let footprint = Footprint { cell, header: 1000, ..Footprint::default() };
        choose_pages(&config, footprint, spare).map(|(pages, _)| pages)
    }

    #[test]
    fn half_of_the_memory_left_is_for_the_store_but_not_more_than_asked_for() {
        let of = |count, tokens| Ok(Pages { count, tokens });
        assert_eq!(pages(None, 100_000, 2 * GIB), of(335, 32));
        assert_eq!(pages(None, 100_000, 64 * GIB), of(2683, 32));
        assert_eq!(pages(None, 12_000, 2 * GIB), of(349, 256));
        assert_eq!(pages(Some(100), 100_000, 2 * GIB), of(32, 32));
        assert_eq!(pages(Some(0), 100_000, 2 * GIB), Ok(Pages::default()));
        let error = pages(Some(4096), 100_000, 2 * GIB).unwrap_err();
        assert_eq!(
            error,
            "--cache-ram 4096 is 4.0 GiB; beside the KV cache 2.0 are left: at most 2048 MiB fit"
        );
    }
}
