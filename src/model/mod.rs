//! The model behind one small interface: llama.cpp, or a fake that takes
//! microseconds and knows when it is used wrongly.
//!
//! **Invariant:** nothing outside this folder imports `llama-cpp-2` or
//! `llama-cpp-sys-2`.

pub mod attentions;
pub mod builtin;
mod checked;
pub mod embed;
pub mod fake;
pub mod ggml;
mod library;
pub mod llama;
pub mod load;
pub mod products;
pub mod synth;
pub mod vocab;

use crate::types::{Position, SlotId, TokenId};

/// What the decode lane needs of a model: run rows, read logits, forget.
pub trait Backend {
    /// Tokens in the vocabulary.
    fn n_vocab(&self) -> usize;

    /// Runs one step. On success the KV cache holds the rows.
    ///
    /// # Errors
    /// When the model could not run it. The KV cache may then hold some of the
    /// rows; the caller truncates.
    fn decode(&mut self, rows: &[DecodeRow]) -> Result<(), StepError>;

    /// The logits of row `row` of the last step, which must have asked for a
    /// sample. Mutable, because penalties are applied in place.
    fn logits(&mut self, row: usize) -> &mut [f32]; // [n_vocab]

    /// True when sequences with different counts of rows run together as fast as those
    /// with equal ones.
    fn runs_ragged(&self) -> bool {
        false
    }

    /// Copies the first `tokens` tokens of a slot into an empty one, as far as it
    /// can; how many are there then.
    fn copy(&mut self, from: SlotId, to: SlotId, tokens: Position) -> Position;

    /// Forgets the tokens of a slot from position `from` on. Some models can only
    /// forget everything; how many tokens are left.
    fn truncate(&mut self, slot: SlotId, from: Position) -> Position;

    /// Makes a slot hold the first `tokens` tokens of `source`, which may be
    /// itself, and nothing else, as far as it can; how many are there then.
    fn start(&mut self, slot: SlotId, source: SlotId, tokens: Position) -> Position {
        if slot == source {
            return self.truncate(slot, tokens);
        }
        self.truncate(slot, Position(0));
        if tokens == Position(0) { tokens } else { self.copy(source, slot, tokens) }
    }
}

/// One token to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeRow {
    /// The token.
    pub token: TokenId,
    /// Its place in its sequence.
    pub position: Position,
    /// The sequence's slot.
    pub slot: SlotId,
    /// Its logits will be read.
    pub sample: bool,
}

/// A step that the model could not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The KV cache has no room for the rows. The scheduler's accounting
    /// should have prevented this.
    #[error("no room in the KV cache for the step")]
    NoRoom,
    /// It took too long, and was given up.
    #[error("the step took too long and was given up")]
    Aborted,
    /// Any other failure, with llama.cpp's code.
    #[error("llama_decode failed with code {0}")]
    Failed(i32),
}
