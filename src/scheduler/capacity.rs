//! How much room there is, and what is said to those who find none.

use std::time::Duration;

#[cfg(doc)]
use crate::limits::ITL_UNNOTICED;

/// The room that the scheduler has to give.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Sequences that run at once.
    pub slots: usize,
    /// Rows of one step.
    pub step_rows: usize,
    /// How long a step with prompt rows may take, where others decode; none is
    /// twice the time that their rows take alone, and [`ITL_UNNOTICED`] at least.
    /// `Duration::MAX` bounds nothing.
    pub itl_target: Option<Duration>,
    /// KV cells, all slots together.
    pub context_tokens: u32,
    /// Tokens of one sequence, prompt and generated.
    pub sequence_tokens: u32,
    /// Sequences that wait.
    pub queue_sequences: usize,
    /// Tokens of sequences that wait.
    pub queue_tokens: usize,
    /// A slot can begin with what it or another holds.
    pub reuse: bool,
    /// Whether each slot has a KV cache of its own, an equal share of the cells. Otherwise all
    /// share one.
    pub own_cells: bool,
    /// The weight of each key.
    pub weights: Vec<f64>,
}

impl Capacity {
    /// Cells that are copied from one slot to another, however few tokens are wanted of them.
    pub(super) fn copied_cells(&self) -> usize {
        if self.own_cells { self.context_tokens as usize / self.slots } else { 0 }
    }
}

/// Why sequences were not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue and the slots never have room for all of them.
    TooMany {
        /// Sequences that came together.
        sequences: usize,
        /// How many may.
        limit: usize,
    },
    /// The queue has no room for all of them now.
    QueueFull {
        /// Sequences waiting.
        waiting: usize,
        /// The queue's bound.
        limit: usize,
    },
    /// The queue has no room for all of their tokens now.
    TokensFull {
        /// Tokens waiting.
        waiting: usize,
        /// The queue's bound.
        limit: usize,
    },
}
