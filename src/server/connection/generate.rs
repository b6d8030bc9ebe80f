//! Prepares requests for the model. Submits those that generate text, and sends their texts.

use std::task::{Context, Poll};

use futures_lite::future;

use super::trace::SpanOptions;
use super::{Connection, Gone, Incoming};
use crate::api::asked::Request;
use crate::api::error::{ApiError, Dialect};
use crate::api::reply::Ping;
use crate::api::route::{ReadBody, Route, pattern};
use crate::api::stored::not_found;
use crate::clock::{Micros, unix_seconds, utc_now};
use crate::engine::budget::Hold;
use crate::engine::exchange::SharedExchange;
use crate::engine::job::Job;
use crate::http::response;
use crate::keys::ApiKey;
use crate::limits::{PIECE_INLINE_BYTES, PIPELINE_BYTES_MAX, PREPARE_INLINE_BYTES_MAX};
use crate::metrics::Cause;
use crate::prepare::lane::PrepareTask;
use crate::prepare::worker::Answer;
use crate::prepare::{self, Envelope, Lane, Prepared, Step, Transfer};
use crate::server::guards::{AbandonGuard, CancelGuard};
use crate::server::kernel::{self, Client};
use crate::server::service::{Service, WorkSlot};
use crate::server::wake::remember;
use crate::types::{CacheScope, KeyId};

impl Connection {
    /// Collects the facts about a request that its body does not have.
    pub(super) fn envelope(
        &self,
        incoming: &Incoming,
        route: &'static Route,
        key: KeyId,
    ) -> Envelope {
        let (config, keys) = (&self.front.config, self.front.keys.borrow());
        Envelope {
            route,
            number: self.front.random(),
            // 32 bits, as in llama-server, so that a client in JavaScript can read the seed exactly
            // and send it again.
            seed: config.seed.unwrap_or_else(|| self.front.random() >> 32),
            key,
            cache: if config.share_cache {
                CacheScope::default()
            } else {
                CacheScope { key, salt: 0, tenant: keys.get(key).map_or(0, ApiKey::tenant) }
            },
            // Without keys, no request may have a priority below 0, and so go before all others.
            priority_min: keys.get(key).map_or(0, |key| key.priority_min),
            timeout: config.request_timeout,
            received: incoming.received,
            created: unix_seconds(),
        }
    }

    /// Prepares a body, on this lane or on the worker lanes.
    pub(super) async fn prepare(
        &mut self,
        envelope: Envelope,
        read: ReadBody,
        body: Vec<u8>,
        hold: &mut Hold,
    ) -> Result<Result<Prepared, ApiError>, Gone> {
        let key = envelope.key;
        let mut step = match body.len() {
            0..=PREPARE_INLINE_BYTES_MAX => self.prepare_here(&envelope, read, body),
            bytes => {
                let (lane, deadline) = (Lane::for_texts(bytes), envelope.deadline(None));
                let task = PrepareTask::Body(envelope, read, body);
                self.work(deadline, |service| service.send_task(task, lane, key, deadline)).await?
            }
        };
        // A request that needs further pieces of work goes to a worker lane.
        loop {
            step = match step {
                Ok(Step::Done(prepared)) => return Ok(Ok(prepared)),
                Ok(Step::More(transfer)) => {
                    let (request, lane) = match self.transfer(transfer, key, hold) {
                        Ok(transferred) => transferred,
                        Err(error) => return Ok(Err(error)),
                    };
                    let deadline = envelope.deadline(request.timeout());
                    let task = PrepareTask::Request(envelope, request);
                    self.work(deadline, |service| service.send_task(task, lane, key, deadline))
                        .await?
                }
                Ok(Step::Embed(texts)) => {
                    if let Err(error) = hold.resize(hold.bytes() + texts.bytes) {
                        return Ok(Err(error));
                    }
                    let deadline = envelope.deadline(texts.timeout);
                    self.work(deadline, |service| service.send_texts(texts, key, deadline)).await?
                }
                Err(error) => return Ok(Err(error)),
            };
        }
    }

