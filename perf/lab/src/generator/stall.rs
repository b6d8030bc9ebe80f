//! The stall scenario: a long prompt arrives while streams run.
//!
//! It measures how long the streams stop for the prompt, and how long the prompt waits for them.
//!
//! One run on one server has three parts:
//! 1. A long prompt alone. It has the same length as the later one and other tokens, so that no
//!    prefix cache helps.
//! 2. The streams alone ("before").
//! 3. The long prompt beside the streams, until its first token ("during").
//!
//! A gap between two tokens counts as "during" when it overlaps the time from the write of the long
//! prompt to its first token. This includes a stream that stops at once and continues just after.

use std::cell::RefCell;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use hyper::Uri;
use tokio::sync::Notify;

use super::client::Client;
use super::failure::Failures;
use super::load::{Load, RequestResult, block_on, path, prepared, warm_up};
use super::progress::Progress;
use super::report::{Measure, Measured, Notes, Table, scenario_json};
use super::result::PreparedRequest;
use crate::stats::Sorted;
use corelane::clock::cpu_time;

/// Gaps of each stream before the long prompt is sent. With the default of four streams, the 99th
/// percentile is taken from two hundred gaps.
const GAPS_BEFORE: usize = 50;
/// The long prompt only needs its first token.
const LONG_OUTPUT_TOKENS: u32 = 1;

/// The requests of a stall.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The prompts of the streams.
    pub streams: Vec<Vec<u32>>,
    /// `max_tokens` of each stream. A stream must not end before the long prompt's first token.
    pub stream_tokens: u32,
    /// The long prompt that is sent beside the streams.
    pub long: Vec<u32>,
    /// The long prompt that is sent alone.
    pub long_alone: Vec<u32>,
    /// Prompts of the warm-up requests.
    pub warmups: Vec<Vec<u32>>,
}

/// The results of a stall; gaps are in milliseconds.
struct Stall {
    before: Sorted,
    during: Sorted,
    ttft: Duration,
    ttft_alone: Duration,
    client_cpu: Duration,
    /// Number of requests sent again.
    resent: u64,
}

/// Runs the stall against the server that `base` names.
pub fn run(base: &Load, plan: &Plan, show_progress: bool) -> Result<Measured, String> {
    let path = path(&base.endpoint)?;
    let client = Client::new(&base.address, base.api_key.as_deref(), base.timeout)?;
    let progress = Progress::start(show_progress, 2, "stall");
    let stall = block_on(async {
        let opened = client.open(plan.streams.len() + 1).await;
        opened.map_err(|failure| format!("{}: {failure}", base.address))?;
        measure(&client, &path, base, plan, &progress).await
    })??;
    Ok(report(&stall, plan))
}

async fn measure(
    client: &Client,
    path: &Uri,
    base: &Load,
    plan: &Plan,
    progress: &Progress,
) -> Result<Stall, String> {
    let request = |prompt: &Vec<u32>, tokens| prepared(base, prompt, tokens, Duration::ZERO);
    let warmups: Vec<PreparedRequest> =
        plan.warmups.iter().map(|prompt| request(prompt, base.output_tokens)).collect();
    warm_up(client, path, &warmups, plan.streams.len()).await?;
    let long = request(&plan.long, LONG_OUTPUT_TOKENS);
    let alone = request(&plan.long_alone, LONG_OUTPUT_TOKENS);
    let streams: Vec<PreparedRequest> =
        plan.streams.iter().map(|prompt| request(prompt, plan.stream_tokens)).collect();

    let resent = client.resent();
    let (cpu, origin) = (cpu_time(), Instant::now());
    let alone = completed(client.complete(path, &alone, origin, |_| ()).await)?;
    progress.set(1);
    let events = &Events::new(streams.len());
    let mut running: FuturesUnordered<_> = streams
        .iter()
        .enumerate()
        .map(|(stream, request)| {
            client.complete(path, request, origin, move |at| events.push(stream, at))
        })
        .collect();
    let among = pin!(async {
        events.wait_until(have_settled).await;
        let long = completed(client.complete(path, &long, origin, |_| ()).await)?;
        let first = origin + long.started + long.ttft;
        // Wait until each stream has closed the gap that was open at the long prompt's first token.
        events.wait_until(|times| times.iter().all(|t| t.last() > Some(&first))).await;
        Ok::<_, String>(long)
    });
    let long = match select(among, running.next()).await {
        Either::Left((long, _)) => long?,
        Either::Right((ended, _)) => return Err(ended_early(ended)),
    };
    progress.set(2);
    let client_cpu = cpu_time() - cpu;
    let resent = client.resent() - resent;
    drop(running); // closes the streams' connections, so that the server can stop
    let written = origin + long.started;
    let (before, during) = split_gaps(&events.times.borrow(), written, written + long.ttft);
    Ok(Stall { before, during, ttft: long.ttft, ttft_alone: alone.ttft, client_cpu, resent })
}

