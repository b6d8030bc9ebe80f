//! One client connection: requests in, responses out, one after another.

mod files;
mod generate;
mod pages;
mod respond;
mod slots;
mod trace;

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::future;

use super::front::Front;
use super::guards::ExchangeGuard;
use super::io::{Stream, poll_sockets, sleep};
use super::origins::name_of;
use super::places::Place;
use super::timers::Timer;
use crate::api::error::ApiError;
use crate::api::route::{self, Action, Route, StatePage};
use crate::clock::Micros;
use crate::engine::budget::Hold;
use crate::http::HttpError;
use crate::http::body::BodyReader;
use crate::http::head::{Framing, Head, HeadReader, Method};
use crate::http::response;
use crate::limits::{BODY_TIMEOUT, HEAD_TIMEOUT, HOLD_BYTES_STEP, SPARE_TIMEOUT};
use crate::prepare::Prepared;
use crate::types::KeyId;

/// Bytes of capacity that each buffer of an idle connection keeps.
const IDLE_BUFFER_BYTES_MAX: usize = 1024;

/// A read of a head or a body that brings fewer bytes than this is short.
const DRIP_BYTES: usize = 512;

/// The number of short reads of one head or body without a pause. The connection pauses after each
/// further one.
const DRIPS_MAX: u32 = 16;

/// The pause between two short reads.
const DRIP_PAUSE: Duration = Duration::from_millis(10);

/// A connection without a request is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// Serves a connection until either side closes it.
pub(super) async fn serve(
    front: Rc<Front>,
    stream: Stream,
    place: Rc<Place>,
    timer: Rc<Timer>,
    peer: Option<IpAddr>,
) {
    let mut connection = Connection {
        front,
        stream,
        place,
        timer,
        peer,
        input: Vec::new(),
        is_half_closed: false,
        output: Vec::new(),
        has_begun: false,
        ahead: 0,
        closes: Cell::new(false),
    };
    // The error means that the client disconnected, which is not logged.
    let _ = connection.run().await;
}

struct Connection {
    front: Rc<Front>,
    stream: Stream,
    place: Rc<Place>,
    timer: Rc<Timer>,
    /// The client's address; `None` for a Unix socket.
    peer: Option<IpAddr>,
    /// Bytes that were read and are not used yet.
    input: Vec<u8>,
    /// The client sends nothing more: it has closed its half of the connection, or the whole
    /// connection.
    is_half_closed: bool,
    /// Bytes to write.
    output: Vec<u8>,
    /// True if a part of the current response is written.
    has_begun: bool,
    /// The number of bytes of [`response::BEGIN`] that were written before the response was known.
    ahead: usize,
    /// True if the last response said that the connection closes.
    closes: Cell<bool>,
}

/// The client has disconnected, or counts as disconnected.
struct Gone;

/// The bytes that a connection waits for.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// The bytes of a request's head. A drain ends this wait, unless another server takes over the
    /// sockets. In that case the request is still served, and its response says that the connection
    /// closes.
    Request,
    /// The bytes of a request's body.
    Body,
    /// The bytes after our last response, which are dropped. Those that have arrived are read even
    /// if the connection must leave: closing with unread bytes would reset the connection.
    End,
}

/// The result of waiting for bytes.
#[derive(Clone, Copy, PartialEq)]
enum Read {
    /// Bytes came after a wait, in which other tasks could run.
    Some,
    /// Bytes had already arrived. The caller calls [`poll_sockets`] before it reads again, so that
    /// a client that sends fast does not delay other connections.
    AtOnce,
    End,
    TimedOut,
}

/// A request's head, with the fields that its response needs.
struct Incoming {
    head: Head,
    request_id: String,
    /// The origin of the web page that may read the response.
    origin: Option<String>,
    received: Micros,
}

/// The parts of a request that an error response needs. If the head cannot be read, the path is
/// empty and there is no origin.
struct Asked<'a> {
    path: &'a str,
    request_id: &'a str,
    origin: Option<&'a str>,
}

impl Incoming {
    fn as_ref(&self) -> Asked<'_> {
        let Self { head, request_id, origin, .. } = self;
        Asked { path: &head.path, request_id, origin: origin.as_deref() }
    }
}

