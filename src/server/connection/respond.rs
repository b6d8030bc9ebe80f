//! Builds responses in the connection's buffer, and writes them.

use std::net::IpAddr;
use std::task::Poll;
use std::time::Duration;

use futures_lite::future;

use super::{Asked, Connection, Gone, Incoming, Read, Refused, Wait};
use crate::api::error::ApiError;
use crate::api::route;
use crate::http::head::{Framing, Method};
use crate::http::response::{self, HeadOptions};
use crate::limits::{LINGER_BYTES_MAX, SPARE_TIMEOUT, WRITE_TIMEOUT};
use crate::server::io::poll_sockets;

/// The longest answer that is copied into its head's buffer, and the longest unread body that is
/// skipped.
const SHORT_BODY_BYTES_MAX: usize = 64 * 1024;

/// The bytes a second that a client must take, after [`WRITE_TIMEOUT`].
const WRITE_BYTES_PER_S_MIN: usize = 16 * 1024;

/// A connection that was refused in the middle of a request is read for at most this long, so that
/// the client sees the answer instead of a reset.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a request's path that are logged.
const LOG_PATH_BYTES_MAX: usize = 128;

impl Connection {
    pub(super) async fn answer_json(
        &mut self,
        incoming: &Incoming,
        body: &[u8],
    ) -> Result<bool, Gone> {
        self.answer_with(incoming, "application/json", body).await
    }

    /// Answers with a body of any type.
    pub(super) async fn answer_with(
        &mut self,
        incoming: &Incoming,
        content_type: &str,
        body: &[u8],
    ) -> Result<bool, Gone> {
        self.push_head(incoming, content_type, body.len());
        if incoming.head.method == Method::Head {
            self.flush().await?;
        } else if body.len() <= SHORT_BODY_BYTES_MAX {
            self.output.extend_from_slice(body);
            self.flush().await?;
        } else {
            // Two writes cost less than copying a long answer.
            self.flush().await?;
            self.send(body).await?;
        }
        Ok(incoming.head.keep_alive)
    }

    /// Answers `HEAD` as if the JSON body had this length.
    pub(super) async fn answer_head(
        &mut self,
        incoming: &Incoming,
        length: usize,
    ) -> Result<bool, Gone> {
        self.push_head(incoming, "application/json", length);
        self.flush().await?;
        Ok(incoming.head.keep_alive)
    }

    fn push_head(&mut self, incoming: &Incoming, content_type: &str, length: usize) {
        let options = self.options(incoming, content_type, incoming.head.keep_alive);
        self.front.counters().responses.count(route::pattern(&incoming.head.path), 200);
        response::push_head(&mut self.output, 200, &options, length);
    }

