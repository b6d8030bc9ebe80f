//! Measures the model on this machine before the first request: the time of a few kinds of steps,
//! with each candidate number of compute threads.
//!
//! So the scheduler knows from the first request on how long steps take. The first step also
//! touches all memory of the model, so that no request waits for that.

use std::time::{Duration, Instant};

use crate::limits::{CALIBRATION_TEXTS, THREAD_CANDIDATES_MAX};
use crate::model::{Backend, DecodeRow, StepError};
use crate::types::{Calibration, Logits, Position, SlotId, Threads, TimedStep, TokenId};

/// About the time that measuring the machine at the start takes; more if one step takes longer.
const CALIBRATION_TIME: Duration = Duration::from_millis(700);

/// Tokens of the step whose logits are looked at.
const CHECKED_ROWS: usize = 8;

/// Tokens of the measured prompt.
const CALIBRATION_PROMPT_ROWS: usize = 64;

/// Most repetitions of a step, and the time of all of them. Their median is the result. The
/// shortest time would favour threads that are fast only when they happen to meet at their
/// barriers.
const REPEATS: u128 = 33;
const REPEATS_TIME: Duration = Duration::from_millis(70);

/// Runs steps with arbitrary tokens on `slots` empty slots, for about `CALIBRATION_TIME` (one step
/// if that is longer), and empties the slots again. A text has at most `text_tokens` tokens.
/// `threads` are the candidates to measure, the most likely first. A single candidate is measured,
/// too.
///
/// # Errors
/// If the model cannot run.
pub fn calibrate<B: Backend>(
    backend: &mut B,
    slots: usize,
    step_rows: usize,
    text_tokens: usize,
    threads: &[Threads],
) -> Result<Calibration, StepError> {
    let texts = CALIBRATION_TEXTS.min(slots).min(step_rows);
    let prompt = CALIBRATION_PROMPT_ROWS.min(step_rows).min(text_tokens);
    let mut kinds = vec![(1, false), (texts, false), (prompt, true)];
    kinds.dedup();
    let Some(first) = threads.first() else { return Ok(Calibration::default()) };
    backend.use_threads(*first);
    run(backend, 1, false)?; // touches memory, so its time says little
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    let mut calibration = Calibration { candidates: threads.to_vec(), steps: Vec::new() };
    for (rows, is_prompt) in kinds {
        let mut times = vec![Vec::new(); threads.len()];
        let mut repeats = 1;
        // The candidates take turns, because other programs may slow the machine for a while.
        let mut turn = 0;
        while turn < repeats {
            for (threads, times) in threads.iter().zip(&mut times) {
                // The next step is expected to take as long as the longest so far. A prompt may
                // take longer.
                if began.elapsed() + longest > CALIBRATION_TIME {
                    repeats = 0;
                    break;
                }
                backend.use_threads(*threads);
                let took = run(backend, rows, is_prompt)?;
                longest = longest.max(took);
                times.push(took);
            }
            turn += 1;
            if turn == 1 && repeats == 1 {
                let shortest = times.iter().flatten().map(Duration::as_micros).min().unwrap_or(0);
                repeats = (REPEATS_TIME.as_micros() / shortest.max(1)).clamp(1, REPEATS);
            }
        }
        let step = |(threads, times): (&Threads, &mut Vec<Duration>)| {
            let middle = times.len().checked_sub(1)? / 2;
            let (_, took, _) = times.select_nth_unstable(middle);
            Some(TimedStep { threads: *threads, rows, is_prompt, took: *took })
        };
        let steps: Vec<_> = threads.iter().zip(&mut times).filter_map(step).collect();
        // A kind of step that not all candidates ran cannot compare them. The first kind is kept
        // anyway, because it shows how long steps are.
        if steps.len() == threads.len() || calibration.steps.is_empty() {
            calibration.steps.extend(steps);
        }
    }
    backend.use_threads(*first);
    Ok(calibration)
}

/// Runs a step with tokens from all over the vocabulary, and looks at what it gives. A file that was not completely
/// downloaded may load, and answer with nothing or with one token for ever.
///
/// # Errors
/// A sentence about the model, if it cannot run, or if its logits are no numbers or behind each token all the same.
/// (Behind one token they may be: some models have zeros for a token that fills up texts.)
pub fn check_logits<B: Backend>(backend: &mut B, rows_max: usize) -> Result<(), String> {
    let rows = CHECKED_ROWS.min(rows_max);
    let row = |index: usize| DecodeRow {
        token: (index * backend.n_vocab() / rows) as TokenId, // below the vocabulary's size
        slot: SlotId(0),
        position: Position(index as u32), // below CHECKED_ROWS
        logits: Logits::Sample,
    };
    let batch: Vec<DecodeRow> = (0..rows).map(row).collect();
    let result = backend.decode(&batch);
    backend.truncate(SlotId(0), Position(0));
    result.map_err(|error| format!("the model cannot run: {error}"))?;
    let mut differ = false;
    for row in 0..rows {
        let logits = backend.logits(row);
        if logits.iter().any(|logit| !logit.is_finite()) {
            return Err(broken("some logits of a first step are no finite numbers"));
        }
        differ |= logits.iter().any(|logit| *logit != logits[0]);
    }
    if differ { Ok(()) } else { Err(broken("all logits of a first step are the same")) }
}

