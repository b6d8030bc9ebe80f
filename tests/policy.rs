//! What the scheduler promises, with numbers: nobody starves, keys have their
//! shares, no step runs emptier than it must while somebody waits. With the fake
//! model, and time that is made up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use corelane::decode::DecodeLane;
use corelane::model::fake::{END, FakeModel, FakeOptions, continuation};
use corelane::ring::message::Batch;
use corelane::scheduler::{
    Capacity, Event, NewSequence, Scheduler, SequenceId, SlotState, SlotView,
};
use corelane::types::{KeyId, Sampling, TokenId};

fn capacity(slots: usize, sequence_tokens: u32) -> Capacity {
    Capacity {
        slots,
        step_rows: 512,
        itl_target: None,
        context_tokens: slots as u32 * sequence_tokens,
        sequence_tokens,
        queue_sequences: 1000,
        queue_tokens: 1 << 20,
        reuse: true,
        copied_cells: 0,
        weights: vec![1.0],
    }
}

/// The scheduler and a model that takes as long as a real one would: 20 ms for a
/// step, 10 for each row that decodes, 5 for each of a prompt.
struct World {
    scheduler: Scheduler,
    lane: DecodeLane<FakeModel>,
    now: Duration,
    served: HashMap<SequenceId, Served>,
    next_text: u64,
    /// The longest step in which somebody decoded.
    longest: Duration,
    last: Planned,
}

/// What was planned last, and what there was to do.
#[derive(Clone, Copy, Debug, Default)]
struct Planned {
    waiting: usize,
    running: usize,
    /// Behind their prompts, and without a row.
    idle: usize,
    decode_rows: u32,
    prefill_rows: u32,
    /// Sequences with more of their prompt to come than the step has.
    prompts_left: usize,
}

#[derive(Clone, Debug)]
struct Served {
    key: KeyId,
    arrived: Duration,
    first_token: Option<Duration>,
    last_token: Option<Duration>,
    longest_gap: Duration,
    tokens: u32,
    ended: bool,
}

impl World {
    fn new(capacity: Capacity) -> Self {
        let (slots, tokens) = (capacity.slots, capacity.sequence_tokens as usize);
        let context = capacity.context_tokens as usize;
        let model = FakeModel::new(slots, context, capacity.step_rows, FakeOptions::default());
        Self {
            lane: DecodeLane::new(model, slots, tokens, Box::new([END]), Arc::default()),
            scheduler: Scheduler::new(capacity),
            now: Duration::ZERO,
            served: HashMap::new(),
            next_text: 0,
            longest: Duration::ZERO,
            last: Planned::default(),
        }
    }

    /// A prompt that nobody has sent before.
    fn text(&mut self, tokens: usize) -> Box<[TokenId]> {
        self.next_text += 1;
        let mut hash = self.next_text;
        let mut token = || {
            hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (hash >> 40) as TokenId % 200
        };
        (0..tokens).map(|_| token()).collect()
    }

    fn send(&mut self, new: NewSequence) -> Option<SequenceId> {
        let key = new.key;
        let mut sent = None;
        self.scheduler.admit(vec![new], |_, id| sent = Some(id)).ok()?;
        let served = Served {
            key,
            arrived: self.now,
            first_token: None,
            last_token: None,
            longest_gap: Duration::ZERO,
            tokens: 0,
            ended: false,
        };
        self.served.insert(sent?, served);
        sent
    }

    fn request(&mut self, prompt_tokens: usize, max_tokens: u32) -> NewSequence {
        NewSequence::new(self.text(prompt_tokens), max_tokens, Sampling::greedy())
    }

