//! The lane that sends spans to the collector.

use std::sync::Arc;
use std::thread;
use std::time::{Instant, SystemTime};

use rtrb::Consumer;
use ureq::Agent;

use super::endpoint::Endpoint;
use super::otlp;
use super::span::Span;
use crate::limits::{
    SPANS_BATCH_MAX, SPANS_END_TIMEOUT, SPANS_INTERVAL, SPANS_LOG_INTERVAL, SPANS_TIMEOUT,
};
use crate::metrics::Metrics;

/// The collector, as the lane talks to it.
pub struct Collector {
    agent: Agent,
    endpoint: Endpoint,
    metrics: Arc<Metrics>,
    /// When the last failure was logged.
    logged: Option<Instant>,
}

impl Collector {
    /// A collector that is asked when the first span comes.
    pub fn new(endpoint: Endpoint, metrics: Arc<Metrics>) -> Self {
        let config = Agent::config_builder().timeout_global(Some(SPANS_TIMEOUT));
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
        match request.send(body) {
            Ok(_) => {
                self.metrics.spans.sent.add(spans.len() as u64);
                true
            }
            Err(error) => {
                self.metrics.spans.failed.add(spans.len() as u64);
                self.report(&error);
                false
            }
        }
    }

    /// A collector may be gone for hours.
    fn report(&mut self, error: &ureq::Error) {
        if self.logged.is_none_or(|at| at.elapsed() >= SPANS_LOG_INTERVAL) {
            let url = &self.endpoint.url;
            tracing::warn!(%error, url, "the collector of traces does not take spans; they are lost");
            self.logged = Some(Instant::now());
        }
    }
}

/// Sends the spans that come. Once the front lane has ended, sends the last ones while the collector
/// takes them and [`SPANS_END_TIMEOUT`] has not passed.
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
            Some(at) if is_last || !taken || at.elapsed() >= SPANS_END_TIMEOUT => return,
            None if is_last => thread::sleep(SPANS_INTERVAL),
            _ => {} // there may be more
        }
    }
}
