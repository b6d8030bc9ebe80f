//! The engine of the front lane: takes requests in, keeps the decode lane fed,
//! turns the tokens that come back into text.
//!
//! **Invariant:** while there is work, the decode lane has the next step before
//! it ends the one it runs; and not much before, so that what arrives meanwhile
//! joins it.
//! Many come at once, those above all who ended at once, and a step for the first of
//! them alone would make the others wait for it, and keep them a step apart ever after:
//! an idle engine gives them a moment, a fiftieth of a step.
//!
//! **Invariant:** a step that changes nothing but tokens makes no heap
//! allocation here, once the buffers of its requests have grown.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{Exchange, SharedExchange};
use super::forecast::Forecast;
use super::pace::Pace;
use super::prepare::{PreparedGeneration, Serving};
use super::times::Times;
use crate::api::error::ApiError;
use crate::api::llama::SlotStatus;
use crate::api::{Delta, FinishReason, Reply, logprobs};
use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::limits::{BATCHES, SEQUENCES_MAX, SLOTS_MAX};
use crate::metrics::{Counter, Finished, Metrics};
use crate::model::vocab::Vocab;
use crate::ring::FrontLink;
use crate::ring::message::{Batch, TokenLogprobs};
use crate::scheduler::{
    Capacity, Event, Finish, NewSequence, Refusal, Scheduler, SequenceId, SlotState, SlotView,
};
use crate::text::stop::StopStrings;
use crate::text::{Pushed, TextStream};
use crate::types::{KeyId, Sampling, TokenId};

/// See the module's description.
pub struct Engine {
    serving: Arc<Serving>,
    scheduler: Scheduler,
    link: FrontLink,
    spare: heapless::Vec<Box<Batch>, BATCHES>,
    forecast: Forecast,
    /// The scheduler had nothing for a step, and nothing has changed since.
    nothing_to_plan: bool,
    streams: Vec<Option<Stream>>, // [SEQUENCES_MAX], by SequenceId::index
    events: Vec<Event>,           // of one step; capacity for two a slot
    text: String,                 // of one token
    to_wake: Vec<SharedExchange>, // touched by one step
    pace: Pace,
    gathering: Gathering,
    /// The first moment at which somebody's time is over.
    next_deadline: Option<Micros>,
    metrics: Arc<Metrics>,
}

/// Who may be about to come, while nothing runs: those who left in the last step, or
/// those who come together with the first.
#[derive(Debug, Default)]
struct Gathering {
    /// So many sequences.
    expected: usize,
    /// Waited for until then.
    until: Micros,
}

/// The text side of a live sequence.
struct Stream {
    id: SequenceId,
    exchange: SharedExchange,
    choice: usize,
    text: TextStream,
    times: Times,
    /// When its time is over.
    deadline: Option<Micros>,
    /// It is the first choice of its prompt.
    counts_prompt: bool,
    /// Control tokens that these read are a part of its text.
    markers: Option<ParserOptions>,
    /// The reply wants the numbers of its tokens.
    returns_tokens: bool,
    /// It wants no text.
    prompt_alone: bool,
}

/// A token that came back.
#[derive(Clone, Copy, Debug)]
pub struct Generated<'a> {
    /// Which.
    pub token: TokenId,
    /// Its log-probability and the most probable tokens', if the request asked for
    /// them. They are the batch's: to be written out before it is used again.
    pub logprobs: Option<&'a TokenLogprobs>,
    /// There are as many as were asked for.
    pub is_last: bool,
}

/// What comes with a request, beside what it says itself.
pub struct Submission {
    /// The id that the response has.
    pub id: String,
    /// How it is answered.
    pub reply: Reply,
    /// The seed, where the request has none.
    pub seed: u64,
    /// Whose it is.
    pub key: KeyId,
    /// Lower goes first.
    pub priority: i32,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// When its head had been read.
    pub received: Micros,
}

impl Engine {
    /// An engine with nothing to do. Allocates every batch there will be.
    pub fn new(
        serving: Arc<Serving>,
        capacity: Capacity,
        link: FrontLink,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.front.kv_tokens_capacity.set(capacity.context_tokens.into());
        Self {
            serving,
            scheduler: Scheduler::new(capacity),
            link,
            spare: (0..BATCHES).map(|_| Box::default()).collect(),
            forecast: Forecast::default(),
            nothing_to_plan: true,
            streams: (0..SEQUENCES_MAX).map(|_| None).collect(),
            events: Vec::with_capacity(2 * SLOTS_MAX),
            text: String::with_capacity(256),
            to_wake: Vec::with_capacity(SLOTS_MAX),
            pace: Pace::default(),
            gathering: Gathering::default(),
            next_deadline: None,
            metrics,
        }
    }

