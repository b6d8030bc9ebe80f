//! One client connection: requests in, responses out, one after another.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use futures_lite::{AsyncRead, AsyncWrite, future};
use glommio::net::TcpStream;

use super::exchange::SharedExchange;
use super::prepare::{self, Prepared, PreparedGeneration};
use super::timers::Timer;
use super::{Front, remember};
use crate::api::error::ApiError;
use crate::api::{self, Reply, ReplyContext, Route, cllm, llama, openai};
use crate::clock::{Micros, unix_seconds};
use crate::http::HttpError;
use crate::http::body::BodyReader;
use crate::http::head::{self, Framing, Head, Method};
use crate::http::response::{self, HeadOptions};
use crate::limits::{
    BODIES_BYTES_MAX, BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_BUFFER_BYTES_MAX, IDLE_TIMEOUT,
    LINGER_TIMEOUT, PING_INTERVAL, PIPELINE_BYTES_MAX, PREPARE_INLINE_BYTES_MAX, WRITE_TIMEOUT,
};

/// Serves a connection until either side closes it.
pub async fn serve(front: Rc<Front>, stream: TcpStream) {
    let timer = front.timers.add();
    let mut connection = Connection { front, stream, timer, input: Vec::new(), output: Vec::new() };
    // An error here is a client that left, and needs no words.
    let _ = connection.run().await;
    let front = &connection.front;
    front.connections.set(front.connections.get() - 1);
}

struct Connection {
    front: Rc<Front>,
    stream: TcpStream,
    timer: Rc<Timer>,
    /// Bytes that were read and not yet used.
    input: Vec<u8>,
    /// Bytes to be written.
    output: Vec<u8>,
}

/// The client is gone, or as good as gone.
struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Gone
    }
}

/// What came of waiting for bytes.
enum Read {
    Some,
    End,
    TimedOut,
}

/// A request's head with what its response needs of it.
struct Incoming {
    head: Head,
    request_id: String,
    received: Micros,
}

/// Why a request could not be taken in.
enum Refused {
    Gone,
    /// Answer, then close: what follows is not a request.
    Fatal(ApiError),
}

impl From<Gone> for Refused {
    fn from(_: Gone) -> Self {
        Refused::Gone
    }
}

impl Connection {
    async fn run(&mut self) -> Result<(), Gone> {
        loop {
            let incoming = match self.read_head().await {
                Ok(Some(head)) => self.receive(head),
                Ok(None) | Err(Refused::Gone) => return Ok(()),
                Err(Refused::Fatal(error)) => {
                    return self.refuse("", &self.front.request_id(), &error).await;
                }
            };
            let keep_alive = {
                let _guard = ExchangeGuard::new(&self.front);
                self.answer(&incoming).await?
            };
            if !keep_alive || self.front.draining.get() {
                return self.close().await;
            }
            self.input.shrink_to(IDLE_BUFFER_BYTES_MAX);
            self.output.shrink_to(IDLE_BUFFER_BYTES_MAX);
        }
    }

    fn receive(&self, head: Head) -> Incoming {
        let request_id = head.request_id.clone().unwrap_or_else(|| self.front.request_id());
        Incoming { head, request_id, received: self.front.clock.now() }
    }

    /// The next request's head; `None` when the client closes between requests
    /// or says nothing for too long.
    async fn read_head(&mut self) -> Result<Option<Head>, Refused> {
        let now = self.front.clock.now();
        let fresh = self.input.is_empty();
        self.timer.set(now, if fresh { IDLE_TIMEOUT } else { HEAD_TIMEOUT });
        let mut begun = !fresh;
        loop {
            match head::parse(&self.input) {
                Ok(Some((head, length))) => {
                    self.input.drain(..length);
                    return Ok(Some(head));
                }
                Ok(None) => {}
                Err(error) => return Err(Refused::Fatal(ApiError::http(&error))),
            }
            match self.read(true).await? {
                Read::Some if !begun => {
                    begun = true;
                    self.timer.set(self.front.clock.now(), HEAD_TIMEOUT);
                }
                Read::Some => {}
                Read::End => return Ok(None),
                Read::TimedOut if self.input.is_empty() => return Ok(None),
                Read::TimedOut => {
                    let seconds = HEAD_TIMEOUT.as_secs();
                    return Err(Refused::Fatal(ApiError::request_timeout("head", seconds)));
                }
            }
        }
    }

