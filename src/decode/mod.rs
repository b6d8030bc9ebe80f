//! The decode lane: owns the model's context, and runs one batch after another.
//!
//! A [`Batch`] comes with clears, starts and rows. It goes back with a sample for each row that
//! asked for one, and for each start from kept logits. In between, this lane fills in the samples of
//! the previous step, checks the positions, runs the model and samples tokens.
//!
//! **Invariant:** a step makes no Rust heap allocation and frees nothing. The options of a slot's
//! previous sequence go back to the front lane with the next start. (There are two exceptions. For
//! a constrained text, llguidance allocates for a mask; slow masks come from the mask lane. A
//! thread that leads a product larger than any before makes room for its activations.)
//! **Invariant:** this lane never waits for the front lane while there is work. If a sequence ends
//! here with an end-of-generation token, its rows in the next batch, which is planned already, are
//! dropped.

pub mod advanced;
pub mod calibrate;
pub mod calls;
mod checkpoints;
mod copies;
pub mod draft;
mod dry;
mod guesses;
mod history;
mod infill;
mod largest;
mod logprobs;
mod lookup;
mod losses;
mod mask;
pub mod mask_lane;
mod mirostat;
mod penalties;
mod pool;
mod reasoning;
pub mod sampler;
mod seat;
mod slot;
mod starts;
mod weights;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Micros;
use crate::limits::STEP_ROWS_MAX;
use crate::memory::{Kept, KeptSizes, ReadyBytes, allocations_on_this_thread};
use crate::metrics::Metrics;
use crate::model::{Backend, DecodeRow, StepError};
use crate::ring::LaneLink;
use crate::ring::message::{Batch, Failed, FailureReason, Sample, Score};
use crate::types::{Logits, Owner, Position, SlotId, Threads, TokenId};
use advanced::{Asked, Limits};
use calls::Calls;
use draft::Drafter;
use lookup::Lookup;
use losses::Losses;
use mask::{Mask, saturating};
use sampler::{History, Sampler};
use seat::Seat;
use slot::{Slot, SlotState};

/// Runs batches until the front lane closes the link.
pub fn run<B: Backend>(mut lane: DecodeLane<B>, mut link: LaneLink<Batch>) {
    let mut allocations = allocations_on_this_thread();
    while let Some(mut batch) = next(&mut lane, &mut link) {
        lane.step(&mut batch);
        let before = std::mem::replace(&mut allocations, allocations_on_this_thread());
        batch.allocations = u32::try_from(allocations - before).unwrap_or(u32::MAX);
        lane.metrics.decode.allocations.add(allocations - before);
        link.send(batch);
    }
}

/// Waits for the next batch. Meanwhile, the next places for states and logits get their memory: otherwise a
/// step that uses one waits until the kernel has cleared it.
fn next<B: Backend>(lane: &mut DecodeLane<B>, link: &mut LaneLink<Batch>) -> Option<Box<Batch>> {
    loop {
        let batch = link.try_receive();
        if batch.is_some() {
            return batch;
        }
        if !lane.make_ready() {
            return link.receive();
        }
    }
}

/// The model's context, and the state of each slot.
pub struct DecodeLane<B> {
    backend: B,
    sampler: Sampler,
    slots: Box<[Slot]>,
    /// Logits that were kept, of the sequence that starts.
    logits: Box<[f32]>, // [n_vocab]
    /// The rows that run in this step.
    rows: heapless::Vec<DecodeRow, STEP_ROWS_MAX>,
    /// Pages, saved states and logits outside the KV cache.
    kept: Arc<Kept>,
    /// The first places for states and for logits that were used, and what has memory of them and the
    /// next ones.
    places: usize,
    logits_places: usize,
    ready: ReadyBytes,
    /// Guesses tokens that are not in the text, if there is one.
    drafter: Option<Box<dyn Drafter>>,
    /// The number of rows in the first call. The other rows run in a second call.
    first: usize,
    metrics: Arc<Metrics>,
    /// The time at which the previous step ended.
    ended: Micros,
    losses: Losses,
    seat: Seat,
}