    /// Takes a request in: all of its sequences, or none.
    ///
    /// # Errors
    /// 429 when the queue has no room, with the time after which it may.
    pub fn submit(
        &mut self,
        generation: PreparedGeneration,
        submission: Submission,
        now: Micros,
    ) -> Result<SharedExchange, ApiError> {
        let PreparedGeneration {
            request, prompts, max_tokens, extras, markers, prompt_alone, ..
        } = generation;
        let Submission { id, reply, seed, key, priority, timeout, received } = submission;
        let n = request.n;
        let prompt_tokens = prompts.iter().step_by(n).map(|prompt| prompt.len() as u64).sum();
        let exchange = Exchange::new(id, reply, prompts.len(), prompt_tokens, now);
        let exchange = Rc::new(std::cell::RefCell::new(exchange));
        let stops = StopStrings::new(request.stops);
        let seed = request.seed.unwrap_or(seed);
        let cache = request.cache_prompt;
        let sequences = prompts.into_iter().zip(max_tokens).enumerate().map(
            |(choice, (prompt, max_tokens))| {
                // Several prompts of one request draw differently.
                let seed = seed.wrapping_add(choice as u64);
                let sampling = Sampling { seed, ..request.sampling };
                let extras = extras.clone();
                NewSequence { prompt, max_tokens, sampling, extras, priority, key, cache }
            },
        );
        let sequences: Vec<NewSequence> = sequences.collect();
        let arrived = sequences.len();
        let is_first = self.scheduler.is_idle() && !self.is_busy() && now >= self.gathering.until;
        let deadline = timeout.map(|timeout| received + timeout);
        let streams = &mut self.streams;
        let admitted = self.scheduler.admit(sequences, |choice, id| {
            exchange.borrow_mut().sequences.push(id);
            let text = TextStream::new(stops.clone());
            let times = Times::new(received, now);
            let exchange = exchange.clone();
            streams[id.index()] = Some(Stream {
                id,
                exchange,
                choice,
                text,
                times,
                deadline,
                counts_prompt: choice % n == 0,
                markers,
                returns_tokens: request.return_tokens,
                prompt_alone,
            });
        });
        admitted.map_err(|refusal| self.explain(refusal))?;
        if is_first {
            let expected = self.scheduler.free_slots();
            self.gathering = Gathering { expected, until: now + self.forecast.moment() };
        }
        self.gathering.expected = self.gathering.expected.saturating_sub(arrived);
        if let Some(deadline) = deadline {
            self.next_deadline =
                self.next_deadline.map_or(Some(deadline), |d| Some(d.min(deadline)));
        }
        self.nothing_to_plan = false;
        self.publish();
        Ok(exchange)
    }

    /// Ends whatever has had its time: before its first token with an error,
    /// after it with what it has.
    fn expire(&mut self, now: Micros) {
        if self.next_deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let late = |stream: &Stream| stream.deadline.is_some_and(|deadline| deadline <= now);
        for index in 0..self.streams.len() {
            let Some(stream) = self.streams[index].as_mut().filter(|stream| late(stream)) else {
                continue;
            };
            let id = stream.id;
            let metrics = &self.metrics.front;
            let mut exchange = stream.exchange.borrow_mut();
            if exchange.first_token.is_none() {
                exchange.fail(ApiError::deadline());
                metrics.finished.timeout.increment();
            } else {
                self.text.clear();
                stream.text.finish(&mut self.text);
                stream.times.end(metrics, &metrics.finished.timeout, now);
                let finish = Some(FinishReason::Timeout);
                let usage = stream.times.usage();
                let delta = Delta { text: &self.text, finish, usage, ..Delta::default() };
                exchange.push_delta(stream.choice, delta, now);
            }
            drop(exchange);
            self.touched(id, true, now);
        }
        self.wake_touched();
        let deadlines = self.streams.iter().flatten().filter_map(|stream| stream.deadline);
        self.next_deadline = deadlines.min();
        self.nothing_to_plan = false;
    }

