//! The engine: takes jobs, keeps the decode lane busy, and turns tokens into replies.
//!
//! The caller [submits](Engine::submit) jobs. It calls [`Engine::pump`] when a batch has come back
//! ([`Engine::is_ready`]) and at the time of [`Engine::wake_at`]. The bytes of each reply are in
//! its [`Exchange`].
//!
//! **Invariant:** pure, except for the rings to other lanes. Nothing here reads a clock: each call
//! gets the time.
//! **Invariant:** while there is work, the decode lane gets the next step before the running one
//! ends. The next step is planned late, so that requests that arrive meanwhile can join it.
//! **Invariant:** a step that brings only new tokens makes no heap allocation here, once the
//! buffers of its requests have grown.

pub mod budget;
mod busy;
pub mod exchange;
mod gathering;
mod history;
pub mod job;
mod late;
mod pace;
pub mod pipeline;
mod stream;
mod times;
mod view;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::api::error::ApiError;
use crate::api::reply::Restored;
use crate::clock::Micros;
use crate::limits::{BATCHES, SAMPLES_MAX, SEQUENCES_MAX, SLOTS_MAX};
use crate::metrics::{Counter, Finished, Metrics};
use crate::model::vocab::Vocab;
use crate::ring::FrontLink;
use crate::ring::files::FileTask;
use crate::ring::message::{Batch, MaskTask};
use crate::scheduler::{
    Capacity, Event, NewSequence, Scheduler, SequenceId, SlotOutcome, SlotTask,
};
use crate::text::TextStream;
use crate::text::lines::Lines;
use crate::text::stop::StopStrings;
use crate::types::{Calibration, KeyId, LineLimits, SlotId};
use budget::Hold;
use busy::BusyLog;
use exchange::{Exchange, SharedExchange};
use gathering::Gathering;
use history::{History, Step, Tick};
use job::Job;
use late::Late;
use pace::Pace;
use pipeline::Pipeline;
use stream::{Context, Generated, Stream};
use times::Times;

/// The outcome of a client's task with a slot.
#[derive(Debug)]
pub struct SlotAnswer {
    /// The number of the task.
    pub ticket: u64,
    /// The tokens and the bytes of its file, or why it was not done.
    pub done: Result<(usize, u64), ApiError>,
}

/// The mask lane is stuck if it has tasks and finishes no piece of them for this long. One mask is
/// stopped after 250 ms of processor time.
const MASK_LANE_TIMEOUT: Duration = Duration::from_secs(30);

/// See the module's description.
pub struct Engine {
    vocab: Arc<Vocab>,
    scheduler: Scheduler,
    link: FrontLink<Batch>,
    /// The link to the mask lane.
    masks: FrontLink<MaskTask>,
    /// The link to the disk lane, if there is one.
    files: Option<FrontLink<FileTask>>,
    /// The time at which the first sequence stops waiting for files.
    files_until: Option<Micros>,
    /// Outcomes of clients' tasks with slots.
    slot_answers: Vec<SlotAnswer>,
    /// The number of pieces that the mask lane had done at the last check, and the time for which
    /// it has had tasks and done no piece.
    mask_pieces: u64,
    masks_rested: Duration,
    spare: heapless::Vec<Box<Batch>, BATCHES>,
    pipeline: Pipeline,
    /// True if the scheduler had no work for a step, and nothing has changed since.
    nothing_to_plan: bool,
    streams: Vec<Option<Stream>>, // [SEQUENCES_MAX], by SequenceId::index
    events: Vec<Event>,           // of one step; capacity EVENTS_MAX
    text: String,                 // of one token; scratch
    to_wake: Vec<SharedExchange>, // changed by one step
    pace: Pace,
    gathering: Gathering,
    /// The earliest deadline of all streams.
    next_deadline: Option<Micros>,
    history: History,
    late: Late,
    busy_log: BusyLog,
    metrics: Arc<Metrics>,
}

