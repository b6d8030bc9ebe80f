//! Simulates servers behind a router in made-up time: how many requests can they take, if the first
//! token must come in time?
//!
//! ```text
//! cargo bench --bench growth
//! ```
//!
//! - **Arrivals** The times and lengths in `arrivals.csv` are the first 257 requests of the
//!   conversation trace in Azure's public dataset (2023), which was recorded in 73 s. They are
//!   repeated. For a lower rate, random ones are left out; for a higher one, several copies run at
//!   once, each one shifted by a random time.
//! - **Texts** The trace has none. So two cases bound the truth: no prompt has anything in common
//!   with another, or three quarters of each prompt are the beginning of one of four texts for each
//!   server, such as the instructions of an application.
//! - **Keys** Requests are those of four API keys of equal weight, at random. One of them sends half. Keys share
//!   the prefix cache.
//! - **Servers** Each is corelane's own scheduler, with 8 slots. A step takes the time that
//!   [`step_us`] gives.
//! - **Routers** Round robin; the fewest requests in progress (HAProxy's `leastconn`); or the
//!   server with the longest known prefix, by the rules of SGLang's gateway. By default it follows
//!   prefixes until two servers differ by 64 requests; "balanced" lowers that to the slots of one.

mod fleet;

use corelane_bench::stats::Sorted;
use fleet::{Fleet, Request, Router};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The longest time to the first token.
const TTFT_MAX_S: f64 = 10.0;
/// The part of the requests that must get it in time.
const IN_TIME: f64 = 0.9;
/// The load at which the times are shown, as a part of what one server can compute.
const SHOWN_LOAD: f64 = 0.5;
/// Requests of a run, at least.
const REQUESTS_MIN: usize = 4_000;
/// The part of the prompts that counts as long.
const LONG: f64 = 0.1;
/// Texts that prompts begin with, for each server.
const TEXTS_PER_SERVER: usize = 4;

/// A line of the recorded trace.
#[derive(Clone, Copy)]
struct Arrival {
    at_s: f64,
    prompt_tokens: usize,
    output_tokens: u32,
}

