//! Errors of constraints, for the client.

use std::fmt::Display;

use crate::limits::CONSTRAINT_ERROR_BYTES_MAX;

/// Why a constraint was refused: the error and its place, for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// Why a constraint was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The constraint is the reason.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The machine is the reason. The same constraint may be compiled later.
    #[error("the constraint cannot be compiled now: {0}")]
    Unavailable(String),
}

/// An error about a keyword; `at` is the JSON pointer of its schema.
pub(super) fn wrong_keyword(at: &str, keyword: &str, what: impl Display) -> ConstraintError {
    let keyword: String = keyword.chars().take(64).collect();
    ConstraintError(format!("the JSON schema at #{at}: \"{keyword}\" {what}"))
}

/// Shortens an error of llguidance and removes its dumps of internal state.
pub(super) fn tidy(message: &str) -> String {
    let dumps = ["\n<state>", "\n<non-verbose/>", "\n<backtrace>"];
    let end = dumps.iter().filter_map(|dump| message.find(dump)).min().unwrap_or(message.len());
    let mut end = end.min(CONSTRAINT_ERROR_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].trim_end().to_owned()
}