/// Most events of a step that scores no prompts: one for the guesses of each slot, and one for each
/// sample.
const EVENTS_MAX: usize = SLOTS_MAX + SAMPLES_MAX;

impl Engine {
    /// An idle engine. `link` goes to the decode lane, and `masks` to the mask lane. Allocates all
    /// batches.
    pub fn new(
        vocab: Arc<Vocab>,
        capacity: Capacity,
        link: FrontLink<Batch>,
        masks: FrontLink<MaskTask>,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.front.kv_tokens_capacity.set(capacity.context_tokens.into());
        Self {
            vocab,
            scheduler: Scheduler::new(capacity),
            link,
            masks,
            files: None,
            files_until: None,
            slot_answers: Vec::new(),
            mask_pieces: 0,
            masks_rested: Duration::ZERO,
            spare: (0..BATCHES).map(|_| Box::default()).collect(),
            pipeline: Pipeline::default(),
            nothing_to_plan: true,
            streams: (0..SEQUENCES_MAX).map(|_| None).collect(),
            events: Vec::with_capacity(EVENTS_MAX),
            text: String::with_capacity(256),
            to_wake: Vec::with_capacity(EVENTS_MAX),
            pace: Pace::default(),
            gathering: Gathering::default(),
            next_deadline: None,
            history: History::default(),
            late: Late::default(),
            busy_log: BusyLog::default(),
            metrics,
        }
    }

    /// Lets the engine use the files of the prefix store, with a link to the disk lane. Asks for the
    /// list of them.
    #[must_use]
    pub fn with_files(mut self, files: FrontLink<FileTask>) -> Self {
        self.files = Some(files);
        self.send_files(Micros(0));
        self
    }

    /// Learns from the steps that ran at the start, before the first job.
    pub fn calibrate(&mut self, calibration: &Calibration) {
        self.scheduler.calibrate(calibration);
    }

    /// Admits all sequences of a job, or none. `hold` becomes the request's part of the memory for
    /// requests.
    ///
    /// # Errors
    /// 400 if the job alone is larger than the queue or the memory allows. 429 with a `Retry-After`
    /// if other requests fill the queue or the memory.
    pub fn submit(
        &mut self,
        job: Job,
        mut hold: Hold,
        now: Micros,
    ) -> Result<SharedExchange, ApiError> {
        hold.resize(job.bytes)?;
        let Job { id, sequences, choices, stops, lines, markers, prompt_tokens, reply, .. } = job;
        let arrived = sequences.len();
        let constraint = |first: &NewSequence| first.advanced.as_ref()?.constraint.clone();
        let constraint = sequences.first().and_then(constraint);
        let constraint_bytes = constraint.map_or(0, |constraint| constraint.bytes());
        let was_idle = self.scheduler.is_idle() && !self.is_busy();
        let exchange = Exchange::new(id, reply, arrived, prompt_tokens, hold, now);
        let exchange = Rc::new(RefCell::new(exchange));
        let stops = StopStrings::new(stops);
        let shows_progress = exchange.borrow().shows_progress();
        let streams = &mut self.streams;
        let admitted = self.scheduler.admit(sequences, |choice, id| {
            exchange.borrow_mut().sequences.push(id);
            streams[id.index()] = Some(Stream {
                id,
                exchange: exchange.clone(),
                choice,
                text: TextStream::new(stops.clone()),
                lines: (lines != LineLimits::default()).then(|| Lines::new(lines)),
                times: Times::new(job.received, now),
                deadline: job.deadline,
                counts_prompt: choice % choices == 0,
                slot: SlotId::default(),
                shows_progress,
                markers: markers.clone(),
                constraint_bytes,
            });
        });
        admitted.map_err(|refusal| self.explain(refusal))?;
        let idle_slots = was_idle.then(|| self.scheduler.free_slots());
        self.gathering.arrived(arrived, idle_slots, self.scheduler.shortest_step(), now);
        self.next_deadline = self.next_deadline.into_iter().chain(job.deadline).min();
        self.nothing_to_plan = false;
        self.publish();
        Ok(exchange)
    }