impl<B: Backend> DecodeLane<B> {
    /// A lane with `slots` slots, for sequences of at most `sequence_tokens`
    /// tokens. `end_tokens` are the vocabulary's end-of-generation tokens.
    pub fn new(
        backend: B,
        slots: usize,
        sequence_tokens: usize,
        end_tokens: Box<[TokenId]>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let sampler = Sampler::new(backend.n_vocab(), end_tokens);
        Self {
            backend,
            sampler,
            logits: Box::default(),
            slots: (0..slots).map(|_| Slot::new(sequence_tokens)).collect(),
            rows: heapless::Vec::new(),
            kept: Arc::new(Kept::new(KeptSizes::default()).expect("nothing takes no memory")),
            places: 0,
            logits_places: 0,
            ready: ReadyBytes::default(),
            drafter: None,
            first: 0,
            metrics,
            ended: Micros(0),
            losses: Losses::new(),
            seat: Seat::new(),
        }
    }

    /// Lets the lane guess tokens: from the text itself if `looks_up`, and with a drafter if there
    /// is one.
    #[must_use]
    pub fn with_guesses(mut self, looks_up: bool, drafter: Option<Box<dyn Drafter>>) -> Self {
        for slot in self.slots.iter_mut().filter(|_| looks_up) {
            slot.lookup = Some(Lookup::new(slot.history.len()));
        }
        self.drafter = drafter;
        self
    }

    /// Lets the lane save states, and copy cells into pages.
    #[must_use]
    pub fn with_kept(self, kept: Arc<Kept>) -> Self {
        let logits = vec![0.0; kept.n_vocab()].into();
        Self { kept, logits, ..self }
    }

    /// The model. The simulation inspects it and makes it fail.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// The next position of a slot.
    pub fn next_position(&self, slot: SlotId) -> Position {
        self.slots[slot.index()].next
    }

    /// Runs a batch, and fills in its answers.
    ///
    /// # Panics
    /// If the batch breaks an invariant: a row of a sequence that does not hold its slot, or a row
    /// at another position than the next. Both are bugs of corelane. The message has both numbers.
    pub fn step(&mut self, batch: &mut Batch) {
        self.move_and_run(batch);
        let slots = (0..self.slots.len() as u16).map(SlotId); // at most SLOTS_MAX
        batch.least_left.extend(slots.map_while(|slot| self.backend.least_left(slot)));
    }

    fn move_and_run(&mut self, batch: &mut Batch) {
        // First what is about to be cleared.
        self.save(batch);
        self.store_pages(batch);
        for slot in &batch.clears {
            self.backend.truncate(*slot, Position(0));
            self.slots[slot.index()].checkpoint = None;
            self.set_next(*slot, Position(0));
            if let Some(drafter) = &mut self.drafter {
                drafter.start(*slot, *slot, Position(0));
            }
        }
        for slot in &batch.forgets {
            self.slots[slot.index()].walk = None;
        }
        self.start_all(batch);
        self.load_pages(batch);
        self.save(batch);
        self.backend.begin_step(batch.step);
        if let Some(threads) = batch.threads {
            self.backend.use_threads(threads);
            if let Some(drafter) = &mut self.drafter {
                drafter.use_threads(threads);
            }
            self.change_places(threads);
        }
        let began = self.metrics.clock.now();
        self.guess(batch);
        let guessed = self.metrics.clock.now();
        let continues = self.prepare(batch);
        if self.rows.is_empty() {
            self.forget_unsaved(batch);
            return;
        }
        let prepared = self.metrics.clock.now();
        let work_existed = if continues { self.ended } else { batch.sent };
        let copied = u64::from(batch.pages_us) + u64::from(batch.save_us);
        let waited = began.since(work_existed.max(self.ended)).saturating_sub(copied);
        let bubble = waited + prepared.since(guessed);
        batch.began = began;
        batch.bubble_us = saturating(bubble);
        batch.guess_us = saturating(guessed.since(began));
        self.ended = prepared;
        self.read_prompts(batch);
        for part in [0..self.first, self.first..self.rows.len()] {
            if !part.is_empty() && !batch.step_failed {
                self.run(part, batch);
            }
        }
        self.save(batch);
        self.forget_unsaved(batch);
        self.losses.fill(batch, self.ended);
        self.count(batch);
    }

    /// Moves the lane's thread to the core of a compute thread if it waits too long for its own
    /// core.
    fn change_places(&mut self, threads: Threads) {
        let others = self.backend.threads() - 1;
        // If all threads share each operation, they wait for the slowest, so a change would not
        // help.
        let is_first_among_them = threads.led || usize::from(threads.count) <= others;
        let now = self.metrics.clock.now();
        if is_first_among_them
            && let Some(other) = self.seat.change(others, now)
            && self.backend.change_places(other)
        {
            self.metrics.decode.core_changes.increment();
        }
    }

