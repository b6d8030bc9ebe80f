//! `corelane bench replay`: its flags and its output.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use corelane::config::ServeConfig;
use corelane::model::draft::load_draft;
use corelane::model::load::load;
use corelane::types::{Guessing, Speculation};
use corelane_bench::replay::{self, Replay, record, table};
use indicatif::{ProgressBar, ProgressStyle};

use corelane::flags::EngineArgs;

const EXAMPLES: &str = "\
Examples:
  corelane bench replay answers.jsonl
  corelane bench replay answers.jsonl -m qwen3-0.6b-q4_k_m.gguf --concurrency 4
  corelane bench replay answers.jsonl --beside others.jsonl

A line of the file is {\"prompt\": \"…\", \"answer\": \"…\"}. Both may be arrays of token ids.";

/// Find out what guesses bring on your own texts: with and without them, in turns.
///
/// The model computes everything, but the token that it says next is that of the recorded answer.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// File of recorded prompts and answers, one in each line
    #[arg(value_name = "FILE")]
    records: PathBuf,
    /// File of records for one more stream, which never guesses; its gaps are measured
    #[arg(long, value_name = "FILE", help_heading = "Work")]
    beside: Option<PathBuf>,
    /// Records at once
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Work")]
    concurrency: usize,
    /// Rounds without guesses, and as many with them
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Work")]
    rounds: usize,
    /// Most guesses of a text in a step
    #[arg(
        long,
        value_name = "N",
        default_value_t = ServeConfig::default().guessing.most,
        help_heading = "Work"
    )]
    draft_max: u8,
    /// Where guesses come from: auto, lookup (from the text itself) or draft (from --model-draft)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        value_parser = parse_spec,
        help_heading = "Work"
    )]
    spec: Speculation,
    /// GGUF file of a smaller model with the same vocabulary, which guesses (also -md)
    #[arg(long, visible_alias = "spec-draft-model", value_name = "FILE", help_heading = "Work")]
    model_draft: Option<PathBuf>,
    /// Share of its guesses that are right. A record does not tell, so they are chosen at random
    #[arg(long, value_name = "SHARE", default_value_t = 0.7, help_heading = "Work")]
    draft_accept: f64,
    /// Save every round as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

fn parse_spec(how: &str) -> Result<Speculation, String> {
    match how.parse() {
        Ok(Speculation::Off) | Err(_) => Err("it must be auto, lookup or draft".into()),
        Ok(spec) => Ok(spec),
    }
}

/// Runs the replay and shows the result.
pub fn run(args: &ReplayArgs) -> Result<(), String> {
    let config = args.engine.config()?;
    for (flag, value) in [("--concurrency", args.concurrency), ("--rounds", args.rounds)] {
        if value == 0 {
            return Err(format!("{flag} is 0; it must be at least 1"));
        }
    }
    if !(0.0..=1.0).contains(&args.draft_accept) {
        return Err(format!("--draft-accept is {}; it must be from 0 to 1", args.draft_accept));
    }
    let guessing = Guessing { most: args.draft_max, ..config.guessing };
    let (speculation, model_draft) = (args.spec, args.model_draft.clone());
    let config = ServeConfig { guessing, speculation, model_draft, ..config };
    config.check_drafts()?;
    let loaded = load(&args.engine.obtain()?, config.kernels, |_| true);
    let loaded = loaded.map_err(|error| error.to_string())?;
    let draft = config.model_draft.as_ref().map(|path| {
        let draft = load_draft(path, config.kernels, &loaded, true, |_| true);
        draft.map_err(|error| error.to_string())
    });
    let draft = draft.transpose()?;
    let read = |path: &PathBuf| record::read(path, &loaded.vocab);
    let replay = Replay {
        records: read(&args.records)?,
        beside: args.beside.as_ref().map(read).transpose()?.unwrap_or_default(),
        config,
        draft_accept: args.draft_accept,
        concurrency: args.concurrency,
        rounds: args.rounds,
    };
    let bar = ProgressBar::new(2 * args.rounds as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs, {msg}");
    bar.set_style(style.expect("the template is ours, and valid"));
    bar.set_message("a warm-up");
    let rounds = replay::run(&replay, &loaded, draft.as_ref(), |run| {
        bar.set_message(format!("{:.1} tokens/s", run.rate));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    // Write the file even if standard output is closed.
    let _ = std::io::stdout().write_all(table::table(&replay, &rounds).as_bytes());
    args.json.as_ref().map_or(Ok(()), |path| {
        let json = table::to_json(&replay, &rounds);
        std::fs::write(path, format!("{json:#}\n"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    })
}
