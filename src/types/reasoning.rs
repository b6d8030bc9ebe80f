//! A limit on the tokens of a model's reasoning.

use std::sync::Arc;

use super::TokenId;
use super::chain::Spellings;

/// Bytes of a marker of reasoning.
pub const MARKER_BYTES_MAX: usize = 64;

/// How long a text may reason, and how its reasoning is ended then.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningLimit {
    /// The most tokens of reasoning, of all blocks together.
    pub tokens: u32,
    /// Whether the prompt ends inside a block of reasoning.
    pub is_open: bool,
    /// The text that opens a block.
    pub opener: &'static str,
    /// The text that closes it.
    pub closer: &'static str,
    /// Whether a block may begin anywhere. If not, only white space may be before it, and blocks.
    pub anywhere: bool,
    /// The tokens that are generated at the limit. They close the block.
    pub end: Box<[TokenId]>,
    /// Those that close a further block.
    pub next_end: Box<[TokenId]>,
    /// The text of every token but the control tokens.
    pub texts: Arc<Spellings>,
    /// The control tokens in `opener` and `closer`, with their spellings.
    pub control: Box<[(TokenId, Box<[u8]>)]>,
}

impl ReasoningLimit {
    /// The bytes of its own lists.
    pub fn bytes(&self) -> usize {
        let spellings: usize = self.control.iter().map(|(_, text)| text.len()).sum();
        let ends = size_of_val(&*self.end) + size_of_val(&*self.next_end);
        ends + size_of_val(&*self.control) + spellings
    }

    /// The text of a token, as far as the markers need it.
    pub fn spelling_of(&self, token: TokenId) -> &[u8] {
        let control = self.control.iter().find(|(id, _)| *id == token);
        control.map_or_else(|| self.texts.of(token), |(_, text)| text)
    }
}
