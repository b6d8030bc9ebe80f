//! Builds responses in the connection's buffer, and writes them.

use std::pin::Pin;
use std::task::Poll;

use futures_lite::{AsyncWrite, future};

use super::{Connection, Gone, Incoming, Read, Refused};
use crate::api::error::ApiError;
use crate::api::route;
use crate::http::head::{Framing, Method};
use crate::http::response::{self, HeadOptions};
use crate::limits::{IDLE_BUFFER_BYTES_MAX, LINGER_TIMEOUT, LOG_PATH_BYTES_MAX, WRITE_TIMEOUT};

impl Connection {
    pub(super) async fn answer_json(
        &mut self,
        incoming: &Incoming,
        body: Vec<u8>,
    ) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive;
        let options = self.options(incoming, "application/json", keep_alive);
        self.front.counters().responses.count(&incoming.head.path, 200);
        response::push_head(&mut self.output, 200, &options, body.len());
        if incoming.head.method == Method::Head {
            self.flush().await?;
        } else if body.len() <= IDLE_BUFFER_BYTES_MAX {
            self.output.extend_from_slice(&body);
            self.flush().await?;
        } else {
            // Two writes cost less than copying a long answer.
            self.flush().await?;
            self.output = body;
            self.flush().await?;
        }
        Ok(keep_alive)
    }

    pub(super) async fn answer_error(
        &mut self,
        incoming: &Incoming,
        error: &ApiError,
    ) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive;
        let with_body = incoming.head.method != Method::Head;
        log_error(&incoming.head.path, &incoming.request_id, error);
        self.push_error(&incoming.head.path, &incoming.request_id, error, keep_alive, with_body);
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
        let short = matches!(head.framing, Framing::Length(n) if n <= IDLE_BUFFER_BYTES_MAX);
        if short && !head.expects_continue {
            match self.read_body(head).await {
                Ok(_) => return self.answer_error(incoming, error).await,
                Err(Refused::Gone) => return Err(Gone),
                Err(Refused::Fatal(_)) => {} // the first error is the more useful answer
            }
        }
        self.refuse_unread(incoming, error).await
    }

    /// Answers and closes: the rest of the request is yet to arrive.
    pub(super) async fn refuse_unread(
        &mut self,
        incoming: &Incoming,
        error: &ApiError,
    ) -> Result<bool, Gone> {
        let with_body = incoming.head.method != Method::Head;
        self.refuse(&incoming.head.path, &incoming.request_id, error, with_body).await?;
        Ok(false)
    }

    pub(super) async fn answer_preflight(&mut self, incoming: &Incoming) -> Result<bool, Gone> {
        let keep_alive = incoming.head.keep_alive && incoming.head.framing == Framing::Length(0);
        let options = self.options(incoming, "", keep_alive);
        self.front.counters().responses.count(&incoming.head.path, 204);
        response::push_preflight(&mut self.output, &options);
        self.flush().await?;
        Ok(keep_alive)
    }

    /// Answers and closes the connection.
    pub(super) async fn refuse(
        &mut self,
        path: &str,
        request_id: &str,
        error: &ApiError,
        with_body: bool,
    ) -> Result<(), Gone> {
        log_error(path, request_id, error);
        self.push_error(path, request_id, error, false, with_body);
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
        self.front.counters().responses.count(path, error.status);
        let mut body = Vec::with_capacity(256);
        error.push_body(route::dialect(path), &mut body);
        let options = HeadOptions {
            content_type: "application/json",
            request_id,
            keep_alive: keep_alive && !self.front.is_draining(),
            retry_after: error.retry_after,
            allow: error.allow,
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
            keep_alive: keep_alive && !self.front.is_draining(),
            retry_after: None,
            allow: None,
        }
    }

    /// Writes all output. A client that accepts no bytes for too long counts as disconnected.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
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
                    Poll::Pending if timer.is_expired() || front.is_closing() => {
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

    /// Closes our half, then reads for a moment. Closing with unread input would reset the
    /// connection, which could destroy our last response on its way.
    pub(super) async fn close(&mut self) -> Result<(), Gone> {
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

/// Logs a refusal as information, and a failure of corelane as an error with the request's id.
fn log_error(path: &str, request_id: &str, error: &ApiError) {
    let path = path.get(..LOG_PATH_BYTES_MAX).unwrap_or(path);
    let (status, reason) = (error.status, &error.message);
    if status == 500 {
        tracing::error!(request_id, path, status, reason, "failed");
    } else {
        tracing::info!(request_id, path, status, reason, "refused");
    }
}