    /// Answers one request. True when the connection may serve another.
    async fn answer(&mut self, incoming: &Incoming) -> Result<bool, Gone> {
        let head = &incoming.head;
        if head.method == Method::Options {
            return self.answer_preflight(incoming).await;
        }
        let route = match self.check(head) {
            Ok(route) => route,
            Err(error) => return self.answer_unread(incoming, &error).await,
        };
        // The permit lives until the body has been turned into tokens.
        let (body, _permit) = match self.read_body(head).await {
            Ok(body) => body,
            Err(Refused::Gone) => return Err(Gone),
            Err(Refused::Fatal(error)) => {
                self.refuse(&head.path, &incoming.request_id, &error).await?;
                return Ok(false);
            }
        };
        match route {
            Route::Health => self.answer_json(incoming, llama::HEALTHY.to_vec()).await,
            Route::Models => {
                let body = self.models();
                self.answer_json(incoming, body).await
            }
            _ => match self.prepare(route, body).await {
                Ok(Prepared::Encoded(tokens)) => {
                    let mut body = Vec::with_capacity(64 + 6 * tokens.len());
                    cllm::push_encoded(&mut body, &tokens);
                    self.answer_json(incoming, body).await
                }
                Ok(Prepared::Generation(generation)) => {
                    self.generate(incoming, route, generation).await
                }
                Err(error) => self.answer_error(incoming, &error).await,
            },
        }
    }

    /// All that can be said against a request from its head alone.
    fn check(&self, head: &Head) -> Result<Route, ApiError> {
        let route = api::route(head.method, &head.path)?;
        if !route.is_public() {
            self.check_key(head)?;
        }
        if let Some(error) = self.front.unavailable() {
            return Err(error);
        }
        if head.method == Method::Post {
            match head.content_type.as_deref() {
                // Many a script sends none, or curl's default.
                None | Some("application/json" | "application/x-www-form-urlencoded" | "") => {}
                Some(other) if other.ends_with("+json") => {}
                Some(other) => return Err(ApiError::not_json(other)),
            }
        }
        Ok(route)
    }

    fn check_key(&self, head: &Head) -> Result<(), ApiError> {
        let keys = &self.front.config.api_keys;
        if keys.is_empty() {
            return Ok(());
        }
        let Some(given) = &head.api_key else {
            return Err(ApiError::unauthorized(
                "no API key was given; send it as \"Authorization: Bearer KEY\"",
            ));
        };
        // Every key is compared, and each in constant time.
        let mut known = false;
        for key in keys {
            known |= equal_in_constant_time(key.as_bytes(), given);
        }
        if known { Ok(()) } else { Err(ApiError::unauthorized("the API key is not valid")) }
    }

    /// Reads a request's body.
    async fn read_body(&mut self, head: &Head) -> Result<(Vec<u8>, BodyPermit), Refused> {
        let mut reader = BodyReader::new(head.framing);
        let fatal = |error: &HttpError| Refused::Fatal(ApiError::http(error));
        let mut permit = BodyPermit { front: self.front.clone(), bytes: 0 };
        self.timer.set(self.front.clock.now(), BODY_TIMEOUT);
        let mut asked = false;
        loop {
            let used = reader.feed(&self.input).map_err(|error| fatal(&error))?;
            self.input.drain(..used);
            if reader.is_done() {
                return Ok((reader.into_body(), permit));
            }
            permit.grow(reader.len() + self.input.len()).map_err(Refused::Fatal)?;
            if head.expects_continue && !asked && reader.is_empty() && self.input.is_empty() {
                asked = true;
                self.output.extend_from_slice(response::CONTINUE);
                self.flush().await?;
                self.timer.set(self.front.clock.now(), BODY_TIMEOUT);
            }
            match self.read(false).await? {
                Read::Some => {}
                Read::End => return Err(Refused::Gone),
                Read::TimedOut => {
                    let seconds = BODY_TIMEOUT.as_secs();
                    return Err(Refused::Fatal(ApiError::request_timeout("body", seconds)));
                }
            }
        }
    }

