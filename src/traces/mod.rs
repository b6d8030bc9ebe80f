//! Traces: a span for each request, sent to an OpenTelemetry collector by a lane of its own.
//!
//! In: [`Span`]s from the front lane, through a ring. Out: OTLP over HTTP, as JSON.
//!
//! **Invariant:** the front lane never waits for the collector. When the ring is full, spans are
//! dropped and counted. A batch that the collector does not take is dropped and counted, too.

mod endpoint;
mod lane;
mod otlp;
mod span;

pub use endpoint::Endpoint;
pub use lane::{Collector, run};
pub use span::{Outcome, Span};
