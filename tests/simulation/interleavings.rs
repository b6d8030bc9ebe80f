//! The scheduler and the decode lane with the fake model, on one thread. A seed decides the order of
//! arrivals, cancellations, steps and failures. The invariants are checked after each of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use corelane::decode::DecodeLane;
use corelane::limits::{GUESSES_MAX, STEPS_IN_FLIGHT};
use corelane::metrics::Metrics;
use corelane::model::StepError;
use corelane::model::fake::{END, FakeModel, FakeOptions, continuation};
use corelane::ring::message::{Batch, FailureReason, Start};
use corelane::sampling::AdvancedSampling;
use corelane::scheduler::{
    Capacity, Event, Finish, NewSequence, Pages, Scheduler, SequenceId, States,
};
use corelane::types::{CacheScope, Guessing, ItlTarget, KeyId, Owner, Sampling, SlotId, TokenId};

use crate::drafter::drafter;
use crate::kept::kept;
use crate::support::Random;

struct Simulation {
    random: Random,
    capacity: Capacity,
    end_one_in: u64,
    failures: bool,
    /// Some prompts are scored.
    scores: bool,
    /// The most guesses of a text in a step.
    guesses: u8,
    scheduler: Scheduler,
    lane: DecodeLane<FakeModel>,
    /// Planned and not yet run.
    down: VecDeque<Box<Batch>>,
    /// Taken, to be used again.
    spare: Vec<Box<Batch>>,
    /// Run and not yet taken.
    up: VecDeque<Box<Batch>>,
    live: HashMap<SequenceId, Expected>,
    /// Prompts that others may begin like.
    known: Vec<Vec<TokenId>>,
    /// Actions so far: the time.
    now: u32,
    tally: Tally,
}

struct Expected {
    /// Its prompt, for others to begin like.
    prompt: Vec<TokenId>,
    tokens: Vec<TokenId>, // all that it will generate, END included
    received: usize,
    /// Scores of its prompt that have come; `None` if it asked for none.
    scored: Option<usize>,
    /// It asked for log-probabilities.
    logprobs: bool,
    /// The action before which it has to end.
    deadline: Option<u32>,
}

