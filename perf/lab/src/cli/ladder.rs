//! `corelane bench ladder`: its flags and its output.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use corelane::config::ServeConfig;
use corelane::types::Speculation;
use corelane_bench::ladder::{self, Ladder, RUNGS, picture, table};
use indicatif::{ProgressBar, ProgressStyle};

use corelane::flags::EngineArgs;

const EXAMPLES: &str = "\
Examples:
  corelane bench ladder                                 all rungs, on the built-in model
  corelane bench ladder -m qwen3-0.6b-q4_k_m.gguf --json ladder.json --svg ladder.svg
  corelane bench ladder --rung 0,4 --concurrency 32     the scheduler beside the bare model

Rungs:
   0 backend    llama_decode in a bare loop, largest logit
   1 executor   batches in, batches out
   2 sampler    the decode lane's step: checks, sampling chain
   3 rings      both lanes pinned, batches over the SPSC pair
   4 scheduler  requests arrive and finish, continuous batching
   5 text       tokens to text, stop strings
   6 endpoint   typed requests to JSON bytes
   7 handler    HTTP bytes in memory to HTTP bytes
   8 server     sockets, keep-alive, a client in this process
   9 stream     server-sent events, one for each token
  10 client     the load generator as another process

Ends with status 1 when a rung did not really run what it names.";

/// Find where the speed goes: from the bare model to a client, one layer per rung.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LadderArgs {
    /// Requests of each run
    #[arg(long, value_name = "N", default_value_t = 40, help_heading = "Work")]
    requests: usize,
    /// Requests at once
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "Work")]
    concurrency: usize,
    /// Tokens of each prompt, drawn at random
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Work")]
    prompt_tokens: usize,
    /// Tokens to generate for each
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = "Work")]
    gen_tokens: u32,
    /// Runs of each rung; the rungs take turns
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Work")]
    rounds: usize,
    /// Rungs to run, such as 0,4,10 or 0-4 [default: all]
    #[arg(long, value_name = "RUNGS", value_parser = parse_rungs, help_heading = "Work")]
    rung: Option<Rungs>,
    /// Where guesses of next tokens come from, on the rungs from 4 on: off, or lookup (from the text
    /// itself). With guesses, these rungs make other steps than the lower ones
    #[arg(long, value_name = "HOW", default_value = "off", value_parser = parse_spec, help_heading = "Work")]
    spec: Speculation,
    /// Seed of the prompts
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Work")]
    seed: u64,
    /// Save every run as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// Draw each rung's tokens per second relative to rung 0, beside the server that corelane
    /// replaces, as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// A list of rungs, as one value (clap would read a `Vec` as a repeated flag).
#[derive(Clone, Debug)]
struct Rungs(Vec<usize>);

fn parse_rungs(list: &str) -> Result<Rungs, String> {
    let wrong = |_| format!("{list:?} is not a list of rungs; one looks like 0-4,10");
    let mut rungs = corelane::placement::parse_list(list).map_err(wrong)?;
    rungs.sort_unstable();
    rungs.dedup();
    Ok(Rungs(rungs))
}

fn parse_spec(how: &str) -> Result<Speculation, String> {
    match how.parse() {
        Ok(spec @ (Speculation::Off | Speculation::Lookup)) => Ok(spec),
        _ => Err("it must be off or lookup".into()),
    }
}

impl LadderArgs {
    /// The ladder to run.
    fn ladder(&self) -> Result<Ladder, String> {
        let all = || (0..RUNGS.len()).collect();
        let rungs = self.rung.as_ref().map_or_else(all, |rungs| rungs.0.clone());
        if self.svg.is_some() && !rungs.contains(&0) {
            return Err("--svg needs rung 0, which the others are compared with".into());
        }
        Ok(Ladder {
            source: self.engine.obtain()?,
            config: ServeConfig { speculation: self.spec, ..self.engine.config()? },
            requests: self.requests,
            concurrency: self.concurrency,
            prompt_tokens: self.prompt_tokens,
            gen_tokens: self.gen_tokens,
            rounds: self.rounds,
            rungs,
            seed: self.seed,
        })
    }
}

/// Runs the ladder and shows the result.
pub fn run(args: &LadderArgs) -> Result<(), String> {
    let ladder = args.ladder()?;
    let bar = ProgressBar::new((ladder.rounds * ladder.rungs.len()) as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs, {msg}");
    bar.set_style(style.expect("the template is ours, and valid"));
    bar.set_message("the model is being loaded");
    let report = ladder::run(&ladder, |_, run| {
        bar.set_message(format!("rung {}: {:.1} tokens/s", run.rung, run.rate()));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    // Write the files even if standard output is closed.
    let _ = std::io::stdout().write_all(table::table(&ladder, &report).as_bytes());
    if let Some(path) = &args.json {
        let json = table::to_json(&ladder, &report);
        std::fs::write(path, format!("{json:#}\n"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    args.svg.as_ref().map_or(Ok(()), |path| picture::write(path, &ladder, &report))
}
