//! Follows one sequence through its constraint: which tokens may come next.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;

use super::compile::{Compiled, Tokens};
use super::error::tidy;
use crate::types::TokenId;

/// The state of one sequence in its constraint.
///
/// The matcher is over when the text is complete, when llguidance reaches a limit
/// (`limits::CONSTRAINT_*`) and when llguidance fails. It then allows only end tokens, so the
/// choice ends. [`Matcher::error`] tells a failure from a complete text.
///
/// Computing a mask allocates, so a step with a constrained sequence uses the heap.
pub struct Matcher {
    parser: llguidance::Matcher,
    tokens: Arc<Tokens>,
    names_control: bool,
    error: Option<String>,
}

impl Matcher {
    /// A matcher at the start. Copies the compiled state, usually tens of kilobytes.
    pub fn new(compiled: &Compiled) -> Self {
        Self {
            parser: compiled.start.deep_clone(),
            tokens: compiled.tokens.clone(),
            names_control: compiled.names_control,
            error: None,
        }
    }

    /// Sets the logits of forbidden tokens to negative infinity. At least one token remains.
    ///
    /// # Panics
    /// If the number of logits differs from the vocabulary's tokens.
    pub fn mask(&mut self, logits: &mut [f32]) {
        assert_eq!(logits.len(), self.tokens.count, "a logit for each token");
        let allowed = if self.is_over() { None } else { self.allowed() };
        let allowed = allowed.unwrap_or_else(|| self.tokens.end_set());
        forbid_others(logits, &allowed);
    }

    /// Appends a token to the text. After the end, tokens are ignored.
    ///
    /// # Errors
    /// If the constraint does not allow the token, or llguidance fails.
    pub fn push(&mut self, token: TokenId) -> Result<(), String> {
        if self.is_over() {
            return Ok(());
        }
        let pushed = match u32::try_from(token) {
            Ok(token) => self.parser.consume_token(token).map_err(|error| error.to_string()),
            Err(_) => Err(format!("there is no token {token}")),
        };
        pushed.map_err(|error| self.fail(&error))
    }

    /// Whether only an end token can follow.
    pub fn is_over(&self) -> bool {
        self.error.is_some() || self.parser.is_stopped()
    }

    /// Why the matcher is over, if the text is not complete.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The tokens that may come next; none after a failure.
    fn allowed(&mut self) -> Option<SimpleVob> {
        match self.compute() {
            Ok(allowed) if !allowed.is_zero() => return Some(allowed),
            Ok(_) => self.fail("the constraint allows no token here"),
            Err(error) => self.fail(&error),
        };
        None
    }

    fn compute(&mut self) -> Result<SimpleVob, String> {
        let mut allowed = self.parser.compute_mask().map_err(|error| error.to_string())?;
        let accepting = self.parser.is_accepting().map_err(|error| error.to_string())?;
        // A range of token ids in a grammar may include control tokens.
        if !self.names_control {
            for token in &self.tokens.hidden {
                allowed.disallow_token(*token);
            }
        }
        for token in &self.tokens.ends {
            allowed.set(*token as usize, accepting);
        }
        Ok(allowed)
    }

    fn fail(&mut self, error: &str) -> String {
        let error = tidy(error);
        self.error = Some(error.clone());
        error
    }
}

/// Sets the logits of all other tokens to negative infinity.
fn forbid_others(logits: &mut [f32], allowed: &SimpleVob) {
    let words = allowed.as_slice(); // a bit for each token, 32 to a word
    assert!(words.len() * 32 >= logits.len(), "a bit for each logit");
    for (word, logits) in words.iter().zip(logits.chunks_mut(32)) {
        match *word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            word => {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
