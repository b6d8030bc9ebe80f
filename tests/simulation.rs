//! The scheduler and the decode lane, with the fake model and no threads: every
//! interleaving of arrivals, cancellations, steps and failures that a seed can
//! think of, with the invariants checked after each.

mod support;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use corelane::decode::DecodeLane;
use corelane::limits::STEPS_IN_FLIGHT;
use corelane::metrics::Metrics;
use corelane::model::fake::{END, FakeModel, FakeOptions, continuation};
use corelane::ring::message::{Batch, Input};
use corelane::scheduler::{Capacity, Event, Finish, NewSequence, Refusal, Scheduler, SequenceId};
use corelane::types::{Owner, Sampling, SlotId, TokenId};
use support::Random;

struct Simulation {
    random: Random,
    capacity: Capacity,
    end_one_in: u64,
    failures: bool,
    scheduler: Scheduler,
    lane: DecodeLane<FakeModel>,
    metrics: Arc<Metrics>,
    /// Planned and not yet run.
    down: VecDeque<Box<Batch>>,
    /// Taken, to be used again.
    spare: Vec<Box<Batch>>,
    /// Run and not yet taken.
    up: VecDeque<Box<Batch>>,
    live: HashMap<SequenceId, Expected>,
    tally: Tally,
}

struct Expected {
    tokens: Vec<TokenId>, // all that it will generate, END included
    received: usize,
}

#[derive(Default, Debug)]
struct Tally {
    admitted: u32,
    refused: u32,
    ended: u32,
    cut: u32,
    cancelled: u32,
    failed: u32,
    rows: u64,
    rows_dropped: u64,
    rows_wasted_on_cancelled: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let slots = random.within(1, 12);
        let sequence_tokens = random.within(8, 120) as u32;
        let capacity = Capacity {
            slots,
            step_rows: slots + random.within(0, 40),
            prefill_tokens_beside_decode: random.within(1, 16),
            context_tokens: sequence_tokens * random.within(1, 6) as u32,
            sequence_tokens,
            queue_sequences: random.within(0, 30),
            queue_tokens: random.within(100, 3000),
        };
        let end_one_in = if random.one_in(4) { 0 } else { random.within(2, 60) as u64 };
        let metrics = Arc::new(Metrics::default());
        let model = FakeModel::new(
            slots,
            capacity.context_tokens as usize,
            capacity.step_rows,
            FakeOptions { end_one_in, ..FakeOptions::default() },
        );
        Self {
            failures: random.one_in(3),
            random,
            capacity,
            end_one_in,
            scheduler: Scheduler::new(capacity),
            lane: DecodeLane::new(
                model,
                slots,
                sequence_tokens as usize,
                Box::new([END]),
                metrics.clone(),
            ),
            metrics,
            down: VecDeque::new(),
            spare: (0..STEPS_IN_FLIGHT).map(|_| Box::default()).collect(),
            up: VecDeque::new(),
            live: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// One thing that may happen next.
    fn act(&mut self) {
        match self.random.within(0, 9) {
            0..=1 => self.arrive(),
            2 if self.random.one_in(3) => self.cancel(),
            3..=5 => self.run_step(),
            6..=7 => self.take_step(),
            _ => self.plan_step(),
        }
        self.scheduler.check();
    }

    fn arrive(&mut self) {
        let count = if self.random.one_in(6) { self.random.within(2, 4) } else { 1 };
        let sequences: Vec<NewSequence> = (0..count).map(|_| self.new_sequence()).collect();
        let expected: Vec<Vec<TokenId>> = sequences
            .iter()
            .map(|s| continuation(&s.prompt, s.max_tokens as usize, self.end_one_in))
            .collect();
        let before = self.live.len();
        let live = &mut self.live;
        let result = self.scheduler.admit(sequences, |index, id| {
            let tokens = expected[index].clone();
            let previous = live.insert(id, Expected { tokens, received: 0 });
            assert!(previous.is_none(), "an id names one sequence");
        });
        match result {
            Ok(()) => self.tally.admitted += count as u32,
            Err(Refusal::QueueFull { .. } | Refusal::TokensFull { .. }) => {
                assert_eq!(self.live.len(), before, "all or none");
                self.tally.refused += 1;
            }
        }
    }

    fn new_sequence(&mut self) -> NewSequence {
        let limit = self.capacity.sequence_tokens as usize;
        let prompt_tokens = self.random.within(1, limit - 1);
        let max_tokens = self.random.within(1, limit - prompt_tokens);
        let prompt = (0..prompt_tokens).map(|_| self.random.within(32, 126) as TokenId).collect();
        let seed = self.random.next();
        let sampling = Sampling { seed, ..Sampling::greedy() };
        NewSequence { prompt, max_tokens: max_tokens as u32, sampling }
    }

    fn cancel(&mut self) {
        let mut ids: Vec<SequenceId> = self.live.keys().copied().collect();
        ids.sort();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.random.within(0, ids.len() - 1)];
        self.live.remove(&id);
        self.scheduler.cancel(id);
        self.scheduler.cancel(id); // twice does no harm
        self.tally.cancelled += 1;
    }

