//! The reason why a request failed: a kind for counting, and a message.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// Failed requests by kind: the number of failures, and the message of one of them.
pub type Failures = BTreeMap<FailureKind, (usize, String)>;

/// The kind of a failure, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// No connection could be opened.
    Connect,
    /// A status other than 200.
    Status(u16),
    /// The request took longer than its time limit.
    Timeout,
    /// The connection ended before the response did.
    Closed,
    /// The received bytes are not HTTP.
    NotHttp,
    /// The response is HTTP, but not a response that an OpenAI-style server sends.
    BadResponse,
    /// The server sent an error event within a stream.
    ErrorEvent,
    /// The response is complete but has no token.
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

/// One failure: its kind and its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind, for counting.
    pub kind: FailureKind,
    /// The details, for a person to read. May be empty.
    pub detail: String,
}

impl Failure {
    /// Creates a failure with its details.
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The failure of a request that did not complete within `limit`.
    pub fn timeout(limit: Duration) -> Self {
        Self::new(FailureKind::Timeout, format!("not complete within {} s", limit.as_secs_f64()))
    }

    /// The failure of a connection that broke, with hyper's message.
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

/// The number of failed requests.
pub fn count(failures: &Failures) -> usize {
    failures.values().map(|(count, _)| count).sum()
}

/// The counts as JSON, for example `{"status 500": 3}`.
pub fn json(failures: &Failures) -> Value {
    let counts = failures.iter().map(|(kind, (count, _))| (kind.to_string(), (*count).into()));
    Value::Object(counts.collect())
}

/// An error and its sources, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        // Some errors already end with the text of their source.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}
