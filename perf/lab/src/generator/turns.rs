//! The turns scenario: two turns of a conversation.
//!
//! The second prompt is the first prompt with more tokens appended. A server that caches prefixes
//! prefills only the appended tokens.
//!
//! The first turn's answer arrives as text, not as token ids. The second prompt therefore has
//! random tokens in its place, and all of them are new to the server.

use super::load::{Load, Outcome, run as run_load, run_alone};
use super::metrics::{Metrics, Mode};
use super::progress::Progress;
use super::report::{Measure, Measured, Notes, Table, scenario_json};

/// The requests of the two turns.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The prompt of the first turn.
    pub first: Vec<u32>,
    /// The tokens that the second prompt appends.
    pub more: Vec<u32>,
    /// Prompts of the warm-up requests.
    pub warmups: Vec<Vec<u32>>,
}

/// Runs the two turns against the server that `base` names.
pub fn run(base: &Load, plan: &Plan, show_progress: bool) -> Result<Measured, String> {
    let progress = Progress::start(show_progress, 2, "turns");
    let first = run_alone(base, &plan.first, &plan.warmups, "the first turn", |completed| {
        progress.set(completed);
    })?;
    let prompt = [plan.first.clone(), plan.more.clone()].concat();
    let second = Load { prompts: vec![prompt], ..base.clone() };
    let second = run_load(&second, |completed| progress.set(1 + completed))?;
    Ok(report(&first, &second, plan))
}

fn report(first: &Outcome, second: &Outcome, plan: &Plan) -> Measured {
    let metrics = Metrics::of(second, &Mode { streamed: true, ..Mode::default() });
    let ttft = |outcome: &Outcome| {
        let request = &outcome.requests[0];
        request.error.is_none().then_some(request.ttft.as_secs_f64() * 1e3)
    };
    let (one, two) = (ttft(first), ttft(second));
    let ratio = one.zip(two).map(|(one, two)| two / one);
    let measures = vec![
        Measure::new("first_ttft_ms", "TTFT of the first turn (ms)", one),
        Measure::new("second_ttft_ms", "TTFT of the second turn (ms)", two),
        Measure::new("second_to_first_ratio", "TTFT second / first", ratio),
    ];
    let mut table = Table::new("Two Turns Of A Conversation");
    table.row("Tokens of the first prompt", plan.first.len());
    table.row("Tokens that the second has more", plan.more.len());
    for measure in &measures {
        table.number(&measure.name, measure.value);
    }
    table.failures(&metrics.failures);
    let resent = first.requests_resent + second.requests_resent;
    let notes = Notes { resent, ..Notes::default() };
    table.notes(&notes);
    let mut json = scenario_json(&measures, metrics.completed, &metrics.failures);
    json.insert("first_len".into(), plan.first.len().into());
    json.insert("more_len".into(), plan.more.len().into());
    json.insert("requests_resent".into(), resent.into());
    Measured {
        table: table.end(),
        measures,
        json,
        completed: metrics.completed,
        failures: metrics.failures,
        notes,
        output_tokens: None, // the TTFT does not depend on the number of output tokens
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::RequestResult;
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_second_turn_is_compared_with_the_first() {
        let outcome = |ms| Outcome {
            duration: Duration::from_secs(1),
            requests: vec![RequestResult {
                ttft: Duration::from_millis(ms),
                ..RequestResult::default()
            }],
            client_cpu: Duration::ZERO,
            connections_opened: 0,
            requests_resent: 0,
        };
        let plan = Plan { first: vec![1; 100], more: vec![2; 5], warmups: Vec::new() };
        let measured = report(&outcome(400), &outcome(20), &plan);
        assert_eq!(measured.json["second_to_first_ratio"], 0.05);
        assert!(measured.table.contains("Tokens of the first prompt:              100\n"));
    }
}
