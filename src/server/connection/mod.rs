//! One client connection: requests in, responses out, one after another.

mod generate;
mod pages;
mod respond;

use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use futures_lite::{AsyncRead, future};
use glommio::net::TcpStream;
use subtle::ConstantTimeEq;

use super::front::Front;
use super::guards::{BodyPermit, ExchangeGuard};
use super::timers::Timer;
use super::wake::look_up;
use crate::api::error::ApiError;
use crate::api::route::{self, Action, Route};
use crate::clock::Micros;
use crate::http::HttpError;
use crate::http::body::BodyReader;
use crate::http::head::{self, Head, Method};
use crate::http::response;
use crate::limits::{
    BODY_TIMEOUT, CONNECTIONS_MAX, HEAD_TIMEOUT, IDLE_BUFFER_BYTES_MAX, IDLE_TIMEOUT,
};
use crate::prepare::Prepared;
use crate::types::KeyId;

/// Serves a connection until either side closes it.
pub(super) async fn serve(front: Rc<Front>, stream: TcpStream) {
    // The error means that the client disconnected, which is not logged.
    let _ = Connection::new(front, stream).run().await;
}

/// Tells a client that too many connections are open, and closes.
pub(super) async fn turn_away(front: Rc<Front>, stream: TcpStream) {
    let message = format!("{CONNECTIONS_MAX} connections are open, as many as may be");
    let error = ApiError::unavailable(message, 1);
    let id = front.request_id();
    let _ = Connection::new(front, stream).refuse("", &id, &error, true).await;
}

struct Connection {
    front: Rc<Front>,
    stream: TcpStream,
    timer: Rc<Timer>,
    /// Bytes read and not yet used.
    input: Vec<u8>,
    /// Bytes to write.
    output: Vec<u8>,
}

/// The client has disconnected, or counts as disconnected.
struct Gone;

/// The result of waiting for bytes.
enum Read {
    Some,
    End,
    TimedOut,
}

/// A request's head, with the fields that its response needs.
struct Incoming {
    head: Head,
    request_id: String,
    received: Micros,
}

/// Why a request was refused.
enum Refused {
    Gone,
    /// Answer, then close: the bytes after it cannot be trusted to be a request.
    Fatal(ApiError),
}

impl From<Gone> for Refused {
    fn from(_: Gone) -> Self {
        Refused::Gone
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.front.closed();
    }
}

impl Connection {
    /// A connection, which the listener has already counted.
    fn new(front: Rc<Front>, stream: TcpStream) -> Self {
        let timer = front.timers.add();
        Self { front, stream, timer, input: Vec::new(), output: Vec::new() }
    }

