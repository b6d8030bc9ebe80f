//! Rungs 8 to 10: a server on a socket, and a client that sends requests to it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::check;
use super::counts::Counts;
use super::measure::{Measured, Watch};
use super::run::Stage;
use super::rung::{Allocations, RungRun};
use super::workload::{STOP, Workload};
use crate::generator::load::{self, Load, Outcome};
use corelane::lanes::Server;
use corelane::types::TokenId;

/// The result of a load, with the times and counts of its run.
struct Served<T> {
    came: T,
    measured: Measured,
    counts: Counts,
}

impl<T> Served<T> {
    fn complete(&self, run: RungRun) -> RungRun {
        let front = Some(self.counts.front_allocations as f64 / run.tokens as f64);
        let run = self.counts.complete(run);
        RungRun { allocations: Allocations { front, ..run.allocations }, ..run }
    }
}

impl Stage {
    /// Rungs 8 and 9: the client runs in this process.
    pub(super) fn run_server(&self, rung: usize) -> Result<RungRun, String> {
        let stream = rung == 9;
        let warm_up = self.workload.warm_up();
        let served = self.serve(
            |address| load::run(&self.load(address, stream, &warm_up), |_| ()),
            |address| load::run(&self.load(address, stream, &self.workload), |_| ()),
        )?;
        let Outcome { duration, requests, .. } = &served.came;
        let mut tokens = 0;
        for request in requests {
            if let Some(error) = &request.error {
                return Err(format!("a request failed: {error}"));
            }
            if stream {
                check::streamed(request.itls.len() + 1, request.output_tokens)?;
            }
            tokens += request.output_tokens;
        }
        self.check_texts(requests.iter().map(|request| request.text.as_str()))?;
        let measured = Measured { wall: *duration, ..served.measured.clone() };
        Ok(served.complete(RungRun { tokens, measured, ..RungRun::default() }))
    }

    /// Rung 10: the client is `corelane bench serve`, as a user would run it.
    pub(super) fn run_client(&self) -> Result<RungRun, String> {
        let requests = self.workload.prompts.len();
        let warm_up = self.workload.warm_up();
        let served = self.serve(
            |address| self.load_from_outside(address, &warm_up, self.seed.wrapping_add(1)),
            |address| self.load_from_outside(address, &self.workload, self.seed),
        )?;
        let saved = &served.came;
        let number = |key: &str| {
            saved[key].as_f64().ok_or_else(|| format!("the load generator did not count {key}"))
        };
        for (key, expected) in
            [("completed", requests), ("failed", 0), ("requests_without_usage", 0)]
        {
            let found = number(key)?;
            if found as usize != expected {
                return Err(format!("the load generator counted {found} {key}, not {expected}"));
            }
        }
        let list = |key: &str| saved[key].as_array().ok_or(format!("no {key} were saved"));
        self.check_texts(list("generated_texts")?.iter().filter_map(|text| text.as_str()))?;
        for (gaps, tokens) in list("itls")?.iter().zip(list("output_lens")?) {
            let events = gaps.as_array().map_or(0, |gaps| gaps.len() + 1);
            check::streamed(events, tokens.as_u64().unwrap_or(u64::MAX))?;
        }
        let wall = Duration::from_secs_f64(number("duration")?);
        let measured = Measured { wall, ..served.measured.clone() };
        let tokens = number("total_output_tokens")? as u64;
        let client_cpu = Some(Duration::from_secs_f64(number("client_cpu_seconds")?));
        Ok(served.complete(RungRun { tokens, measured, client_cpu, ..RungRun::default() }))
    }

    /// Starts a server, runs a warm-up load on it, and then measures another load.
    fn serve<T>(
        &self,
        warm_up: impl FnOnce(&str) -> Result<T, String>,
        load: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Served<T>, String> {
        let mut server = Server::start(self.config.clone())?;
        server.serve_loaded(&self.loaded)?;
        let address = server.address().to_string();
        warm_up(&address)?;
        let metrics = server.metrics();
        let counts = Counts::read(&metrics);
        let watch = Watch::start();
        let came = load(&address)?;
        let measured = watch.stop();
        server.control().drain();
        server.join()?; // the server writes its last counts when it ends
        let counts = counts.until_now(&metrics);
        let requests = self.workload.prompts.len() as u64;
        if counts.responses != requests {
            return Err(format!("the server answered {} of {requests}", counts.responses));
        }
        Ok(Served { came, measured, counts })
    }

    /// Runs the load generator as another process, and returns the result file.
    fn load_from_outside(
        &self,
        address: &str,
        w: &Workload,
        seed: u64,
    ) -> Result<serde_json::Value, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let file =
            std::env::temp_dir().join(format!("corelane-ladder-{}.json", std::process::id()));
        let output = Command::new(program)
            .args(["serve", "--ignore-eos", "--save-result", "--save-detailed"])
            .arg(format!("--base-url=http://{address}"))
            // With these two flags the client sends no request for the model's details. The
            // server's response count would include it.
            .arg(format!("--model={}", self.loaded.info.name))
            .arg(format!("--vocab-size={}", self.loaded.vocab.n_tokens()))
            .arg(format!("--num-prompts={}", w.prompts.len()))
            .arg(format!("--max-concurrency={}", w.concurrency))
            .arg(format!("--random-input-len={}", w.prompts[0].len()))
            .arg(format!("--random-output-len={}", w.gen_tokens))
            .arg(format!("--seed={seed}"))
            .arg("--temperature=0")
            .arg(format!("--extra-body={}", serde_json::json!({ "stop": STOP })))
            .arg("--result-filename")
            .arg(&file)
            .output()
            .map_err(|error| format!("cannot start the load generator: {error}"))?;
        let saved = fs::read(&file);
        let _ = fs::remove_file(&file); // a file that remains is harmless
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let saved = saved.map_err(|error| format!("the load generator saved nothing: {error}"))?;
        serde_json::from_slice(&saved).map_err(|error| error.to_string())
    }

    fn load(&self, address: &str, stream: bool, workload: &Workload) -> Load {
        let unsigned = |prompt: &Vec<TokenId>| prompt.iter().map(|t| t.cast_unsigned()).collect();
        Load {
            address: address.to_owned(),
            prompts: workload.prompts.iter().map(unsigned).collect(),
            output_tokens: workload.gen_tokens,
            ignore_eos: true,
            temperature: 0.0,
            stream,
            extra_body: [("stop".to_owned(), STOP.into())].into_iter().collect(),
            max_concurrency: workload.concurrency,
            ..Load::default()
        }
    }
}