    fn planned(&self, batch: &Batch) -> Planned {
        let is_in = |view: &SlotView, wanted| view.held.is_some_and(|(_, state)| state == wanted);
        let has_row = |slot: usize| batch.rows.iter().any(|row| row.owner.slot.index() == slot);
        let decoding =
            |(slot, view): &(usize, SlotView)| is_in(view, SlotState::Decode) && !has_row(*slot);
        let slots = || self.scheduler.slots();
        Planned {
            waiting: self.scheduler.waiting_count(),
            running: self.scheduler.running_count(),
            idle: slots().enumerate().filter(decoding).count(),
            decode_rows: batch.decode_rows,
            prefill_rows: batch.prefill_rows,
            prompts_left: slots().filter(|view| is_in(view, SlotState::Prefill)).count(),
        }
    }

    /// Runs one step; false when there is nothing to do.
    fn step(&mut self) -> bool {
        let mut batch = Batch::default();
        if !self.scheduler.schedule(&mut batch) {
            return false;
        }
        self.last = self.planned(&batch);
        self.lane.step(&mut batch);
        let took = 20_000 + 10_000 * batch.decode_rows + 5_000 * batch.prefill_rows;
        batch.decode_us = took;
        let took = Duration::from_micros(took.into());
        self.now += took;
        if batch.decode_rows > 0 {
            self.longest = self.longest.max(took);
        }
        let now = self.now;
        let served = &mut self.served;
        self.scheduler.complete(&batch, |event| match event {
            Event::Token(id, _) => {
                let served = served.get_mut(&id).expect("it was sent");
                served.first_token.get_or_insert(now);
                if let Some(last) = served.last_token.replace(now) {
                    served.longest_gap = served.longest_gap.max(now - last);
                }
                served.tokens += 1;
            }
            Event::Finished(id, _) => served.get_mut(&id).expect("it was sent").ended = true,
        });
        self.scheduler.check();
        true
    }
}

/// The promise that this scheduler is for: a long prompt slows the others down
/// to the bound, and no further, and is itself not stopped by them.
#[test]
fn no_stream_waits_for_a_long_prompt() {
    let mut world = World::new(capacity(8, 4096));
    let streams: Vec<SequenceId> = (0..4)
        .map(|_| {
            let new = world.request(16, 2000);
            world.send(new).unwrap()
        })
        .collect();
    for _ in 0..50 {
        world.step();
    }
    let alone = Duration::from_micros(20_000 + 4 * 10_000);
    for id in &streams {
        world.served.get_mut(id).unwrap().longest_gap = Duration::ZERO;
    }
    let new = world.request(2000, 10);
    let long = world.send(new).unwrap();
    while world.served[&long].first_token.is_none() {
        world.step();
    }
    for id in &streams {
        let gap = world.served[id].longest_gap;
        assert!(gap <= alone * 5 / 2, "a stream waited {gap:?}; its step takes {alone:?}");
    }
    let ttft = world.served[&long].first_token.unwrap() - world.served[&long].arrived;
    // Half of each step is the streams'.
    let by_itself = Duration::from_micros(4 * 20_000 + 2000 * 5_000);
    assert!(ttft <= by_itself * 3, "the long prompt took {ttft:?}, by itself {by_itself:?}");
}

/// A short prompt overtakes a long one, and a stream of short ones does not
/// stop it.
#[test]
fn prompts_share_their_part_of_each_step() {
    let mut world = World::new(capacity(8, 8192));
    let new = world.request(16, 4000);
    world.send(new).unwrap();
    for _ in 0..20 {
        world.step();
    }
    let new = world.request(4000, 5);
    let long = world.send(new).unwrap();
    for _ in 0..5 {
        world.step();
    }
    let new = world.request(40, 5);
    let short = world.send(new).unwrap();
    let before = world.now;
    while world.served[&short].first_token.is_none() {
        world.step();
    }
    let waited = world.now - before;
    assert!(waited < Duration::from_secs(2), "the short one waited {waited:?}");
    assert!(world.served[&long].first_token.is_none(), "it did overtake");
    // From now on there is always a short one.
    let mut steps = 0;
    while world.served[&long].first_token.is_none() {
        if world.scheduler.running_count() < 6 {
            let new = world.request(40, 5);
            world.send(new);
        }
        world.step();
        steps += 1;
        assert!(steps < 3000, "the long prompt starves");
    }
}

