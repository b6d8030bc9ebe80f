//! The scheduler's capacity, and the refusals of requests beyond it.

use crate::types::ItlTarget;

/// The scheduler's capacity.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Sequences that run at once.
    pub slots: usize,
    /// Rows of one step.
    pub step_rows: usize,
    /// The longest time of a step that has prompt rows beside decode rows.
    pub itl_target: ItlTarget,
    /// KV cells of all slots together.
    pub context_tokens: u32,
    /// Tokens of one sequence, prompt and generated.
    pub sequence_tokens: u32,
    /// Most sequences in the queue.
    pub queue_sequences: usize,
    /// Most tokens of all sequences in the queue.
    pub queue_tokens: usize,
    /// A sequence may start with a prefix that a slot holds.
    pub reuse: bool,
    /// How states are saved. `None` for models without any.
    pub states: Option<States>,
    /// Places for logits that are kept behind a prompt, so that the same prompt computes nothing.
    pub logits: usize,
    /// The pages of the prefix store. It needs one KV cache for all slots.
    pub pages: Pages,
    /// The files of the prefix store, if it has any.
    pub files: Option<FileSizes>,
    /// Each slot has a KV cache of its own, an equal share of the cells. Otherwise all slots share
    /// one.
    pub own_cells: bool,
    /// Guesses are looked up in the text.
    pub looks_up: bool,
    /// There is a draft model, which can guess.
    pub drafts: bool,
    /// The weight of each key.
    pub weights: Vec<f64>,
}

/// The size of the prefix store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Its pages; 0 without a store.
    pub count: usize,
    /// Most tokens of a page.
    pub tokens: usize,
}

/// The sizes of the prefix store's files, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSizes {
    /// Most bytes of all files. 0 if only clients save texts, in files of slots, which do not count.
    pub bytes_max: u64,
    /// Most bytes of a page's file.
    pub page_bytes: u64,
    /// Most bytes of a state's file.
    pub state_bytes: u64,
    /// What makes the names of texts differ from those of a server with another key.
    pub seed: [u8; 32],
}

/// How states are saved: those of recurrent layers, or the cells of a sliding window. A state stands
/// behind the last token of its slot. So a sequence starts with all tokens of a slot, with those before
/// a saved state, or where the window of a slot still reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States {
    /// Most saved states.
    pub checkpoints: usize,
    /// Tokens of a long prompt between two saved states.
    pub interval: usize,
    /// Recurrent layers make them.
    pub is_recurrent: bool,
}

impl Capacity {
    /// Whether one pass over the weights computes sequences with different numbers of rows.
    /// llama.cpp computes them one after another if they have caches or states of their own.
    pub(super) fn is_ragged(&self) -> bool {
        !self.own_cells && !self.has_recurrent_states()
    }

    /// Whether recurrent layers have states.
    pub(super) fn has_recurrent_states(&self) -> bool {
        self.states.is_some_and(|states| states.is_recurrent)
    }

    /// Whether the states are the cells of sliding windows.
    pub(super) fn has_windows(&self) -> bool {
        self.states.is_some_and(|states| !states.is_recurrent)
    }

    /// Cells that a copy from one slot to another moves, even if few of their tokens are needed. 0
    /// if all slots share one cache, which copies nothing.
    pub(super) fn copied_cells(&self) -> usize {
        if self.own_cells { self.context_tokens as usize / self.slots } else { 0 }
    }
}

/// Why sequences were not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sequences never fit into the queue and the slots.
    TooMany {
        /// Sequences of the request.
        sequences: usize,
        /// Most sequences of a request.
        limit: usize,
    },
    /// The tokens of the sequences never fit into the queue.
    TooManyTokens {
        /// Tokens of the request's sequences without those that get a slot at once.
        tokens: usize,
        /// Most tokens in the queue.
        limit: usize,
    },
    /// The queue has no room for the sequences now.
    QueueFull {
        /// Sequences of the key that wait.
        waiting: usize,
        /// Most sequences of the key that may wait while no other key has any waiting.
        limit: usize,
    },
    /// The queue has no room for the tokens now.
    TokensFull {
        /// Tokens of the key that wait.
        waiting: usize,
        /// Most tokens of the key that may wait while no other key has any waiting.
        limit: usize,
    },
}
