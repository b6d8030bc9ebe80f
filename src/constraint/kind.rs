//! The kinds of constraint.

use serde::{Deserialize, Serialize};

/// A form that an output must have.
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
}