    fn plan_step(&mut self) {
        let Some(mut batch) = self.spare.pop() else { return };
        if !self.scheduler.schedule(&mut batch) {
            assert!(batch.is_empty());
            self.spare.push(batch);
            return;
        }
        self.check_plan(&batch);
        self.down.push_back(batch);
    }

    /// What must hold of every step that is planned.
    fn check_plan(&self, batch: &Batch) {
        assert!(batch.rows.len() <= self.capacity.step_rows);
        let decoding = batch.rows.iter().filter(|row| row.input == Input::Carry).count();
        let prefilling = batch.rows.len() - decoding;
        if decoding > 0 {
            assert!(prefilling <= self.capacity.prefill_tokens_beside_decode);
        }
        let places = batch.rows.iter().map(|row| (row.owner.slot, row.position));
        assert!(places.is_sorted(), "in the order of slots, or llama.cpp splits the step");
        let mut owners: Vec<Owner> = batch.rows.iter().map(|row| row.owner).collect();
        owners.dedup();
        let mut slots: Vec<_> = owners.iter().map(|owner| owner.slot).collect();
        slots.sort();
        slots.dedup();
        assert_eq!(
            slots.len(),
            owners.len(),
            "a sequence's rows stand together, one for each slot"
        );
    }

    fn run_step(&mut self) {
        let Some(mut batch) = self.down.pop_front() else { return };
        if self.failures && self.random.one_in(40) {
            self.lane.backend().fail_next();
        }
        self.lane.step(&mut batch);
        assert!(batch.failed.is_empty() || self.failures, "no step lacks room");
        self.check_cells();
        self.tally.rows += batch.rows.len() as u64;
        self.tally.rows_dropped += u64::from(batch.rows_dropped);
        self.up.push_back(batch);
    }

    /// After each step, failed or not: the model holds for each slot what the
    /// decode lane thinks it holds, and no more in all than there is room for.
    fn check_cells(&mut self) {
        for slot in (0..self.capacity.slots as u16).map(SlotId) {
            let next = self.lane.next_position(slot);
            assert_eq!(self.lane.backend().tokens_in(slot), next.index(), "{slot:?}");
        }
        let held = self.lane.backend().tokens_held();
        assert!(held <= self.capacity.context_tokens as usize);
        assert_eq!(
            self.metrics.decode.kv_tokens_used.get(),
            held as u64,
            "the gauge says the same"
        );
    }

