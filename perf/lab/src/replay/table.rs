//! The result of a replay as a table, and as JSON.

use serde_json::{Value, json};

use super::round::{Replay, Round, Run, ratios};
use crate::ladder::Spread;

/// The numbers of a run that are compared.
type Row = (&'static str, fn(&Run) -> Option<f64>);

const ROWS: [Row; 3] = [
    ("tokens/s of a stream", |run| Some(run.rate)),
    ("p50 between two tokens beside, ms", |run| run.beside.map(|gaps| gaps[0])),
    ("p99 between two tokens beside, ms", |run| run.beside.map(|gaps| gaps[1])),
];

/// The whole table.
pub fn table(replay: &Replay, rounds: &[Round]) -> String {
    let mut text = format!(
        "{:<36} {:>22} {:>22} {:>24}\n",
        format!("{} records, {} at once", replay.records.len(), replay.concurrency),
        "without guesses",
        "with guesses",
        "with / without",
    );
    for (name, of) in ROWS {
        if rounds.iter().flatten().any(|run| of(run).is_none()) {
            continue;
        }
        let number = |run: &Run| of(run).unwrap_or_default();
        let spread = |arm: usize| Spread::of(rounds.iter().map(|round| number(&round[arm])));
        let shown =
            |Spread { median, min, max }: Spread| format!("{median:.1} ({min:.1} to {max:.1})");
        let Spread { median, min, max } = ratios(rounds, number);
        let ratio = format!("{median:.3} ({min:.3} to {max:.3})");
        let line =
            format!("{name:<36} {:>22} {:>22} {ratio:>24}\n", shown(spread(0)), shown(spread(1)));
        text.push_str(&line);
    }
    let sum = |of: fn(&Run) -> u64| rounds.iter().map(|[_, with]| of(with)).sum::<u64>();
    let (tokens, made, kept) = (sum(|run| run.tokens), sum(|run| run.made), sum(|run| run.kept));
    let steps = tokens - kept;
    text.push_str(&format!(
        "of {made} guesses {kept} came true ({:.0} %); a step gave {:.2} tokens\n",
        100.0 * kept as f64 / made.max(1) as f64,
        tokens as f64 / steps.max(1) as f64,
    ));
    text
}

/// The runs as JSON.
pub fn to_json(replay: &Replay, rounds: &[Round]) -> Value {
    let run = |run: &Run| {
        json!({
            "tokens_per_second": run.rate,
            "beside_p50_ms": run.beside.map(|gaps| gaps[0]),
            "beside_p99_ms": run.beside.map(|gaps| gaps[1]),
            "tokens": run.tokens,
            "guesses": run.made,
            "guesses_kept": run.kept,
        })
    };
    let rounds: Vec<Value> = rounds
        .iter()
        .map(|[without, with]| json!({"without": run(without), "with": run(with)}))
        .collect();
    json!({
        "records": replay.records.len(),
        "concurrency": replay.concurrency,
        "draft_max": replay.config.guessing.most,
        "spec": replay.config.speculation.to_string(),
        "model_draft": replay.config.model_draft,
        "draft_accept": replay.config.model_draft.as_ref().map(|_| replay.draft_accept),
        "rounds": rounds,
    })
}
