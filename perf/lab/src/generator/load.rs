//! Sends a load to one server and returns the result of each request.
//!
//! [`run`] is the entry point. It blocks the calling thread, runs its own single-threaded runtime
//! on it, and opens its own connections.
//!
//! ```no_run
//! use corelane_bench::generator::load::{Load, run};
//!
//! let load = Load {
//!     address: "127.0.0.1:8080".into(),
//!     prompts: vec![vec![100, 101, 102]; 40],
//!     output_tokens: 50,
//!     ignore_eos: true,
//!     max_concurrency: 8,
//!     ..Load::default()
//! };
//! let outcome = run(&load, |_completed| ())?;
//! let tokens: u64 = outcome.requests.iter().map(|request| request.output_tokens).sum();
//! println!("{:.1} tokens/s", tokens as f64 / outcome.duration.as_secs_f64());
//! # Ok::<(), String>(())
//! ```

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::Uri;

use super::body;
use super::client::Client;
use super::result::PreparedRequest;
pub use super::result::RequestResult;
pub use super::workload::{Form, Load};
use corelane::clock::cpu_time;

/// Requests of one run of the load generator.
pub const REQUESTS_MAX: usize = 1 << 20;

/// Connections that the load generator opens before it begins. It opens more when it needs them.
const CONNECTIONS_AHEAD_MAX: usize = 512;

/// The results of a [`Load`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first request to the last response, without warm-ups.
    pub duration: Duration,
    /// One result per request, in the order of [`Load::prompts`].
    pub requests: Vec<RequestResult>,
    /// CPU time of the calling thread, without warm-ups.
    pub client_cpu: Duration,
    /// Connections opened after the start of the run; 0 when all requests reused open connections.
    pub connections_opened: u64,
    /// Requests sent again because a reused connection closed without an answer.
    pub requests_resent: u64,
}

/// Sends one request alone, as a baseline for other measurements.
///
/// # Errors
/// The errors of [`run`]. Also when the request failed; the message then begins with `what`.
pub fn run_alone(
    base: &Load,
    prompt: &[u32],
    warmups: &[Vec<u32>],
    what: &str,
    progress: impl FnMut(usize),
) -> Result<Outcome, String> {
    let (prompts, warmup_prompts) = (vec![prompt.to_vec()], warmups.to_vec());
    let outcome = run(&Load { prompts, warmup_prompts, ..base.clone() }, progress)?;
    match &outcome.requests[0].error {
        Some(error) => Err(format!("{what}: {error}")),
        None => Ok(outcome),
    }
}

/// Runs a load to its end. Calls `progress` with the number of requests that have ended.
///
/// All connections that the load needs at once are opened before the clock starts. There is one
/// exception: with spread arrivals and no limit on concurrency, the number is not known. Then one
/// connection is opened ahead, and each further one before its request's own clock starts.
///
/// # Errors
/// A message, when the run could not start: the load is invalid, the server is unreachable, or a
/// warm-up failed. Later failures are in the results.
pub fn run(load: &Load, progress: impl FnMut(usize)) -> Result<Outcome, String> {
    check(load)?;
    let path = path(&load.endpoint)?;
    let client = Client::new(&load.address, load.api_key.as_deref(), load.timeout)?;
    let requests = prepare(load);
    let warmup = |prompt: &Vec<u32>| prepared(load, prompt, load.output_tokens, Duration::ZERO);
    let warmups: Vec<PreparedRequest> = load.warmup_prompts.iter().map(warmup).collect();
    block_on(async {
        let connections = connections_ahead(load);
        let opened = client.open(connections).await;
        opened.map_err(|failure| format!("{}: {failure}", load.address))?;
        warm_up(&client, &path, &warmups, load.max_concurrency).await?;
        let opened = client.open(connections).await;
        opened.map_err(|failure| format!("{}: {failure}", load.address))?;
        let (opened, resent) = (client.opened(), client.resent());
        let (cpu, origin) = (cpu_time(), Instant::now());
        let results =
            drive(&client, &path, &requests, load.max_concurrency, origin, progress).await;
        Ok(Outcome {
            duration: origin.elapsed(),
            requests: results,
            client_cpu: cpu_time() - cpu,
            connections_opened: client.opened() - opened,
            requests_resent: client.resent() - resent,
        })
    })?
}

