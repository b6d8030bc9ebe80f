//! The model behind one small interface: llama.cpp, or a fake model that takes microseconds and
//! detects wrong use.
//!
//! The **state** of a slot is what it has beside the cells of its tokens: that of recurrent layers, or
//! the cells of a sliding window. It stands behind all tokens of the slot.
//!
//! **Invariant:** only this folder imports `llama-cpp-2` and `llama-cpp-sys-2`.

pub mod attentions;
pub mod builtin;
mod checked;
pub mod deltas;
pub mod draft;
pub mod embed;
mod examine;
pub mod fake;
pub mod footprint;
pub mod ggml;
pub mod gguf;
pub mod library;
pub mod llama;
pub mod load;
pub mod products;
mod rollback;
mod rows;
pub mod shards;
mod specials;
mod threads;
mod tokenizer;
pub mod vocab;
pub mod window;

use std::ops::Range;

use crate::types::{Logits, Position, SlotId, Threads, TokenId};

/// The operations of a model that the decode lane uses.
pub trait Backend {
    /// Tokens in the vocabulary.
    fn n_vocab(&self) -> usize;

    /// Begins a step: all calls of [`Backend::decode`] until the next call of this function belong
    /// to it. Another thread may abort it by its number.
    fn begin_step(&mut self, _step: u64) {}

    /// Most threads that a step can have.
    fn threads(&self) -> usize {
        1
    }

    /// Sets the threads of the next steps, at most [`Backend::threads`].
    fn use_threads(&mut self, _threads: Threads) {}

    /// Swaps the cores of the calling thread and another compute thread; the first one is 0.
    /// Returns whether they were swapped.
    fn change_places(&mut self, _other: usize) -> bool {
        false
    }

    /// Runs rows of a step. On success the KV cache holds its rows.
    ///
    /// # Errors
    /// If the model could not run the rows. The KV cache may then hold some of them; the caller
    /// must truncate.
    fn decode(&mut self, rows: &[DecodeRow]) -> Result<(), StepError>;

    /// The logits of row `row` of the last step, which must have asked for a sample. Mutable,
    /// because penalties are applied in place.
    fn logits(&mut self, row: usize) -> &mut [f32]; // [n_vocab]

    /// Whether sequences with different numbers of rows run together as fast as sequences with
    /// equal numbers.
    fn runs_ragged(&self) -> bool {
        false
    }

    /// Copies the first `tokens` tokens of a slot into an empty one, or more of them; with the state
    /// if `with_state`. Of recurrent layers it is that behind all tokens of the slot, of a window that
    /// behind these. Returns false if that failed, also if the window does not reach so far: the slot
    /// must then be cleared.
    fn copy(&mut self, from: SlotId, to: SlotId, tokens: Position, with_state: bool) -> bool;

    /// Removes the tokens of a slot from position `from` on. Returns false, and changes nothing,
    /// if the slot has a state that cannot go back so far. Removing all of them always succeeds.
    fn truncate(&mut self, slot: SlotId, from: Position) -> bool;

    /// The fewest tokens above 0 to which [`Backend::truncate`] can cut a slot now. `None` if
    /// the model has no sliding window, or its state is more than that.
    fn least_left(&self, _slot: SlotId) -> Option<Position> {
        None
    }

    /// Copies the state of a slot into `state`, which has room for the largest one. Returns the bytes
    /// that it takes, 0 if that failed.
    fn save(&mut self, slot: SlotId, state: &mut [u8]) -> usize;

    /// Gives a slot a saved state, which stands behind its first `tokens` tokens, and removes the
    /// others. Returns false if that failed: the slot must then be cleared.
    fn restore(&mut self, slot: SlotId, state: &[u8], tokens: Position) -> bool;

    /// Copies the cells of the tokens at these positions of a slot into `page`. Returns the bytes
    /// that they take, 0 if that failed.
    fn store_page(&mut self, slot: SlotId, positions: Range<Position>, page: &mut [u8]) -> usize;

    /// Adds the cells of a page behind those of a slot. The state of the slot is then
    /// lost. Returns false if there is no room for them: the slot must then be cleared.
    fn load_page(&mut self, slot: SlotId, page: &[u8]) -> bool;

    /// Makes a slot hold the first `tokens` tokens of `source`, and nothing else. `source` may be
    /// the slot itself. `state` is the state behind them, if that is not the source's own. Returns
    /// the number of tokens held: all, or 0 if that failed.
    fn start(
        &mut self,
        slot: SlotId,
        source: SlotId,
        tokens: Position,
        state: Option<&[u8]>,
    ) -> Position {
        let mut is_copied = true;
        if slot != source {
            self.truncate(slot, Position(0));
            if tokens > Position(0) {
                is_copied = self.copy(source, slot, tokens, state.is_none());
            }
        }
        let is_done = match state {
            Some(state) => self.restore(slot, state, tokens),
            None => self.truncate(slot, tokens),
        };
        if is_copied && is_done {
            return tokens;
        }
        self.truncate(slot, Position(0));
        Position(0)
    }
}

/// One token to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeRow {
    /// The token.
    pub token: TokenId,
    /// Its position in its sequence.
    pub position: Position,
    /// The sequence's slot.
    pub slot: SlotId,
    /// The use of its logits.
    pub logits: Logits,
}

/// Why the model could not run a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The KV cache has no room for the rows. The scheduler's accounting should prevent this.
    #[error("no room in the KV cache for the step")]
    NoRoom,
    /// The step took too long and was aborted.
    #[error("the step took too long and was given up")]
    Aborted,
    /// Any other failure, with llama.cpp's code.
    #[error("llama_decode failed with code {0}")]
    Failed(i32),
}
