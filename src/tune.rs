//! Measures how fast a model runs on this machine with different settings, and chooses the best.
//!
//! The values of a setting are measured in turns, so that other work of the machine slows all of
//! them alike.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::abort::StepAbort;
use crate::config::ServeConfig;
use crate::decode::calibrate::{self, calibrate};
use crate::lanes;
use crate::limits::{CALIBRATION_TEXTS, LANE_STACK_BYTES};
use crate::model::llama::{ContextConfig, LlamaDecoder};
use crate::model::load::Loaded;
use crate::model::{Backend, DecodeRow, StepError};
use crate::pressure;
use crate::types::{Calibration, Logits, Position, SlotId, Threads, TokenId};

/// Rounds, in each of which each value is measured once.
const ROUNDS: usize = 3;

/// Tokens of the prompt that is computed with each micro-batch: as many as take this time, within
/// bounds.
const PROMPT_TIME: Duration = Duration::from_secs(4);
const PROMPT_TOKENS: Range<usize> = 128..1025;
const MICRO_BATCHES: [usize; 5] = [64, 128, 256, 512, 1024];

/// Levels of polling, and the time in which each runs steps of one text.
const POLLS: [u32; 4] = [0, 10, 50, 100];
const POLL_TIME: Duration = Duration::from_millis(700);
/// The pause between two of these steps: about the time that the front lane takes.
const BETWEEN_STEPS: Duration = Duration::from_micros(100);

/// A value must be better than a smaller one by this factor. Small micro-batches take less memory,
/// and threads that sleep leave their core to others.
const WORTH: f64 = 1.02;

/// A quantity that was measured once in each round.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    fn add(&mut self, measured: f64) {
        self.0.push(measured);
        self.0.sort_by(f64::total_cmp);
    }

    /// The median.
    ///
    /// # Panics
    /// Without a measurement.
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The least and the greatest measurement.
    ///
    /// # Panics
    /// Without a measurement.
    pub fn spread(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

/// The results, in microseconds and tokens per second.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The steps with each number of threads. A server measures these itself when it starts.
    pub calibration: Calibration,
    /// Tokens of the prompt, and the tokens per second of such a prompt with each micro-batch.
    pub prompt_tokens: usize,
    /// See `prompt_tokens`.
    pub micro_batches: Vec<(usize, Series)>,
    /// The best micro-batch.
    pub micro_batch: usize,
    /// Microseconds of a step with one text, and of processor time, with each level of polling.
    pub polls: Vec<(u32, Series, Series)>,
    /// The best level of polling.
    pub poll: u32,
}

/// Measures a model with the settings of `config`, apart from those that it chooses. Calls `tell`
/// with what it does next.
///
/// # Errors
/// A sentence for the user, if the model cannot run.
pub fn tune(
    loaded: &Loaded,
    config: &ServeConfig,
    tell: impl FnMut(&str) + Send,
) -> Result<Tuned, String> {
    // The thread that makes a decoder is pinned.
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("decode".into()).stack_size(LANE_STACK_BYTES);
        let measures = builder.spawn_scoped(scope, || Bench { loaded, config }.run(tell));
        let measures = measures.map_err(|error| format!("cannot start a thread: {error}"))?;
        measures.join().expect("a thread that panics ends the process")
    })
}

struct Bench<'a> {
    loaded: &'a Loaded,
    config: &'a ServeConfig,
}