    /// Turns a body into tokens, here or on the prepare lane.
    async fn prepare(&mut self, route: Route, body: Vec<u8>) -> Result<Prepared, ApiError> {
        let slot = {
            let mut loaded = self.front.loaded.borrow_mut();
            let Some(loaded) = &mut *loaded else {
                return Err(ApiError::unavailable("the model is being loaded", 2));
            };
            if body.len() <= PREPARE_INLINE_BYTES_MAX {
                return prepare::prepare(route, body, &loaded.serving);
            }
            loaded.send_to_prepare(route, body)?
        };
        future::poll_fn(|cx| {
            let mut state = slot.borrow_mut();
            match state.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    remember(&mut state.waker, cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn generate(
        &mut self,
        incoming: &Incoming,
        route: Route,
        generation: PreparedGeneration,
    ) -> Result<bool, Gone> {
        let exchange = match self.submit(incoming, route, generation) {
            Ok(exchange) => exchange,
            Err(error) => return self.answer_error(incoming, &error).await,
        };
        self.front.kick();
        let _cancel = CancelGuard { front: self.front.clone(), exchange: exchange.clone() };
        let result = if exchange.borrow().is_stream() {
            self.send_stream(incoming, &exchange).await
        } else {
            self.send_whole(incoming, &exchange).await
        };
        self.log(incoming, &exchange, result.is_err());
        result
    }

    fn submit(
        &self,
        incoming: &Incoming,
        route: Route,
        generation: PreparedGeneration,
    ) -> Result<SharedExchange, ApiError> {
        let mut loaded = self.front.loaded.borrow_mut();
        let loaded = loaded.as_mut().expect("a request was prepared, so a model is loaded");
        let prefix = if route == Route::Completions { "cmpl" } else { "gen" };
        let context = ReplyContext {
            id: format!("{prefix}-{:016x}", self.front.random()),
            model: loaded.serving.name.clone(),
            created: unix_seconds(),
            started: incoming.received,
        };
        let reply = Reply::new(route, &generation.request, context);
        loaded.engine.submit(generation, reply, self.front.random())
    }

    /// Waits for the whole text and sends it.
    async fn send_whole(
        &mut self,
        incoming: &Incoming,
        exchange: &SharedExchange,
    ) -> Result<bool, Gone> {
        while exchange.borrow().outcome.is_none() {
            self.wait_for(exchange).await?;
        }
        let outcome = exchange.borrow_mut().outcome.take();
        match outcome {
            Some(Err(error)) => self.answer_error(incoming, &error).await,
            _ => {
                let body = std::mem::take(&mut exchange.borrow_mut().out);
                self.answer_json(incoming, body).await
            }
        }
    }

    /// Sends text as it comes, as server-sent events.
    async fn send_stream(
        &mut self,
        incoming: &Incoming,
        exchange: &SharedExchange,
    ) -> Result<bool, Gone> {
        let chunked = incoming.head.chunks_allowed;
        let keep_alive = incoming.head.keep_alive && chunked;
        let mut head_sent = false;
        self.timer.set(self.front.clock.now(), PING_INTERVAL);
        loop {
            let event = self.wait_for(exchange).await?;
            let outcome = exchange.borrow_mut().outcome.take();
            if let (false, Some(Err(error))) = (head_sent, &outcome) {
                return self.answer_error(incoming, error).await;
            }
            if !head_sent {
                head_sent = true;
                let options = self.options(incoming, "text/event-stream", keep_alive);
                response::push_stream_head(&mut self.output, &options, chunked);
            }
            let start = self.output.len();
            if chunked {
                response::begin_chunk(&mut self.output);
            }
            let content = self.output.len();
            self.take_events(exchange, &event, outcome.as_ref());
            if self.output.len() == content {
                self.output.truncate(start); // an empty chunk would end the body
            } else if chunked {
                response::end_chunk(&mut self.output, start);
            }
            if outcome.is_some() && chunked {
                self.output.extend_from_slice(response::LAST_CHUNK);
            }
            self.flush().await?;
            if outcome.is_some() {
                return Ok(keep_alive);
            }
            self.timer.set(self.front.clock.now(), PING_INTERVAL);
        }
    }

    fn take_events(
        &mut self,
        exchange: &SharedExchange,
        event: &Progress,
        outcome: Option<&Result<(), ApiError>>,
    ) {
        let mut exchange = exchange.borrow_mut();
        self.output.append(&mut exchange.out);
        match (outcome, event) {
            (Some(Err(error)), _) => exchange.push_stream_error(error, &mut self.output),
            (None, Progress::Silence) => self.output.extend_from_slice(response::PING),
            _ => {}
        }
    }

    /// Waits until the exchange has something to send, or has been silent for
    /// too long. Meanwhile the client is listened to: it may leave, or send
    /// its next request ahead.
    async fn wait_for(&mut self, exchange: &SharedExchange) -> Result<Progress, Gone> {
        let Self { front, stream, timer, input, .. } = self;
        future::poll_fn(|cx| {
            loop {
                let mut exchange = exchange.borrow_mut();
                if exchange.is_ready() {
                    return Poll::Ready(Ok(Progress::News));
                }
                if front.closing.get() {
                    return Poll::Ready(Err(Gone));
                }
                if timer.is_expired() && exchange.is_stream() {
                    return Poll::Ready(Ok(Progress::Silence));
                }
                remember(&mut exchange.waker, cx);
                timer.register(cx);
                if input.len() >= PIPELINE_BYTES_MAX {
                    return Poll::Pending; // enough; a departure shows when we write
                }
                let mut buffer = front.read_buffer.borrow_mut();
                match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Gone)),
                    Poll::Ready(Ok(n)) => input.extend_from_slice(&buffer[..n]),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    fn models(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(512);
        if let Some(loaded) = &*self.front.loaded.borrow() {
            let serving = &loaded.serving;
            openai::push_models(
                &mut body,
                &serving.name,
                unix_seconds(),
                serving.sequence_tokens,
                &serving.info,
            );
        }
        body
    }

    async fn answer_json(&mut self, incoming: &Incoming, body: Vec<u8>) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive;
        let options = self.options(incoming, "application/json", keep_alive);
        response::push_head(&mut self.output, 200, &options, body.len());
        if incoming.head.method != Method::Head {
            self.output.extend_from_slice(&body);
        }
        self.flush().await?;
        Ok(keep_alive)
    }

    async fn answer_error(&mut self, incoming: &Incoming, error: &ApiError) -> Result<bool, Gone> {
        tracing::info!(
            request_id = %incoming.request_id,
            path = %incoming.head.path,
            status = error.status,
            reason = %error.message,
            "refused"
        );
        let keep_alive = incoming.head.keep_alive;
        let with_body = incoming.head.method != Method::Head;
        self.push_error(&incoming.head.path, &incoming.request_id, error, keep_alive, with_body);
        self.flush().await?;
        Ok(keep_alive)
    }

    /// Answers a request whose body has not been read: a short one is skipped,
    /// for a longer one the connection is closed.
    async fn answer_unread(&mut self, incoming: &Incoming, error: &ApiError) -> Result<bool, Gone> {
        let head = &incoming.head;
        let short = matches!(head.framing, Framing::Length(n) if n <= IDLE_BUFFER_BYTES_MAX);
        if short && !head.expects_continue {
            match self.read_body(head).await {
                Ok(_) => return self.answer_error(incoming, error).await,
                Err(Refused::Gone) => return Err(Gone),
                Err(Refused::Fatal(_)) => {} // the first error is the better answer
            }
        }
        self.refuse(&head.path, &incoming.request_id, error).await?;
        Ok(false)
    }

    async fn answer_preflight(&mut self, incoming: &Incoming) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive && incoming.head.framing == Framing::Length(0);
        let options = self.options(incoming, "", keep_alive);
        response::push_preflight(&mut self.output, &options);
        self.flush().await?;
        Ok(keep_alive)
    }

    /// Answers, and closes the connection.
    async fn refuse(&mut self, path: &str, request_id: &str, error: &ApiError) -> Result<(), Gone> {
        tracing::info!(%request_id, path, status = error.status, reason = %error.message, "refused");
        self.push_error(path, request_id, error, false, true);
        self.flush().await?;
        self.close().await
    }

    fn push_error(
        &mut self,
        path: &str,
        request_id: &str,
        error: &ApiError,
        keep_alive: bool,
        with_body: bool,
    ) {
        let mut body = Vec::with_capacity(256);
        error.push_body(api::dialect(path), &mut body);
        let options = HeadOptions {
            content_type: "application/json",
            request_id,
            keep_alive: keep_alive && !self.front.draining.get(),
            retry_after: error.retry_after,
            allow: error.allow,
        };
        response::push_head(&mut self.output, error.status, &options, body.len());
        if with_body {
            self.output.extend_from_slice(&body);
        }
    }

    fn options<'a>(
        &self,
        incoming: &'a Incoming,
        content_type: &'a str,
        keep_alive: bool,
    ) -> HeadOptions<'a> {
        HeadOptions {
            content_type,
            request_id: &incoming.request_id,
            keep_alive: keep_alive && !self.front.draining.get(),
            retry_after: None,
            allow: None,
        }
    }

    fn log(&self, incoming: &Incoming, exchange: &SharedExchange, gone: bool) {
        let exchange = exchange.borrow();
        let now = self.front.clock.now();
        let first_token = exchange.first_token.unwrap_or(now);
        tracing::info!(
            request_id = %incoming.request_id,
            path = %incoming.head.path,
            prompt_tokens = exchange.usage.prompt_tokens,
            completion_tokens = exchange.usage.completion_tokens,
            ttft_ms = first_token.seconds_since(incoming.received) * 1e3,
            total_ms = now.seconds_since(incoming.received) * 1e3,
            "{}", if gone { "client left" } else { "served" }
        );
    }

    /// Waits for more input; with `until_drain`, a drain ends the wait, for
    /// connections between two requests.
    async fn read(&mut self, until_drain: bool) -> Result<Read, Gone> {
        let Self { front, stream, timer, input, .. } = self;
        future::poll_fn(|cx| {
            let mut buffer = front.read_buffer.borrow_mut();
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(Read::End)),
                Poll::Ready(Ok(n)) => {
                    input.extend_from_slice(&buffer[..n]);
                    Poll::Ready(Ok(Read::Some))
                }
                Poll::Ready(Err(_)) => Poll::Ready(Err(Gone)),
                Poll::Pending if front.closing.get() => Poll::Ready(Err(Gone)),
                Poll::Pending if until_drain && front.draining.get() && input.is_empty() => {
                    Poll::Ready(Ok(Read::TimedOut))
                }
                Poll::Pending if timer.is_expired() => Poll::Ready(Ok(Read::TimedOut)),
                Poll::Pending => {
                    timer.register(cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Writes all output. A client that takes nothing for too long is gone.
    async fn flush(&mut self) -> Result<(), Gone> {
        let Self { front, stream, timer, output, .. } = self;
        let mut written = 0;
        let mut waited = false;
        future::poll_fn(|cx| {
            while written < output.len() {
                match Pin::new(&mut *stream).poll_write(cx, &output[written..]) {
                    Poll::Ready(Ok(n)) => {
                        written += n;
                        waited = false;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Gone)),
                    Poll::Pending if !waited => {
                        waited = true;
                        timer.set(front.clock.now(), WRITE_TIMEOUT);
                        timer.register(cx);
                        return Poll::Pending;
                    }
                    Poll::Pending if timer.is_expired() || front.closing.get() => {
                        return Poll::Ready(Err(Gone));
                    }
                    Poll::Pending => {
                        timer.register(cx);
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        output.clear();
        Ok(())
    }

    /// Closes our half, then reads what the client still sends for a moment:
    /// closing with unread input would reset the connection and could take our
    /// last response with it.
    async fn close(&mut self) -> Result<(), Gone> {
        self.stream.shutdown(std::net::Shutdown::Write).await.map_err(|_| Gone)?;
        self.timer.set(self.front.clock.now(), LINGER_TIMEOUT);
        loop {
            self.input.clear();
            match self.read(false).await? {
                Read::Some => {}
                Read::End | Read::TimedOut => return Ok(()),
            }
        }
    }
}

/// What [`Connection::wait_for`] saw.
enum Progress {
    News,
    Silence,
}

impl Front {
    fn request_id(&self) -> String {
        format!("req-{:016x}", self.random())
    }
}

/// Counts a request as in progress while it lives.
struct ExchangeGuard {
    front: Rc<Front>,
}

impl ExchangeGuard {
    fn new(front: &Rc<Front>) -> Self {
        front.exchanges.set(front.exchanges.get() + 1);
        front.requests.set(front.requests.get() + 1);
        Self { front: front.clone() }
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.front.exchanges.set(self.front.exchanges.get() - 1);
        if self.front.draining.get() {
            self.front.kick();
        }
    }
}

/// Ends the request's sequences when the connection is done with it, for
/// whatever reason: a client that has left is not generated for.
struct CancelGuard {
    front: Rc<Front>,
    exchange: SharedExchange,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(loaded) = &mut *self.front.loaded.borrow_mut() {
            loaded.engine.cancel(&self.exchange.borrow());
        }
        self.front.kick();
    }
}

/// The room that a body takes of what all bodies may.
struct BodyPermit {
    front: Rc<Front>,
    bytes: usize,
}

impl BodyPermit {
    fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let more = bytes.saturating_sub(self.bytes);
        let total = self.front.body_bytes.get() + more;
        if total > BODIES_BYTES_MAX {
            let message = format!(
                "request bodies fill all of their {BODIES_BYTES_MAX} bytes; try again soon"
            );
            return Err(ApiError::unavailable(message, 1));
        }
        self.front.body_bytes.set(total);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.front.body_bytes.set(self.front.body_bytes.get() - self.bytes);
    }
}

/// Compares without stopping at the first difference, so that the time taken
/// tells nothing of where it is. (The length is no secret.)
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |bits, (x, y)| bits | (x ^ y));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}
