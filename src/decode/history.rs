//! The tokens of a sequence so far, and the random numbers of its seed.

use crate::random::mix;
use crate::types::TokenId;

/// The tokens of a sequence so far.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// All tokens, the prompt first.
    pub tokens: &'a [TokenId],
    /// The number of prompt tokens.
    pub prompt_tokens: usize,
}

impl<'a> History<'a> {
    /// The tokens behind the prompt.
    pub fn generated(self) -> &'a [TokenId] {
        &self.tokens[self.prompt_tokens.min(self.tokens.len())..]
    }

    /// The random number in `[0, 1)` for the next token.
    pub(super) fn uniform(self, seed: u64) -> f64 {
        uniform(seed, self.tokens.len() as u64)
    }
}

/// A random number in `[0, 1)` that depends on a seed and a position alone.
pub(super) fn uniform(seed: u64, position: u64) -> f64 {
    (mix(mix(seed) ^ position) >> 11) as f64 / (1u64 << 53) as f64
}