fn completed(result: RequestResult) -> Result<RequestResult, String> {
    match result.error {
        None => Ok(result),
        Some(error) => Err(format!("the long prompt: {error}")),
    }
}

fn ended_early(stream: Option<RequestResult>) -> String {
    match stream {
        Some(RequestResult { error: Some(error), .. }) => format!("a stream: {error}"),
        Some(stream) => format!(
            "a stream ended after {} of {} tokens, before the long prompt had its first; \
             --random-output-len makes streams longer, --ignore-eos lets them use it",
            stream.output_tokens, stream.max_tokens
        ),
        None => "there are no streams".into(),
    }
}

/// The arrival times of each stream's tokens, with a notification for each.
struct Events {
    times: RefCell<Vec<Vec<Instant>>>, // [streams][tokens]
    changed: Notify,
}

impl Events {
    fn new(streams: usize) -> Self {
        Self { times: RefCell::new(vec![Vec::new(); streams]), changed: Notify::new() }
    }

    fn push(&self, stream: usize, at: Instant) {
        self.times.borrow_mut()[stream].push(at);
        self.changed.notify_one();
    }

    async fn wait_until(&self, holds: impl Fn(&[Vec<Instant>]) -> bool) {
        while !holds(&self.times.borrow()) {
            self.changed.notified().await;
        }
    }
}

/// The time from which all streams run: the latest of their first tokens.
fn all_run_from(times: &[Vec<Instant>]) -> Option<Instant> {
    let firsts: Option<Vec<Instant>> = times.iter().map(|t| t.first().copied()).collect();
    firsts?.into_iter().max()
}

fn have_settled(times: &[Vec<Instant>]) -> bool {
    let Some(from) = all_run_from(times) else { return false };
    let gaps = |t: &Vec<Instant>| (t.len() - t.partition_point(|at| *at < from)).saturating_sub(1);
    times.iter().all(|t| gaps(t) >= GAPS_BEFORE)
}

/// Splits the gaps into "before" and "during".
///
/// "Before" are the gaps that start when all streams run and end by `written`. "During" are the
/// gaps that overlap the time from `written` to `first`.
fn split_gaps(times: &[Vec<Instant>], written: Instant, first: Instant) -> (Sorted, Sorted) {
    let from = all_run_from(times).unwrap_or(written);
    let gaps = || times.iter().flat_map(|t| t.windows(2).map(|pair| (pair[0], pair[1])));
    let sorted = |held: &dyn Fn(Instant, Instant) -> bool| {
        Sorted::of_times(gaps().filter(|(a, b)| held(*a, *b)).map(|(a, b)| b - a))
    };
    (sorted(&|a, b| a >= from && b <= written), sorted(&|a, b| b > written && a < first))
}

fn report(stall: &Stall, plan: &Plan) -> Measured {
    let measures = measures(stall);
    let mut table = Table::new("A Long Prompt Among Streams");
    table.row("Streams", plan.streams.len());
    table.row("Prompt tokens of a stream", plan.streams[0].len());
    table.row("Tokens of the long prompt", plan.long.len());
    table.row(
        "Gaps before and during",
        format!("{} {}", stall.before.count(), stall.during.count()),
    );
    for (heading, part) in
        [("Running streams", &measures[..9]), ("The long prompt", &measures[9..12])]
    {
        table.heading(heading);
        for measure in part {
            table.number(&measure.name, measure.value);
        }
    }
    table.number("Client CPU (s)", Some(stall.client_cpu.as_secs_f64()));
    let notes = Notes { resent: stall.resent, ..Notes::default() };
    table.notes(&notes);
    let completed = plan.streams.len() + 2;
    let failures = Failures::new();
    let mut json = scenario_json(&measures, completed, &failures);
    json.insert("streams".into(), plan.streams.len().into());
    json.insert("long_input_len".into(), plan.long.len().into());
    json.insert("gaps_before".into(), stall.before.count().into());
    json.insert("gaps_during".into(), stall.during.count().into());
    json.insert("requests_resent".into(), stall.resent.into());
    Measured {
        table: table.end(),
        measures,
        json,
        completed,
        failures,
        notes,
        output_tokens: None, // the streams are cut off
    }
}

