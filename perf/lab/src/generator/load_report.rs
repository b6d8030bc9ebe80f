//! Reports the metrics of a load: as a table, as comparable measures, and as vllm's JSON.

use serde_json::{Map, Value};

use super::failure;
use super::latency::Latency;
use super::load::{Outcome, RequestResult};
use super::metrics::Metrics;
use super::report::{Measure, Measured, Notes, Table};
use crate::stats::Sorted;

/// Options of the report.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The latencies in the table. `None` shows all that were measured, except the client queue
    /// time of a run without a request rate.
    pub latencies: Option<Vec<Latency>>,
    /// The percentiles of each latency, 0 to 100.
    pub percentiles: Vec<f64>,
    /// The value of `--max-concurrency`.
    pub max_concurrency: Option<usize>,
    /// The value of `--request-rate`, in requests per second.
    pub request_rate: f64,
    /// Whether the JSON includes each request's numbers.
    pub detailed: bool,
}

/// Builds the full report of one load.
pub fn measured(outcome: &Outcome, metrics: Metrics, shown: &Shown) -> Measured {
    let mut json = json(&metrics, shown, outcome);
    if shown.detailed {
        json.extend(details(&outcome.requests));
    }
    let notes = Notes {
        resent: outcome.requests_resent,
        uncounted: metrics.uncounted,
        short: metrics.short,
    };
    Measured {
        table: table(&metrics, shown, &notes),
        measures: measures(&metrics, shown),
        json,
        completed: metrics.completed,
        failures: metrics.failures,
        notes,
        output_tokens: Some(metrics.total_output_tokens),
    }
}

fn table(metrics: &Metrics, shown: &Shown, notes: &Notes) -> String {
    let mut table = Table::new("Serving Benchmark Result");
    table.row("Successful requests", metrics.completed);
    table.row("Failed requests", metrics.failed);
    if let Some(max_concurrency) = shown.max_concurrency {
        table.row("Maximum request concurrency", max_concurrency);
    }
    if shown.request_rate.is_finite() {
        table.number("Request rate configured (RPS)", Some(shown.request_rate));
    }
    table.number("Benchmark duration (s)", Some(metrics.duration_s));
    table.row("Total input tokens", metrics.total_input_tokens);
    table.row("Total generated tokens", metrics.total_output_tokens);
    table.number("Request throughput (req/s)", Some(metrics.request_throughput()));
    if let Some(goodput) = metrics.request_goodput {
        table.number("Request goodput (req/s)", Some(goodput));
    }
    table.number("Output token throughput (tok/s)", Some(metrics.output_throughput()));
    if let Some(peak) = metrics.peak_output_tokens_per_s {
        table.row("Peak output token throughput (tok/s)", peak);
    }
    table.row("Peak concurrent requests", metrics.peak_concurrency);
    table.number("Total token throughput (tok/s)", Some(metrics.total_token_throughput()));
    let share = 100.0 * metrics.client_cpu_share();
    table.row("Client CPU (s)", format!("{:.3} ({share:.1} % of a core)", metrics.client_cpu_s));
    for (latency, times) in in_table(metrics, shown) {
        table.heading(latency.heading());
        let name = latency.name();
        table.number(&format!("Mean {name} (ms)"), times.mean());
        table.number(&format!("Median {name} (ms)"), times.median());
        for p in &shown.percentiles {
            table.number(&format!("P{p} {name} (ms)"), times.percentile(*p));
        }
    }
    table.failures(&metrics.failures);
    table.notes(notes);
    table.end()
}

/// The latencies that were measured and requested.
fn in_table<'a>(
    metrics: &'a Metrics,
    shown: &Shown,
) -> impl Iterator<Item = &'a (Latency, Sorted)> {
    let paced = shown.request_rate.is_finite();
    let asked = move |latency: &Latency| match &shown.latencies {
        Some(asked) => asked.contains(latency),
        // Without a request rate, the client queue time only reflects --max-concurrency.
        None => paced || *latency != Latency::ClientQueueTime,
    };
    metrics.latencies.iter().filter(move |(latency, _)| asked(latency))
}