    async fn run(&mut self) -> Result<(), Gone> {
        loop {
            let incoming = match self.read_head().await {
                Ok(Some(head)) => self.receive(head),
                Ok(None) | Err(Refused::Gone) => return Ok(()),
                Err(Refused::Fatal(error)) => {
                    let id = self.front.request_id();
                    return self.refuse("", &id, &error, true).await;
                }
            };
            let keep_alive = {
                let _guard = ExchangeGuard::new(&self.front);
                self.answer(&incoming).await?
            };
            // A client that sends many requests early waits between them, so that other clients do
            // not: glommio reads and writes without a pause while the socket is ready.
            look_up().await;
            if !keep_alive || self.front.is_draining() {
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

    /// Reads the next request's head. Returns `None` if the client closes the connection or is
    /// silent for too long.
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

    /// Answers one request. Returns whether the connection may serve another.
    async fn answer(&mut self, incoming: &Incoming) -> Result<bool, Gone> {
        let head = &incoming.head;
        if let Some(fault) = &head.fault {
            return self.refuse_unread(incoming, &ApiError::http(fault)).await;
        }
        if head.method == Method::Options {
            return self.answer_preflight(incoming).await;
        }
        let (route, key) = match self.check(head) {
            Ok(checked) => checked,
            Err(error) => return self.answer_unread(incoming, &error).await,
        };
        let (body, mut permit) = match self.read_body(head).await {
            Ok(body) => body,
            Err(Refused::Gone) => return Err(Gone),
            Err(Refused::Fatal(error)) => {
                return self.refuse_unread(incoming, &error).await;
            }
        };
        if let Action::Show(page) = route.action {
            return match self.page(page, head) {
                Ok(body) => self.answer_json(incoming, body).await,
                Err(error) => self.answer_error(incoming, &error).await,
            };
        }
        let envelope = self.envelope(incoming, route, key);
        match self.prepare(envelope, body).await? {
            Ok(Prepared::Answer(answer)) => match permit.grow(answer.len()) {
                Ok(()) => self.answer_json(incoming, answer).await,
                Err(error) => self.answer_error(incoming, &error).await,
            },
            Ok(Prepared::Texts(_)) => unreachable!("the embed lane answers those"),
            Ok(Prepared::Job(job)) => {
                drop(permit); // the body is now tokens
                self.generate(incoming, &envelope, *job).await
            }
            Err(error) => self.answer_error(incoming, &error).await,
        }
    }

    /// Checks everything that the head tells.
    fn check(&self, head: &Head) -> Result<(&'static Route, KeyId), ApiError> {
        let route = route::find(head.method, &head.path)?;
        let key = if route.is_public { KeyId(0) } else { self.check_key(head)? };
        if let Some(error) = self.front.unavailable() {
            return Err(error);
        }
        if head.method == Method::Post {
            match head.content_type.as_deref() {
                // Many scripts send none, or curl's default.
                None | Some("application/json" | "application/x-www-form-urlencoded" | "") => {}
                Some(other) if other.ends_with("+json") => {}
                Some(other) => return Err(ApiError::not_json(other)),
            }
        }
        Ok((route, key))
    }

    /// Finds the API key that the request was sent with.
    fn check_key(&self, head: &Head) -> Result<KeyId, ApiError> {
        let keys = &self.front.config.keys;
        if keys.is_empty() {
            return Ok(KeyId(0));
        }
        let Some(given) = &head.api_key else {
            return Err(ApiError::unauthorized(
                "no API key was given; send it as \"Authorization: Bearer KEY\"",
            ));
        };
        // Compare all keys, each in constant time.
        let mut known = None;
        for (index, key) in keys.iter().enumerate() {
            if key.secret.as_bytes().ct_eq(given).into() {
                known = Some(KeyId(index as u16)); // below KEYS_MAX
            }
        }
        known.ok_or_else(|| ApiError::unauthorized("the API key is not valid"))
    }

    /// Reads a request's body.
    async fn read_body(&mut self, head: &Head) -> Result<(Vec<u8>, BodyPermit), Refused> {
        let mut reader = BodyReader::new(head.framing);
        let fatal = |error: &HttpError| Refused::Fatal(ApiError::http(error));
        let mut permit = BodyPermit::new(&self.front);
        self.timer.set(self.front.clock.now(), BODY_TIMEOUT);
        let mut asked = false;
        loop {
            let used = reader.feed(&self.input).map_err(|error| fatal(&error))?;
            self.input.drain(..used);
            permit.grow(reader.len()).map_err(Refused::Fatal)?;
            if reader.is_done() {
                return Ok((reader.into_body(), permit));
            }
            if head.expects_continue && !asked && reader.is_empty() && self.input.is_empty() {
                asked = true;
                self.output.extend_from_slice(response::CONTINUE);
                self.flush().await?;
                self.timer.set(self.front.clock.now(), BODY_TIMEOUT);
            }
            match self.read(false).await? {
                // A body that arrives faster than it is read must not delay other connections.
                Read::Some => look_up().await,
                Read::End => return Err(Refused::Gone),
                Read::TimedOut => {
                    let seconds = BODY_TIMEOUT.as_secs();
                    return Err(Refused::Fatal(ApiError::request_timeout("body", seconds)));
                }
            }
        }
    }

    /// Waits for more input. With `until_drain`, a drain ends the wait, for connections between two
    /// requests.
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
                Poll::Pending if front.is_closing() => Poll::Ready(Err(Gone)),
                Poll::Pending if until_drain && front.is_draining() && input.is_empty() => {
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
}
