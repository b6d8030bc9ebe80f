//! Writes spans as OTLP in JSON. The names are those of OpenTelemetry's conventions for HTTP and
//! for generative models, or else vLLM's.

use std::time::Duration;

use serde_json::{Value, json};

use super::span::{Outcome, Span};
use crate::clock::Micros;

/// A server's span, in OTLP's numbers.
const KIND_SERVER: u8 = 2;
/// The status of a span with an error.
const STATUS_ERROR: u8 = 2;

/// A request body with spans of the named model. `now` and `now_since_1970` are the same moment, on
/// the server's clock and as a date.
pub fn body(spans: &[Span], model: &str, now: Micros, now_since_1970: Duration) -> Value {
    let time = |then| since_1970(now, now_since_1970, then).as_nanos().to_string();
    let spans: Vec<Value> = spans.iter().map(|span| one(span, model, &time)).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "corelane"),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ]},
        "scopeSpans": [{"scope": {"name": "corelane"}, "spans": spans}],
    }]})
}

/// The number of spans that a collector has rejected. 0 if its answer is not JSON.
pub fn rejected(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let count = &answer["partialSuccess"]["rejectedSpans"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

fn one(span: &Span, model: &str, time: &impl Fn(Micros) -> String) -> Value {
    let events =
        [("queue", span.admitted), ("prefill", span.started), ("decode", span.first_token)];
    let events = events.into_iter().filter_map(|(name, moment)| {
        moment.map(|moment| json!({"name": name, "timeUnixNano": time(moment)}))
    });
    let mut written = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.context.span),
        "name": format!("{} {model}", span.operation),
        "kind": KIND_SERVER,
        "startTimeUnixNano": time(span.received),
        "endTimeUnixNano": time(span.ended),
        "attributes": attributes(span, model),
        "events": events.collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        written["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    // A client's error (4xx) is not an error of the server's span, by the conventions for HTTP.
    if let Outcome::Failed(500..) = span.outcome {
        written["status"] = json!({"code": STATUS_ERROR});
    }
    written
}

fn attributes(span: &Span, model: &str) -> Vec<Value> {
    let mut found = vec![
        text("gen_ai.operation.name", span.operation),
        text("gen_ai.provider.name", "corelane"),
        text("gen_ai.request.model", model),
        text("gen_ai.request.id", &span.request_id),
        text("http.request.method", "POST"),
        text("http.route", span.route),
    ];
    found.extend(span.status.map(|status| number("http.response.status_code", status.into())));
    match span.outcome {
        Outcome::Served => {}
        Outcome::Failed(status) => found.push(text("error.type", &status.to_string())),
        Outcome::ClientLeft => found.push(text("error.type", "client_left")),
    }
    if span.admitted.is_none() {
        return found; // it was refused
    }
    let seconds = |from: Option<Micros>, to: Option<Micros>| {
        Some(to?.since(from?) as f64 / 1e6) // microseconds
    };
    let received = Some(span.received);
    for (name, value) in [
        ("gen_ai.latency.time_in_queue", seconds(span.admitted, span.started)),
        ("gen_ai.latency.time_to_first_token", seconds(received, span.first_token)),
        ("gen_ai.latency.time_in_model_prefill", seconds(span.started, span.first_token)),
        ("gen_ai.latency.time_in_model_decode", seconds(span.first_token, Some(span.ended))),
        ("gen_ai.latency.e2e", seconds(received, Some(span.ended))),
        ("gen_ai.request.temperature", span.temperature.map(f64::from)),
    ] {
        found.extend(value.map(|value| attribute(name, json!({"doubleValue": value}))));
    }
    found.extend(span.max_tokens.map(|max| number("gen_ai.request.max_tokens", max.into())));
    let reasons: Vec<Value> =
        span.finish_reasons.iter().map(|reason| json!({"stringValue": reason})).collect();
    found.extend([
        text("gen_ai.response.id", &span.response_id),
        text("gen_ai.response.model", model),
        attribute("gen_ai.response.finish_reasons", json!({"arrayValue": {"values": reasons}})),
        number("gen_ai.usage.input_tokens", span.prompt_tokens),
        number("gen_ai.usage.cache_read.input_tokens", span.cached_tokens),
        number("gen_ai.usage.output_tokens", span.completion_tokens),
    ]);
    for (cause, count) in span.late.by_cause().filter(|(_, count)| *count > 0) {
        found.push(number(&format!("corelane.late_tokens.{}", cause.name()), count.into()));
    }
    found
}

fn attribute(name: &str, value: Value) -> Value {
    json!({"key": name, "value": value})
}

fn text(name: &str, value: &str) -> Value {
    attribute(name, json!({"stringValue": value}))
}

/// OTLP writes whole numbers as strings, because they have 64 bits.
fn number(name: &str, value: u64) -> Value {
    attribute(name, json!({"intValue": value.to_string()}))
}

/// The date of an earlier moment of the server's clock, as the time since 1970.
fn since_1970(now: Micros, now_since_1970: Duration, then: Micros) -> Duration {
    now_since_1970.saturating_sub(Duration::from_micros(now.since(then)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_become_dates() {
        let now = Duration::from_secs(1_700_000_000);
        let then = since_1970(Micros(5_000_000), now, Micros(2_000_000));
        assert_eq!(then, Duration::from_secs(1_699_999_997));
    }

    #[test]
    fn rejected_spans_are_read_as_a_number_or_a_string() {
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#), 3);
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":2}}"#), 2);
        for none in [&b"{}"[..], br#"{"partialSuccess":{}}"#, b"", b"ok"] {
            assert_eq!(rejected(none), 0);
        }
    }

    /// The head of a stream says 200, even if the stream fails later.
    #[test]
    fn a_stream_that_fails_has_its_status_and_its_error() {
        let span = Span { status: Some(200), outcome: Outcome::Failed(500), ..Span::default() };
        let written = one(&span, "m", &|_| "0".into());
        assert_eq!(written["status"]["code"], STATUS_ERROR);
        let attributes = written["attributes"].as_array().unwrap();
        let has = |attribute| attributes.contains(&attribute);
        assert!(has(number("http.response.status_code", 200)) && has(text("error.type", "500")));
    }
}
