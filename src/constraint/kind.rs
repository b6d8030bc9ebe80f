//! The kinds of constraint.

use serde::{Deserialize, Serialize};

use crate::limits::{CONSTRAINT_BYTES_MAX, REGEX_BYTES_MAX};

/// A constraint that an output must obey.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid under this JSON Schema.
    JsonSchema(String),
    /// Text that matches this regular expression as a whole (in the syntax of Rust's `regex` crate,
    /// without lookaround).
    Regex(String),
    /// Text of this grammar in llama.cpp's GBNF.
    Gbnf(String),
    /// Text of this grammar in llguidance's variant of Lark, which may hold JSON
    /// schemas (`%json { ... }`).
    Lark(String),
}

impl Constraint {
    /// The length of its source in bytes.
    pub fn source_bytes(&self) -> usize {
        match self {
            Constraint::JsonObject => 0,
            Constraint::JsonSchema(source)
            | Constraint::Regex(source)
            | Constraint::Gbnf(source)
            | Constraint::Lark(source) => source.len(),
        }
    }

    /// The most bytes that its source may have.
    pub fn source_bytes_max(&self) -> usize {
        match self {
            Constraint::Regex(_) => REGEX_BYTES_MAX,
            _ => CONSTRAINT_BYTES_MAX,
        }
    }
}
