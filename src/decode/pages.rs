//! The tokens of the pages of the prefix store. The model holds their cells.

use crate::types::{PageId, TokenId};

/// The tokens of each page.
#[derive(Default)]
pub(super) struct Pages {
    tokens: Box<[TokenId]>, // [pages][page_tokens]
    lengths: Box<[usize]>,  // [pages], 0 without cells
    page_tokens: usize,
}

impl Pages {
    /// `count` pages without cells, each for at most `page_tokens` tokens.
    pub fn new(count: usize, page_tokens: usize) -> Self {
        let (tokens, lengths) = (vec![0; count * page_tokens].into(), vec![0; count].into());
        Self { tokens, lengths, page_tokens }
    }

    /// The tokens of a page; none if it has no cells.
    pub fn get(&self, page: PageId) -> &[TokenId] {
        &self.tokens[page.index() * self.page_tokens..][..self.lengths[page.index()]]
    }

    /// Notes the tokens of a page; none if it has no cells.
    pub fn put(&mut self, page: PageId, tokens: &[TokenId]) {
        self.tokens[page.index() * self.page_tokens..][..tokens.len()].copy_from_slice(tokens);
        self.lengths[page.index()] = tokens.len();
    }
}