fn measures(stall: &Stall) -> Vec<Measure> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let (before, during) = (&stall.before, &stall.during);
    let parts = [("p50", "P50 ITL", 50.0), ("p99", "P99 ITL", 99.0), ("max", "Max ITL", 100.0)];
    let mut measures = Vec::new();
    for (key, name, percentile) in parts {
        let (was, is) = (before.percentile(percentile), during.percentile(percentile));
        measures.extend([
            Measure::new(format!("itl_before_{key}_ms"), format!("{name} before (ms)"), was),
            Measure::new(format!("itl_during_{key}_ms"), format!("{name} during (ms)"), is),
            Measure::new(
                format!("itl_{key}_ratio"),
                format!("{name} during / before"),
                ratio(is, was),
            ),
        ]);
    }
    let (ttft, alone) = (Some(ms(stall.ttft)), Some(ms(stall.ttft_alone)));
    measures.extend([
        Measure::new("long_ttft_alone_ms", "TTFT alone (ms)", alone),
        Measure::new("long_ttft_ms", "TTFT among the streams (ms)", ttft),
        Measure::new("long_ttft_ratio", "TTFT among the streams / alone", ratio(ttft, alone)),
        Measure::new("client_cpu_seconds", "Client CPU (s)", Some(stall.client_cpu.as_secs_f64())),
    ]);
    measures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(origin: Instant, streams: &[&[u64]]) -> Vec<Vec<Instant>> {
        let at = |ms: &u64| origin + Duration::from_millis(*ms);
        streams.iter().map(|stream| stream.iter().map(at).collect()).collect()
    }

    #[test]
    fn a_gap_that_touches_the_long_prompt_is_during_it() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let times = times(origin, &[&[0, 10, 20, 30, 95, 105, 115], &[15, 25, 33, 40, 60, 120]]);
        // All streams run from 15. The long prompt is written at 31, and its first token comes at
        // 100.
        let (before, during) = split_gaps(&times, at(31), at(100));
        assert_eq!(before, [10.0, 10.0].into_iter().collect());
        assert_eq!(during, [65.0, 10.0, 8.0, 7.0, 20.0, 60.0].into_iter().collect());
        // A server that stops all streams, and continues them just after the first token.
        let (_, during) = split_gaps(&times, at(61), at(94));
        assert_eq!(during.max(), Some(65.0));
    }

    #[test]
    fn streams_have_settled_when_each_has_enough_gaps_beside_all_others() {
        let origin = Instant::now();
        let steps = |from: u64, n: usize| (0..n as u64).map(|i| from + i).collect::<Vec<u64>>();
        let settled = |a: &[u64], b: &[u64]| have_settled(&times(origin, &[a, b]));
        assert!(!settled(&steps(0, 500), &[]), "one has not begun");
        assert!(settled(&steps(0, GAPS_BEFORE + 11), &steps(10, GAPS_BEFORE + 1)));
        assert!(!settled(&steps(0, GAPS_BEFORE + 10), &steps(10, GAPS_BEFORE + 1)));
        assert!(!settled(&steps(0, GAPS_BEFORE + 11), &steps(10, GAPS_BEFORE)));
    }

    #[test]
    fn ratios_are_during_to_before() {
        let stall = Stall {
            before: [10.0, 20.0].into_iter().collect(),
            during: [30.0, 60.0].into_iter().collect(),
            ttft: Duration::from_millis(900),
            ttft_alone: Duration::from_millis(600),
            client_cpu: Duration::ZERO,
            resent: 0,
        };
        let measures = measures(&stall);
        let value = |key: &str| measures.iter().find(|m| m.key == key).unwrap().value;
        assert_eq!(value("itl_p50_ratio"), Some(3.0));
        assert_eq!(value("itl_max_ratio"), Some(3.0));
        assert_eq!(value("itl_during_max_ms"), Some(60.0));
        assert_eq!(value("long_ttft_ratio"), Some(1.5));
    }
}