    /// Takes the batches that came back, ends streams whose deadline has passed, and plans the next
    /// step.
    pub fn pump(&mut self, now: Micros) {
        while let Some(mut batch) = self.link.receive() {
            self.pipeline.received(now);
            let lateness = self.scheduler.lateness(&batch);
            self.late.begin_step(&batch, &lateness, &self.metrics.front, now);
            self.receive(&mut batch, now);
            if batch.rows.len() > batch.rows_dropped as usize {
                let (running, waiting) =
                    (self.scheduler.running_count(), self.scheduler.waiting_count());
                let late = self.late.of_step;
                self.history.push_step(Step::new(&batch, now, running, waiting, late));
            }
            batch.clear();
            self.spare.push(batch).expect("there are no more batches than this");
        }
        if let Some((threads, slowdown)) = self.scheduler.threads() {
            self.busy_log.note(self.scheduler.is_busy(), threads, slowdown, now);
        }
        self.receive_masks(now);
        self.receive_files(now);
        self.expire(now);
        self.advance_slots();
        self.plan(now);
        while self.advance_slots() {
            self.plan(now);
        }
        self.count_cached();
        while let Some(task) = self.scheduler.next_mask() {
            assert!(self.masks.send(task).is_ok(), "the link holds every task");
        }
        self.send_files(now);
        self.publish();
    }

    /// Plans steps while the pipeline has room.
    fn plan(&mut self, now: Micros) {
        while self.pipeline.may_plan(self.scheduler.free_slots(), now) && !self.is_gathering(now) {
            let Some(mut batch) = self.spare.pop() else { break };
            if !self.scheduler.schedule(&mut batch) {
                self.nothing_to_plan = true;
                self.spare.push(batch).expect("it was taken from there");
                break;
            }
            self.count_plan(&batch, now);
            batch.expected = self.scheduler.step_time(&batch);
            self.pipeline.sent(batch.step, batch.expected, now);
            batch.sent = now;
            assert!(self.link.send(batch).is_ok(), "the link holds every batch");
        }
    }

    /// Takes the jobs that came back from the disk lane, and lets new sequences wait for files.
    fn receive_files(&mut self, now: Micros) {
        let Some(files) = &mut self.files else { return };
        let is_late = self.files_until.is_some_and(|until| now >= until);
        while let Some(task) = files.receive() {
            self.scheduler.filed(*task, now);
            self.nothing_to_plan = false;
        }
        self.nothing_to_plan &= !is_late;
        self.files_until = self.scheduler.look_up(now);
    }

    /// Gives jobs to the disk lane.
    fn send_files(&mut self, now: Micros) {
        let Some(files) = &mut self.files else { return };
        while let Some(task) = self.scheduler.next_file_task(now) {
            assert!(files.send(Box::new(task)).is_ok(), "the link holds every job");
        }
    }

    /// Takes a task of a client with a slot. Its outcome is one of [`Engine::slot_answers`] after a
    /// later [`Engine::pump`].
    pub fn ask_slot(&mut self, task: SlotTask) {
        self.scheduler.ask_slot(task);
    }

    /// The outcomes of tasks with slots since the last call.
    pub fn slot_answers(&mut self) -> impl Iterator<Item = SlotAnswer> {
        self.slot_answers.drain(..)
    }

    /// Goes on with tasks with slots. Returns whether they need a step that copies or clears something.
    fn advance_slots(&mut self) -> bool {
        let needs_step = self.scheduler.advance_slots();
        self.nothing_to_plan &= !needs_step;
        for SlotOutcome { task, done } in self.scheduler.slot_outcomes() {
            let done = done.map_err(|refusal| Self::explain_slot(&task, refusal));
            self.slot_answers.push(SlotAnswer { ticket: task.ticket, done });
        }
        needs_step
    }

    /// Whether texts still have to be written to files, or clients wait for that.
    pub fn has_to_write(&self, now: Micros) -> bool {
        self.files.is_some()
            && (self.is_busy()
                || self.scheduler.has_slot_tasks()
                || self.scheduler.has_to_write(now))
    }