/// Two keys of equal weight, one of which offers fifty times as much as the
/// other: they are served alike, as long as both want more than they get.
#[test]
fn keys_of_equal_weight_are_served_alike() {
    let mut world = World::new(Capacity { weights: vec![1.0, 1.0], ..capacity(8, 1024) });
    let ratio = serve_two_keys(&mut world, 8, Duration::from_secs(400));
    assert!((0.9..1.1).contains(&ratio), "the greedy key had {ratio} of the other's tokens");
}

/// With three times the weight, three times the tokens.
#[test]
fn keys_are_served_by_their_weight() {
    let mut world = World::new(Capacity { weights: vec![1.0, 3.0], ..capacity(8, 1024) });
    let ratio = 3.0 * serve_two_keys(&mut world, 24, Duration::from_secs(400));
    assert!((0.9..1.1).contains(&ratio), "the greedy key had {ratio} of its share");
}

/// What a key was served while nobody else wanted anything is not held against it, nor
/// what one did not use held for it.
#[test]
fn a_key_that_was_idle_is_owed_nothing() {
    for alone in [KeyId(0), KeyId(1)] {
        let mut world = World::new(Capacity { weights: vec![1.0, 1.0], ..capacity(8, 1024) });
        for _ in 0..100 {
            let new = NewSequence { key: alone, ..world.request(100, 30) };
            world.send(new).unwrap();
        }
        while world.step() {}
        let ratio = serve_two_keys(&mut world, 8, Duration::from_secs(300));
        assert!((0.9..1.1).contains(&ratio), "after {alone:?} alone: {ratio}");
    }
}

/// The first of two keys keeps 400 requests open, the other one `few`. By how many times
/// more tokens the first was served, prompts and all, counted by what came back.
fn serve_two_keys(world: &mut World, few: usize, time: Duration) -> f64 {
    const PROMPT: usize = 20;
    world.served.clear();
    let until = world.now + time;
    let mut tokens = [0.0; 2];
    while world.now < until {
        for (key, wanted) in [(KeyId(0), 400), (KeyId(1), few)] {
            let open = world.served.values().filter(|s| s.key == key && !s.ended).count();
            for _ in open..wanted {
                let new = NewSequence { key, ..world.request(PROMPT, 30) };
                world.send(new);
            }
        }
        world.step();
        world.served.retain(|_, served| {
            if served.ended {
                tokens[served.key.index()] += (PROMPT + served.tokens as usize) as f64;
            }
            !served.ended
        });
    }
    tokens[0] / tokens[1]
}

/// One key cannot fill the queue so that another one finds no place in it.
#[test]
fn a_full_queue_has_room_for_the_other_keys() {
    let weights = vec![1.0, 1.0];
    let mut world = World::new(Capacity { weights, queue_sequences: 64, ..capacity(8, 1024) });
    let mut send = |key| {
        let new = NewSequence { key, ..world.request(20, 30) };
        world.send(new).is_some()
    };
    let greedy = (0..200).filter(|_| send(KeyId(0))).count();
    assert_eq!(greedy, 8 + 64 - 16, "a quarter is set aside for the other one");
    let other = (0..200).filter(|_| send(KeyId(1))).count();
    assert_eq!(other, 16);
}

