//! The lanes' measurements, compared with clocks and models that the test controls.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::{eventually, hold, job, mask_lane, served_model};
use corelane::clock::Micros;
use corelane::decode::{self, DecodeLane};
use corelane::engine::Engine;
use corelane::limits::RING_CAPACITY;
use corelane::metrics::{HistogramSnapshot, Metrics};
use corelane::model::fake::{FakeModel, FakeOptions};
use corelane::prepare::ServedModel;
use corelane::ring::bell::SocketBell;
use corelane::ring::{self, message::Batch};
use corelane::scheduler::{Capacity, NewSequence, Pages, Scheduler, SequenceId};
use corelane::types::{ItlTarget, Sampling};

fn capacity() -> Capacity {
    Capacity {
        slots: 2,
        step_rows: 32,
        itl_target: ItlTarget::Chosen,
        context_tokens: 200,
        sequence_tokens: 100,
        queue_sequences: 4,
        queue_tokens: 1000,
        reuse: false,
        states: None,
        logits: 0,
        pages: Pages::default(),
        files: None,
        own_cells: false,
        looks_up: true,
        drafts: false,
        weights: vec![1.0],
    }
}

/// A scheduler and a decode lane on one thread, a step at a time.
struct Steps {
    metrics: Arc<Metrics>,
    scheduler: Scheduler,
    lane: DecodeLane<FakeModel>,
    batch: Batch,
}

impl Steps {
    fn new(options: FakeOptions) -> Self {
        let metrics = Arc::new(Metrics::default());
        let model = FakeModel::new(2, 200, 32, options);
        let lane = DecodeLane::new(model, 2, 100, Box::new([]), metrics.clone());
        Self { metrics, scheduler: Scheduler::new(capacity()), lane, batch: Batch::default() }
    }

    fn admit(&mut self) -> SequenceId {
        let prompt = vec![65; 4].into();
        let new = NewSequence::new(prompt, 50, Sampling::greedy());
        let mut admitted = None;
        self.scheduler.admit(vec![new], |_, id| admitted = Some(id)).unwrap();
        admitted.unwrap()
    }

    fn plan(&mut self) {
        self.batch.clear();
        assert!(self.scheduler.schedule(&mut self.batch));
        self.batch.sent = self.metrics.clock.now();
    }

    /// Runs what was planned; returns the bubble before it, in milliseconds.
    fn run(&mut self) -> u64 {
        let before = self.metrics.decode.bubble_us.sum();
        self.lane.step(&mut self.batch);
        self.scheduler.complete(&mut self.batch, |_| ());
        (self.metrics.decode.bubble_us.sum() - before) / 1000
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(40));
}

/// The definition: from the later of the end of the step before and the moment
/// the work existed, to the start of the model.
#[test]
fn the_bubble_begins_when_the_work_exists() {
    let mut steps = Steps::new(FakeOptions::default());
    pause(); // before there is any work
    let first = steps.admit();
    steps.plan();
    assert!(steps.run() < 20, "new work exists when it is sent");
    steps.plan();
    pause();
    assert!(steps.run() >= 40, "and waits from then on");
    pause();
    steps.plan();
    assert!(steps.run() >= 40, "a text that goes on has work whenever a step has ended");
    // A sequence that begins beside one that goes on: the step before ended
    // long before the new one came.
    let second = steps.admit();
    pause();
    steps.plan();
    assert!(steps.run() >= 40);
    // All have left and a new one comes: nobody waited meanwhile.
    steps.scheduler.cancel(first);
    steps.scheduler.cancel(second);
    pause();
    steps.admit();
    steps.plan();
    assert_eq!((steps.batch.clears.len(), steps.batch.starts.len()), (2, 1));
    assert!(steps.run() < 20, "there was no work while nobody asked");
}

#[test]
fn steps_are_counted_by_what_they_ran() {
    let step = Duration::from_millis(3);
    // The second step runs the model twice: for the decode row and for the prompt.
    let mut steps = Steps::new(FakeOptions { step, fail_one_in: 4, ..FakeOptions::default() });
    steps.admit();
    steps.plan(); // 4 rows of prompt
    steps.run();
    steps.admit();
    steps.plan(); // 1 that goes on, 4 of prompt
    steps.run();
    let decode = &steps.metrics.decode;
    assert_eq!((decode.decode_rows.sum(), decode.prefill_rows.sum()), (1, 8));
    assert_eq!((decode.class(4).steps.get(), decode.class(5).steps.get()), (1, 1));
    assert!(decode.class(4).time_us.get() >= 3000);
    assert_eq!(decode.step_us.sum(), decode.by_rows.iter().map(|c| c.time_us.get()).sum::<u64>());
    assert_eq!(decode.steps_failed.get(), 0);
    steps.plan();
    steps.run(); // the third fails, and leaves nothing behind
    let decode = &steps.metrics.decode;
    assert_eq!(decode.steps_failed.get(), 1);
    let steps = [&decode.step_us.count(), &decode.bubble_us.count(), &decode.sample_us.count()];
    assert_eq!(steps, [&3; 3]);
}