    fn wake_touched(&mut self) {
        for exchange in self.to_wake.drain(..) {
            exchange.borrow_mut().wake();
        }
    }

    fn explain(&self, refusal: Refusal) -> ApiError {
        match refusal {
            Refusal::TooMany { sequences, limit } => ApiError::field(
                "prompt",
                format!("{sequences} prompts in one request; this server takes {limit} at once"),
            ),
            Refusal::QueueFull { waiting, limit } => ApiError::busy(
                format!("the queue is full: {waiting} prompts are waiting, {limit} may"),
                self.pace.seconds_until_free(waiting),
            ),
            Refusal::TokensFull { waiting, limit } => ApiError::busy(
                format!("the queue is full: prompts of {waiting} tokens are waiting, {limit} may"),
                self.pace.seconds_until_free(self.scheduler.waiting_count()),
            ),
        }
    }

    /// Ends a request whose client has left.
    pub fn cancel(&mut self, exchange: &Exchange) {
        self.end(exchange, |finished| &finished.abort);
        self.publish();
    }

    /// Ends what is left of a request, and counts it as `reason` says.
    fn end(&mut self, exchange: &Exchange, reason: fn(&Finished) -> &Counter) {
        for id in &exchange.sequences {
            self.scheduler.cancel(*id);
            if self.streams[id.index()].take_if(|stream| stream.id == *id).is_some() {
                reason(&self.metrics.front.finished).increment();
            }
        }
        self.nothing_to_plan = false; // slots to clear
    }

    /// Takes what came back and plans what goes out next.
    pub fn pump(&mut self, now: Micros) {
        while let Some(mut batch) = self.link.receive() {
            self.forecast.received(batch.decode_us.saturating_add(batch.sample_us), now);
            self.nothing_to_plan = false;
            self.gathering = Gathering { expected: 0, until: now + self.forecast.moment() };
            self.receive(&batch, now);
            if self.scheduler.is_idle() {
                self.pace.pause();
            }
            batch.clear();
            self.spare.push(batch).expect("there are no more batches than this");
        }
        self.expire(now);
        while self.forecast.may_plan(self.scheduler.free_slots(), now) && !self.is_gathering(now) {
            let Some(mut batch) = self.spare.pop() else { break };
            if !self.scheduler.schedule(&mut batch) {
                self.nothing_to_plan = true;
                self.spare.push(batch).expect("it was taken from there");
                break;
            }
            self.count_plan(&batch, now);
            self.forecast.sent(batch.rows.len() as u32, now); // at most STEP_ROWS_MAX
            batch.sent = self.metrics.clock.now();
            self.link.send(batch);
        }
        self.publish();
    }

    fn count_plan(&mut self, batch: &Batch, now: Micros) {
        let metrics = &self.metrics.front;
        metrics.steps_in_flight.observe(self.forecast.in_flight() as u64);
        for start in &batch.starts {
            let Some(id) = self.scheduler.holder(start.owner) else { continue };
            let Some(stream) = &mut self.streams[id.index()] else { continue };
            let mut exchange = stream.exchange.borrow_mut();
            exchange.started.get_or_insert(now);
            // A follower begins twice, a retry again and again, maybe with less.
            let before = stream.times.cached;
            let cached = self.scheduler.cached_tokens(id) as u64;
            stream.times.start(start.prompt_tokens, cached, metrics, now);
            if stream.counts_prompt {
                let usage = &mut exchange.usage;
                usage.cached_tokens = usage.cached_tokens - before + stream.times.cached;
            }
        }
    }

    /// Tells how full it is.
    fn publish(&self) {
        let metrics = &self.metrics.front;
        metrics.running.set(self.scheduler.running_count() as u64);
        metrics.waiting.set(self.scheduler.waiting_count() as u64);
        let (held, kept) = self.scheduler.cells();
        metrics.kv_tokens_used.set((held + kept) as u64);
        metrics.kv_tokens_kept.set(kept as u64);
        let tally = self.scheduler.tally();
        metrics.cached_tokens.advance_to(tally.cached_tokens);
        metrics.prefilled_tokens.advance_to(tally.prefilled_tokens);
        metrics.evicted_tokens.advance_to(tally.evicted_tokens);
        metrics.preemptions.advance_to(tally.preemptions);
        metrics.retries.advance_to(tally.retries);
    }