    /// Counts the memory of a request that goes to a worker lane, and chooses the lane. If the
    /// request continues a stored response, it gets that response's conversation.
    fn transfer(
        &self,
        transfer: Transfer,
        key: KeyId,
        hold: &mut Hold,
    ) -> Result<(Box<Request>, Lane), ApiError> {
        let Transfer { mut request, lane, mut bytes, text_bytes } = transfer;
        let found = match lane {
            Some(lane) => Ok(lane),
            None => self.continue_previous(&mut request, key).map(|conversation| {
                // The lane turns the conversation into messages, which need as much memory again.
                bytes += 2 * conversation;
                Lane::for_texts(text_bytes + conversation)
            }),
        };
        match found.and_then(|lane| hold.resize(bytes).map(|()| lane)) {
            Ok(lane) => Ok((request, lane)),
            Err(error) => {
                if let Some(service) = &mut *self.front.service.borrow_mut() {
                    service.discard(request, key);
                }
                Err(error)
            }
        }
    }

    /// Gives a request the conversation of the response that it continues. Returns the bytes of
    /// that conversation.
    fn continue_previous(&self, request: &mut Request, key: KeyId) -> Result<usize, ApiError> {
        let id = request.previous().unwrap_or_default();
        match self.front.responses.borrow().get(key, id) {
            Some(response) => {
                request.continue_from(&response.turn)?;
                Ok(response.turn.size.bytes)
            }
            None => Err(ApiError::field("previous_response_id", not_found(id).message)),
        }
    }

    /// Stores the response of a request that has ended, if the request asks for that.
    fn keep_response(&self, exchange: &SharedExchange, key: KeyId) {
        if let Some(response) = exchange.borrow_mut().stored.take() {
            self.front.responses.borrow_mut().keep(key, response);
        }
    }

    /// Reads a short body, and does the first piece of its preparation. If more is left, returns
    /// the request for a worker lane.
    fn prepare_here(&self, envelope: &Envelope, read: ReadBody, mut body: Vec<u8>) -> Answer {
        let service = self.front.service.borrow();
        let Some(service) = &*service else {
            return Err(ApiError::unavailable("the model is being loaded", 2));
        };
        let bytes = body.len();
        let request = read(&mut body)?;
        // The server's system message is a part of the prompt.
        let is_long = request.is_conversation()
            && bytes + service.model.system_bytes() > PREPARE_INLINE_BYTES_MAX;
        if is_long || request.previous().is_some() {
            return Ok(Step::More(Transfer::new(request)));
        }
        let (model, now) = (&service.model, utc_now());
        let step =
            prepare::advance(request, envelope, model, None, PIECE_INLINE_BYTES, &|| true, now);
        Ok(match step? {
            Step::Done(prepared) => Step::Done(prepared),
            Step::Embed(texts) => Step::Embed(texts),
            Step::More(request) => Step::More(Transfer::new(request)),
        })
    }

    /// Sends a task to a lane with `send`, and waits for the answer until the deadline.
    pub(super) async fn work(
        &mut self,
        deadline: Option<Micros>,
        send: impl FnOnce(&mut Service) -> Result<WorkSlot, ApiError>,
    ) -> Result<Answer, Gone> {
        let sent = match &mut *self.front.service.borrow_mut() {
            Some(service) => send(service),
            None => Err(ApiError::unavailable("the model is being loaded", 2)),
        };
        let slot = match sent {
            Ok(slot) => slot,
            Err(error) => return Ok(Err(error)),
        };
        let _abandon = AbandonGuard { front: self.front.clone(), slot: slot.clone() };
        self.timer.set_deadline(deadline);
        future::poll_fn(|cx| {
            let mut state = slot.borrow_mut();
            if let Some(result) = state.result.take() {
                return Poll::Ready(Ok(result));
            }
            if self.timer.is_expired() {
                return Poll::Ready(Ok(Err(ApiError::deadline())));
            }
            remember(&mut state.waker, cx);
            self.listen(cx).map(Err)
        })
        .await
    }

    /// Reads while a request is in progress: the client may disconnect, close its half of the
    /// connection, or send its next request early. Ready when the client has disconnected.
    fn listen(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        if self.front.is_closing() {
            return Poll::Ready(Gone);
        }
        self.timer.register(cx);
        while !self.is_half_closed
            && let room @ 1.. = PIPELINE_BYTES_MAX.saturating_sub(self.input.len())
        {
            let mut buffer = self.front.read_buffer.borrow_mut();
            match self.stream.poll_read(cx, &mut buffer[..room]) {
                Poll::Ready(Ok(0)) => self.is_half_closed = true,
                Poll::Ready(Ok(n)) => self.input.extend_from_slice(&buffer[..n]),
                Poll::Ready(Err(_)) => return Poll::Ready(Gone),
                Poll::Pending => return Poll::Pending,
            }
        }
        // The input buffer is full, or the client has closed its half. So no read can show that the
        // client disconnects.
        self.timer.wake_at_sweep();
        self.look_for_client(cx)
    }