fn measures(metrics: &Metrics, shown: &Shown) -> Vec<Measure> {
    let mut measures = vec![
        Measure::new(
            "request_throughput",
            "Request throughput (req/s)",
            Some(metrics.request_throughput()),
        ),
        Measure::new(
            "output_throughput",
            "Output throughput (tok/s)",
            Some(metrics.output_throughput()),
        ),
    ];
    if let Some(goodput) = metrics.request_goodput {
        measures.push(Measure::new("request_goodput", "Request goodput (req/s)", Some(goodput)));
    }
    for (latency, times) in in_table(metrics, shown) {
        let (key, name) = (latency.key(), latency.name());
        let mut push = |which: &str, word: &str, value| {
            let key = format!("{which}_{key}_ms");
            measures.push(Measure::new(key, format!("{word} {name} (ms)"), value));
        };
        push("mean", "Mean", times.mean());
        push("median", "Median", times.median());
        for p in &shown.percentiles {
            push(&format!("p{p}"), &format!("P{p}"), times.percentile(*p));
        }
    }
    let cpu = Some(metrics.client_cpu_s);
    measures.push(Measure::new("client_cpu_seconds", "Client CPU (s)", cpu));
    measures
}

/// The result with vllm's keys, and corelane's own (`client_cpu_seconds` and those after it).
fn json(metrics: &Metrics, shown: &Shown, outcome: &Outcome) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("duration", metrics.duration_s.into());
    put("completed", metrics.completed.into());
    put("failed", metrics.failed.into());
    put("total_input_tokens", metrics.total_input_tokens.into());
    put("total_output_tokens", metrics.total_output_tokens.into());
    put("request_throughput", metrics.request_throughput().into());
    put("request_goodput", metrics.request_goodput.into());
    put("output_throughput", metrics.output_throughput().into());
    put("total_token_throughput", metrics.total_token_throughput().into());
    put("max_output_tokens_per_s", metrics.peak_output_tokens_per_s.into());
    put("max_concurrent_requests", metrics.peak_concurrency.into());
    put("client_cpu_seconds", metrics.client_cpu_s.into());
    put("client_cpu_share", metrics.client_cpu_share().into());
    put("connections_opened", outcome.connections_opened.into());
    put("requests_resent", outcome.requests_resent.into());
    put("requests_without_usage", metrics.uncounted.into());
    put("requests_shorter_than_asked", metrics.short.into());
    put("failures", failure::json(&metrics.failures));
    for (latency, times) in &metrics.latencies {
        let key = latency.key();
        put(&format!("mean_{key}_ms"), times.mean().into());
        put(&format!("median_{key}_ms"), times.median().into());
        put(&format!("std_{key}_ms"), times.std().into());
        for p in &shown.percentiles {
            put(&format!("p{p}_{key}_ms"), times.percentile(*p).into());
        }
    }
    object
}

