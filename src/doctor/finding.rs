//! The result of one check.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to do.
    Good,
    /// The server runs, and could run better.
    Advice,
    /// The server does not run, or runs much slower than it could.
    Bad,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub state: Severity,
    /// The state that was found.
    pub found: String,
    /// The recommended change, and its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// A command that makes the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Finding {
    pub fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: Severity::Good, found: found.into(), advice: None, command: None }
    }

    pub fn but(self, state: Severity, advice: impl Into<String>) -> Self {
        Self { state, advice: Some(advice.into()), ..self }
    }

    pub fn command(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }
}