    /// Checks, without reading, whether the client is still there. Ready if it has left.
    ///
    /// A client that has closed its half waits for the answer. A client that has closed the whole
    /// connection looks the same, but rejects bytes. To tell these apart, the first bytes of the
    /// answer are written at once. They are the same in all answers.
    fn look_for_client(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        match kernel::look_at_client(self.stream.socket()) {
            Client::IsGone => return Poll::Ready(Gone),
            Client::SendsNoMore => self.is_half_closed = true,
            Client::IsThere => {}
        }
        if self.has_begun || self.ahead > 0 || !self.is_half_closed {
            return Poll::Pending;
        }
        match self.stream.poll_write(cx, response::BEGIN) {
            Poll::Ready(Ok(written)) => self.ahead = written,
            Poll::Ready(Err(_)) => return Poll::Ready(Gone),
            Poll::Pending => {}
        }
        match kernel::look_at_client(self.stream.socket()) {
            Client::IsGone => Poll::Ready(Gone),
            Client::SendsNoMore | Client::IsThere => Poll::Pending,
        }
    }

    pub(super) async fn generate(
        &mut self,
        incoming: &Incoming,
        envelope: &Envelope,
        job: Job,
        hold: Hold,
    ) -> Result<bool, Gone> {
        if let Err(error) = self.check_still(envelope.key) {
            return self.answer_error(incoming, &error).await;
        }
        let options = SpanOptions::of(&job);
        let submitted = match &mut *self.front.service.borrow_mut() {
            Some(service) => service.engine.submit(job, hold, self.front.clock.now()),
            None => unreachable!("a request was prepared, so a model is loaded"),
        };
        let exchange = match submitted {
            Ok(exchange) => exchange,
            Err(error) => {
                let answered = self.answer_error(incoming, &error).await;
                self.trace_refused(incoming, envelope.route, error.status);
                return answered;
            }
        };
        self.front.kick();
        let _cancel = CancelGuard { front: self.front.clone(), exchange: exchange.clone() };
        let result = if exchange.borrow().is_stream() {
            self.send_stream(incoming, envelope, &exchange).await
        } else {
            self.send_whole(incoming, envelope, &exchange).await
        };
        self.log(incoming, envelope.key, &exchange, result.is_err());
        self.trace_ended(incoming, envelope.route, options, &exchange, result.is_err());
        result
    }

    /// Waits for the whole text and sends it.
    async fn send_whole(
        &mut self,
        incoming: &Incoming,
        envelope: &Envelope,
        exchange: &SharedExchange,
    ) -> Result<bool, Gone> {
        while exchange.borrow().outcome.is_none() {
            self.wait_for(exchange).await?;
        }
        let outcome = exchange.borrow_mut().outcome.take();
        self.keep_response(exchange, envelope.key);
        match outcome {
            Some(Err(error)) => self.answer_error(incoming, &error).await,
            _ => {
                let body = std::mem::take(&mut exchange.borrow_mut().out);
                self.answer_json(incoming, &body).await
            }
        }
    }