fn broken(why: &str) -> String {
    format!("the model is broken: {why}; is its file complete and undamaged?")
}

/// The candidates among `most` threads: all, all but one, half of that and so on, one, and one
/// thread that leads all others.
pub fn candidates(most: usize) -> Vec<Threads> {
    let mut candidates = vec![most];
    let mut threads = most - 1;
    // Leave room for the last two: one thread, and one that leads.
    while threads > 1 && candidates.len() + 2 < THREAD_CANDIDATES_MAX {
        candidates.push(threads);
        threads /= 2;
    }
    if most > 1 {
        candidates.push(1);
    }
    let count = |threads: &usize| *threads as u16; // at most THREADS_MAX
    let mut candidates: Vec<Threads> =
        candidates.iter().map(|threads| Threads { count: count(threads), led: false }).collect();
    if most > 1 {
        candidates.push(Threads { count: count(&most), led: true });
    }
    candidates
}

/// The only candidate: all `most` threads, without a leader.
pub fn all(most: usize) -> Vec<Threads> {
    vec![Threads { count: most as u16, led: false }] // at most THREADS_MAX
}

/// Runs a step: a token of each of `rows` texts, or a prompt of `rows` tokens. Returns its time.
fn run<B: Backend>(backend: &mut B, rows: usize, is_prompt: bool) -> Result<Duration, StepError> {
    let row = |index: usize| DecodeRow {
        token: (index * 7 % backend.n_vocab()) as TokenId, // below the vocabulary's size
        slot: SlotId(if is_prompt { 0 } else { index as u16 }), // below the number of slots
        position: Position(if is_prompt { index as u32 } else { 0 }), // below STEP_ROWS_MAX
        logits: if is_prompt && index + 1 < rows { Logits::None } else { Logits::Sample },
    };
    let batch: Vec<DecodeRow> = (0..rows).map(row).collect();
    let began = Instant::now();
    let result = backend.decode(&batch);
    let took = began.elapsed();
    for row in &batch {
        backend.truncate(row.slot, Position(0));
    }
    result.map(|()| took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fake::{FakeModel, FakeOptions};

    fn of(count: u16) -> Threads {
        Threads { count, led: false }
    }

    #[test]
    fn a_few_numbers_of_threads_are_tried() {
        let shown = |most| candidates(most).iter().map(Threads::to_string).collect::<Vec<_>>();
        assert_eq!(shown(1), ["1"]);
        assert_eq!(shown(2), ["2", "1", "2 led"]);
        assert_eq!(shown(4), ["4", "3", "1", "4 led"]);
        assert_eq!(shown(64), ["64", "63", "31", "15", "7", "3", "1", "64 led"]);
    }

    /// A model with a table of positions has only those that it was trained for.
    #[test]
    fn no_prompt_is_longer_than_a_text_may_be() {
        let mut model = FakeModel::new(4, 1024, 128, FakeOptions::default());
        let found = calibrate(&mut model, 4, 128, 8, &[of(1)]).unwrap();
        assert!(found.steps.iter().all(|step| step.rows <= 8), "{found:?}");
    }

    /// The steps of a large model take longer than all the time for measurements.
    #[test]
    fn a_slow_model_keeps_its_candidates() {
        let step = CALIBRATION_TIME + Duration::from_millis(1);
        let options = FakeOptions { step, ..FakeOptions::default() };
        let mut model = FakeModel::new(4, 1024, 128, options);
        let found = calibrate(&mut model, 4, 128, 1024, &[of(2), of(1)]).unwrap();
        assert_eq!(found.candidates, [of(2), of(1)]);
        let ran: Vec<_> = found.steps.iter().map(|step| (step.rows, step.threads)).collect();
        assert_eq!(ran, [(1, of(2))]);
    }

    #[test]
    fn all_kinds_of_steps_are_measured_and_nothing_stays() {
        let mut model = FakeModel::new(4, 1024, 128, FakeOptions::default());
        let found = calibrate(&mut model, 4, 128, 1024, &[of(2), of(1)]).unwrap();
        let kinds: Vec<_> = found
            .steps
            .iter()
            .map(|step| (step.rows, step.is_prompt, step.threads.count))
            .collect();
        let expected = [(1, false), (4, false), (CALIBRATION_PROMPT_ROWS, true)];
        let expected = expected.map(|(rows, is_prompt)| [2, 1].map(|n| (rows, is_prompt, n)));
        assert_eq!(kinds, expected.concat());
        // The slots are empty: a text starts at position 0.
        run(&mut model, 4, false).unwrap();
        // With one slot and short steps there is less to measure.
        let mut model = FakeModel::new(1, 1024, 1, FakeOptions::default());
        assert_eq!(calibrate(&mut model, 1, 1, 1024, &[of(1)]).unwrap().steps.len(), 2);
    }
}
