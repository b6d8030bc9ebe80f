//! `corelane bench serve`: measures a server over HTTP.
//!
//! It works with any server of OpenAI-style completions or chats (corelane, llama-server, vllm).
//! Prompts are token ids or words. [`metrics`](super::metrics), [`stall`](super::stall),
//! [`burst`](super::burst) and [`turns`](super::turns) define the reported numbers.

use std::io::Write;

use super::args::BenchServeArgs;
use super::compare;
use super::failure::{self, Failures};
use super::load::Load;
use super::prompts::Prompts;
use super::report::Measured;
use super::saved;
use super::scenario::Plan;
use super::target::{Model, Target};
use super::workload::Form;

/// Runs the benchmark: measures, prints the result and saves it.
pub fn run(args: &BenchServeArgs) -> Result<(), String> {
    args.check()?;
    let urls: Vec<String> = [Some(args.url()), args.vs.clone()].into_iter().flatten().collect();
    let mut sides = Vec::new();
    for (url, key) in urls.iter().zip([args.key(), args.vs_key()]) {
        sides.push(side(args, url, key)?);
    }
    let mut prompts = match sides.iter().filter_map(|side| side.n_vocab).min() {
        Some(n_vocab) => Prompts::new(n_vocab, args.seed)?,
        None => Prompts::of_words(args.seed),
    };
    let mut rounds: Vec<Vec<Measured>> = Vec::new();
    let mut broken = None;
    for _ in 0..args.rounds() {
        let plan = Plan::draw(args, &mut prompts)?;
        let round = sides.iter().map(|side| plan.measure(args, &side.base)).collect();
        match round {
            Ok(round) => rounds.push(round),
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    if !rounds.is_empty() {
        report(args, &urls, &sides, &rounds)?;
    }
    broken.map_or_else(|| verdict(&rounds), Err)
}

/// A server under test.
struct Side {
    /// The options that every load on this server shares.
    base: Load,
    /// Size of the vocabulary in tokens; `None` when prompts are words.
    n_vocab: Option<u32>,
}

fn side(args: &BenchServeArgs, url: &str, key: Option<String>) -> Result<Side, String> {
    let target = Target::parse(url)?;
    let timeout = args.timeout()?;
    let sends_ids = args.form() == Form::Ids;
    let model = match &args.model {
        Some(id) if args.vocab_size.is_some() || !sends_ids => {
            Model { id: Some(id.clone()), n_vocab: args.vocab_size }
        }
        _ => target.model(key.as_deref(), timeout).map_err(|error| error.to_string())?,
    };
    let n_vocab = args.vocab_size.or(model.n_vocab).filter(|_| sends_ids);
    if sends_ids && n_vocab.is_none() {
        return Err(format!(
            "{url}/v1/models does not tell data[0].meta.n_vocab; give --vocab-size, \
             or --text-prompts where token ids are not taken"
        ));
    }
    let base = Load {
        address: target.address,
        endpoint: format!("{}{}", target.prefix, args.endpoint()),
        form: args.form(),
        model: args.model.clone().or(model.id),
        api_key: key,
        output_tokens: args.output_len(),
        ignore_eos: args.ignore_eos,
        temperature: args.temperature,
        stream: !args.no_stream,
        extra_body: args.extra_body.clone().map(|object| object.0).unwrap_or_default(),
        timeout,
        ..Load::default()
    };
    Ok(Side { base, n_vocab })
}

fn report(
    args: &BenchServeArgs,
    urls: &[String],
    sides: &[Side],
    rounds: &[Vec<Measured>],
) -> Result<(), String> {
    let (text, results) = match rounds {
        [round] if round.len() == 1 => (round[0].table.clone(), round[0].json.clone()),
        rounds => {
            let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
            (compare::table(rounds, &urls), compare::json(rounds))
        }
    };
    // Save the file even when standard output is closed.
    let printed = std::io::stdout().write_all(text.as_bytes());
    if args.save_result {
        let models: Vec<Option<&str>> =
            sides.iter().map(|side| side.base.model.as_deref()).collect();
        saved::save(args, urls, &models, results)?;
    }
    printed.map_err(|error| format!("cannot print the result: {error}"))
}

/// Returns whether all requests succeeded.
///
/// # Errors
/// A message with the number of failed requests and the reasons.
fn verdict(rounds: &[Vec<Measured>]) -> Result<(), String> {
    let mut failures = Failures::new();
    let mut completed = 0;
    for measured in rounds.iter().flatten() {
        completed += measured.completed;
        for (kind, (count, example)) in &measured.failures {
            failures.entry(*kind).or_insert_with(|| (0, example.clone())).0 += count;
        }
    }
    let failed = failure::count(&failures);
    if failed == 0 && completed > 0 {
        return Ok(());
    }
    let reasons: Vec<String> =
        failures.values().map(|(count, example)| format!("{count} x {example}")).collect();
    let total = completed + failed;
    Err(format!("{failed} of {total} requests failed: {}", reasons.join("; ")))
}