    /// Sends the text as server-sent events while it is generated.
    async fn send_stream(
        &mut self,
        incoming: &Incoming,
        envelope: &Envelope,
        exchange: &SharedExchange,
    ) -> Result<bool, Gone> {
        let dialect = envelope.route.dialect;
        let chunked = incoming.head.chunks_allowed;
        let keep_alive = incoming.head.keep_alive && chunked;
        let every = match exchange.borrow().ping() {
            Ping::AsConfigured => self.front.config.ping_interval,
            Ping::After(time) => Some(time),
            Ping::Never => None,
        };
        let every = every.filter(|_| dialect.has_comments);
        let mut head_sent = false;
        loop {
            self.timer.set_deadline(every.map(|every| self.front.clock.now() + every));
            let event = self.wait_for(exchange).await?;
            let outcome = exchange.borrow_mut().outcome.take();
            // Stored before the client learns of the end, because it may then ask for the response.
            self.keep_response(exchange, envelope.key);
            if let (false, Some(Err(error))) = (head_sent, &outcome) {
                return self.answer_error(incoming, error).await;
            }
            if !head_sent {
                head_sent = true;
                exchange.borrow_mut().head_sent = true;
                let options = self.options(incoming, dialect.stream_type, keep_alive);
                self.front.counters().responses.count(pattern(&incoming.head.path), 200);
                response::push_stream_head(&mut self.output, &options, chunked);
            }
            let start = self.output.len();
            if chunked {
                response::begin_chunk(&mut self.output);
            }
            let content = self.output.len();
            self.take_events(exchange, dialect, &event, outcome.as_ref());
            if self.output.len() == content {
                self.output.truncate(start); // an empty chunk would end the body
            } else if chunked {
                response::end_chunk(&mut self.output, start);
            }
            if outcome.is_some() && chunked {
                self.output.extend_from_slice(response::LAST_CHUNK);
            }
            let began = self.front.clock.now();
            self.flush().await?;
            let took = self.front.clock.now().since(began);
            if outcome.is_some() {
                return Ok(keep_alive);
            }
            let mut exchange = exchange.borrow_mut();
            exchange.sent();
            let counters = self.front.counters();
            let late_after = counters.late_after_us.get();
            if late_after > 0 && took > late_after {
                counters.late_tokens.of(Cause::SlowReader).increment();
                exchange.late.count(Cause::SlowReader);
            }
        }
    }

    fn take_events(
        &mut self,
        exchange: &SharedExchange,
        dialect: &Dialect,
        event: &Progress,
        outcome: Option<&Result<(), ApiError>>,
    ) {
        let mut exchange = exchange.borrow_mut();
        exchange.take_out(&mut self.output);
        match (outcome, event) {
            (Some(Err(error)), _) => (dialect.push_error_event)(&mut self.output, error),
            (None, Progress::Silence) => self.output.extend_from_slice(response::PING),
            _ => {}
        }
    }

    /// Waits until the exchange has something to send, or the timer expires. Also reads, as
    /// [`Connection::listen`] does.
    async fn wait_for(&mut self, exchange: &SharedExchange) -> Result<Progress, Gone> {
        future::poll_fn(|cx| {
            let mut exchange = exchange.borrow_mut();
            if exchange.is_ready() {
                return Poll::Ready(Ok(Progress::News));
            }
            if self.timer.is_expired() && exchange.is_stream() {
                return Poll::Ready(Ok(Progress::Silence));
            }
            remember(&mut exchange.waker, cx);
            self.listen(cx).map(Err)
        })
        .await
    }

    fn log(&self, incoming: &Incoming, key: KeyId, exchange: &SharedExchange, gone: bool) {
        let exchange = exchange.borrow();
        let key = self.front.keys.borrow().label(key);
        let now = self.front.clock.now();
        let first_token = exchange.first_token.unwrap_or(now);
        let timings = exchange.timings(now);
        // Milliseconds, by one division of whole microseconds, so that rounding adds no digits.
        let ms = |us: u64| us as f64 / 1e3;
        let outcome = match (gone, exchange.failed.is_some()) {
            (true, _) => "client left",
            (false, true) => "failed",
            (false, false) => "served",
        };
        tracing::info!(
            request_id = %incoming.request_id,
            peer = self.peer(),
            path = %incoming.head.path,
            key,
            prompt_tokens = exchange.usage.prompt_tokens,
            cached_tokens = exchange.usage.cached_tokens,
            completion_tokens = exchange.usage.completion_tokens,
            queued_ms = ms(timings.queued.as_micros() as u64),
            prefill_ms = ms(timings.prefill.as_micros() as u64),
            decode_ms = ms(timings.decode.as_micros() as u64),
            ttft_ms = ms(first_token.since(incoming.received)),
            total_ms = ms(now.since(incoming.received)),
            late_tokens = exchange.late.all(),
            late_cause = exchange.late.main_cause().map(Cause::name),
            "{outcome}"
        );
    }
}

/// The reason why [`Connection::wait_for`] returned.
enum Progress {
    News,
    Silence,
}
