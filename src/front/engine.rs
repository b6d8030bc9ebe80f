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

use super::exchange::{Exchange, SharedExchange};
use super::forecast::Forecast;
use super::prepare::{PreparedGeneration, Serving};
use super::times::Times;
use crate::api::error::ApiError;
use crate::api::{FinishReason, Reply};
use crate::clock::Micros;
use crate::limits::{BATCHES, RETRY_AFTER_S_MAX, SEQUENCES_MAX, SLOTS_MAX};
use crate::metrics::{Counter, Finished, Metrics};
use crate::ring::FrontLink;
use crate::ring::message::Batch;
use crate::scheduler::{Capacity, Event, Finish, NewSequence, Refusal, Scheduler, SequenceId};
use crate::text::stop::StopStrings;
use crate::text::{Pushed, TextStream};
use crate::types::Sampling;

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
            metrics,
        }
    }

    /// Takes a request in, whose head was `received` some time before `now`:
    /// all of its sequences, or none.
    ///
    /// # Errors
    /// 429 when the queue has no room, with the time after which it may.
    pub fn submit(
        &mut self,
        generation: PreparedGeneration,
        reply: Reply,
        seed: u64,
        received: Micros,
        now: Micros,
    ) -> Result<SharedExchange, ApiError> {
        let PreparedGeneration { request, prompts, max_tokens } = generation;
        let prompt_tokens = prompts.iter().map(|prompt| prompt.len() as u64).sum();
        let exchange = Exchange::new(reply, prompts.len(), prompt_tokens);
        let exchange = Rc::new(std::cell::RefCell::new(exchange));
        let stops = StopStrings::new(request.stops);
        let seed = request.seed.unwrap_or(seed);
        let sequences = prompts.into_iter().zip(max_tokens).enumerate().map(
            |(choice, (prompt, max_tokens))| {
                // Several prompts of one request draw differently.
                let seed = seed.wrapping_add(choice as u64);
                let sampling = Sampling { seed, ..request.sampling };
                NewSequence { prompt, max_tokens, sampling }
            },
        );
        let sequences: Vec<NewSequence> = sequences.collect();
        let arrived = sequences.len();
        let is_first = self.scheduler.is_idle() && !self.is_busy() && now >= self.gathering.until;
        let streams = &mut self.streams;
        let admitted = self.scheduler.admit(sequences, |choice, id| {
            exchange.borrow_mut().sequences.push(id);
            let text = TextStream::new(stops.clone());
            let times = Times::new(received, now);
            let exchange = exchange.clone();
            streams[id.index()] = Some(Stream { id, exchange, choice, text, times });
        });
        admitted.map_err(|refusal| self.explain(refusal))?;
        if is_first {
            let expected = self.scheduler.free_slots();
            self.gathering = Gathering { expected, until: now + self.forecast.moment() };
        }
        self.gathering.expected = self.gathering.expected.saturating_sub(arrived);
        self.nothing_to_plan = false;
        self.publish();
        Ok(exchange)
    }

    fn explain(&self, refusal: Refusal) -> ApiError {
        match refusal {
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
        while self.may_plan(now) && !self.is_gathering(now) {
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

    /// True when the next step may be planned: late, but for who could join it.
    fn may_plan(&self, now: Micros) -> bool {
        if self.scheduler.free_slots() == 0 {
            self.forecast.has_room()
        } else {
            self.forecast.may_plan(now)
        }
    }

    fn count_plan(&mut self, batch: &Batch, now: Micros) {
        let metrics = &self.metrics.front;
        metrics.steps_in_flight.observe(self.forecast.in_flight() as u64);
        for start in &batch.starts {
            let id = self.scheduler.holder(start.owner).expect("it was started just now");
            if let Some(stream) = &mut self.streams[id.index()] {
                stream.times.start(start.prompt_tokens, metrics, now);
            }
        }
    }

    /// Tells how full it is.
    fn publish(&self) {
        let metrics = &self.metrics.front;
        metrics.running.set(self.scheduler.running_count() as u64);
        metrics.waiting.set(self.scheduler.waiting_count() as u64);
        metrics.kv_tokens_reserved.set(self.scheduler.reserved_tokens().into());
    }

    /// Nothing runs, and more may come in a moment.
    fn is_gathering(&self, now: Micros) -> bool {
        let Gathering { expected, until } = self.gathering;
        expected > 0 && now < until && !self.is_busy()
    }

    /// When [`Engine::pump`] should be called though nothing happened: the
    /// moment to plan the step after the running one, or the first of all.
    pub fn wake_at(&self) -> Option<Micros> {
        if self.nothing_to_plan {
            return None;
        }
        let gathered = (self.gathering.expected > 0).then_some(self.gathering.until);
        if self.is_busy() { self.forecast.wake_at() } else { gathered }
    }

    /// True when [`Engine::pump`] has something to take.
    pub fn is_ready(&self) -> bool {
        self.link.is_ready()
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
                Event::Token(id, token) => {
                    let last = Event::Finished(id, Finish::Length);
                    let is_last = rest.next_if_eq(&&last).is_some();
                    self.on_token(id, token, is_last, now);
                }
                Event::Finished(id, finish) => self.on_finished(id, finish, now),
            }
        }
        events.clear();
        self.events = events;
        for exchange in self.to_wake.drain(..) {
            exchange.borrow_mut().wake();
        }
    }

    fn on_token(&mut self, id: SequenceId, token: i32, is_last: bool, now: Micros) {
        let Some(stream) = &mut self.streams[id.index()] else { return };
        self.text.clear();
        let pushed = stream.text.push(self.serving.vocab.bytes_of(token), &mut self.text);
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
            None => {}
        }
        let mut exchange = stream.exchange.borrow_mut();
        exchange.usage.completion_tokens += 1;
        exchange.first_token.get_or_insert(now);
        exchange.push_delta(stream.choice, &self.text, finish, now);
        drop(exchange);
        self.touched(id, finish.is_some(), now);
    }

    fn on_finished(&mut self, id: SequenceId, finish: Finish, now: Micros) {
        let Some(stream) = &mut self.streams[id.index()] else { return };
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
                exchange.push_delta(stream.choice, &self.text, Some(FinishReason::Stop), now);
            }
            Finish::Failed => {
                metrics.finished.error.increment();
                exchange.fail(ApiError::internal("the model failed to run a step; try again"));
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
        if matches!(exchange.borrow().outcome, Some(Err(_))) {
            self.end(&exchange.borrow(), |finished| &finished.error); // its other sequences
        }
        self.to_wake.push(exchange);
    }
}