    fn take_step(&mut self) {
        let Some(mut batch) = self.up.pop_front() else { return };
        let mut events = Vec::new();
        self.scheduler.complete(&batch, |event| events.push(event));
        let told = events.iter().filter(|event| matches!(event, Event::Token(..))).count();
        let ends = batch.samples.iter().filter(|sample| sample.end).count();
        self.tally.rows_wasted_on_cancelled +=
            (batch.samples.len() - ends).saturating_sub(told) as u64;
        batch.clear();
        self.spare.push(batch);
        for event in events {
            match event {
                Event::Token(id, token) => {
                    let expected = self.live.get_mut(&id).expect("a token for a live sequence");
                    assert_eq!(token, expected.tokens[expected.received], "the text is its own");
                    expected.received += 1;
                }
                Event::Finished(id, finish) => {
                    let expected = self.live.remove(&id).expect("the end of a live sequence");
                    let left = &expected.tokens[expected.received..];
                    match finish {
                        Finish::End => {
                            assert_eq!(left, [END]);
                            self.tally.ended += 1;
                        }
                        Finish::Length => {
                            assert!(left.is_empty());
                            self.tally.cut += 1;
                        }
                        Finish::Failed => self.tally.failed += 1,
                    }
                }
            }
        }
    }

    /// Lets everything that was admitted finish.
    fn finish(&mut self) {
        let mut rounds = 0;
        while !self.scheduler.is_idle() || !self.down.is_empty() || !self.up.is_empty() {
            self.plan_step();
            self.run_step();
            self.take_step();
            self.scheduler.check();
            rounds += 1;
            assert!(rounds < 100_000, "everything admitted ends");
        }
        self.plan_step(); // the last clears
        self.run_step();
        self.take_step();
        assert!(self.live.is_empty(), "everything admitted was told its end");
        assert_eq!(self.lane.backend().tokens_held(), 0, "every cell was given back");
    }

    fn check_tally(&self) {
        let tally = &self.tally;
        let ended = tally.ended + tally.cut + tally.cancelled + tally.failed;
        assert_eq!(tally.admitted, ended, "{tally:?}");
        // Invariant 4: an end that the decode lane sees costs one dropped row
        // at most (a failed step drops what was planned behind it: a step's
        // worth), and a cancellation at most the samples of the steps in flight, which nobody reads.
        let step = self.capacity.step_rows as u64;
        // (A cancelled sequence may have met its end in the step that ran.)
        let ends = u64::from(tally.ended) + u64::from(tally.cancelled);
        assert!(tally.rows_dropped <= ends + u64::from(tally.failed) * step);
        let unread = u64::from(tally.cancelled) * STEPS_IN_FLIGHT as u64;
        assert!(tally.rows_wasted_on_cancelled <= unread, "{tally:?}");
    }
}

fn simulate(seed: u64, actions: usize) -> Tally {
    let mut simulation = Simulation::new(seed);
    for _ in 0..actions {
        simulation.act();
    }
    simulation.finish();
    simulation.check_tally();
    simulation.tally
}

#[test]
fn thousands_of_random_interleavings_keep_the_invariants() {
    let mut total = Tally::default();
    for seed in 0..2_000 {
        let tally = simulate(seed, 600);
        total.admitted += tally.admitted;
        total.refused += tally.refused;
        total.ended += tally.ended;
        total.cut += tally.cut;
        total.cancelled += tally.cancelled;
        total.failed += tally.failed;
        total.rows += tally.rows;
        total.rows_dropped += tally.rows_dropped;
    }
    println!("{total:?}");
    // The mix is worth something only if everything happened often.
    assert!(total.admitted > 50_000 && total.refused > 5_000 && total.ended > 5_000);
    assert!(total.cut > 5_000 && total.cancelled > 5_000 && total.failed > 500);
}

/// A fake model that never ends a text, for steps of at most 32 rows.
fn fake(slots: usize, sequence_tokens: usize) -> FakeModel {
    FakeModel::new(slots, sequence_tokens, 32, FakeOptions::default())
}

