//! Makes the span of a request that has ended.

use super::{Connection, Incoming};
use crate::api::route::{Action, Route, pattern};
use crate::engine::exchange::SharedExchange;
use crate::engine::job::Job;
use crate::http::trace_context::TraceContext;
use crate::traces::{Outcome, Span};

/// Options of a job that its span shows. The exchange does not keep them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpanOptions {
    max_tokens: Option<u32>,
    temperature: Option<f32>,
}

impl SpanOptions {
    pub(super) fn of(job: &Job) -> Self {
        let first = job.sequences.first();
        Self {
            max_tokens: first.map(|sequence| sequence.max_tokens),
            temperature: first.map(|sequence| sequence.sampling.temperature),
        }
    }
}

impl Connection {
    /// Traces a request that was refused before it was admitted.
    pub(super) fn trace_refused(&self, incoming: &Incoming, route: &Route, status: u16) {
        self.trace(incoming, route, |span| {
            span.status = Some(status);
            span.outcome = Outcome::Failed(status);
        });
    }

    /// Traces a request whose response is written, or whose client has left.
    pub(super) fn trace_ended(
        &self,
        incoming: &Incoming,
        route: &Route,
        options: SpanOptions,
        exchange: &SharedExchange,
        gone: bool,
    ) {
        let exchange = exchange.borrow();
        self.trace(incoming, route, |span| {
            span.response_id.clone_from(&exchange.id);
            span.admitted = Some(exchange.admitted);
            span.started = exchange.started;
            span.first_token = exchange.first_token;
            span.max_tokens = options.max_tokens;
            span.temperature = options.temperature;
            span.prompt_tokens = exchange.usage.prompt_tokens;
            span.cached_tokens = exchange.usage.cached_tokens;
            span.completion_tokens = exchange.usage.completion_tokens;
            span.late = exchange.late;
            span.finish_reasons = exchange.finishes.iter().map(|finish| finish.as_str()).collect();
            span.status = match (exchange.head_sent, exchange.failed) {
                (false, Some(status)) => Some(status),
                (false, None) if gone => None,
                _ => Some(200),
            };
            span.outcome = match (gone, exchange.failed) {
                (true, _) => Outcome::ClientLeft,
                (false, Some(status)) => Outcome::Failed(status),
                (false, None) => Outcome::Served,
            };
        });
    }

    /// Sends a span, unless there is no collector or the client says that its trace is not sampled.
    fn trace(&self, incoming: &Incoming, route: &Route, fill: impl FnOnce(&mut Span)) {
        let mut spans = self.front.spans.borrow_mut();
        let (Some(spans), Action::Generate { operation, .. }) = (&mut *spans, route.action) else {
            return;
        };
        let client = incoming.head.trace_context;
        if client.is_some_and(|context| !context.is_sampled) {
            return;
        }
        let random = || self.front.random().max(1); // ids are not 0
        let new_trace = || u128::from(random()) << 64 | u128::from(random());
        let trace = client.map_or_else(new_trace, |context| context.trace);
        let mut span = Span {
            context: TraceContext { trace, span: random(), is_sampled: true },
            parent: client.map(|context| context.span),
            route: route
                .paths
                .iter()
                .find(|path| **path == pattern(&incoming.head.path))
                .unwrap_or(&""),
            operation,
            request_id: incoming.request_id.clone(),
            received: incoming.received,
            ended: self.front.clock.now(),
            ..Span::default()
        };
        fill(&mut span);
        if spans.push(span).is_err() {
            self.front.counters().spans_dropped.increment();
        }
    }
}