impl Bench<'_> {
    fn run(&self, mut tell: impl FnMut(&str)) -> Result<Tuned, String> {
        tell("threads");
        let mut decoder = self.decoder(self.config.ubatch_rows, self.config.poll)?;
        let most = decoder.threads();
        let threads = match self.config.fixed_threads {
            true => calibrate::all(most),
            false => calibrate::candidates(most),
        };
        let rows = self.config.ubatch_rows;
        let calibration =
            calibrate(&mut decoder, CALIBRATION_TEXTS, rows, self.text_tokens(), &threads)
                .map_err(|error| error.to_string())?;
        let fastest = |is_prompt: bool| {
            let kinds = calibration.kinds();
            let kind = kinds.iter().find(|steps| steps[0].is_prompt == is_prompt);
            kind.map_or(threads[0], |steps| steps[0].threads)
        };
        let (for_text, for_prompt) = (fastest(false), fastest(true));

        let prompt_tokens = self.prompt_tokens(&calibration);
        let micro_batches = self.micro_batches(&decoder, prompt_tokens, for_prompt, &mut tell)?;
        drop(decoder);
        let polls = self.polls(for_text, &mut tell)?;
        Ok(Tuned {
            micro_batch: first_good(micro_batches.iter().map(|(n, speed)| (*n, speed.median()))),
            poll: first_good(polls.iter().map(|(level, us, _)| (*level, 1.0 / us.median()))),
            calibration,
            prompt_tokens,
            micro_batches,
            polls,
        })
    }

    /// Tokens of the longest text.
    fn text_tokens(&self) -> usize {
        PROMPT_TOKENS.end.min(self.loaded.info.context_trained.max(1) as usize)
    }

    fn context(&self, ubatch_rows: usize, poll: u32) -> ContextConfig {
        let config = ServeConfig {
            parallel: CALIBRATION_TEXTS,
            batch_rows: ubatch_rows,
            ubatch_rows,
            poll,
            ..self.config.clone()
        };
        let texts = if config.cache.unified { 1 } else { CALIBRATION_TEXTS };
        let tokens = texts * (self.text_tokens() + CALIBRATION_TEXTS).next_multiple_of(256);
        let abort = Arc::new(StepAbort::default());
        lanes::context_config(&config, self.loaded, tokens as u32, abort) // some thousands
    }

    fn decoder(&self, ubatch_rows: usize, poll: u32) -> Result<LlamaDecoder, String> {
        LlamaDecoder::new(self.loaded.model.clone(), &self.context(ubatch_rows, poll))
    }

    /// As many as take about [`PROMPT_TIME`], by the longest step that was measured.
    fn prompt_tokens(&self, calibration: &Calibration) -> usize {
        let longest = calibration.kinds().pop().map(|steps| steps[0]);
        let each = longest.map_or(Duration::ZERO, |step| step.took / step.rows as u32);
        let tokens = PROMPT_TIME.as_nanos() / each.as_nanos().max(1);
        (tokens as usize).clamp(PROMPT_TOKENS.start, PROMPT_TOKENS.end - 1).min(self.text_tokens())
    }

    /// Tokens per second of a prompt with each micro-batch.
    fn micro_batches(
        &self,
        decoder: &LlamaDecoder,
        tokens: usize,
        threads: Threads,
        tell: &mut impl FnMut(&str),
    ) -> Result<Vec<(usize, Series)>, String> {
        let mut values = Vec::new();
        for rows in MICRO_BATCHES.into_iter().filter(|rows| *rows <= tokens.max(MICRO_BATCHES[0])) {
            let context = self.context(rows, self.config.poll);
            let mut decoder = decoder.beside(self.loaded.model.clone(), &context)?;
            decoder.use_threads(threads);
            prompt(&mut decoder, rows.min(tokens), rows)?; // touches memory
            values.push((rows, decoder, Series::default()));
        }
        for round in 0..ROUNDS {
            for (rows, decoder, speed) in in_turns(&mut values, round) {
                tell(&format!("round {} of {ROUNDS}: micro-batch {rows}", round + 1));
                let took = prompt(decoder, tokens, *rows)?;
                speed.add(tokens as f64 / took.as_secs_f64());
            }
        }
        Ok(values.into_iter().map(|(rows, _, speed)| (rows, speed)).collect())
    }

    /// Microseconds of a step with one text, and of processor time, with each level of polling.
    fn polls(
        &self,
        threads: Threads,
        tell: &mut impl FnMut(&str),
    ) -> Result<Vec<(u32, Series, Series)>, String> {
        let mut values: Vec<_> =
            POLLS.map(|level| (level, Series::default(), Series::default())).into();
        for round in 0..ROUNDS {
            for (level, took, used) in in_turns(&mut values, round) {
                tell(&format!("round {} of {ROUNDS}: poll {level}", round + 1));
                let mut decoder = self.decoder(self.config.ubatch_rows, *level)?;
                decoder.use_threads(threads);
                let (us, cpu_us) = text(&mut decoder, self.text_tokens())?;
                took.add(us);
                used.add(cpu_us);
            }
        }
        Ok(values)
    }
}

