//! Clients that ask for the records, each one record after another.

use std::time::Duration;

use super::record::Record;
use super::round::{Replay, Run};
use crate::ladder::requests::Requests;
use crate::stats::Sorted;
use corelane::clock::Micros;
use corelane::limits::SEQUENCES_MAX;
use corelane::scheduler::{Event, NewSequence, Scheduler};
use corelane::types::{Guessing, Sampling};

/// See the module's description.
pub(super) struct Clients<'a> {
    replay: &'a Replay,
    guessing: Guessing,
    /// The next record, and those that run.
    next: usize,
    running: usize,
    /// The stream beside runs, and asks for this record next.
    beside_runs: bool,
    beside_next: usize,
    streams: Vec<Stream>, // [SEQUENCES_MAX], by SequenceId::index
    /// The time between the first and the last token of all records, and the tokens in it.
    decoding: Duration,
    decoded: u64,
    gaps_beside: Vec<Duration>,
    run: Run,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    is_beside: bool,
    tokens: u64,
    first: Micros,
    last: Micros,
}

impl<'a> Clients<'a> {
    pub fn new(replay: &'a Replay, guessing: Guessing) -> Self {
        Self {
            replay,
            guessing,
            next: 0,
            running: 0,
            beside_runs: false,
            beside_next: 0,
            streams: vec![Stream::default(); SEQUENCES_MAX],
            decoding: Duration::ZERO,
            decoded: 0,
            gaps_beside: Vec::new(),
            run: Run::default(),
        }
    }

    /// The numbers of the run.
    pub fn result(self) -> Run {
        let gaps = Sorted::of_times(self.gaps_beside);
        let percentiles = [gaps.percentile(50.0), gaps.percentile(99.0)];
        Run {
            rate: self.decoded as f64 / self.decoding.as_secs_f64(),
            beside: percentiles[0].zip(percentiles[1]).map(|(p50, p99)| [p50, p99]),
            ..self.run
        }
    }

    fn admit(&mut self, scheduler: &mut Scheduler, record: &Record, is_beside: bool) {
        let max_tokens = (record.tokens.len() - record.prompt.len()) as u32; // a context's length
        let sampling = Sampling { ignore_eos: true, ..Sampling::greedy() };
        let new = NewSequence {
            cache: None,
            guessing: if is_beside { Guessing::default() } else { self.guessing },
            ..NewSequence::new(record.prompt.as_slice().into(), max_tokens, sampling)
        };
        let streams = &mut self.streams;
        let admitted = scheduler.admit(vec![new], |_, id| {
            streams[id.index()] = Stream { is_beside, ..Stream::default() };
        });
        admitted.expect("fewer requests run than the queue holds");
    }

    fn token(&mut self, index: usize, is_last: bool, now: Micros) {
        let stream = &mut self.streams[index];
        stream.tokens += 1;
        let last = std::mem::replace(&mut stream.last, now);
        let since = |earlier: Micros| Duration::from_micros(now.since(earlier));
        if stream.tokens == 1 {
            stream.first = now;
        } else if stream.is_beside {
            self.gaps_beside.push(since(last));
        }
        if !stream.is_beside {
            self.run.tokens += 1;
        }
        match (is_last, stream.is_beside) {
            (false, _) => {}
            (true, true) => self.beside_runs = false,
            (true, false) => {
                self.decoding += since(stream.first);
                self.decoded += stream.tokens - 1;
                self.running -= 1;
            }
        }
    }
}

impl Requests for Clients<'_> {
    fn fill(&mut self, scheduler: &mut Scheduler) {
        let Replay { records, beside, concurrency, .. } = self.replay;
        while self.running < *concurrency && self.next < records.len() {
            self.admit(scheduler, &records[self.next], false);
            self.next += 1;
            self.running += 1;
        }
        // The stream beside runs as long as the others do.
        if !beside.is_empty() && !self.beside_runs && self.running > 0 {
            self.admit(scheduler, &beside[self.beside_next % beside.len()], true);
            self.beside_next += 1;
            self.beside_runs = true;
        }
    }

    fn on_event(&mut self, event: Event, now: Micros) {
        match event {
            Event::Token { id, is_last, .. } => self.token(id.index(), is_last, now),
            Event::Guessed { made, kept, .. } => {
                self.run.made += u64::from(made);
                self.run.kept += u64::from(kept);
            }
            Event::Score { .. } => unreachable!("nobody asks for scores"),
            Event::Finished(id, finish) => panic!("{id:?} ended with {finish:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.running == 0 && self.next == self.replay.records.len() && !self.beside_runs
    }
}