    pub(super) async fn answer_error(
        &mut self,
        incoming: &Incoming,
        error: &ApiError,
    ) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive;
        let with_body = incoming.head.method != Method::Head;
        self.log_error(&incoming.head.path, &incoming.request_id, error);
        self.push_error(&incoming.as_ref(), error, keep_alive, with_body);
        self.flush().await?;
        Ok(keep_alive)
    }

    /// Answers a request before its body is read. Skips a short body; for a longer one, closes the
    /// connection.
    pub(super) async fn answer_unread(
        &mut self,
        incoming: &Incoming,
        error: &ApiError,
    ) -> Result<bool, Gone> {
        let head = &incoming.head;
        let short = matches!(head.framing, Framing::Length(n) if n <= SHORT_BODY_BYTES_MAX);
        if short && !head.expects_continue && !self.place.is_spare {
            match self.read_body(head, None).await {
                Ok(_) => return self.answer_error(incoming, error).await,
                Err(Refused::Gone) => return Err(Gone),
                Err(Refused::Fatal(_)) => {} // the first error is the more useful answer
            }
        }
        self.refuse_unread(incoming, error).await
    }

    /// Answers with an error. The connection must then close, because the rest of the request has
    /// not arrived.
    pub(super) async fn refuse_unread(
        &mut self,
        incoming: &Incoming,
        error: &ApiError,
    ) -> Result<bool, Gone> {
        let with_body = incoming.head.method != Method::Head;
        self.refuse(&incoming.as_ref(), error, with_body).await?;
        Ok(false)
    }

    pub(super) async fn answer_preflight(&mut self, incoming: &Incoming) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive && incoming.head.framing == Framing::Length(0);
        let options = self.options(incoming, "", keep_alive);
        self.front.counters().responses.count(route::pattern(&incoming.head.path), 204);
        response::push_preflight(&mut self.output, &options);
        self.flush().await?;
        Ok(keep_alive)
    }

    /// Answers with an error. The connection must then close.
    pub(super) async fn refuse(
        &mut self,
        asked: &Asked<'_>,
        error: &ApiError,
        with_body: bool,
    ) -> Result<(), Gone> {
        self.log_error(asked.path, asked.request_id, error);
        self.push_error(asked, error, false, with_body);
        self.flush().await
    }

    fn push_error(
        &mut self,
        asked: &Asked<'_>,
        error: &ApiError,
        keep_alive: bool,
        with_body: bool,
    ) {
        let Asked { path, request_id, origin } = *asked;
        self.front.counters().responses.count(route::pattern(path), error.status);
        let mut body = Vec::with_capacity(256);
        (route::dialect(path).push_error)(&mut body, error);
        let options = HeadOptions {
            content_type: "application/json",
            request_id,
            keep_alive: self.keeps_alive(keep_alive),
            retry_after: error.retry_after,
            allow: error.allow,
            origin,
            further: "",
        };
        response::push_head(&mut self.output, error.status, &options, body.len());
        if with_body {
            self.output.extend_from_slice(&body);
        }
    }

    pub(super) fn options<'a>(
        &self,
        incoming: &'a Incoming,
        content_type: &'a str,
        keep_alive: bool,
    ) -> HeadOptions<'a> {
        HeadOptions {
            content_type,
            request_id: &incoming.request_id,
            keep_alive: self.keeps_alive(keep_alive),
            retry_after: None,
            allow: None,
            origin: incoming.origin.as_deref(),
            further: "",
        }
    }

    /// Whether a response that is about to be written keeps the connection open.
    fn keeps_alive(&self, asked: bool) -> bool {
        let leaves = self.front.is_draining() || self.place.must_leave();
        let keeps = asked && !leaves && !self.place.is_spare;
        self.closes.set(!keeps);
        keeps
    }

    /// Writes all output, except the first bytes that were written ahead of it.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        let mut output = std::mem::take(&mut self.output);
        let ahead = std::mem::take(&mut self.ahead);
        assert!(
            output.starts_with(&response::BEGIN[..ahead]),
            "{ahead} bytes ahead of no response"
        );
        self.has_begun = true;
        let result = self.send(&output[ahead..]).await;
        output.clear();
        self.output = output;
        result
    }

    /// Writes bytes. A client that takes them too slowly counts as disconnected.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let Self { front, stream, place, timer, .. } = self;
        let time = |written| if place.is_spare { SPARE_TIMEOUT } else { write_time(written) };
        let mut written = 0;
        // The start of the time in which the client has to take the bytes.
        let mut began = None;
        future::poll_fn(|cx| {
            while written < bytes.len() {
                match stream.poll_write(cx, &bytes[written..]) {
                    Poll::Ready(Ok(n)) => {
                        written += n;
                        if let Some(began) = began {
                            timer.set(began, time(written));
                        }
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Gone)),
                    Poll::Pending if front.is_closing() || place.must_leave() => {
                        return Poll::Ready(Err(Gone));
                    }
                    Poll::Pending if began.is_none() => {
                        let now = front.clock.now();
                        began = Some(now);
                        timer.set(now, time(written));
                        timer.register(cx);
                        return Poll::Pending;
                    }
                    Poll::Pending if timer.is_expired() => return Poll::Ready(Err(Gone)),
                    Poll::Pending => {
                        timer.register(cx);
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Logs an error of status 500 as an error, and every other one as information. Probes that come while the model
    /// loads are no news.
    fn log_error(&self, path: &str, request_id: &str, error: &ApiError) {
        let (path, peer) = (short(path), self.peer());
        let (status, reason) = (error.status, &error.message);
        if status == 500 {
            tracing::error!(request_id, peer, path, status, reason, "failed");
        } else if status == 503 && route::is_probe(path) {
            tracing::debug!(request_id, peer, path, status, reason, "refused");
        } else {
            tracing::info!(request_id, peer, path, status, reason, "refused");
        }
    }

    /// The client's address for the log; none for a Unix socket.
    pub(super) fn peer(&self) -> Option<tracing::field::DisplayValue<IpAddr>> {
        self.peer.map(tracing::field::display)
    }

    /// Closes our half, then reads for a moment. Closing with unread input would reset the
    /// connection, which could destroy our last response on its way.
    pub(super) async fn close(&mut self) -> Result<(), Gone> {
        self.stream.end_writing().map_err(|_| Gone)?;
        self.timer.set(self.front.clock.now(), LINGER_TIMEOUT);
        let mut skipped = 0;
        while skipped < LINGER_BYTES_MAX {
            self.input.clear();
            match self.read(Wait::End).await? {
                Read::Some => {}
                Read::AtOnce => poll_sockets().await,
                Read::End | Read::TimedOut => break,
            }
            skipped += self.input.len();
        }
        Ok(())
    }
}

/// The time in which a client has to take this many bytes, and at least one more.
fn write_time(bytes: usize) -> Duration {
    WRITE_TIMEOUT + Duration::from_secs((bytes / WRITE_BYTES_PER_S_MIN) as u64)
}

/// The start of a path, for the log.
fn short(path: &str) -> &str {
    &path[..path.floor_char_boundary(LOG_PATH_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logged_path_is_short() {
        let path = "é".repeat(LOG_PATH_BYTES_MAX);
        assert_eq!(short(&path[..2 * (LOG_PATH_BYTES_MAX / 2)]).len(), LOG_PATH_BYTES_MAX);
        assert_eq!(short(&format!("/{path}")).len(), LOG_PATH_BYTES_MAX - 1);
        assert_eq!(short("/health"), "/health");
    }

    /// A client that took one byte each 29 s once kept its connection.
    #[test]
    fn a_reader_has_a_least_rate() {
        assert_eq!(write_time(1), WRITE_TIMEOUT);
        assert_eq!(write_time(60 * WRITE_BYTES_PER_S_MIN), WRITE_TIMEOUT + Duration::from_secs(60));
    }
}