/// An engine, and a decode lane on a thread of its own with a model whose steps take so long.
fn engine(served: &ServedModel, step: Duration) -> (Engine, Arc<Metrics>, JoinHandle<()>) {
    let metrics = Arc::new(Metrics::default());
    let (bell, _socket) = SocketBell::new().unwrap();
    let (front, link) = ring::link(RING_CAPACITY, Arc::new(bell), Duration::ZERO);
    let lane = std::thread::spawn({
        let metrics = metrics.clone();
        move || {
            let options = FakeOptions { step, ..FakeOptions::default() };
            let model = FakeModel::new(2, 200, 32, options);
            decode::run(DecodeLane::new(model, 2, 100, Box::new([]), metrics), link);
        }
    });
    let capacity = Capacity { reuse: true, ..capacity() };
    let (masks, _) = mask_lane();
    (Engine::new(served.vocab.clone(), capacity, front, masks, metrics.clone()), metrics, lane)
}

/// Submits a request for one token.
fn submit(engine: &mut Engine, served: &ServedModel, received: Micros, now: Micros) {
    let body = br#"{"prompt":"abc","max_tokens":1}"#;
    engine.submit(job("/generate", body, served, received), hold(), now).unwrap();
}

/// A step for the first alone would make the second wait for it.
#[test]
fn those_who_come_together_start_together() {
    let served = served_model(100);
    let (mut engine, metrics, lane) = engine(&served, Duration::from_millis(50));
    let running = || metrics.front.running.get();
    // Nothing is known of steps yet: the first of all waits for nobody.
    submit(&mut engine, &served, Micros(0), Micros(0));
    engine.pump(Micros(0));
    assert_eq!(running(), 1);
    eventually("a token is there", || engine.is_ready());
    engine.pump(Micros(100_000));
    assert_eq!(running(), 0);
    // A fiftieth of the step, which took 50 ms or more.
    let first = Micros(1_000_000);
    submit(&mut engine, &served, first, first);
    engine.pump(first);
    assert_eq!(running(), 0);
    let until = engine.wake_at().expect("it wants to be called again");
    assert!((1_000..=5_000).contains(&until.since(first)), "{until:?}");
    engine.pump(Micros(until.0 - 1));
    assert_eq!(running(), 0);
    engine.pump(until);
    assert_eq!(running(), 1);
    eventually("a token is there", || engine.is_ready());
    engine.pump(Micros(1_200_000));
    // With the second all slots are taken: nobody else could join.
    let first = Micros(2_000_000);
    submit(&mut engine, &served, first, first);
    engine.pump(first);
    submit(&mut engine, &served, first, Micros(first.0 + 10));
    engine.pump(Micros(first.0 + 10));
    assert_eq!(running(), 2);
    eventually("tokens are there", || engine.is_ready());
    engine.pump(Micros(2_200_000));
    drop(engine);
    lane.join().unwrap();
}

/// The engine reads no clock for these: its caller's times come out.
#[test]
fn a_requests_times_are_those_of_its_events() {
    let served = served_model(100);
    let (mut engine, metrics, lane) = engine(&served, Duration::ZERO);
    submit(&mut engine, &served, Micros(1_000), Micros(1_500));
    assert_eq!((metrics.front.waiting.get(), metrics.front.running.get()), (1, 0));
    engine.pump(Micros(4_000));
    assert_eq!((metrics.front.waiting.get(), metrics.front.running.get()), (0, 1));
    eventually("a token is there", || engine.is_ready());
    engine.pump(Micros(9_000));
    let only = |snapshot: HistogramSnapshot| (snapshot.count, snapshot.sum);
    let front = &metrics.front;
    assert_eq!(only(front.queue_us.snapshot()), (1, 2_500));
    assert_eq!(only(front.prefill_us.snapshot()), (1, 5_000));
    assert_eq!(only(front.ttft_us.snapshot()), (1, 8_000));
    assert_eq!(only(front.e2el_us.snapshot()), (1, 8_000));
    assert_eq!(only(front.itl_us.snapshot()), (0, 0));
    assert_eq!((front.prompt_tokens.get(), front.generation_tokens.get()), (3, 1));
    assert_eq!((front.finished.length.get(), front.finished.abort.get()), (1, 0));
    assert_eq!((front.running.get(), front.kv_tokens_kept.get()), (0, 3));
    drop(engine);
    lane.join().unwrap();
}