/// The values, each round in the other order.
fn in_turns<T>(values: &mut [T], round: usize) -> Vec<&mut T> {
    let mut values: Vec<&mut T> = values.iter_mut().collect();
    if round % 2 == 1 {
        values.reverse();
    }
    values
}

/// The first value that is about as good as the best one.
fn first_good<T: Copy>(values: impl Iterator<Item = (T, f64)> + Clone) -> T {
    let best = values.clone().map(|(_, speed)| speed).fold(0.0, f64::max);
    let mut good = values.filter(|(_, speed)| speed * WORTH >= best);
    good.next().expect("the best one is").0
}

fn row(index: usize, n_vocab: usize, logits: Logits) -> DecodeRow {
    DecodeRow {
        token: (index * 7 % n_vocab) as TokenId, // below the vocabulary's size
        slot: SlotId(0),
        position: Position(index as u32), // below the length of a text
        logits,
    }
}

/// Computes a prompt, `rows` tokens at once. Returns its time.
fn prompt(decoder: &mut LlamaDecoder, tokens: usize, rows: usize) -> Result<Duration, String> {
    let n_vocab = decoder.n_vocab();
    let all: Vec<DecodeRow> = (0..tokens)
        .map(|index| {
            let is_last = index + 1 == tokens;
            row(index, n_vocab, if is_last { Logits::Sample } else { Logits::None })
        })
        .collect();
    let began = Instant::now();
    let result = all.chunks(rows).try_for_each(|chunk| decoder.decode(chunk));
    let took = began.elapsed();
    decoder.truncate(SlotId(0), Position(0));
    result.map(|()| took).map_err(cannot_run)
}

/// Writes a text for [`POLL_TIME`]. Returns the microseconds of a step, and of processor time.
fn text(decoder: &mut LlamaDecoder, most: usize) -> Result<(f64, f64), String> {
    let n_vocab = decoder.n_vocab();
    let used = || -> Duration { pressure::thread_times().values().map(|times| times.ran).sum() };
    let (mut steps, mut took, mut before) = (0, Duration::ZERO, Duration::ZERO);
    // The first step touches memory.
    for index in 0..most {
        if index == 1 {
            before = used();
        }
        let began = Instant::now();
        decoder.decode(&[row(index, n_vocab, Logits::Sample)]).map_err(cannot_run)?;
        if index > 0 {
            took += began.elapsed();
            steps += 1;
        }
        if took > POLL_TIME {
            break;
        }
        thread::sleep(BETWEEN_STEPS);
    }
    let cpu = used().saturating_sub(before);
    let each = |time: Duration| 1e6 * time.as_secs_f64() / f64::from(steps.max(1));
    Ok((each(took), each(cpu)))
}

fn cannot_run(error: StepError) -> String {
    format!("the model cannot run: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_value_must_be_worth_it() {
        let good = |speeds: [f64; 3]| first_good([64, 128, 256].into_iter().zip(speeds));
        assert_eq!(good([99.0, 100.0, 100.5]), 64);
        assert_eq!(good([90.0, 99.0, 100.0]), 128);
        assert_eq!(good([90.0, 70.0, 100.0]), 256);
    }

    #[test]
    fn values_run_in_turns() {
        let mut values = [1, 2, 3];
        assert_eq!(in_turns(&mut values, 0), [&1, &2, &3]);
        assert_eq!(in_turns(&mut values, 1), [&3, &2, &1]);
    }
}