/// Sends requests whose results do not count.
pub(super) async fn warm_up(
    client: &Client,
    path: &Uri,
    requests: &[PreparedRequest],
    at_once: usize,
) -> Result<(), String> {
    let results = drive(client, path, requests, at_once, Instant::now(), |_| ()).await;
    match results.iter().find_map(|result| result.error.as_deref()) {
        Some(error) => Err(format!("a warm-up request failed: {error}")),
        None => Ok(()),
    }
}

/// Sends each request at its arrival time, in order, with at most `at_once` in flight.
async fn drive(
    client: &Client,
    path: &Uri,
    requests: &[PreparedRequest],
    at_once: usize,
    origin: Instant,
    mut progress: impl FnMut(usize),
) -> Vec<RequestResult> {
    let mut results: Vec<RequestResult> = requests.iter().map(RequestResult::of).collect();
    let mut waiting = requests.iter().enumerate();
    let mut running = FuturesUnordered::new();
    let mut completed = 0;
    loop {
        while running.len() < at_once
            && let Some((index, request)) = waiting.next()
        {
            running
                .push(async move { (index, client.complete(path, request, origin, |_| ()).await) });
        }
        let Some((index, result)) = running.next().await else { break };
        results[index] = result;
        completed += 1;
        progress(completed);
    }
    assert_eq!(completed, requests.len(), "every request has ended");
    results
}

fn check(load: &Load) -> Result<(), String> {
    let n = load.prompts.len();
    if n == 0 || n > REQUESTS_MAX {
        return Err(format!("{n} requests; there must be from 1 to {REQUESTS_MAX}"));
    }
    if load.prompts.iter().chain(&load.warmup_prompts).any(Vec::is_empty) {
        return Err("a prompt is empty; each must have at least one token".into());
    }
    if load.max_concurrency == 0 {
        return Err("the concurrency is 0; it must be at least 1".into());
    }
    for (what, length) in
        [("arrival times", load.arrivals.len()), ("output lengths", load.output_lens.len())]
    {
        if length != 0 && length != n {
            return Err(format!("{length} {what} for {n} requests"));
        }
    }
    Ok(())
}

/// The request path.
pub(super) fn path(endpoint: &str) -> Result<Uri, String> {
    let uri = Uri::try_from(endpoint).ok().filter(|_| endpoint.starts_with('/'));
    uri.ok_or_else(|| format!("{endpoint:?} is not a path; one looks like /v1/completions"))
}

/// Prepares all requests of a load, with their bodies.
fn prepare(load: &Load) -> Vec<PreparedRequest> {
    let request = |(index, prompt): (usize, &Vec<u32>)| {
        let max_tokens = load.output_lens.get(index).copied().unwrap_or(load.output_tokens);
        prepared(load, prompt, max_tokens, load.arrivals.get(index).copied().unwrap_or_default())
    };
    load.prompts.iter().enumerate().map(request).collect()
}

/// Prepares one request with the options of `load`.
pub(super) fn prepared(
    load: &Load,
    prompt: &[u32],
    max_tokens: u32,
    arrival: Duration,
) -> PreparedRequest {
    PreparedRequest {
        arrival,
        body: body::write(load, prompt, max_tokens),
        prompt_tokens: prompt.len() as u64,
        max_tokens,
        stream: load.stream,
    }
}

fn connections_ahead(load: &Load) -> usize {
    let at_once = load.max_concurrency.min(load.prompts.len());
    let all_needed = load.arrivals.is_empty() || load.max_concurrency < load.prompts.len();
    if all_needed { at_once.min(CONNECTIONS_AHEAD_MAX) } else { 1 }
}

/// Runs a future on the current thread alone.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the client: {error}"))?;
    Ok(runtime.block_on(future))
}