/// Why a request was refused.
enum Refused {
    Gone,
    /// Answer, then close: nobody knows where the next request begins.
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
    async fn run(&mut self) -> Result<(), Gone> {
        loop {
            let now = self.front.clock.now();
            self.place.rest(now);
            self.front.rests(now);
            let head = self.read_head().await;
            let incoming = match head {
                Ok(Some(head)) => self.receive(head),
                Ok(None) | Err(Refused::Gone) => return Ok(()),
                Err(Refused::Fatal(error)) => {
                    let id = self.front.request_id();
                    let asked = Asked { path: "", request_id: &id, origin: None };
                    self.refuse(&asked, &error, true).await?;
                    return self.close().await;
                }
            };
            let keep_alive = {
                let _guard = ExchangeGuard::new(&self.front);
                self.answer(&incoming).await?
            };
            // Other tasks run between two requests of a connection. Otherwise a client that sends
            // many requests early would delay all others, because a task does not yield while its
            // socket is ready.
            poll_sockets().await;
            let drains = self.front.is_draining() && !self.front.config.hands_over;
            let ends = drains || self.place.must_leave();
            if !keep_alive || self.closes.get() || ends {
                return self.close().await;
            }
            self.input.shrink_to(IDLE_BUFFER_BYTES_MAX);
            self.output.shrink_to(IDLE_BUFFER_BYTES_MAX);
            self.has_begun = false;
        }
    }

    fn receive(&self, head: Head) -> Incoming {
        let request_id = head.request_id.clone().unwrap_or_else(|| self.front.request_id());
        let lets_in = |origin: &String| self.front.origins.lets_in(origin, head.host.as_deref());
        let origin = head.origin.clone().filter(lets_in);
        Incoming { head, request_id, origin, received: self.front.clock.now() }
    }