fn main() {
    // `cargo test --benches` passes no such word.
    let is_test = !std::env::args().any(|word| word == "--bench");
    let mut trace = recorded();
    let mut sizes = vec![1, 4, 16, 64];
    if is_test {
        trace.truncate(20);
        sizes.truncate(2);
    }
    let alone = capacity(&trace);
    println!("One server computes {alone:.3} requests/s of this trace if its slots stay full.\n");
    println!(
        "| servers | prompts | router | requests/s in time, each | of one | at {SHOWN_LOAD} of the \
         load: first token p50, s | p99, s | p99 of the longest {:.0} %, s | from the cache |",
        100.0 * LONG
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (shares, prompts) in [(false, "nothing shared"), (true, "3/4 shared")] {
        let mut of_one = None;
        for &servers in &sizes {
            for router in Router::ALL {
                if servers == 1 && router != Router::RoundRobin {
                    continue;
                }
                let run = |load: f64| {
                    let requests = replayed(&trace, servers, load * alone, shares);
                    Outcome::of(Fleet::new(servers, router).run(requests.clone()), &requests)
                };
                let each = highest_load(if is_test { 5 } else { 9 }, &run) * alone;
                let one = *of_one.get_or_insert(each);
                let shown = run(SHOWN_LOAD);
                println!(
                    "| {servers} | {prompts} | {} | {each:.3} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} % |",
                    router.name(),
                    each / one,
                    shown.ttft.percentile(50.0).expect("there are requests"),
                    shown.ttft.percentile(99.0).expect("there are requests"),
                    shown.long_ttft.percentile(99.0).expect("there are long ones"),
                    100.0 * shown.cached,
                );
            }
        }
    }
}

/// The trace.
fn recorded() -> Vec<Arrival> {
    let lines = include_str!("arrivals.csv").lines().skip(1);
    let arrival = |line: &str| {
        let mut numbers = line.split(',').map(|number| number.parse::<u32>().expect("a number"));
        let mut next = || numbers.next().expect("three columns");
        let (ms, prompt_tokens, output_tokens) = (next(), next() as usize, next());
        Arrival { at_s: f64::from(ms) / 1e3, prompt_tokens, output_tokens }
    };
    lines.map(arrival).collect()
}

/// The time of a step in microseconds, fitted to a Xeon with two cores and a model with the shape
/// of Qwen3-0.6B in Q4_K_M: 52.6 and 225.7 tokens/s with one and eight streams, and 528 tokens/s
/// for prompts (`perf/runs/intel-xeon/against/2026-11-25-a3bad4d-portable.txt`). Rows far into a text take
/// longer, which is left out.
fn step_us(decode_rows: u32, prefill_rows: u32) -> u32 {
    16_700 + 2_340 * decode_rows + 1_830 * prefill_rows
}

/// Requests a second that one server computes if all its slots decode and all steps have as many
/// prompt rows as it takes at once.
fn capacity(trace: &[Arrival]) -> f64 {
    let slots = fleet::SLOTS as f64;
    let token_s = f64::from(step_us(fleet::SLOTS as u32, 0)) / 1e6 / slots;
    let prompt_s = f64::from(step_us(0, fleet::STEP_ROWS as u32)) / 1e6 / fleet::STEP_ROWS as f64;
    let of = |arrival: &Arrival| {
        prompt_s * arrival.prompt_tokens as f64 + token_s * f64::from(arrival.output_tokens)
    };
    trace.len() as f64 / trace.iter().map(of).sum::<f64>()
}

/// Requests that arrive at about `rate` a second for each server: for one as many as the trace has,
/// and at least [`REQUESTS_MIN`] in all.
fn replayed(trace: &[Arrival], servers: usize, rate: f64, shares: bool) -> Vec<Request> {
    let mut random = ChaCha8Rng::seed_from_u64(servers as u64);
    let recorded_s = trace.last().expect("the trace has requests").at_s;
    let wanted = rate * servers as f64 / (trace.len() as f64 / recorded_s);
    let copies = wanted.ceil();
    let for_each = trace.len().max(REQUESTS_MIN / servers) as f64;
    let rounds = (for_each / rate / recorded_s).ceil() as usize;
    let mut requests = Vec::new();
    for _ in 0..copies as usize {
        let shift = random.random_range(0.0..recorded_s);
        for round in 0..rounds {
            for arrival in trace {
                let text = random.random_range(0..TEXTS_PER_SERVER * servers);
                let of_first = random.random_bool(0.5);
                let key = if of_first { 0 } else { random.random_range(1..fleet::KEYS) };
                if !random.random_bool(wanted / copies) {
                    continue;
                }
                let at_s = round as f64 * recorded_s + (arrival.at_s + shift) % recorded_s;
                requests.push(Request {
                    at_us: (at_s * 1e6) as u64,
                    prompt_tokens: arrival.prompt_tokens,
                    output_tokens: arrival.output_tokens,
                    key,
                    text: shares.then_some(text),
                });
            }
        }
    }
    requests.sort_by_key(|request| request.at_us);
    requests
}

/// What became of the requests of a run.
struct Outcome {
    /// Times to the first token, in seconds.
    ttft: Sorted,
    /// Those of long prompts.
    long_ttft: Sorted,
    /// The part of them that came in time.
    in_time: f64,
    /// The part of the prompt tokens that the servers had in their KV caches.
    cached: f64,
}

impl Outcome {
    fn of(run: fleet::Run, requests: &[Request]) -> Self {
        let in_time = run.ttft_s.iter().filter(|s| **s <= TTFT_MAX_S).count();
        let in_time = in_time as f64 / run.ttft_s.len() as f64;
        let mut lengths: Vec<usize> = requests.iter().map(|new| new.prompt_tokens).collect();
        lengths.sort_unstable();
        let long = lengths[((1.0 - LONG) * lengths.len() as f64) as usize];
        let times = run.ttft_s.iter().zip(requests);
        let long_ttft =
            times.filter(|(_, new)| new.prompt_tokens >= long).map(|(s, _)| *s).collect();
        Self { ttft: run.ttft_s.into_iter().collect(), long_ttft, in_time, cached: run.cached }
    }
}

/// The highest load at which enough requests get their first token in time, as a part of what one
/// server can compute. Bisection: each of `halvings` runs halves the interval that it lies in.
fn highest_load(halvings: u32, run: &impl Fn(f64) -> Outcome) -> f64 {
    let (mut low, mut high) = (0.0, 4.0);
    for _ in 0..halvings {
        let middle = (low + high) / 2.0;
        let is_enough = run(middle).in_time >= IN_TIME;
        *(if is_enough { &mut low } else { &mut high }) = middle;
    }
    low
}
