//! The burst scenario: requests that share a prefix arrive at once.
//!
//! A server that computes the prefix once answers the last request almost as soon as the first. A
//! server that computes the prefix for each request makes the last one wait for all others.
//!
//! One such request is sent alone first, as a baseline. Its prefix has the same length and other
//! tokens, so that the server's prefix cache cannot help the burst.

use super::latency::Latency;
use super::load::{Load, Outcome, RequestResult, run as run_load, run_alone};
use super::metrics::{Metrics, Mode};
use super::progress::Progress;
use super::report::{Measure, Measured, Notes, Table, scenario_json};

/// The requests of a burst.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The prompts that share a prefix.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens of the shared prefix.
    pub prefix_len: usize,
    /// The prompt that is sent alone.
    pub alone: Vec<u32>,
    /// Prompts of the warm-up requests.
    pub warmups: Vec<Vec<u32>>,
}

/// Runs the burst against the server that `base` names.
pub fn run(base: &Load, plan: &Plan, show_progress: bool) -> Result<Measured, String> {
    let progress = Progress::start(show_progress, plan.prompts.len() + 1, "burst");
    let alone = run_alone(base, &plan.alone, &plan.warmups, "the request alone", |completed| {
        progress.set(completed);
    })?;
    let burst =
        Load { prompts: plan.prompts.clone(), max_concurrency: plan.prompts.len(), ..base.clone() };
    let burst = run_load(&burst, |completed| progress.set(1 + completed))?;
    Ok(report(&alone, &burst, plan))
}

fn report(alone: &Outcome, burst: &Outcome, plan: &Plan) -> Measured {
    let metrics = Metrics::of(burst, &Mode { streamed: true, ..Mode::default() });
    let measures = measures(alone, &metrics);
    let notes = Notes {
        resent: alone.requests_resent + burst.requests_resent,
        uncounted: metrics.uncounted,
        short: metrics.short,
    };
    let mut table = Table::new("Requests At Once That Share A Prefix");
    table.row("Successful requests", metrics.completed);
    table.row("Failed requests", metrics.failed);
    table.row("Tokens of the shared prefix", plan.prefix_len);
    table.row("Tokens of each one's own", plan.alone.len() - plan.prefix_len);
    for measure in &measures {
        table.number(&measure.name, measure.value);
    }
    table.failures(&metrics.failures);
    table.notes(&notes);
    let mut json = scenario_json(&measures, metrics.completed, &metrics.failures);
    json.insert("prefix_len".into(), plan.prefix_len.into());
    json.insert("total_output_tokens".into(), metrics.total_output_tokens.into());
    json.insert("requests_resent".into(), notes.resent.into());
    json.insert("requests_without_usage".into(), notes.uncounted.into());
    json.insert("requests_shorter_than_asked".into(), notes.short.into());
    let ttft = |request: &RequestResult| request.ttft.as_secs_f64();
    json.insert("ttfts".into(), burst.requests.iter().map(ttft).collect());
    Measured {
        table: table.end(),
        measures,
        json,
        completed: metrics.completed,
        failures: metrics.failures,
        notes,
        output_tokens: Some(metrics.total_output_tokens),
    }
}

fn measures(alone: &Outcome, metrics: &Metrics) -> Vec<Measure> {
    let ttfts = metrics.latency(Latency::Ttft);
    let alone_ms = alone.requests[0].ttft.as_secs_f64() * 1e3;
    let last = ttfts.and_then(|ttfts| ttfts.max());
    let cpu = alone.client_cpu.as_secs_f64() + metrics.client_cpu_s;
    vec![
        Measure::new("ttft_alone_ms", "TTFT of one alone (ms)", Some(alone_ms)),
        Measure::new("min_ttft_ms", "TTFT of the first (ms)", ttfts.and_then(|t| t.min())),
        Measure::new("median_ttft_ms", "Median TTFT (ms)", ttfts.and_then(|t| t.median())),
        Measure::new("max_ttft_ms", "TTFT of the last (ms)", last),
        Measure::new("last_to_alone_ratio", "TTFT last / alone", last.map(|ms| ms / alone_ms)),
        Measure::new(
            "output_throughput",
            "Output throughput (tok/s)",
            Some(metrics.output_throughput()),
        ),
        Measure::new("duration", "Duration (s)", Some(metrics.duration_s)),
        Measure::new("client_cpu_seconds", "Client CPU (s)", Some(cpu)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_is_compared_with_one_alone() {
        let outcome = |ttfts: &[u64]| Outcome {
            duration: Duration::from_secs(1),
            requests: ttfts
                .iter()
                .map(|ms| RequestResult {
                    ttft: Duration::from_millis(*ms),
                    ..RequestResult::default()
                })
                .collect(),
            client_cpu: Duration::from_millis(5),
            connections_opened: 0,
            requests_resent: 0,
        };
        let plan = Plan {
            prompts: vec![vec![1; 10]; 3],
            prefix_len: 8,
            alone: vec![2; 10],
            warmups: Vec::new(),
        };
        let measured = report(&outcome(&[200]), &outcome(&[300, 250, 500]), &plan);
        assert_eq!(measured.json["min_ttft_ms"], 250.0);
        assert_eq!(measured.json["median_ttft_ms"], 300.0);
        assert_eq!(measured.json["max_ttft_ms"], 500.0);
        assert_eq!(measured.json["last_to_alone_ratio"], 2.5);
        assert_eq!(measured.json["client_cpu_seconds"], 0.01);
        assert_eq!(measured.json["completed"], 3);
        assert!(measured.table.contains("Tokens of each one's own:                2\n"));
    }
}
