//! The kinds of constraint.

/// A form that an output must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// A JSON object, any.
    JsonObject,
    /// JSON that is valid under this JSON Schema.
    JsonSchema(String),
    /// Text that matches this regular expression (the syntax of Rust's `regex`
    /// crate, without lookaround) from its beginning to its end.
    Regex(String),
    /// Text of this grammar in llama.cpp's format.
    Gbnf(String),
    /// Text of this grammar in llguidance's variant of Lark, which may hold JSON
    /// schemas (`%json { ... }`).
    Lark(String),
}

impl Constraint {
    /// The bytes of its source.
    pub(super) fn source_bytes(&self) -> usize {
        match self {
            Constraint::JsonObject => 0,
            Constraint::JsonSchema(source)
            | Constraint::Regex(source)
            | Constraint::Gbnf(source)
            | Constraint::Lark(source) => source.len(),
        }
    }
}