    /// Forgets removed keys. Their requests that have not started end with an error, and running
    /// ones finish. See [`Scheduler::forget`].
    pub fn forget_keys(&mut self, keys: &[KeyId], has_own_cache: bool, now: Micros) {
        keys.iter().for_each(|key| self.scheduler.forget(*key, has_own_cache));
        let of_them = self.scheduler.waiting().filter(|(_, key)| keys.contains(key));
        let waiting: Vec<SequenceId> = of_them.map(|(id, _)| id).collect();
        for id in waiting {
            // An earlier iteration may have ended the whole request.
            let stream = self.streams[id.index()].as_ref().filter(|stream| stream.id == id);
            if stream.is_some_and(|stream| stream.exchange.borrow().started.is_none()) {
                self.update(id, now, |stream, context| {
                    stream.refuse(ApiError::key_removed(), context);
                    true
                });
            }
        }
        self.wake_connections();
        self.nothing_to_plan = false; // slots to clear
        self.publish();
    }

    /// Records a turn of the front lane: the call of [`Engine::pump`] and the work around it.
    pub fn ticked(&mut self, began: Micros, took_us: u64) {
        let took_us = u32::try_from(took_us).unwrap_or(u32::MAX);
        self.history.push_tick(Tick { began, took_us });
    }

    /// The next time at which [`Engine::pump`] must be called even if nothing happens: to plan a
    /// step, or to end a stream at its deadline.
    pub fn wake_at(&self) -> Option<Micros> {
        let plan = match (self.nothing_to_plan, self.is_busy()) {
            (true, _) => None,
            (false, true) => self.pipeline.wake_at(),
            (false, false) => self.gathering.until(),
        };
        [plan, self.next_deadline, self.files_until].into_iter().flatten().min()
    }

    /// Ends a request whose client has left.
    pub fn cancel(&mut self, exchange: &Exchange) {
        self.end(exchange, |finished| &finished.abort);
        self.publish();
    }

    /// True if a batch, a mask or a job of the disk lane has come back.
    pub fn is_ready(&self) -> bool {
        let has_files = self.files.as_ref().is_some_and(FrontLink::is_ready);
        self.link.is_ready() || self.masks.is_ready() || has_files
    }