/// Everybody has a first token within a bounded time, though nine tenths of what the
/// server can do is asked for at random, for hours, by two priorities.
#[test]
fn nobody_starves() {
    let request = |world: &mut World, i: usize| {
        let new = world.request(10 + 37 * (i % 9), 5 + (i % 20) as u32);
        NewSequence { priority: i32::from(i.is_multiple_of(4)), ..new }
    };
    let mut world = World::new(capacity(4, 1024));
    for i in 0..400 {
        let new = request(&mut world, i);
        world.send(new).expect("the queue has room");
    }
    while world.step() {}
    let gap = world.now.as_secs_f64() / 400.0 / 0.9;
    world.served.clear();

    let (mut next, mut hash, mut worst) = (world.now, 1u64, Duration::ZERO);
    for i in 0..6_000 {
        hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let uniform = (hash >> 11) as f64 / (1u64 << 53) as f64;
        next += Duration::from_secs_f64(-gap * (1.0 - uniform).ln());
        while world.now < next && world.step() {}
        world.now = world.now.max(next);
        let new = request(&mut world, i);
        world.send(new).expect("the queue has room");
        world.served.retain(|_, served| {
            let first = served.first_token.unwrap_or(world.now);
            worst = worst.max(first - served.arrived);
            !served.ended
        });
    }
    let service = Duration::from_secs_f64(gap);
    assert!(worst < 60 * service, "somebody waited {worst:?}; one is served each {service:?}");
}

/// While somebody waits for a slot, all slots are taken; while a prompt is to be
/// computed, a step has at least as many prompt rows as the bound allows.
#[test]
fn no_step_is_emptier_than_it_must_be() {
    let mut world = World::new(capacity(6, 2048));
    for i in 0..60 {
        let new = world.request(30 + 20 * (i % 10), 40);
        world.send(new).unwrap();
    }
    let mut steps = 0;
    while world.step() {
        steps += 1;
        let planned = world.last;
        assert!(planned.waiting == 0 || planned.running == 6, "a slot is free: {planned:?}");
        assert_eq!(planned.idle, 0, "somebody could have decoded: {planned:?}");
        // Half of the bound is for prompts, 5 ms for each of their rows: what is left
        // of it is less than one of them takes, unless the model is still unknown.
        let bound = 2 * (20 + 10 * planned.decode_rows);
        let left = bound.saturating_sub(20 + 10 * planned.decode_rows + 5 * planned.prefill_rows);
        if steps > 200 && planned.decode_rows > 0 && planned.prompts_left > 0 {
            assert!(left <= bound / 4, "{left} ms of {bound} are left: {planned:?}");
        }
        assert!(steps < 10_000);
    }
    assert!(world.served.values().all(|served| served.ended && served.tokens == 40));
}

/// A burst that shares its beginning computes it once.
#[test]
fn a_shared_beginning_is_computed_once() {
    let mut world = World::new(capacity(8, 2048));
    let shared = world.text(500);
    let new = NewSequence::new(shared.clone(), 5, Sampling::greedy());
    let alone = {
        let mut world = World::new(capacity(8, 2048));
        let id = world.send(new).unwrap();
        while world.step() {}
        world.served[&id].first_token.unwrap()
    };
    for _ in 0..8 {
        let own = world.text(20);
        let prompt: Box<[TokenId]> = shared.iter().chain(own.iter()).copied().collect();
        world.send(NewSequence::new(prompt, 5, Sampling::greedy())).unwrap();
    }
    while world.step() {}
    let last = world.served.values().map(|served| served.first_token.unwrap()).max().unwrap();
    assert!(last < alone * 8 / 5, "the last first token after {last:?}, alone {alone:?}");
    let tally = world.scheduler.tally();
    assert!(tally.cached_tokens >= 7 * 500, "{tally:?}");
    assert!(tally.prefilled_tokens <= 500 + 8 * 20, "{tally:?}");
}

/// Where the one that computes what all begin with leaves halfway, the next goes on
/// from there, and the others follow that one.
#[test]
fn a_shared_beginning_is_computed_once_though_its_first_reader_leaves() {
    let mut world = World::new(capacity(12, 2048));
    for _ in 0..4 {
        let new = world.request(16, 1500);
        world.send(new).unwrap();
    }
    for _ in 0..30 {
        world.step();
    }
    let shared = world.text(500);
    let before = world.scheduler.tally();
    let ids: Vec<SequenceId> = (0..8)
        .map(|_| {
            let own = world.text(20);
            let prompt: Box<[TokenId]> = shared.iter().chain(own.iter()).copied().collect();
            world.send(NewSequence::new(prompt, 5, Sampling::greedy())).unwrap()
        })
        .collect();
    let prefilled =
        |world: &World| world.scheduler.tally().prefilled_tokens - before.prefilled_tokens;
    while prefilled(&world) < 250 {
        world.step();
    }
    assert!(prefilled(&world) < 400, "one of them computes");
    world.scheduler.cancel(ids[0]);
    world.served.get_mut(&ids[0]).unwrap().ended = true;
    while ids.iter().any(|id| !world.served[id].ended) {
        world.step();
    }
    assert!(prefilled(&world) <= 500 + 8 * 20, "{} tokens", prefilled(&world));
}