/// Defect 1 of the old server: a batch ran to its end, so an arrival waited for
/// the slowest.
#[test]
fn a_request_joins_the_next_step_and_leaves_when_it_ends() {
    let capacity = Capacity {
        slots: 4,
        step_rows: 32,
        prefill_tokens_beside_decode: 8,
        context_tokens: 1000,
        sequence_tokens: 500,
        queue_sequences: 10,
        queue_tokens: 1000,
    };
    let mut scheduler = Scheduler::new(capacity);
    let mut lane = DecodeLane::new(fake(4, 500), 4, 500, Box::new([END]), Arc::default());
    let sequence = |prompt: &str, max_tokens| NewSequence {
        prompt: prompt.bytes().map(TokenId::from).collect(),
        max_tokens,
        sampling: Sampling::greedy(),
    };
    let mut long = None;
    scheduler.admit(vec![sequence("long", 400)], |_, id| long = Some(id)).unwrap();
    let mut batch = Batch::default();
    for _ in 0..10 {
        batch.clear();
        assert!(scheduler.schedule(&mut batch));
        lane.step(&mut batch);
        scheduler.complete(&batch, |_| ());
    }
    let mut short = None;
    scheduler.admit(vec![sequence("hi", 3)], |_, id| short = Some(id)).unwrap();
    let mut tokens = Vec::new();
    for step in 0..3 {
        batch.clear();
        assert!(scheduler.schedule(&mut batch));
        assert_eq!(batch.starts.len(), usize::from(step == 0), "it joins the very next step");
        lane.step(&mut batch);
        scheduler.complete(&batch, |event| match event {
            Event::Token(id, token) if Some(id) == short => tokens.push(token),
            Event::Finished(id, finish) => {
                assert_eq!((Some(id), finish), (short, Finish::Length));
            }
            _ => {}
        });
    }
    assert_eq!(tokens, continuation(&"hi".bytes().map(TokenId::from).collect::<Vec<_>>(), 3, 0));
    assert_eq!(scheduler.running_count(), 1, "the long one runs on, the short one has left");
}

/// Invariant 5: positions are checked on both sides.
#[test]
#[should_panic(expected = "the batch is at position Position(5), the decode lane at Position(4)")]
fn a_wrong_position_ends_the_process_with_both_numbers() {
    let mut scheduler = Scheduler::new(Capacity {
        slots: 1,
        step_rows: 32,
        prefill_tokens_beside_decode: 8,
        context_tokens: 100,
        sequence_tokens: 100,
        queue_sequences: 1,
        queue_tokens: 1000,
    });
    let mut lane = DecodeLane::new(fake(1, 100), 1, 100, Box::new([END]), Arc::default());
    let prompt = [65, 66, 67, 68].into();
    let new = NewSequence { prompt, max_tokens: 10, sampling: Sampling::greedy() };
    scheduler.admit(vec![new], |_, _| ()).unwrap();
    let mut batch = Batch::default();
    scheduler.schedule(&mut batch);
    lane.step(&mut batch);
    scheduler.complete(&batch, |_| ());
    batch.clear();
    scheduler.schedule(&mut batch);
    batch.rows[0].position = batch.rows[0].position.next();
    lane.step(&mut batch);
}

/// Invariant 6 and defect 3: a slot goes to nobody before it has been cleared.
#[test]
#[should_panic(expected = "reused uncleared")]
fn a_slot_reused_uncleared_ends_the_process() {
    let mut lane = DecodeLane::new(fake(1, 100), 1, 100, Box::new([END]), Arc::default());
    let start = |generation| corelane::ring::message::Start {
        owner: Owner { slot: SlotId(0), generation: corelane::types::Generation(generation) },
        prompt_tokens: 1,
        sampling: Sampling::greedy(),
    };
    let mut batch = Batch::default();
    batch.starts.push(start(1)).unwrap();
    lane.step(&mut batch);
    batch.clear();
    batch.starts.push(start(2)).unwrap();
    lane.step(&mut batch);
}