    /// Reads the next request's head. Returns `None` if the client closes the connection or is
    /// silent for too long.
    async fn read_head(&mut self) -> Result<Option<Head>, Refused> {
        let now = self.front.clock.now();
        let fresh = self.input.is_empty();
        let idle = if self.place.is_spare { SPARE_TIMEOUT } else { IDLE_TIMEOUT };
        self.timer.set(now, if fresh { idle } else { HEAD_TIMEOUT.min(idle) });
        let mut begun = !fresh;
        let mut hold = self.front.budget.hold(None);
        let (mut reader, mut drips) = (HeadReader::default(), Drips::default());
        let mut last = Read::Some;
        loop {
            match reader.read(&self.input) {
                Ok(Some((head, length))) => {
                    self.input.drain(..length);
                    return Ok(Some(head));
                }
                Ok(None) if last == Read::AtOnce => poll_sockets().await,
                Ok(None) => {}
                Err(error) => return Err(Refused::Fatal(ApiError::http(&error))),
            }
            // The first [`HOLD_BYTES_STEP`] bytes are not counted: they are enough for most heads.
            let more = self.input.len().saturating_sub(HOLD_BYTES_STEP);
            hold.resize(more).map_err(Refused::Fatal)?;
            let before = self.input.len();
            last = self.read(Wait::Request).await?;
            drips.pause_after(self.input.len() - before).await;
            match last {
                Read::Some | Read::AtOnce if !begun => {
                    begun = true;
                    self.timer.set(self.front.clock.now(), HEAD_TIMEOUT.min(idle));
                }
                Read::Some | Read::AtOnce => {}
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
        if let Err(error) = self.check_sender(incoming) {
            return self.answer_unread(incoming, &error).await;
        }
        if head.method == Method::Options {
            return self.answer_preflight(incoming).await;
        }
        let file = self.front.config.page.iter().find(|file| file.path == head.path);
        if let Some(file) = file {
            return self.answer_file(incoming, file).await;
        }
        let (route, key) = match self.check(head) {
            Ok(checked) => checked,
            Err(error) => return self.answer_unread(incoming, &error).await,
        };
        // Up to here, the connection counts as idle and can lose its place.
        if !route.is_public && !self.place.work() {
            let message = "another connection got this one's place, because it was idle";
            return self.refuse_unread(incoming, &ApiError::unavailable(message, 1)).await;
        }
        let (body, mut hold) = match self.read_body(head, Some(key)).await {
            Ok(body) => body,
            Err(Refused::Gone) => return Err(Gone),
            Err(Refused::Fatal(error)) => {
                return self.refuse_unread(incoming, &error).await;
            }
        };
        if !route.is_public
            && let Err(error) = self.check_still(key)
        {
            return self.answer_error(incoming, &error).await;
        }
        let read = match route.action {
            Action::Show(page) => {
                // A public page is not counted, because it is short or in static memory.
                let bytes = |body: &[u8]| if route.is_public { 0 } else { body.len() };
                let body = self.page(page, head, key);
                return match body.and_then(|body| hold.resize(bytes(&body)).map(|()| body)) {
                    Ok(body) => self.answer_with(incoming, page.content_type(), &body).await,
                    Err(error) => self.answer_error(incoming, &error).await,
                };
            }
            Action::Stored(action) => {
                return self.on_stored(incoming, action, key, &mut hold).await;
            }
            Action::Slot => {
                let envelope = self.envelope(incoming, route, key);
                return self.on_slot(incoming, &envelope, body, &mut hold).await;
            }
            Action::Answer(read) | Action::Generate { read, .. } => read,
        };
        let envelope = self.envelope(incoming, route, key);
        match self.prepare(envelope, read, body, &mut hold).await? {
            Ok(Prepared::Answer(answer)) => match hold.resize(answer.len()) {
                Ok(()) => self.answer_json(incoming, &answer).await,
                Err(error) => self.answer_error(incoming, &error).await,
            },
            Ok(Prepared::Job(job)) => self.generate(incoming, &envelope, *job, hold).await,
            Err(error) => {
                let answered = self.answer_error(incoming, &error).await;
                self.trace_refused(incoming, route, error.status);
                answered
            }
        }
    }

    /// Refuses requests of web pages that are not allowed. Without keys, also refuses host names
    /// that a web page could have made point to this server (DNS rebinding).
    fn check_sender(&self, incoming: &Incoming) -> Result<(), ApiError> {
        let Incoming { head, origin, .. } = incoming;
        if let (Some(sender), None) = (&head.origin, origin) {
            return Err(ApiError::forbidden(format!(
                "web pages of {sender} may not use this server; its operator can allow them with \
                 --cors-origins {sender}"
            )));
        }
        match &head.host {
            Some(host) if self.front.keys.borrow().is_open() => {
                if self.front.origins.answers_to(host) {
                    return Ok(());
                }
                let name = name_of(host);
                Err(ApiError::forbidden(format!(
                    "a server without keys does not answer to the name {name}, which a web page \
                     could make point to it; its operator can allow it with --allowed-hosts {name}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Does all checks that need only the head: route, key, place, method and content type.
    fn check(&self, head: &Head) -> Result<(&'static Route, KeyId), ApiError> {
        let route = route::find(head.method, &head.path)?;
        let key = if route.is_public { KeyId::at(0) } else { self.check_key(head)? };
        if let Some(error) = self.front.unavailable() {
            return Err(error);
        }
        if let (Action::Show(StatePage::Health), true) =
            (route.action, self.front.places.is_stuck())
        {
            let message = "no request runs, and all are refused: no connection gets a place";
            return Err(ApiError::unavailable(message, 5));
        }
        if self.place.is_spare && !route.is_public {
            self.front.places.refused(self.front.clock.now());
            let max = self.front.config.connections;
            let message = format!("{max} connections are open, which is the limit");
            return Err(ApiError::unavailable(message, 1));
        }
        if head.method != Method::Post {
            let method = route.methods().split(',').next().unwrap_or_default();
            takes_no_body(head, method)?;
        }
        if let Some(coding) = head.content_encoding.as_deref()
            && !["", "identity"].contains(&coding)
        {
            return Err(ApiError::compressed(coding));
        }
        if head.method == Method::Post {
            match head.content_type.as_deref() {
                // For this type, a browser sends a preflight request first; for simpler types it
                // does not.
                given if head.origin.is_some() && given != Some("application/json") => {
                    return Err(ApiError::not_json(given.unwrap_or_default()));
                }
                // Many scripts send no type, or curl's default.
                None | Some("application/json" | "application/x-www-form-urlencoded" | "") => {}
                Some(other) if other.ends_with("+json") => {}
                Some(other) => return Err(ApiError::not_json(other)),
            }
        }
        Ok((route, key))
    }

    /// Finds the key of the request.
    fn check_key(&self, head: &Head) -> Result<KeyId, ApiError> {
        self.front.take_keys();
        if self.front.keys.borrow().is_open() {
            return Ok(KeyId::at(0));
        }
        let Some(given) = &head.api_key else {
            return Err(ApiError::unauthorized(
                "no API key was given; send it as \"Authorization: Bearer KEY\"",
            ));
        };
        let known = self.front.keys.borrow().find(given);
        known.ok_or_else(|| ApiError::unauthorized("the API key is not valid"))
    }

    /// Refuses a request whose key was removed after its head was read.
    fn check_still(&self, key: KeyId) -> Result<(), ApiError> {
        self.front.take_keys();
        let is_known = self.front.keys.borrow().lets_in(key);
        if is_known { Ok(()) } else { Err(ApiError::key_removed()) }
    }

    /// Reads a request's body. Its bytes count as memory of `key`.
    async fn read_body(
        &mut self,
        head: &Head,
        key: Option<KeyId>,
    ) -> Result<(Vec<u8>, Hold), Refused> {
        let mut reader = BodyReader::new(head.framing);
        let fatal = |error: &HttpError| Refused::Fatal(ApiError::http(error));
        let mut hold = self.front.budget.hold(key);
        self.timer.set(self.front.clock.now(), BODY_TIMEOUT);
        let (mut asked, mut drips) = (false, Drips::default());
        loop {
            let used = reader.feed(&self.input).map_err(|error| fatal(&error))?;
            self.input.drain(..used);
            hold.resize(reader.len()).map_err(Refused::Fatal)?;
            if reader.is_done() {
                return Ok((reader.into_body(), hold));
            }
            if head.expects_continue && !asked && reader.is_empty() && self.input.is_empty() {
                asked = true;
                self.send(response::CONTINUE).await?;
                self.timer.set(self.front.clock.now(), BODY_TIMEOUT);
            }
            let before = self.input.len();
            let read = self.read(Wait::Body).await?;
            drips.pause_after(self.input.len() - before).await;
            match read {
                Read::Some => {}
                Read::AtOnce => poll_sockets().await,
                Read::End => return Err(Refused::Gone),
                Read::TimedOut => {
                    let seconds = BODY_TIMEOUT.as_secs();
                    return Err(Refused::Fatal(ApiError::request_timeout("body", seconds)));
                }
            }
        }
    }

    /// Waits for more input. A connection that must leave reads only in [`Wait::End`].
    async fn read(&mut self, wait: Wait) -> Result<Read, Gone> {
        let Self { front, stream, place, timer, input, .. } = self;
        let until_drain = wait == Wait::Request && !front.config.hands_over;
        let mut read = Read::AtOnce;
        future::poll_fn(|cx| {
            let leaves = front.is_closing() || place.must_leave();
            if leaves && wait != Wait::End {
                return Poll::Ready(Err(Gone));
            }
            let mut buffer = front.read_buffer.borrow_mut();
            match stream.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(Read::End)),
                Poll::Ready(Ok(n)) => {
                    input.extend_from_slice(&buffer[..n]);
                    Poll::Ready(Ok(read))
                }
                Poll::Ready(Err(_)) => Poll::Ready(Err(Gone)),
                Poll::Pending if leaves => Poll::Ready(Err(Gone)),
                Poll::Pending if until_drain && front.is_draining() && input.is_empty() => {
                    Poll::Ready(Ok(Read::TimedOut))
                }
                Poll::Pending if timer.is_expired() => Poll::Ready(Ok(Read::TimedOut)),
                Poll::Pending => {
                    timer.register(cx);
                    read = Read::Some;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Counts the short reads of one head or body. After [`DRIPS_MAX`] of them, the connection pauses
/// after each, so that the next read brings more bytes. Otherwise each byte of a client could cost
/// the front lane a turn.
#[derive(Default)]
struct Drips(u32);

impl Drips {
    async fn pause_after(&mut self, bytes: usize) {
        self.0 += u32::from(bytes < DRIP_BYTES);
        if self.0 > DRIPS_MAX && bytes < DRIP_BYTES {
            sleep(DRIP_PAUSE).await;
        }
    }
}

/// Refuses a request with a body if its path takes none.
fn takes_no_body(head: &Head, method: &str) -> Result<(), ApiError> {
    if head.framing == Framing::Length(0) {
        return Ok(());
    }
    Err(ApiError::invalid(format!("{method} {} takes no body; send none", head.path)))
}