    /// Runs one call. After a failure the rows of the second call do not run.
    fn run(&mut self, part: Range<usize>, batch: &mut Batch) {
        let began = self.ended;
        let result = self.backend.decode(&self.rows[part.clone()]);
        let decoded = self.metrics.clock.now();
        match result {
            Ok(()) => self.choose(part, batch),
            Err(error) => self.roll_back(part.start, batch, &error),
        }
        self.ended = self.metrics.clock.now();
        batch.decode_us += saturating(decoded.since(began));
        batch.sample_us += saturating(self.ended.since(decoded));
    }

    /// Counts a step.
    fn count(&self, batch: &Batch) {
        let metrics = &self.metrics.decode;
        metrics.bubble_us.observe(batch.bubble_us.into());
        if batch.guessed_rows > 0 {
            metrics.guess_us.observe(batch.guess_us.into());
        }
        if batch.saves.iter().any(|save| save.state().is_some()) {
            metrics.checkpoint_us.observe(batch.save_us.into());
        }
        metrics.step_us.observe(batch.decode_us.into());
        metrics.sample_us.observe(batch.sample_us.into());
        metrics.decode_rows.observe(batch.decode_rows.into());
        metrics.prefill_rows.observe(batch.prefill_rows.into());
        let class = metrics.class(self.rows.len() as u64);
        class.steps.increment();
        class.time_us.add(batch.decode_us.into());
    }

    /// Sets the number of tokens in a slot. The slot drops rows until a sequence starts in it.
    fn set_next(&mut self, slot: SlotId, next: Position) {
        let place = &mut self.slots[slot.index()];
        place.next = next;
        place.planned = next;
        place.state = SlotState::Ended;
        place.has_run = false;
        place.carry = None;
    }

    /// Turns the batch's rows into the model's. Returns true if one of them belongs to a sequence
    /// that has run before.
    fn prepare(&mut self, batch: &mut Batch) -> bool {
        self.rows.clear();
        let calls = Calls::of(&batch.rows, self.backend.runs_ragged());
        let mut continues = self.take(batch, &calls, 0);
        self.first = self.rows.len();
        continues |= self.take(batch, &calls, 1);
        self.metrics.decode.rows_dropped.add(batch.rows_dropped.into());
        continues
    }

    /// Takes the rows of a call: fills in samples of the previous step, checks positions, and drops
    /// the rows of ended sequences. Returns true if one of them belongs to a sequence that has run
    /// before.
    fn take(&mut self, batch: &mut Batch, calls: &Calls, call: usize) -> bool {
        let mut continues = false;
        for row in calls.rows_mut(&mut batch.rows, call) {
            let slot = &mut self.slots[row.owner.slot.index()];
            assert_eq!(
                slot.generation, row.owner.generation,
                "a row for an earlier holder of slot {:?}",
                row.owner.slot
            );
            match slot.state {
                SlotState::Free => panic!("a row for slot {:?}, which is free", row.owner.slot),
                SlotState::Ended => batch.rows_dropped += 1,
                SlotState::Running => {
                    continues |= slot.has_run;
                    self.rows.extend(slot.take(row)); // the scheduler counts guesses as rows
                }
            }
        }
        continues
    }

    /// Takes the rows of a successful call: moves the positions, and samples.
    fn choose(&mut self, part: Range<usize>, batch: &mut Batch) {
        // The slot whose later rows are undone, because a guess was wrong.
        let mut undone = None;
        for index in 0..part.len() {
            let rows = &self.rows[part.clone()];
            let (row, next) = (rows[index], rows.get(index + 1).copied());
            if undone == Some(row.slot) {
                continue;
            }
            let slot = &mut self.slots[row.slot.index()];
            slot.next = row.position.next();
            slot.has_run = true;
            match row.logits {
                Logits::None => {}
                Logits::Score(token) => self.score(index, row, token, batch),
                Logits::Sample => {
                    self.keep_logits(index, row, batch);
                    self.sample(Some(index), row, batch);
                    let guess = next.filter(|next| next.slot == row.slot);
                    if guess.is_some_and(|guess| !self.comes_true(guess, batch)) {
                        undone = Some(row.slot);
                    }
                }
            }
        }
    }

    /// Computes the log-probability of a prompt token.
    fn score(&mut self, index: usize, row: DecodeRow, token: TokenId, batch: &mut Batch) {
        let slot = &self.slots[row.slot.index()];
        let owner = Owner { slot: row.slot, generation: slot.generation };
        let top = slot.advanced.as_ref().and_then(|advanced| advanced.logprobs);
        let logits = self.backend.logits(index);
        let logprobs = self.sampler.score(logits, token, top.unwrap_or(0));
        let score = Score { owner, position: row.position, token, logprobs };
        batch.scores.push(score).expect("the scheduler asks for no more");
    }

