//! What the fake model's texts leave outside its KV cache.

use std::sync::Arc;

use corelane::memory::{Kept, KeptSizes};
use corelane::model::fake::{N_VOCAB, STATE_BYTES, page_bytes};
use corelane::scheduler::Pages;

/// Memory for pages, saved states and logits of the fake model.
pub fn kept(pages: Pages, states: usize, logits: usize) -> Arc<Kept> {
    let sizes = KeptSizes {
        pages: pages.count,
        page_tokens: pages.tokens,
        page_bytes: page_bytes(pages.tokens),
        states,
        state_bytes: STATE_BYTES,
        logits,
        n_vocab: N_VOCAB,
    };
    Arc::new(Kept::new(sizes).unwrap())
}