    /// True when no sequence is live and no step is in flight.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle() && !self.is_busy() && self.streams.iter().all(Option::is_none)
    }

    /// Read access to the scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Checks that the books agree with each other. For tests.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check(&self) {
        self.scheduler.check();
        assert_eq!(self.spare.len() + self.pipeline.in_flight(), BATCHES, "a batch is lost");
        for (index, stream) in self.streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            assert_eq!(stream.id.index(), index);
            assert!(stream.exchange.borrow().outcome.is_none(), "a stream outlives its reply");
        }
    }

    /// True while a step is in flight.
    pub fn is_busy(&self) -> bool {
        self.pipeline.in_flight() > 0
    }

    /// The number of the running step, and the time at which it began. `None` if no step runs.
    pub fn running_step(&self) -> Option<(u64, Micros)> {
        if self.link.is_ready() { None } else { self.pipeline.running() }
    }

    /// Checks that the mask lane makes progress. `passed` is the interval of these checks. The sum
    /// of intervals counts and not the clock, because the whole process may have been stopped for a
    /// while.
    ///
    /// # Panics
    /// If the lane has done no piece for `MASK_LANE_TIMEOUT`. It is stuck, and its texts would wait
    /// for ever.
    pub fn watch_masks(&mut self, passed: Duration) {
        let pieces = self.metrics.mask_pieces.get();
        let rests = self.scheduler.masks_asked() == 0 || pieces != self.mask_pieces;
        self.mask_pieces = pieces;
        self.masks_rested = if rests { Duration::ZERO } else { self.masks_rested + passed };
        let rested = self.masks_rested;
        assert!(rested < MASK_LANE_TIMEOUT, "the mask lane has done nothing for {rested:.0?}");
    }

    /// Takes a batch that came back.
    fn receive(&mut self, batch: &mut Batch, now: Micros) {
        self.nothing_to_plan = false;
        self.push_progress(batch, now);
        let mut events = std::mem::take(&mut self.events);
        self.scheduler.complete(batch, |event| events.push(event));
        self.gathering.stepped(self.scheduler.shortest_step(), now);
        for event in events.drain(..) {
            match event {
                Event::Guessed { id, made, kept } => {
                    if let Some(stream) = &self.streams[id.index()] {
                        let guessed = &mut stream.exchange.borrow_mut().guessed;
                        guessed.made += u64::from(made);
                        guessed.kept += u64::from(kept);
                    }
                }
                Event::Token { id, token, logprobs, is_last, constraint_bytes } => {
                    let logprobs = logprobs.map(|index| &batch.logprobs[usize::from(index)]);
                    let generated = Generated { token, logprobs, is_last };
                    self.update(id, now, |stream, context| {
                        if let Some(bytes) = constraint_bytes {
                            stream.hold_constraint(bytes as usize);
                        }
                        stream.push_token(generated, context)
                    });
                }
                Event::Score { id, index } => self.update(id, now, |stream, context| {
                    stream.push_score(&batch.scores[index], context);
                    false
                }),
                Event::Finished(id, finish) => self.update(id, now, |stream, context| {
                    stream.finish(finish, &batch.logprobs, context);
                    true
                }),
            }
        }
        self.events = events;
        self.wake_connections();
        if self.scheduler.is_idle() {
            self.pace.pause();
        }
    }

    /// Takes the masks that came back.
    fn receive_masks(&mut self, now: Micros) {
        while let Some(task) = self.masks.receive() {
            let mask_us = task.cost.us;
            let Some((id, bytes)) = self.scheduler.masked(task) else { continue };
            self.nothing_to_plan = false;
            self.update(id, now, |stream, _| {
                stream.times.mask(mask_us);
                stream.hold_constraint(bytes as usize);
                false
            });
        }
        self.wake_connections();
        let waits = !self.is_busy() && self.scheduler.waits_for_masks();
        let asked = self.scheduler.masks_asked();
        self.gathering.masks(asked, waits, self.scheduler.shortest_step(), now);
    }

    /// Ends the streams whose deadline has passed.
    fn expire(&mut self, now: Micros) {
        if self.next_deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        for index in 0..self.streams.len() {
            if let Some(stream) = &self.streams[index]
                && stream.deadline.is_some_and(|deadline| deadline <= now)
            {
                self.update(stream.id, now, |stream, context| {
                    stream.expire(context);
                    true
                });
            }
        }
        self.wake_connections();
        let deadlines = self.streams.iter().flatten().filter_map(|stream| stream.deadline);
        self.next_deadline = deadlines.min();
        self.nothing_to_plan = false;
    }

    /// Changes a stream. `change` returns true if the stream ended. If the request failed, ends its
    /// other sequences, too.
    fn update(
        &mut self,
        id: SequenceId,
        now: Micros,
        change: impl FnOnce(&mut Stream, Context<'_>) -> bool,
    ) {
        let Some(stream) = &mut self.streams[id.index()] else { return };
        let (vocab, metrics, text) = (&*self.vocab, &self.metrics.front, &mut self.text);
        let ended = change(stream, Context { vocab, metrics, late: &mut self.late, text, now });
        let exchange = stream.exchange.clone();
        if ended {
            stream.hold_constraint(0);
            self.scheduler.cancel(id); // after a stop string, which only this lane can see
            self.streams[id.index()] = None;
            self.pace.finished(now);
            self.gathering.ended();
        }
        let failed = match &exchange.borrow().outcome {
            Some(Err(error)) => Some(error.status),
            _ => None,
        };
        if let Some(status) = failed {
            self.end(&exchange.borrow(), |finished| finished.of_error(status));
        }
        self.to_wake.push(exchange);
    }

    /// Ends the remaining sequences of a request, and counts them under `reason`.
    fn end(&mut self, exchange: &Exchange, reason: impl Fn(&Finished) -> &Counter) {
        for id in &exchange.sequences {
            self.scheduler.cancel(*id);
            if self.streams[id.index()].take_if(|stream| stream.id == *id).is_some() {
                reason(&self.metrics.front.finished).increment();
            }
        }
        self.nothing_to_plan = false; // slots to clear
    }

    fn wake_connections(&mut self) {
        for exchange in self.to_wake.drain(..) {
            exchange.borrow_mut().wake();
        }
    }

    /// True while an idle engine waits for more requests or for masks.
    fn is_gathering(&self, now: Micros) -> bool {
        !self.is_busy() && self.gathering.until().is_some_and(|until| now < until)
    }

    fn count_plan(&mut self, batch: &Batch, now: Micros) {
        let metrics = &self.metrics.front;
        metrics.steps_in_flight.observe(self.pipeline.in_flight() as u64);
        for start in &batch.starts {
            let Some(id) = self.scheduler.holder(start.owner) else { continue };
            let Some(stream) = &mut self.streams[id.index()] else { continue };
            stream.exchange.borrow_mut().started.get_or_insert(now);
            stream.times.start(start.prompt_tokens, metrics, now);
            stream.slot = start.owner.slot;
        }
    }

    /// Counts the cached tokens of texts that have no token yet. Their number may change until then:
    /// a follower starts twice, the second time with its leader's tokens; pages of the store may find
    /// no cells; and after a failed step, a text may start with fewer.
    fn count_cached(&mut self) {
        for id in self.scheduler.running() {
            let Some(stream) = &mut self.streams[id.index()] else { continue };
            let (before, restored_before) = (stream.times.cached, stream.times.restored);
            let restored = Restored {
                tokens: self.scheduler.restored_tokens(*id) as u64,
                fetched: self.scheduler.fetched_tokens(*id) as u64,
            };
            stream.times.count_cached(self.scheduler.cached_tokens(*id) as u64, restored);
            if stream.counts_prompt {
                let exchange = &mut *stream.exchange.borrow_mut();
                let (usage, all) = (&mut exchange.usage, &mut exchange.restored);
                let (cached, restored) = (stream.times.cached, stream.times.restored);
                usage.cached_tokens = usage.cached_tokens - before + cached;
                all.tokens = all.tokens - restored_before.tokens + restored.tokens;
                all.fetched = all.fetched - restored_before.fetched + restored.fetched;
            }
        }
    }

    /// Publishes the load in the metrics.
    fn publish(&self) {
        let metrics = &self.metrics.front;
        metrics.running.set(self.scheduler.running_count() as u64);
        metrics.waiting.set(self.scheduler.waiting_count() as u64);
        let (held, kept) = self.scheduler.cells();
        metrics.kv_tokens_used.set((held + kept) as u64);
        metrics.kv_tokens_kept.set(kept as u64);
        if let Some((threads, slowdown)) = self.scheduler.threads() {
            metrics.compute_threads.set(threads.count.into());
            metrics.products_led.set(threads.led.into());
            metrics.slowdown_permille.set((slowdown * 1e3) as u64); // at most 10^5
        }
        let tally = self.scheduler.tally();
        metrics.cached_tokens.advance_to(tally.cached_tokens);
        metrics.prefilled_tokens.advance_to(tally.prefilled_tokens);
        metrics.evicted_tokens.advance_to(tally.evicted_tokens);
        metrics.restored_tokens.advance_to(tally.restored_tokens);
        metrics.fetched_tokens.advance_to(tally.fetched_tokens);
        metrics.store_pages.set(self.scheduler.pages() as u64);
        metrics.checkpoints.set(self.scheduler.checkpoints() as u64);
        metrics.checkpoint_starts.advance_to(tally.states_restored);
        metrics.preemptions.advance_to(tally.preemptions);
        metrics.retries.advance_to(tally.retries);
    }
}
