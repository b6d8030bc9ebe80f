//! Reads the arguments of a call that are not written as JSON, and writes them as JSON.

use super::literal::Literal;
use super::step::Step;
use super::tagged::Tagged;

/// A reader of one call's arguments.
#[derive(Debug)]
pub(super) enum Reader {
    Tagged(Tagged),
    Literal(Literal),
}

impl Reader {
    /// Reads a part of `text` and appends its JSON. At most `TOOL_HEAD_BYTES_MAX` bytes are left
    /// for later.
    pub fn step(&mut self, text: &str, json: &mut String) -> Step {
        match self {
            Self::Tagged(tagged) => tagged.step(text, json),
            Self::Literal(literal) => literal.step(text, json),
        }
    }

    /// Ends the text. Appends the JSON of `held`, text that was left for later, and returns whether
    /// it was a part of the arguments.
    pub fn finish(&mut self, held: &str, json: &mut String) -> bool {
        match self {
            Self::Tagged(tagged) => tagged.finish(held, json),
            Self::Literal(literal) => {
                literal.finish(held, json);
                true
            }
        }
    }

    /// Bytes of a value that are held back.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        match self {
            Self::Tagged(tagged) => tagged.held(),
            Self::Literal(_) => 0,
        }
    }
}
