//! Why a request failed: a kind to count by, and a sentence.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// Requests by what went wrong with them: how many, and an example of it.
pub type Failures = BTreeMap<FailureKind, (usize, String)>;

/// What went wrong, coarsely enough to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// No connection came about.
    Connect,
    /// A status other than 200.
    Status(u16),
    /// The request took longer than it may.
    Timeout,
    /// The connection ended before the response did.
    Closed,
    /// What came is not HTTP.
    NotHttp,
    /// The response is HTTP, but not what an OpenAI-style server sends.
    BadResponse,
    /// The server sent an error in mid-stream.
    ErrorEvent,
    /// A whole response without a token.
    NoTokens,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureKind::Connect => f.write_str("no connection"),
            FailureKind::Status(status) => write!(f, "status {status}"),
            FailureKind::Timeout => f.write_str("timeout"),
            FailureKind::Closed => f.write_str("connection closed"),
            FailureKind::NotHttp => f.write_str("not HTTP"),
            FailureKind::BadResponse => f.write_str("malformed response"),
            FailureKind::ErrorEvent => f.write_str("error event"),
            FailureKind::NoTokens => f.write_str("no tokens"),
        }
    }
}

/// A kind and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// To count by.
    pub kind: FailureKind,
    /// For a person; may be empty.
    pub detail: String,
}

impl Failure {
    /// A failure with its details.
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The request was given up after `limit`.
    pub fn timeout(limit: Duration) -> Self {
        Self::new(FailureKind::Timeout, format!("not complete within {} s", limit.as_secs_f64()))
    }

    /// What the HTTP library says of a connection that broke.
    pub fn of_connection(error: &hyper::Error) -> Self {
        let kind = if error.is_parse() { FailureKind::NotHttp } else { FailureKind::Closed };
        Self::new(kind, chain(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => self.kind.fmt(f),
            detail => write!(f, "{}: {detail}", self.kind),
        }
    }
}

/// How many failed.
pub fn count(failures: &Failures) -> usize {
    failures.values().map(|(count, _)| count).sum()
}

/// `{"status 500": 3}`
pub fn json(failures: &Failures) -> Value {
    let counts = failures.iter().map(|(kind, (count, _))| (kind.to_string(), (*count).into()));
    Value::Object(counts.collect())
}

/// An error and what it came from, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        // Some repeat what is beneath them.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}
