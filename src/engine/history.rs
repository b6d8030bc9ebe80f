//! The last steps of the model and the last turns of the engine (ticks), for the page about the
//! lanes.
//!
//! **Invariant:** all memory is allocated at the start. Recording a step copies it once.

use crate::clock::Micros;
use crate::limits::HISTORY_STEPS;
use crate::metrics::Cause;
use crate::ring::message::Batch;

/// Most turns that are kept: two for each step, one that sends it and one that takes it back.
const HISTORY_TICKS: usize = 2 * HISTORY_STEPS;

/// The last steps and ticks, the oldest first.
#[derive(Debug, Default)]
pub struct History {
    steps: Box<heapless::HistoryBuf<Step, HISTORY_STEPS>>,
    ticks: Box<heapless::HistoryBuf<Tick, HISTORY_TICKS>>,
}

/// A step that came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Its number.
    pub number: u64,
    /// When the front lane sent it.
    pub sent: Micros,
    /// When the decode lane began it.
    pub began: Micros,
    /// Microseconds of finding guesses and of running the model.
    pub model_us: u32,
    /// Microseconds of sampling.
    pub sample_us: u32,
    /// Microseconds before `began` in which there was work but the decode lane was idle.
    pub bubble_us: u32,
    /// The start of the turn in which the front lane took the step back. A step that ended during
    /// this turn ended after this time.
    pub received: Micros,
    /// Rows that were prompt tokens.
    pub prefill_rows: u32,
    /// Rows that were generated tokens.
    pub decode_rows: u32,
    /// Sequences with a slot when the step came back.
    pub running: u32,
    /// Sequences that waited for a slot at that time.
    pub waiting: u32,
    /// The number of the step's late tokens, and the cause of the last one.
    pub late: (u32, Option<Cause>),
}

/// A turn of the front lane's engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// When it began.
    pub began: Micros,
    /// How long it took, in microseconds.
    pub took_us: u32,
}

impl Step {
    /// The names of [`Step::values`].
    pub const FIELDS: [&str; 13] = [
        "step",
        "sent_us",
        "began_us",
        "model_us",
        "sample_us",
        "bubble_us",
        "received_us",
        "prefill_rows",
        "decode_rows",
        "running",
        "waiting",
        "late_tokens",
        "late_cause",
    ];

    /// The record of a batch that came back, with the load at that time.
    pub fn new(
        batch: &Batch,
        received: Micros,
        running: usize,
        waiting: usize,
        late: (u32, Option<Cause>),
    ) -> Self {
        Self {
            number: batch.step,
            sent: batch.sent,
            began: batch.began,
            model_us: batch.guess_us + batch.decode_us,
            sample_us: batch.sample_us,
            bubble_us: batch.bubble_us,
            received,
            prefill_rows: batch.prefill_rows,
            decode_rows: batch.decode_rows,
            running: running as u32, // at most SLOTS_MAX
            waiting: waiting as u32, // at most QUEUE_SEQUENCES
            late,
        }
    }

    /// All its numbers.
    pub fn values(&self) -> [u64; Self::FIELDS.len()] {
        [
            self.number,
            self.sent.0,
            self.began.0,
            self.model_us.into(),
            self.sample_us.into(),
            self.bubble_us.into(),
            self.received.0,
            self.prefill_rows.into(),
            self.decode_rows.into(),
            self.running.into(),
            self.waiting.into(),
            self.late.0.into(),
            self.late.1.map_or(0, |cause| cause as u64),
        ]
    }
}

impl Tick {
    /// The names of [`Tick::values`].
    pub const FIELDS: [&str; 2] = ["began_us", "took_us"];

    /// All its numbers.
    pub fn values(&self) -> [u64; Self::FIELDS.len()] {
        [self.began.0, self.took_us.into()]
    }
}

impl History {
    /// Records a step.
    pub fn push_step(&mut self, step: Step) {
        self.steps.write(step);
    }

    /// Records a turn.
    pub fn push_tick(&mut self, tick: Tick) {
        self.ticks.write(tick);
    }

    /// The steps that came back after this time.
    pub fn steps_since(&self, time: Micros) -> impl Iterator<Item = &Step> {
        self.steps.oldest_ordered().filter(move |step| step.received > time)
    }

    /// The turns that ended after this time.
    pub fn ticks_since(&self, time: Micros) -> impl Iterator<Item = &Tick> {
        self.ticks
            .oldest_ordered()
            .filter(move |tick| tick.began.0 + u64::from(tick.took_us) > time.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_steps_are_kept_in_order() {
        let mut history = History::default();
        let last = HISTORY_STEPS as u64 + 10;
        for number in 1..=last {
            history.push_step(Step { number, received: Micros(10 * number), ..Step::default() });
        }
        let since = |time| history.steps_since(Micros(time)).map(|step| step.number);
        assert!(since(0).eq(11..=last), "the oldest are forgotten");
        assert!(since(10 * last - 20).eq(last - 1..=last), "only those after the time");
        assert_eq!(since(10 * last).count(), 0);
    }

    #[test]
    fn a_turn_counts_until_its_end() {
        let mut history = History::default();
        history.push_tick(Tick { began: Micros(100), took_us: 20 });
        assert_eq!(history.ticks_since(Micros(119)).count(), 1);
        assert_eq!(history.ticks_since(Micros(120)).count(), 0);
    }
}
