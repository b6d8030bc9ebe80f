//! The state of one sequence's constraint, with the number of tokens that it has taken in.

use super::matcher::{Allowed, Matcher};
use super::tables::Compiled;
use crate::types::{Broken, TokenId};

/// A matcher, and the number of generated tokens that it has seen.
#[derive(Debug)]
pub struct Walk {
    matcher: Matcher,
    seen: usize,
}

impl Walk {
    /// A walk that has seen no token.
    pub fn new(compiled: &Compiled) -> Self {
        Self { matcher: Matcher::new(compiled), seen: 0 }
    }

    /// The tokens that may follow `generated`, which are all tokens of the text so far.
    ///
    /// # Panics
    /// If it has seen more tokens.
    pub fn allowed_after(&mut self, generated: &[TokenId]) -> Allowed {
        self.follow(generated, usize::MAX);
        self.matcher.allowed()
    }

    /// The tokens that the constraint forces after `generated`, at most `most`.
    ///
    /// # Panics
    /// As [`Walk::allowed_after`].
    pub fn forced_after(&mut self, generated: &[TokenId], most: usize) -> Vec<TokenId> {
        self.follow(generated, usize::MAX);
        self.matcher.forced(most)
    }

    /// Takes in the next tokens of `generated`, at most `most`. Returns whether it has taken in all
    /// of them.
    ///
    /// # Panics
    /// As [`Walk::allowed_after`].
    pub fn follow(&mut self, generated: &[TokenId], most: usize) -> bool {
        let new = &generated[self.seen..];
        for token in &new[..new.len().min(most)] {
            if self.matcher.push(*token).is_err() {
                self.seen = generated.len();
                return true; // the matcher keeps the error, and nothing but the end can follow
            }
            self.seen += 1;
        }
        self.seen == generated.len()
    }

    /// Why only an end token can follow, if the text is not complete.
    pub fn error(&self) -> Option<&str> {
        self.matcher.error()
    }

    /// The kind of [`Walk::error`].
    pub fn broken(&self) -> Option<Broken> {
        self.matcher.broken()
    }

    /// The approximate bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.matcher.bytes()
    }
}