#[derive(Default, Debug)]
struct Tally {
    admitted: u32,
    refused: u32,
    steps: u64,
    late: u32,
    aborted: u32,
    lost_windows: u32,
    ended: u32,
    cut: u32,
    cancelled: u32,
    failed: u32,
    rows: u64,
    rows_dropped: u64,
    rows_wasted_on_cancelled: u64,
    cached: u64,
    states_saved: u64,
    states_restored: u64,
    starts_from_logits: u64,
    stored_pages: u64,
    restored_tokens: u64,
    evicted: u64,
    preempted: u64,
    retried: u64,
    scored: u64,
    guessed: u64,
    guessed_right: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let slots = random.within(1, 12);
        let is_recurrent = random.one_in(3);
        let has_window = !is_recurrent && random.one_in(3);
        let has_states = is_recurrent || has_window;
        // Long enough that saved states are worth it.
        let longest = if has_states { 500 } else { 120 };
        let sequence_tokens = random.within(8, longest) as u32;
        let capacity = Capacity {
            slots,
            step_rows: slots + random.within(0, 40),
            itl_target: match random.one_in(2) {
                true => ItlTarget::Within(Duration::from_micros(random.within(1, 400) as u64)),
                false => ItlTarget::Chosen,
            },
            context_tokens: sequence_tokens * random.within(1, 6) as u32,
            sequence_tokens,
            queue_sequences: random.within(0, 30),
            queue_tokens: random.within(100, 3000),
            reuse: !random.one_in(4),
            states: None,
            logits: random.within(0, 8),
            pages: Pages::default(),
            files: None,
            own_cells: random.one_in(2) && !has_window,
            looks_up: true,
            drafts: !random.one_in(3),
            weights: (0..random.within(1, 3)).map(|_| random.within(1, 5) as f64).collect(),
        };
        let (checkpoints, interval) = (random.within(0, 8), random.within(8, 100));
        let states = States { checkpoints, interval, is_recurrent };
        let has_store = !capacity.own_cells && !random.one_in(3);
        let pages = if has_store { random.within(1, 60) } else { 0 };
        let pages = Pages { count: pages, tokens: random.within(1, 40) };
        let capacity = Capacity { states: has_states.then_some(states), pages, ..capacity };
        let kept = kept(pages, states.checkpoints, capacity.logits);
        let guesses =
            if is_recurrent || random.one_in(3) { 0 } else { random.within(1, GUESSES_MAX) };
        let end_one_in = if random.one_in(4) { 0 } else { random.within(2, 60) as u64 };
        let metrics = Arc::new(Metrics::default());
        let window = if has_window { random.within(1, 100) } else { 0 };
        let options = FakeOptions { end_one_in, is_recurrent, window, ..FakeOptions::default() };
        let context = capacity.context_tokens as usize;
        let model = FakeModel::new(slots, context, capacity.step_rows, options);
        let drafter = drafter(&mut random, seed, options, slots, context);
        let ends = Box::new([END]);
        let lane = DecodeLane::new(model, slots, sequence_tokens as usize, ends, metrics);
        Self {
            guesses: guesses as u8,
            failures: random.one_in(3),
            scores: !seed.is_multiple_of(2),
            random,
            end_one_in,
            scheduler: Scheduler::new(capacity.clone()),
            capacity,
            lane: lane.with_guesses(true, Some(drafter)).with_kept(kept),
            down: VecDeque::new(),
            spare: (0..STEPS_IN_FLIGHT).map(|_| Box::default()).collect(),
            up: VecDeque::new(),
            live: HashMap::new(),
            known: Vec::new(),
            now: 0,
            tally: Tally::default(),
        }
    }

    /// One thing that may happen next.
    fn act(&mut self) {
        self.now += 1;
        self.expire();
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
        let mut sequences: Vec<NewSequence> = (0..count).map(|_| self.new_sequence()).collect();
        let key = sequences[0].key; // one request's
        sequences.iter_mut().for_each(|sequence| sequence.key = key);
        let expected = |s: &NewSequence| Expected {
            prompt: s.prompt.to_vec(),
            tokens: continuation(&s.prompt, s.max_tokens as usize, self.end_one_in),
            received: 0,
            scored: s.scores_prompt.then_some(0),
            logprobs: s.advanced.is_some(),
            deadline: None,
        };
        let mut expected: Vec<Option<Expected>> =
            sequences.iter().map(|s| Some(expected(s))).collect();
        let before = self.live.len();
        let deadline = self.random.one_in(4).then(|| self.now + self.random.within(1, 200) as u32);
        let live = &mut self.live;
        let result = self.scheduler.admit(sequences, |index, id| {
            let new = expected[index].take().expect("each is admitted once");
            let previous = live.insert(id, Expected { deadline, ..new });
            assert!(previous.is_none(), "an id names one sequence");
        });
        match result {
            Ok(()) => self.tally.admitted += count as u32,
            Err(_) => {
                assert_eq!(self.live.len(), before, "all or none");
                self.tally.refused += 1;
            }
        }
    }

    fn new_sequence(&mut self) -> NewSequence {
        let limit = self.capacity.sequence_tokens as usize;
        let mut prompt_tokens = self.random.within(1, limit - 1);
        let mut prompt: Vec<TokenId> = Vec::new();
        if !self.known.is_empty() && !self.random.one_in(3) {
            let other = &self.known[self.random.within(0, self.known.len() - 1)];
            if self.random.one_in(4) {
                // An answer that is written again.
                prompt_tokens = other.len().min(limit - 1);
                prompt.extend(other);
            } else if self.random.one_in(2) {
                // The next turn of a chat.
                let answer = continuation(other, self.random.within(0, 20), self.end_one_in);
                prompt.extend(other.iter().chain(answer.iter().filter(|token| **token != END)));
            } else {
                prompt.extend(&other[..self.random.within(0, other.len())]);
            }
        }
        let more = (0..prompt_tokens).map(|_| self.random.within(32, 126) as TokenId);
        prompt.extend(more);
        prompt.truncate(prompt_tokens);
        let max_tokens = self.random.within(1, limit - prompt_tokens);
        self.known.push(prompt.clone());
        if self.known.len() > 20 {
            self.known.swap_remove(self.random.within(0, 19));
        }
        let branches = [0, 0, 0].map(|_| self.random.within(0, prompt.len()) as u32);
        let branches = branches.into_iter().take(self.random.within(0, 3)).collect();
        let seed = self.random.next();
        let advanced = AdvancedSampling { logprobs: Some(2), ..AdvancedSampling::default() };
        NewSequence {
            prompt: prompt.into(),
            max_tokens: max_tokens as u32,
            sampling: Sampling { seed, ..Sampling::greedy() },
            advanced: self.random.one_in(3).then(|| Arc::new(advanced)),
            priority: self.random.within(0, 4) as i32 - 2,
            key: KeyId::at(self.random.within(0, self.capacity.weights.len() - 1) as u16),
            scores_prompt: self.scores && seed.is_multiple_of(4),
            cache: (!self.random.one_in(5)).then(CacheScope::default),
            guessing: Guessing { most: self.guesses, least: seed as u8 % 3, p_min: 0.0 },
            slot: None,
            branches,
        }
    }

    /// Ends sequences whose deadline has passed, waiting or running.
    fn expire(&mut self) {
        let now = self.now;
        let is_late = |expected: &Expected| expected.deadline == Some(now);
        let late = self.live.iter().filter(|(_, expected)| is_late(expected)).map(|(id, _)| *id);
        let mut late: Vec<SequenceId> = late.collect();
        late.sort(); // a seed is the same run each time
        for id in late {
            self.live.remove(&id);
            self.scheduler.cancel(id);
            self.tally.late += 1;
        }
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

    /// Checks the rules for every planned step.
    fn check_plan(&self, batch: &Batch) {
        let guesses: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.most())).sum();
        assert_eq!(guesses, batch.guessed_rows);
        assert!(batch.rows.len() + guesses as usize <= self.capacity.step_rows);
        assert_eq!(batch.rows.len() as u32, batch.decode_rows + batch.prefill_rows);
        let is_held = |start: &Start| self.scheduler.holder(start.owner).is_some();
        assert!(batch.starts.iter().all(is_held), "who begins is there");
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
            let errors = [StepError::Failed(-1), StepError::NoRoom, StepError::Aborted];
            let error = errors[self.random.within(0, 2)];
            self.tally.aborted += u32::from(error == StepError::Aborted);
            self.lane.backend().fail_next(error);
        }
        self.lane.step(&mut batch);
        let lost = batch.failed.iter().filter(|one| one.reason == FailureReason::LostWindow);
        self.tally.lost_windows += lost.count() as u32;
        let from_logits = batch.starts.iter().filter(|start| start.logits.is_some());
        self.tally.starts_from_logits += from_logits.count() as u64;
        // A sequence may also have counted on tokens of one that has lost its window.
        let has_windows = !batch.least_left.is_empty();
        let is_start = |owner| has_windows && batch.starts.iter().any(|one| one.owner == owner);
        let all_start = batch.failed.iter().all(|failed| is_start(failed.owner));
        assert!(all_start || self.failures, "no step lacks room");
        let is_stored = batch.stores.iter().all(|store| store.is_made);
        assert!(is_stored || self.failures, "the store counts on tokens that did not run");
        // As if rows took so long: the scheduler learns from it.
        let guesses: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.made)).sum();
        batch.guess_us = self.random.within(0, 5) as u32 * guesses;
        batch.decode_us = 20 + 10 * batch.decode_rows + 3 * batch.prefill_rows + guesses;
        self.check_cells();
        self.tally.steps += 1;
        self.tally.rows += batch.rows.len() as u64;
        self.tally.rows_dropped += u64::from(batch.rows_dropped);
        self.up.push_back(batch);
    }

    /// Checks after each step, failed or not, that model and decode lane agree on the tokens of each
    /// slot, and that all of them fit.
    fn check_cells(&mut self) {
        for slot in (0..self.capacity.slots as u16).map(SlotId) {
            let next = self.lane.next_position(slot);
            assert_eq!(self.lane.backend().tokens_in(slot), next.index(), "{slot:?}");
        }
        let held = self.lane.backend().tokens_held();
        assert!(held <= self.capacity.context_tokens as usize);
    }

    fn take_step(&mut self) {
        let Some(mut batch) = self.up.pop_front() else { return };
        let mut events = Vec::new();
        self.scheduler.complete(&mut batch, |event| events.push(event));
        for event in &events {
            if let Event::Token { token, logprobs: Some(index), .. } = event {
                // The fake model gives the next token a probability of almost 1.
                let logprobs = &batch.logprobs[usize::from(*index)];
                assert!(logprobs.top[0].0 == *token && logprobs.logprob > -1e-3, "{logprobs:?}");
            }
        }
        let scores = std::mem::take(&mut batch.scores);
        let told = events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
        let ends = batch.samples.iter().filter(|sample| sample.end).count();
        self.tally.rows_wasted_on_cancelled +=
            (batch.samples.len() - ends).saturating_sub(told) as u64;
        batch.clear();
        self.spare.push(batch);
        for event in events {
            match event {
                Event::Score { id, index } => {
                    let expected = self.live.get_mut(&id).expect("a score for a live sequence");
                    let scored = expected.scored.as_mut().expect("it asked for scores");
                    *scored += 1;
                    assert_eq!(scores[index].token, expected.prompt[*scored], "in order");
                    let before = &expected.prompt[..*scored];
                    let next = continuation(before, 1, self.end_one_in)[0];
                    let is_likely = scores[index].logprobs.logprob > -1e-3;
                    assert_eq!(is_likely, scores[index].token == next);
                    self.tally.scored += 1;
                }
                Event::Guessed { id, made, kept } => {
                    assert!(self.live.contains_key(&id), "guesses of a live sequence");
                    assert!(kept <= made);
                    self.tally.guessed += u64::from(made);
                    self.tally.guessed_right += u64::from(kept);
                }
                Event::Token { id, token, logprobs, is_last, .. } => {
                    let expected = self.live.get_mut(&id).expect("a token for a live sequence");
                    let all = expected.prompt.len() - 1;
                    assert!(expected.scored.is_none_or(|scored| scored == all), "the prompt first");
                    assert_eq!(logprobs.is_some(), expected.logprobs, "as it asked");
                    assert_eq!(token, expected.tokens[expected.received], "the text is its own");
                    expected.received += 1;
                    if is_last {
                        assert!(self.end(id).is_empty());
                        self.tally.cut += 1;
                    }
                }
                Event::Finished(id, finish) => {
                    let left = self.end(id);
                    match finish {
                        Finish::End { .. } => {
                            assert_eq!(left, [END]);
                            self.tally.ended += 1;
                        }
                        Finish::PromptComputed => {
                            assert!(left.is_empty());
                            self.tally.cut += 1;
                        }
                        Finish::Failed => self.tally.failed += 1,
                        Finish::Broken(_) => unreachable!("nothing is constrained"),
                    }
                }
            }
        }
    }

    /// A live sequence ended. Gives back the tokens that it had still to come to.
    fn end(&mut self, id: SequenceId) -> Vec<TokenId> {
        let mut expected = self.live.remove(&id).expect("the end of a live sequence");
        let left = expected.tokens.split_off(expected.received);
        // A next turn begins with this one.
        self.known.push([expected.prompt, expected.tokens].concat());
        left
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
        let (held, kept) = self.scheduler.cells();
        assert_eq!(held, 0, "every cell was given back, or kept");
        assert!(self.lane.backend().tokens_held() <= kept, "what is kept is counted");
        let told = self.scheduler.tally();
        self.tally.cached += told.cached_tokens;
        self.tally.states_saved += told.states_saved;
        self.tally.states_restored += told.states_restored;
        self.tally.stored_pages += told.stored_pages;
        self.tally.restored_tokens += told.restored_tokens;
        self.tally.evicted += told.evicted_tokens;
        self.tally.preempted += told.preemptions;
        self.tally.retried += told.retries;
    }

    fn check_tally(&self) {
        let tally = &self.tally;
        let ended = tally.ended + tally.cut + tally.cancelled + tally.late + tally.failed;
        assert_eq!(tally.admitted, ended, "{tally:?}");
        // An end that the decode lane sees costs at most one dropped row. A failure
        // drops the rows planned for it in the steps in flight. A cancellation or a preemption costs
        // at most the samples of the steps in flight.
        let step = self.capacity.step_rows as u64;
        // (A cancelled sequence may have ended in the step that ran.)
        let left = u64::from(tally.cancelled + tally.late) + tally.preempted;
        let failed = u64::from(tally.failed + tally.lost_windows) + tally.retried;
        let in_flight = step * STEPS_IN_FLIGHT as u64;
        // A cancelled sequence may have failed, too.
        let rows_of_left = if self.failures { in_flight } else { 1 };
        // With guesses, the decode lane may see the last token before the scheduler does.
        let cut = if self.guesses > 0 { u64::from(tally.cut) } else { 0 };
        let bound = u64::from(tally.ended) + cut + left * rows_of_left + failed * in_flight;
        assert!(tally.rows_dropped <= bound, "{tally:?}");
        let samples = 1 + u64::from(self.guesses);
        let unread = (left + failed) * STEPS_IN_FLIGHT as u64 * samples;
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
        total.steps += tally.steps;
        total.late += tally.late;
        total.aborted += tally.aborted;
        total.lost_windows += tally.lost_windows;
        total.ended += tally.ended;
        total.cut += tally.cut;
        total.cancelled += tally.cancelled;
        total.failed += tally.failed;
        total.rows += tally.rows;
        total.rows_dropped += tally.rows_dropped;
        total.cached += tally.cached;
        total.states_saved += tally.states_saved;
        total.states_restored += tally.states_restored;
        total.starts_from_logits += tally.starts_from_logits;
        total.stored_pages += tally.stored_pages;
        total.restored_tokens += tally.restored_tokens;
        total.evicted += tally.evicted;
        total.preempted += tally.preempted;
        total.retried += tally.retried;
        total.scored += tally.scored;
        total.guessed += tally.guessed;
        total.guessed_right += tally.guessed_right;
    }
    println!("{total:?}");
    // The mix is worth something only if everything happened often.
    assert!(total.steps > 100_000 && total.late > 1_000 && total.aborted > 100);
    assert!(total.admitted > 50_000 && total.refused > 5_000 && total.ended > 5_000);
    assert!(total.cut > 5_000 && total.cancelled > 5_000 && total.retried > 500);
    assert!(total.scored > 50_000);
    assert!(total.guessed > 20_000 && 4 * total.guessed_right > total.guessed);
    assert!(total.states_saved > 10_000 && total.states_restored > 300 && total.lost_windows > 3);
    assert!(total.starts_from_logits > 0);
    assert!(total.cached > 20_000 && total.evicted > 100_000 && total.preempted > 1_000);
}

/// The prefix of the next sequence filled nearly all cells. Its copy left no room for the rest of the
/// prompt, so the sequence was preempted and copied again, without end.
#[test]
fn a_copy_of_what_fills_the_cache_does_not_stand_still() {
    simulate(702, 600);
}