    /// Samples the token behind a row: that of this index in the last call, or one whose logits were
    /// kept.
    fn sample(&mut self, index: Option<usize>, row: DecodeRow, batch: &mut Batch) {
        let slot = &mut self.slots[row.slot.index()];
        let owner = Owner { slot: row.slot, generation: slot.generation };
        let history = History {
            tokens: &slot.history[..row.position.index() + 1],
            prompt_tokens: slot.prompt_tokens as usize,
        };
        let constraint = slot.advanced.as_ref().and_then(|advanced| advanced.constraint.as_deref());
        let sent = batch.masks.iter().find(|task| task.owner == owner);
        let mask = match (constraint, sent) {
            (None, _) => None,
            (Some(_), Some(task)) => {
                slot.walk = None; // from now on the mask lane holds the constraint's state
                Some(Mask::Sent(task))
            }
            (Some(_), None) if batch.masks_are_late() => {
                // Undo the row. The sequence restarts with a mask from the mask lane.
                slot.state = SlotState::Ended;
                let next = self.go_back(row.slot, row.position);
                let failed = Failed { owner, next, reason: FailureReason::LateMask };
                batch.failed.push(failed).expect("one failure for each slot");
                return;
            }
            (Some(compiled), None) => {
                let own = Mask::compute(&mut slot.walk, compiled, history, self.metrics.clock);
                let us = own.cost().map_or(0, |cost| cost.us);
                batch.masks_took += Duration::from_micros(us.into());
                Some(own)
            }
        };
        let logits = match index {
            Some(index) => self.backend.logits(index),
            None => &mut self.logits,
        };
        let (token, logprobs) = match &slot.advanced {
            None => (self.sampler.sample(logits, &slot.sampling, history), None),
            Some(advanced) => {
                let asked = Asked { sampling: &slot.sampling, advanced };
                let allowed = mask.as_ref().map(|mask| mask.allowed());
                let limit = advanced.reasoning.as_ref();
                let forced =
                    limit.and_then(|limit| slot.reasoning.forced_after(limit, history.generated()));
                let limits = Limits { allowed, forced };
                self.sampler.sample_with(logits, asked, limits, &mut slot.mu, history)
            }
        };
        let logprobs = logprobs.map(|logprobs| {
            batch.logprobs.push(logprobs).expect("one for each sample");
            (batch.logprobs.len() - 1) as u16 // below SAMPLES_MAX
        });
        // A constrained text that may not go on ends, even with `ignore_eos`.
        let ends = !slot.sampling.ignore_eos || mask.is_some();
        let end = self.sampler.is_end(token) && ends;
        slot.carry = Some(token);
        // With this token, the text has `position + 2` tokens.
        if end || row.position.0 + 2 == slot.tokens_max {
            slot.state = SlotState::Ended;
        }
        let broken = mask.as_ref().and_then(|mask| mask.broken()).filter(|_| end);
        let mask = mask.and_then(|mask| mask.cost());
        let Slot { mu, .. } = *slot;
        let position = row.position;
        let sample = Sample { owner, position, token, end, broken, logprobs, mu, mask };
        batch.samples.push(sample).expect("the scheduler grants no more guesses");
    }

    /// Undoes the rows from `from` on, whose call failed. Their positions stay where they were, and
    /// cells that the call may have written are removed. Later rows of their sequences are dropped
    /// until they restart.
    fn roll_back(&mut self, from: usize, batch: &mut Batch, error: &StepError) {
        self.metrics.decode.steps_failed.increment();
        batch.step_failed = true;
        batch.aborted = *error == StepError::Aborted;
        let rows = self.rows.len();
        if batch.aborted {
            // The front lane has logged the reason. At the end of a drain no request waits for the
            // step.
            tracing::debug!(step = batch.step, rows, "step given up");
        } else {
            tracing::error!(step = batch.step, rows, %error, "step failed");
        }
        for index in from..self.rows.len() {
            let row = self.rows[index];
            let slot = &mut self.slots[row.slot.index()];
            if slot.state == SlotState::Ended {
                continue; // an earlier row of the same sequence did all this
            }
            slot.state = SlotState::Ended;
            let (owner, next) = (Owner { slot: row.slot, generation: slot.generation }, slot.next);
            let next = self.go_back(row.slot, next);
            let failed = Failed { owner, next, reason: FailureReason::Step };
            batch.failed.push(failed).expect("one failure for each slot");
        }
    }
}
