//! The lane that sends spans to the collector.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rtrb::Consumer;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::endpoint::Endpoint;
use super::otlp;
use super::span::Span;
use crate::limits::{SPANS_BATCH_MAX, SPANS_END_TIMEOUT, SPANS_TIMEOUT};
use crate::metrics::Metrics;

/// Time between two batches, unless there are more spans than fit into one.
const SPANS_INTERVAL: Duration = Duration::from_secs(1);

/// Longest answer of a collector.
const SPANS_ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Least time between two lines in the log about a collector that takes no spans.
const SPANS_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The lane's client of the collector.
pub struct Collector {
    agent: Agent,
    endpoint: Endpoint,
    metrics: Arc<Metrics>,
    /// When the last failure was logged.
    logged: Option<Instant>,
}

impl Collector {
    /// A client that connects when the first spans are sent.
    pub fn new(endpoint: Endpoint, metrics: Arc<Metrics>) -> Self {
        let config = Agent::config_builder().timeout_global(Some(SPANS_TIMEOUT)).max_redirects(0);
        let user_agent = concat!("corelane/", env!("CARGO_PKG_VERSION"));
        let agent = config.user_agent(user_agent).build().new_agent();
        Self { agent, endpoint, metrics, logged: None }
    }

    /// Sends a batch, and counts it. Returns whether the collector took it.
    fn send(&mut self, spans: &[Span]) -> bool {
        let now = self.metrics.clock.now();
        let now_since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let model = self.metrics.model().unwrap_or("unknown");
        let body = otlp::body(spans, model, now, now_since_1970).to_string();
        let mut request = self.agent.post(&self.endpoint.url).content_type("application/json");
        for (name, value) in &self.endpoint.headers {
            request = request.header(name, value);
        }
        let taken = request.send(body).and_then(|response| accepted(response, spans.len() as u64));
        let taken = taken.unwrap_or_else(|error| {
            self.report(&error);
            0
        });
        self.metrics.spans.sent.add(taken);
        self.metrics.spans.failed.add(spans.len() as u64 - taken);
        taken > 0
    }

    /// Logs a failure, at most once in [`SPANS_LOG_INTERVAL`], because a collector may be gone for
    /// hours.
    fn report(&mut self, error: &ureq::Error) {
        if self.logged.is_none_or(|at| at.elapsed() >= SPANS_LOG_INTERVAL) {
            let url = &self.endpoint.url;
            tracing::warn!(%error, url, "the collector of traces does not take spans; they are lost");
            self.logged = Some(Instant::now());
        }
    }
}

/// The number of spans, of those sent, that the collector has taken.
fn accepted(mut response: Response<Body>, sent: u64) -> Result<u64, ureq::Error> {
    let status = response.status();
    // Read to its end, so that the connection can be reused.
    let body = response.body_mut().with_config().limit(SPANS_ANSWER_BYTES_MAX).read_to_vec()?;
    if !status.is_success() {
        return Err(ureq::Error::StatusCode(status.as_u16())); // a redirection, which is not followed
    }
    Ok(sent - otlp::rejected(&body).min(sent))
}

/// Sends the spans that arrive. After the front lane has ended, sends the remaining ones, until the
/// collector does not take them or [`SPANS_END_TIMEOUT`] has passed.
pub fn run(mut spans: Consumer<Span>, mut collector: Collector) {
    let mut batch = Vec::with_capacity(SPANS_BATCH_MAX);
    let mut ended = None;
    loop {
        if spans.is_abandoned() {
            ended.get_or_insert_with(Instant::now); // before the last look at the ring
        }
        while batch.len() < SPANS_BATCH_MAX
            && let Ok(span) = spans.pop()
        {
            batch.push(span);
        }
        let taken = batch.is_empty() || collector.send(&batch);
        let is_last = batch.len() < SPANS_BATCH_MAX;
        batch.clear();
        match ended {
            Some(at) if is_last || !taken || at.elapsed() >= SPANS_END_TIMEOUT => break,
            None if is_last => thread::park_timeout(SPANS_INTERVAL), // the end unparks it
            _ => {}                                                  // there may be more
        }
    }
    collector.metrics.spans.failed.add(spans.slots() as u64);
}
