//! Follows one sequence through its constraint: which tokens may come next.

use std::sync::Arc;

use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;

use super::error::tidy;
use super::tables::{Compiled, Tokens, bytes_of};
use super::{forced, watch};
use crate::limits::CONSTRAINT_TOKEN_TIME_MAX;
use crate::types::{Broken, TokenId};

/// The state of one sequence in its constraint.
///
/// The matcher is over when the text is complete, when llguidance reaches a limit
/// (`limits::CONSTRAINT_*`) and when llguidance fails. It then allows only end tokens, so the
/// choice ends. [`Matcher::error`] tells a failure from a complete text.
///
/// Computing a mask allocates, so a step with a constrained sequence uses the heap.
pub struct Matcher {
    /// `None` after a failure, which frees its memory.
    parser: Option<Box<TokenParser>>,
    tokens: Arc<Tokens>,
    names_control: bool,
    failure: Option<Failure>,
}

/// Why a matcher is over although its text is not complete.
struct Failure {
    kind: Broken,
    message: String,
}

/// The tokens that may come next: a mask for logits.
#[derive(Debug)]
pub struct Allowed(SimpleVob);

impl Matcher {
    /// A matcher at the start. Copies the compiled state: see [`Compiled::bytes`].
    pub fn new(compiled: &Compiled) -> Self {
        Self {
            parser: Some(Box::new(compiled.start.deep_clone())),
            tokens: compiled.tokens.clone(),
            names_control: compiled.names_control,
            failure: None,
        }
    }

    /// Sets the logits of forbidden tokens to negative infinity. At least one token remains.
    ///
    /// # Panics
    /// If the number of logits differs from the vocabulary's tokens.
    pub fn mask(&mut self, logits: &mut [f32]) {
        assert_eq!(logits.len(), self.tokens.count, "a logit for each token");
        self.allowed().apply(logits);
    }

    /// The tokens that may come next, at least one.
    pub fn allowed(&mut self) -> Allowed {
        let allowed = if self.is_over() { None } else { self.allowed_by_parser() };
        Allowed(allowed.unwrap_or_else(|| self.tokens.end_set()))
    }

    /// The next tokens that the constraint forces, because only one text can follow: each as long
    /// as possible, at most `most`.
    ///
    /// **Invariant:** the masks after this call are the same as without it.
    pub fn forced(&mut self, most: usize) -> Vec<TokenId> {
        let Some(parser) = self.parser.as_mut().filter(|parser| !parser.stopped()) else {
            return Vec::new();
        };
        let end = self.tokens.ends[0];
        let tokens = watch::work(parser, CONSTRAINT_TOKEN_TIME_MAX, |parser| {
            Ok::<_, String>(forced::tokens(parser, end, most))
        });
        // A failure here shows up when the next mask is computed.
        let tokens = tokens.unwrap_or_default().into_iter();
        tokens.take_while(|token| self.may_name(*token)).map(u32::cast_signed).collect()
    }

    /// Whether a mask may have a token that the grammar names by its id.
    fn may_name(&self, token: u32) -> bool {
        let is_hidden = self.tokens.hidden.binary_search(&token).is_ok();
        !self.tokens.ends.contains(&token) && (self.names_control || !is_hidden)
    }

    /// Appends a token to the text. After the end, tokens are ignored.
    ///
    /// # Errors
    /// If the constraint does not allow the token, or llguidance fails.
    pub fn push(&mut self, token: TokenId) -> Result<(), String> {
        let Some(parser) = self.parser.as_mut().filter(|parser| !parser.stopped()) else {
            return Ok(());
        };
        let Ok(token) = u32::try_from(token) else {
            return Err(self.fail(Broken::Fault, &format!("there is no token {token}")));
        };
        let pushed = watch::work(parser, CONSTRAINT_TOKEN_TIME_MAX, |parser| {
            let back = parser.consume_token(token);
            back.and_then(|back| parser.check_stop().map(|_| back))
        });
        match pushed {
            Ok(0) => Ok(()),
            Ok(back) => {
                Err(self.fail(Broken::Fault, &format!("the constraint takes {back} tokens back")))
            }
            Err(error) => Err(self.fail(self.kind_of(&error), &error)),
        }
    }

    /// Whether only an end token can follow.
    pub fn is_over(&self) -> bool {
        self.parser.as_ref().is_none_or(|parser| parser.stopped())
    }

    /// Why the matcher is over, if the text is not complete.
    pub fn error(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| &*failure.message)
    }

    /// The kind of [`Matcher::error`].
    pub fn broken(&self) -> Option<Broken> {
        self.failure.as_ref().map(|failure| failure.kind)
    }

    /// The approximate bytes that it holds: the states of its lexer. Everything else is small.
    pub fn bytes(&self) -> usize {
        self.parser.as_ref().map_or(0, |parser| bytes_of(parser))
    }

    /// The tokens that may come next; none after a failure.
    fn allowed_by_parser(&mut self) -> Option<SimpleVob> {
        match self.compute() {
            Ok(allowed) if !allowed.is_zero() => return Some(allowed),
            Ok(_) => self.fail(Broken::NoToken, "the constraint allows no token here"),
            Err(error) => self.fail(self.kind_of(&error), &error),
        };
        None
    }

    fn compute(&mut self) -> Result<SimpleVob, String> {
        let parser = self.parser.as_mut().expect("the matcher is not over");
        let (mut allowed, accepting) = watch::work(parser, CONSTRAINT_TOKEN_TIME_MAX, |parser| {
            parser.compute_mask().map(|allowed| (allowed, parser.is_accepting()))
        })?;
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

    /// The kind of an error of llguidance.
    fn kind_of(&self, error: &str) -> Broken {
        let parser = self.parser.as_ref().expect("the matcher is not over");
        if parser.cancellation_handle().is_some_and(|handle| handle.is_cancelled()) {
            return Broken::TooMuch;
        }
        match parser.stop_reason() {
            StopReason::NoExtensionBias => Broken::NoToken,
            StopReason::LexerTooComplex => Broken::TooMuch,
            // A token that the mask allowed but the parser rejects has this reason, too.
            StopReason::ParserTooComplex => {
                let is_limit = parser.parser.get_error().is_some();
                let is_misfit = !is_limit && error.contains("doesn't satisfy the grammar");
                if is_misfit { Broken::Fault } else { Broken::TooMuch }
            }
            _ => Broken::Fault,
        }
    }

    fn fail(&mut self, kind: Broken, message: &str) -> String {
        let message = tidy(message);
        if kind == Broken::Fault {
            tracing::error!(error = message, "a constraint was not followed");
        }
        self.parser = None;
        self.failure = Some(Failure { kind, message: message.clone() });
        message
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Matcher")
    }
}

impl Allowed {
    /// Sets the logits of all other tokens to negative infinity.
    pub fn apply(&self, logits: &mut [f32]) {
        forbid_others(logits, &self.0);
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
