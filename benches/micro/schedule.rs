//! Measures planning a step and handling its result, while every sequence decodes.

use std::hint::black_box;

use corelane::limits::{CONTEXT_TOKENS_MAX, QUEUE_SEQUENCES, QUEUE_TOKENS, STEP_ROWS_MAX};
use corelane::ring::message::{Batch, Sample};
use corelane::scheduler::{Capacity, Event, NewSequence, Pages, Scheduler};
use corelane::types::{ItlTarget, Logits, Sampling};
use criterion::{BatchSize, Criterion, Throughput, criterion_group};

/// Tokens of a sequence before the next one takes its slot. So many that the cost of the change
/// does not show.
const MAX_TOKENS: u32 = 20_000;

/// A scheduler whose sequences all decode, and the results of their steps.
struct Steady {
    scheduler: Scheduler,
    sequences: usize,
    batch: Box<Batch>,
    /// The decode lane's result of a step. Only its positions change while the sequences stay.
    answers: Box<Batch>,
}

impl Steady {
    fn new(sequences: usize) -> Self {
        let capacity = Capacity {
            slots: sequences,
            step_rows: STEP_ROWS_MAX,
            itl_target: ItlTarget::Chosen,
            context_tokens: CONTEXT_TOKENS_MAX as u32, // 2^26
            sequence_tokens: 2 * MAX_TOKENS,
            queue_sequences: QUEUE_SEQUENCES,
            queue_tokens: QUEUE_TOKENS,
            reuse: false,
            states: None,
            logits: 0,
            pages: Pages::default(),
            files: None,
            own_cells: false,
            looks_up: true,
            drafts: false,
            weights: vec![1.0],
        };
        let mut steady = Self {
            scheduler: Scheduler::new(capacity),
            sequences,
            batch: Box::default(),
            answers: Box::default(),
        };
        steady.start();
        steady
    }

    /// Starts new sequences, up to the first token of each.
    fn start(&mut self) {
        let new = || NewSequence::new([1, 2, 3, 4].into(), MAX_TOKENS, Sampling::greedy());
        let new = (0..self.sequences).map(|_| new()).collect();
        self.scheduler.admit(new, |_, _| ()).expect("an empty queue has room");
        self.batch.clear();
        assert!(self.scheduler.schedule(&mut self.batch));
        self.answers.clear();
        for row in self.batch.rows.iter().filter(|row| row.logits == Logits::Sample) {
            let sample = Sample::plain(row, 7);
            self.answers.samples.push(sample).expect("one for each slot");
        }
        assert_eq!(self.answers.samples.len(), self.sequences, "all prompts fit into one step");
        self.scheduler.complete(&mut self.answers, |_| ());
    }

    /// Runs one step: a row and a token for each sequence.
    fn step(&mut self) {
        self.batch.clear();
        self.scheduler.schedule(&mut self.batch);
        assert_eq!(self.batch.rows.len(), self.sequences);
        for sample in &mut self.answers.samples {
            sample.position.0 += 1;
        }
        let mut ended = false;
        self.scheduler.complete(black_box(&mut self.answers), |event| {
            let is_end =
                |event| matches!(event, Event::Finished(..) | Event::Token { is_last: true, .. });
            ended |= is_end(black_box(event));
        });
        if ended {
            self.start();
        }
    }
}

fn schedule(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan and complete a step");
    for sequences in [1, 8, 64, 256] {
        let mut steady = Steady::new(sequences);
        group.throughput(Throughput::Elements(sequences as u64));
        group.bench_function(format!("{sequences} decoding"), |b| b.iter(|| steady.step()));
    }
    group.finish();
}

/// Sequences with a common prefix arrive together. Each is compared with all before it.
fn start(c: &mut Criterion) {
    const SHARED: usize = 2_000;
    let mut group = c.benchmark_group("plan a burst that shares 2,000 tokens");
    for sequences in [8, 64] {
        let capacity = Capacity {
            slots: sequences,
            step_rows: STEP_ROWS_MAX,
            itl_target: ItlTarget::Chosen,
            context_tokens: CONTEXT_TOKENS_MAX as u32, // 2^26
            sequence_tokens: 2 * SHARED as u32,
            queue_sequences: QUEUE_SEQUENCES,
            queue_tokens: QUEUE_TOKENS,
            reuse: true,
            states: None,
            logits: 0,
            pages: Pages::default(),
            files: None,
            own_cells: false,
            looks_up: true,
            drafts: false,
            weights: vec![1.0],
        };
        let prompt = |own: usize| {
            let tokens = (0..SHARED as i32).chain([own as i32]);
            NewSequence::new(tokens.collect(), 10, Sampling::greedy())
        };
        let burst = || {
            let mut scheduler = Scheduler::new(capacity.clone());
            let new = (0..sequences).map(prompt).collect();
            scheduler.admit(new, |_, _| ()).expect("an empty queue has room");
            (scheduler, Box::<Batch>::default())
        };
        group.throughput(Throughput::Elements(sequences as u64));
        group.bench_function(format!("{sequences} at once"), |b| {
            b.iter_batched_ref(
                burst,
                |(scheduler, batch)| assert!(scheduler.schedule(batch)),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = schedule, start);