/// When the cells run out, the youngest of the lowest priority goes back to the
/// queue, says the same later, and nobody else is touched.
#[test]
fn the_youngest_of_the_lowest_priority_gives_way() {
    // Room for two of them, and for 83 tokens of each of three.
    let mut world = World::new(Capacity { context_tokens: 250, ..capacity(3, 190) });
    let mut expected = Vec::new();
    for priority in [1, 0, 1] {
        let new = NewSequence { priority, ..world.request(20, 100) };
        expected.push(continuation(&new.prompt, 100, 0));
        world.send(new).unwrap();
    }
    let mut ids: Vec<SequenceId> = world.served.keys().copied().collect();
    ids.sort();
    let mut said: HashMap<SequenceId, Vec<TokenId>> = HashMap::new();
    let mut ended = Vec::new();
    let mut batch = Batch::default();
    loop {
        batch.clear();
        if !world.scheduler.schedule(&mut batch) {
            break;
        }
        world.lane.step(&mut batch);
        world.scheduler.complete(&batch, |event| match event {
            Event::Token(id, token) => said.entry(id).or_default().push(token),
            Event::Finished(id, _) => ended.push(id),
        });
        world.scheduler.check();
    }
    assert_eq!(world.scheduler.tally().preemptions, 1);
    assert_eq!(ended, [ids[1], ids[0], ids[2]], "the urgent one first, the preempted one last");
    for (id, tokens) in ids.iter().zip(expected) {
        assert_eq!(said[id], tokens);
    }
}

/// The second turn of a conversation computes only what is new.
#[test]
fn a_second_turn_begins_where_the_first_ended() {
    let mut world = World::new(capacity(2, 4096));
    let mut prompt = world.text(1000).into_vec();
    let first = world.send(NewSequence::new(prompt.clone().into(), 20, Sampling::greedy()));
    let first = first.unwrap();
    let mut said = Vec::new();
    loop {
        let mut batch = Batch::default();
        if !world.scheduler.schedule(&mut batch) {
            break;
        }
        world.lane.step(&mut batch);
        world.scheduler.complete(&batch, |event| {
            if let Event::Token(id, token) = event {
                assert_eq!(id, first);
                said.push(token);
            }
        });
    }
    let before = world.scheduler.tally();
    prompt.extend(&said);
    prompt.extend(world.text(10));
    world.send(NewSequence::new(prompt.into(), 5, Sampling::greedy())).unwrap();
    while world.step() {}
    let after = world.scheduler.tally();
    // The last token of the first turn was never run: nothing came after it.
    assert_eq!(after.prefilled_tokens - before.prefilled_tokens, 11);
    assert_eq!(after.cached_tokens - before.cached_tokens, 1019);
}

/// `cache: false` neither takes nor leaves anything.
#[test]
fn without_the_cache_nothing_is_reused() {
    let mut world = World::new(capacity(4, 2048));
    let text = world.text(300);
    for cache in [false, true, false] {
        let new = NewSequence { cache, ..NewSequence::new(text.clone(), 5, Sampling::greedy()) };
        world.send(new).unwrap();
        while world.step() {}
    }
    let tally = world.scheduler.tally();
    assert_eq!((tally.cached_tokens, tally.prefilled_tokens), (0, 900), "{tally:?}");
}
