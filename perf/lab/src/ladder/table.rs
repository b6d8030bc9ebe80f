//! The ladder's results as a table, and as JSON.

use serde_json::{Value, json};

use super::{Ladder, LadderReport, RUNGS, RungRun, Spread};

/// The first line of the table.
pub fn head() -> String {
    format!(
        "{:<13} {:>7} {:>6} {:>8} {:>17} {:>21} {:>7} {:>7}  {:>7} {:>6} {:>6} {:>6}  {:>13}  {:>13}\n",
        "rung",
        "wall s",
        "steps",
        "t/s",
        "(min to max)",
        "of 0 (min to max)",
        "of prev",
        "model %",
        "fr µs/t",
        "decode",
        "client",
        "stolen",
        "bubble p50/99",
        "allocs fr/dec",
    )
}

/// The whole table, with its first line and a legend.
pub fn table(ladder: &Ladder, report: &LadderReport) -> String {
    let mut text = head();
    for index in 0..ladder.rungs.len() {
        text.push_str(&row(ladder, report, index));
    }
    text.push_str(
        "\nt/s: median of the rounds. of 0, of prev: median ratio to rung 0 and to the previous \
         rung, within a round.\nmodel %: share of the wall time inside llama_decode. \
         fr µs/t: CPU time of the front lane per token, in µs.\ndecode, client: CPU time as a \
         share of a core, including the threads that the lane started. stolen: the share of a \
         core that other virtual machines took.\nbubble: µs before a step in which there was \
         work and the model did not run. allocs: Rust heap allocations per token.\n",
    );
    text
}

fn row(ladder: &Ladder, report: &LadderReport, index: usize) -> String {
    let rung = ladder.rungs[index];
    let rate = report.rate(index);
    let base = ladder.rungs.iter().position(|rung| *rung == 0);
    let of_base = base.map_or_else(
        || "-".into(),
        |base| {
            let Spread { median, min, max } = report.ratio(index, base);
            format!("{median:.3} ({min:.3} to {max:.3})")
        },
    );
    let of_previous = index
        .checked_sub(1)
        .map_or_else(|| "-".into(), |base| format!("{:.3}", report.ratio(index, base).median));
    let median = |of: &dyn Fn(&RungRun) -> Option<f64>, digits: usize| {
        let values: Vec<f64> = report.rounds.iter().filter_map(|runs| of(&runs[index])).collect();
        if values.is_empty() {
            return "-".to_owned();
        }
        format!("{:.digits$}", Spread::of(values).median)
    };
    let cpu = |name: &'static str| median(&move |run| run.cpu_share(name), 2);
    format!(
        "{:<13} {:>7} {:>6} {:>8.2} {:>17} {:>21} {:>7} {:>7}  {:>7} {:>6} {:>6} {:>6}  {:>13}  {:>13}\n",
        format!("{rung:>2} {}", RUNGS[rung].name),
        median(&|run| Some(run.measured.wall.as_secs_f64()), 2),
        median(&|run| Some(run.steps? as f64), 0),
        rate.median,
        format!("{:.2} to {:.2}", rate.min, rate.max),
        of_base,
        of_previous,
        median(&|run| Some(100.0 * run.model_share()?), 2),
        median(&RungRun::front_us_per_token, 2),
        cpu("decode"),
        cpu("client"),
        median(&|run| Some(run.stolen_share()), 2),
        format!(
            "{}/{}",
            median(&|run| Some(run.bubble_us?.0), 0),
            median(&|run| Some(run.bubble_us?.1), 0)
        ),
        format!(
            "{}/{}",
            median(&|run| run.allocations.front, 2),
            median(&|run| run.allocations.decode, 2)
        ),
    )
}

impl RungRun {
    /// CPU time of the front lane per token, in microseconds.
    pub fn front_us_per_token(&self) -> Option<f64> {
        Some(self.measured.cpu.get("front")?.as_secs_f64() * 1e6 / self.tokens as f64)
    }

    /// CPU time stolen by other virtual machines, as a fraction of one core.
    pub fn stolen_share(&self) -> f64 {
        self.measured.stolen.as_secs_f64() / self.measured.wall.as_secs_f64()
    }

    /// CPU time of a lane as a fraction of one core, if it was measured.
    pub fn cpu_share(&self, lane: &str) -> Option<f64> {
        let wall = self.measured.wall.as_secs_f64();
        if lane == "client"
            && let Some(cpu) = self.client_cpu
        {
            return Some(cpu.as_secs_f64() / wall);
        }
        Some(self.measured.cpu.get(lane)?.as_secs_f64() / wall)
    }
}

/// The report as JSON: the settings and every run.
pub fn to_json(ladder: &Ladder, report: &LadderReport) -> Value {
    let run = |run: &RungRun| {
        let cpu = run.measured.cpu.iter();
        let cpu: Value =
            cpu.map(|(lane, time)| (lane.clone(), Value::from(time.as_secs_f64()))).collect();
        json!({
            "rung": run.rung,
            "name": RUNGS[run.rung].name,
            "tokens": run.tokens,
            "wall_s": run.measured.wall.as_secs_f64(),
            "tokens_per_s": run.rate(),
            "prefill_tokens_per_s": run.measured.prefill.rate(),
            "decode_tokens_per_s": run.measured.decode.rate(),
            "decode_rows_mean": run.measured.decode.rows_mean(),
            "front_us_per_token": run.front_us_per_token(),
            "cpu_s": cpu,
            "stolen_s": run.measured.stolen.as_secs_f64(),
            "client_cpu_s": run.client_cpu.map(|time| time.as_secs_f64()),
            "steps": run.steps,
            "model_share": run.model_share(),
            "bubble_us_p50": run.bubble_us.map(|(p50, _)| p50),
            "bubble_us_p99": run.bubble_us.map(|(_, p99)| p99),
            "allocations_per_token_front": run.allocations.front,
            "allocations_per_token_decode": run.allocations.decode,
        })
    };
    let rounds: Vec<Vec<Value>> =
        report.rounds.iter().map(|runs| runs.iter().map(run).collect()).collect();
    json!({
        "model": report.model,
        "requests": ladder.requests,
        "concurrency": ladder.concurrency,
        "prompt_tokens": ladder.prompt_tokens,
        "gen_tokens": ladder.gen_tokens,
        "spec": ladder.config.speculation.to_string(),
        "seed": ladder.seed,
        "front_core": ladder.config.placement.front_core,
        "decode_cores": ladder.config.placement.decode_cores,
        "rounds": rounds,
    })
}
