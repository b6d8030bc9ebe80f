//! Events: the outcome of a step for one sequence.

use crate::types::{Broken, SequenceId, TokenId};

/// The outcome of a step for one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A token was sampled.
    Token {
        /// The sequence. If this is its last token, the id is free again.
        id: SequenceId,
        /// The token.
        token: TokenId,
        /// The index of the token's log-probabilities in the batch, if the request asked for them.
        logprobs: Option<u16>,
        /// The sequence has its `max_tokens`.
        is_last: bool,
        /// The approximate bytes of its constraint's state, if the decode lane computes its masks.
        constraint_bytes: Option<u32>,
    },
    /// A sequence guessed tokens. The tokens of its step follow.
    Guessed {
        /// The sequence.
        id: SequenceId,
        /// Guesses that ran.
        made: u8,
        /// Guesses that came true.
        kept: u8,
    },
    /// A token of the prompt was scored. They come in order.
    Score {
        /// The sequence.
        id: SequenceId,
        /// The index among the scores of the batch.
        index: usize,
    },
    /// The sequence ended without a token that belongs to its text. The id is free again.
    Finished(SequenceId, Finish),
}

/// The end of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model sampled an end-of-generation token, which is not part of the text.
    End {
        /// The token.
        token: TokenId,
        /// The index of its log-probabilities in the batch, if the request asked for them.
        logprobs: Option<u16>,
    },
    /// The prompt is computed, and the sequence asked for no token.
    PromptComputed,
    /// The sequence's steps failed.
    Failed,
    /// The constraint could not be followed any further.
    Broken(Broken),
}