    /// Nothing runs, and more may come in a moment.
    fn is_gathering(&self, now: Micros) -> bool {
        let Gathering { expected, until } = self.gathering;
        expected > 0 && now < until && !self.is_busy()
    }

    /// When [`Engine::pump`] should be called though nothing happened: the
    /// moment to plan the step after the running one, or the first of all, or to
    /// end what has had its time.
    pub fn wake_at(&self) -> Option<Micros> {
        let gathered = (self.gathering.expected > 0).then_some(self.gathering.until);
        let plan = match (self.nothing_to_plan, self.is_busy()) {
            (true, _) => None,
            (false, true) => self.forecast.wake_at(),
            (false, false) => gathered,
        };
        [plan, self.next_deadline].into_iter().flatten().min()
    }

    /// True when [`Engine::pump`] has something to take.
    pub fn is_ready(&self) -> bool {
        self.link.is_ready()
    }

    /// What is in each slot.
    pub fn slots(&self, now: Micros) -> Vec<SlotStatus> {
        let status = |view: SlotView| {
            let idle = SlotStatus { state: "idle", n_past: view.position, ..SlotStatus::default() };
            let Some((id, state)) = view.held else { return idle };
            let Some(stream) = &self.streams[id.index()] else { return idle };
            let exchange = stream.exchange.borrow();
            SlotStatus {
                state: match state {
                    SlotState::Following => "following",
                    SlotState::Prefill => "prefill",
                    SlotState::Decode => "decode",
                },
                id_task: exchange.id.clone(),
                prompt_tokens: exchange.usage.prompt_tokens,
                cached_tokens: exchange.usage.cached_tokens,
                decoded_tokens: exchange.usage.completion_tokens,
                elapsed_ms: now.seconds_since(exchange.admitted) * 1e3,
                queued_ms: exchange.timings(now).queued.as_secs_f64() * 1e3,
                ..idle
            }
        };
        self.scheduler.slots().map(status).collect()
    }

    /// When the running step began, if one runs. One that has come back and waits to
    /// be taken does not.
    pub fn step_began(&self) -> Option<Micros> {
        if self.is_ready() { None } else { self.forecast.running_since() }
    }

    /// True while the decode lane owes a step.
    pub fn is_busy(&self) -> bool {
        self.forecast.in_flight() > 0
    }

    fn receive(&mut self, batch: &Batch, now: Micros) {
        let mut events = std::mem::take(&mut self.events);
        self.scheduler.complete(batch, |event| events.push(event));
        let mut rest = events.iter().peekable();
        while let Some(event) = rest.next() {
            match *event {
                Event::Token(id, token, logprobs) => {
                    let last = Event::Finished(id, Finish::Length);
                    let is_last = rest.next_if_eq(&&last).is_some();
                    let logprobs = logprobs.map(|index| &batch.logprobs[usize::from(index)]);
                    self.on_token(id, Generated { token, logprobs, is_last }, now);
                }
                Event::Finished(id, finish) => self.on_finished(id, finish, now),
            }
        }
        events.clear();
        self.events = events;
        self.wake_touched();
    }

    fn on_token(&mut self, id: SequenceId, generated: Generated<'_>, now: Micros) {
        let Some(stream) = &mut self.streams[id.index()] else { return };
        if stream.prompt_alone {
            return self.on_prompt(id, now);
        }
        self.text.clear();
        let vocab = &self.serving.vocab;
        let Generated { token, logprobs, is_last } = generated;
        let spelling = vocab.spelling_of(token);
        let bytes = match (vocab.bytes_of(token), stream.markers) {
            // A control token.
            (b"", Some(markers)) if markers.reads(spelling) => spelling,
            (bytes, _) => bytes,
        };
        let pushed = stream.text.push(bytes, &mut self.text);
        let finish = match pushed {
            Pushed::Stopped => Some(FinishReason::Stop),
            Pushed::Open if is_last => {
                stream.text.finish(&mut self.text);
                Some(FinishReason::Length)
            }
            Pushed::Open => None,
        };
        let metrics = &self.metrics.front;
        stream.times.token(metrics, now);
        match finish {
            Some(FinishReason::Stop) => stream.times.end(metrics, &metrics.finished.stop, now),
            Some(FinishReason::Length) => stream.times.end(metrics, &metrics.finished.length, now),
            Some(FinishReason::Timeout) | None => {} // `expire` does the former
        }
        let mut exchange = stream.exchange.borrow_mut();
        exchange.usage.completion_tokens += 1;
        exchange.first_token.get_or_insert(now);
        let logprobs = logprobs.map(|found| spell(token, found, vocab));
        let delta = Delta {
            text: &self.text,
            tokens: if stream.returns_tokens { &[token] } else { &[] },
            finish,
            stop_word: stream.text.stop_word(),
            logprobs: logprobs.as_slice(),
            usage: stream.times.usage(),
            summary: None,
        };
        exchange.push_delta(stream.choice, delta, now);
        drop(exchange);
        self.touched(id, finish.is_some(), now);
    }