/// The numbers of each request, with times in seconds as in vllm.
fn details(requests: &[RequestResult]) -> Map<String, Value> {
    let seconds = |time: std::time::Duration| Value::from(time.as_secs_f64());
    let list = |value: &dyn Fn(&RequestResult) -> Value| requests.iter().map(value).collect();
    let lists: [(&str, Value); 9] = [
        ("input_lens", list(&|r| r.prompt_tokens.into())),
        ("output_lens", list(&|r| if r.is_ok() { r.output_tokens.into() } else { 0.into() })),
        ("ttfts", list(&|r| seconds(r.ttft))),
        ("itls", list(&|r| r.itls.iter().map(|gap| seconds(*gap)).collect())),
        ("latencies", list(&|r| seconds(r.e2el))),
        ("start_times", list(&|r| seconds(r.started))),
        ("queue_times", list(&|r| seconds(r.client_queue_time()))),
        ("generated_texts", list(&|r| r.text.as_str().into())),
        ("errors", list(&|r| r.error.as_deref().unwrap_or_default().into())),
    ];
    lists.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::failure::FailureKind;
    use super::super::metrics::Mode;
    use super::*;
    use std::time::Duration;

    fn outcome() -> Outcome {
        let request = RequestResult {
            ttft: Duration::from_millis(100),
            itls: vec![Duration::from_millis(50)],
            e2el: Duration::from_millis(150),
            prompt_tokens: 4,
            output_tokens: 2,
            max_tokens: 2,
            is_counted: true,
            text: "ab".into(),
            ..RequestResult::default()
        };
        let failed = RequestResult {
            error: Some("timeout: not complete within 1 s".into()),
            error_kind: Some(FailureKind::Timeout),
            ..RequestResult::default()
        };
        Outcome {
            duration: Duration::from_secs(1),
            requests: vec![request, failed],
            client_cpu: Duration::from_millis(10),
            connections_opened: 0,
            requests_resent: 0,
        }
    }

    fn made(shown: &Shown, mode: Mode) -> Measured {
        let outcome = outcome();
        let metrics = Metrics::of(&outcome, &mode);
        measured(&outcome, metrics, shown)
    }

    #[test]
    fn the_json_has_vllms_keys() {
        let shown = Shown {
            percentiles: vec![99.0, 99.9],
            detailed: true,
            request_rate: f64::INFINITY,
            ..Shown::default()
        };
        let json = made(&shown, Mode { streamed: true, ..Mode::default() }).json;
        for key in [
            "duration",
            "completed",
            "failed",
            "total_input_tokens",
            "total_output_tokens",
            "request_throughput",
            "request_goodput",
            "output_throughput",
            "total_token_throughput",
            "max_output_tokens_per_s",
            "max_concurrent_requests",
            "mean_ttft_ms",
            "median_ttft_ms",
            "std_ttft_ms",
            "p99_ttft_ms",
            "p99.9_ttft_ms",
            "mean_tpot_ms",
            "median_itl_ms",
            "std_itl_ms",
            "p99_e2el_ms",
            "input_lens",
            "output_lens",
            "ttfts",
            "itls",
            "generated_texts",
            "errors",
            "start_times",
            "client_cpu_seconds",
        ] {
            assert!(json.contains_key(key), "{key}");
        }
        assert_eq!(json["mean_ttft_ms"], 100.0);
        assert_eq!(json["output_throughput"], 2.0);
        assert_eq!(json["ttfts"], serde_json::json!([0.1, 0.0]));
        assert_eq!(json["errors"], serde_json::json!(["", "timeout: not complete within 1 s"]));
        assert_eq!(json["failures"], serde_json::json!({"timeout": 1}));
        assert!(!json.contains_key("mean_client_queue_time_ms"));
    }

    #[test]
    fn the_table_shows_what_was_asked_for_and_what_went_wrong() {
        let shown = Shown {
            latencies: Some(vec![Latency::Ttft]),
            percentiles: vec![50.0],
            max_concurrency: Some(8),
            request_rate: 2.5,
            detailed: false,
        };
        let measured = made(&shown, Mode { streamed: true, ..Mode::default() });
        for line in [
            "Successful requests:                     1\n",
            "Maximum request concurrency:             8\n",
            "Request rate configured (RPS):           2.50\n",
            "Output token throughput (tok/s):         2.00\n",
            "P50 TTFT (ms):                           100.00\n",
            "1 x timeout: not complete within 1 s\n",
            "Client CPU (s):                          0.010 (1.0 % of a core)\n",
        ] {
            assert!(measured.table.contains(line), "{line}{}", measured.table);
        }
        assert!(!measured.table.contains("ITL"));
        let keys: Vec<&str> = measured.measures.iter().map(|m| m.key.as_str()).collect();
        assert!(keys.contains(&"p50_ttft_ms") && !keys.contains(&"mean_itl_ms"));
        assert!(!measured.json.contains_key("ttfts"));
        // Without streaming there is no TTFT, neither in the table nor in the JSON.
        let whole = made(&shown, Mode::default());
        assert!(!whole.table.contains("TTFT") && !whole.json.contains_key("mean_ttft_ms"));
    }
}