/// How fast sequences finish while there is work: an exponential mean of the
/// time between two.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Micros>,
    mean_s: Option<f64>,
}

impl Pace {
    fn finished(&mut self, now: Micros) {
        if let Some(last) = self.last.replace(now) {
            let gap = now.seconds_since(last);
            let mean = self.mean_s.get_or_insert(gap);
            *mean += 0.1 * (gap - *mean);
        }
    }

    /// Nothing runs: the time until something does says nothing of the pace.
    fn pause(&mut self) {
        self.last = None;
    }

    /// When `waiting` sequences will have left the queue, in whole seconds.
    fn seconds_until_free(&self, waiting: usize) -> u64 {
        let seconds = self.mean_s.unwrap_or(1.0) * waiting as f64;
        (seconds.ceil() as u64).clamp(1, RETRY_AFTER_S_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_follows_the_measured_rate_and_not_the_idle_time() {
        let mut pace = Pace::default();
        for i in 0..50 {
            pace.finished(Micros(i * 500_000));
        }
        assert_eq!(pace.seconds_until_free(10), 5);
        pace.pause();
        pace.finished(Micros(3_600_000_000));
        pace.finished(Micros(3_600_500_000));
        assert_eq!(pace.seconds_until_free(10), 5);
        assert_eq!(pace.seconds_until_free(0), 1);
        assert_eq!(pace.seconds_until_free(100_000), RETRY_AFTER_S_MAX);
    }
}