    /// A prompt is computed, and nothing else was asked for.
    fn on_prompt(&mut self, id: SequenceId, now: Micros) {
        let Some(stream) = &mut self.streams[id.index()] else { return };
        let metrics = &self.metrics.front;
        stream.times.prompt(metrics, now);
        stream.times.end(metrics, &metrics.finished.length, now);
        let mut exchange = stream.exchange.borrow_mut();
        exchange.first_token.get_or_insert(now);
        let finish = Some(FinishReason::Length);
        let delta = Delta { finish, usage: stream.times.usage(), ..Delta::default() };
        exchange.push_delta(stream.choice, delta, now);
        drop(exchange);
        self.touched(id, true, now);
    }

    fn on_finished(&mut self, id: SequenceId, finish: Finish, now: Micros) {
        let Some(stream) = &mut self.streams[id.index()] else { return };
        if stream.prompt_alone && finish == Finish::End {
            return self.on_prompt(id, now);
        }
        let metrics = &self.metrics.front;
        let mut exchange = stream.exchange.borrow_mut();
        match finish {
            Finish::End => {
                stream.times.token(metrics, now);
                stream.times.end(metrics, &metrics.finished.stop, now);
                self.text.clear();
                stream.text.finish(&mut self.text);
                exchange.usage.completion_tokens += 1;
                exchange.first_token.get_or_insert(now);
                let finish = Some(FinishReason::Stop);
                let usage = stream.times.usage();
                let delta = Delta { text: &self.text, finish, usage, ..Delta::default() };
                exchange.push_delta(stream.choice, delta, now);
            }
            Finish::Failed => {
                metrics.finished.error.increment();
                exchange.fail(ApiError::internal("the model failed to run a step; try again"));
            }
            Finish::Broken => {
                metrics.finished.error.increment();
                let message = "the text's schema, regular expression or grammar could not be \
                               followed any further: it takes more states than this server \
                               keeps; shorter texts and fewer choices in it take fewer";
                exchange.fail(ApiError::invalid(message));
            }
            Finish::Length => unreachable!("taken together with the last token"),
        }
        drop(exchange);
        self.touched(id, true, now);
    }

    /// After a change to a sequence's exchange: remembers to wake it, and ends
    /// what has ended.
    fn touched(&mut self, id: SequenceId, ended: bool, now: Micros) {
        let Some(stream) = &self.streams[id.index()] else { return };
        let exchange = stream.exchange.clone();
        if ended {
            self.scheduler.cancel(id); // a stop string, which only this lane can see
            self.streams[id.index()] = None;
            self.pace.finished(now);
            self.gathering.expected += 1;
        }
        let failed = match &exchange.borrow().outcome {
            Some(Err(error)) => Some(error.status),
            _ => None,
        };
        match failed {
            // Its other sequences.
            Some(504) => self.end(&exchange.borrow(), |finished| &finished.timeout),
            Some(_) => self.end(&exchange.borrow(), |finished| &finished.error),
            None => {}
        }
        self.to_wake.push(exchange);
    }
}

/// Log-probabilities, with the texts of the tokens. (Only what asks for them allocates.)
fn spell(token: TokenId, found: &TokenLogprobs, vocab: &Vocab) -> logprobs::TokenLogprobs {
    let scored = |token: TokenId, logprob: f32| logprobs::Scored {
        token,
        bytes: vocab.spelling_of(token).to_vec(),
        logprob,
    };
    logprobs::TokenLogprobs {
        chosen: scored(token, found.logprob),
        top: found.top.iter().map(|(token, logprob)| scored(*token, *logprob)).collect(),
    }
}
