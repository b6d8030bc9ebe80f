//! One connection of the ops lane: answers its requests, and decides when to close it.

use std::io;
use std::sync::Arc;

use may_minihttp::{HttpService, Request, Response};

use super::shared::{Connection, Shared, TEXT};
use super::workarounds::end_connection;
use super::{exposition, flamegraph};
use crate::limits::OPS_REQUESTS_MAX;
use crate::metrics::ServerState;

/// Most bytes of a path.
const OPS_PATH_BYTES_MAX: usize = 1024;

/// Most bytes of a body that are skipped. No path needs a body.
const OPS_BODY_BYTES_MAX: usize = 64 * 1024;

const OPENMETRICS: &str =
    "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers the requests of one connection.
pub(super) struct Service {
    shared: Arc<Shared>,
    /// `None` if too many connections are open. The connection is then not served.
    connection: Option<Arc<Connection>>,
    requests: u32,
    /// A part of a profile may still be unsent, and `may_minihttp` drops unsent bytes when reading
    /// ends. So the connection stays open until the client closes it, or has been silent for too
    /// long.
    keeps_reading: bool,
}

/// The page or error for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpsAnswer {
    Metrics,
    Health,
    Ready,
    Flamegraph,
    Unknown,
    /// The path does not have this method. The `Allow` line names its methods.
    Method(&'static str),
    /// The request is refused with this status.
    Refused(u16),
}

/// The relevant facts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    page: OpsAnswer,
    with_body: bool,
    /// Bytes of the body.
    body_bytes: usize,
    /// True if the connection may send no further request.
    last: bool,
}

impl Service {
    pub fn new(shared: Arc<Shared>, connection: Option<Arc<Connection>>) -> Self {
        Self { shared, connection, requests: 0, keeps_reading: false }
    }
}

impl HttpService for Service {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        let Some(connection) = &self.connection else {
            end_connection("too many connections");
        };
        self.shared.touch(connection);
        self.requests += 1;
        let headers = request.headers().iter().map(|header| (header.name, header.value));
        let mut asked = read(request.method(), request.path(), headers, self.requests);
        if self.keeps_reading {
            asked.page = OpsAnswer::Refused(503); // the profile was the last answer
        }
        asked.last |= request.version() == 0; // HTTP/1.0
        let query = request.path().split_once('?').map_or("", |(_, query)| query).to_owned();
        if asked.body_bytes > 0 {
            drop(request.body()); // skips the body
        }
        if asked.last {
            response.header("Connection: close");
        }
        if asked.page == OpsAnswer::Flamegraph {
            self.keeps_reading |= flamegraph::answer(&query, &self.shared, connection, response);
        } else {
            answer(asked, &self.shared, response);
        }
        if asked.last && !self.keeps_reading {
            connection.stop_reading();
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.end();
        }
        self.shared.left();
    }
}

/// Reads the `nth` request of its connection. `may_minihttp` would accept any `Content-Length`,
/// panic on one that is not a number, and ignore `Transfer-Encoding`.
fn read<'a>(
    method: &str,
    path: &str,
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
    nth: u32,
) -> Asked {
    let page = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => OpsAnswer::Metrics,
        ("GET" | "HEAD", "/health") => OpsAnswer::Health,
        ("GET" | "HEAD", "/ready") => OpsAnswer::Ready,
        ("POST", "/debug/flamegraph") => OpsAnswer::Flamegraph,
        (_, "/debug/flamegraph") => OpsAnswer::Method("Allow: POST"),
        ("GET" | "HEAD", _) => OpsAnswer::Unknown,
        _ => OpsAnswer::Method("Allow: GET, HEAD"),
    };
    let mut asked =
        Asked { page, with_body: method != "HEAD", body_bytes: 0, last: nth == OPS_REQUESTS_MAX };
    // A connection gets at most one profile.
    asked.last |= page == OpsAnswer::Flamegraph;
    let mut refuse = (nth > OPS_REQUESTS_MAX).then_some(503);
    let mut lengths = 0;
    for (name, value) in headers {
        if name.eq_ignore_ascii_case("connection") {
            asked.last |= value.eq_ignore_ascii_case(b"close");
        } else if name.eq_ignore_ascii_case("origin") && page == OpsAnswer::Flamegraph {
            refuse = Some(403); // a web page in somebody's browser
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            refuse = Some(400);
        } else if name.eq_ignore_ascii_case("content-length") {
            lengths += 1;
            match length(value) {
                Some(length) if lengths == 1 => asked.body_bytes = length,
                _ => refuse = Some(400),
            }
        }
    }
    if asked.body_bytes > OPS_BODY_BYTES_MAX {
        refuse = Some(413);
    }
    if path.len() > OPS_PATH_BYTES_MAX {
        refuse = Some(414);
    }
    if let Some(status) = refuse {
        asked.page = OpsAnswer::Refused(status);
        asked.last = true;
        asked.body_bytes = 0; // the bytes after it are not read
    }
    asked
}

/// Reads a `Content-Length` as `may_minihttp` does: digits only.
fn length(value: &[u8]) -> Option<usize> {
    let digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

fn answer(asked: Asked, shared: &Shared, response: &mut Response) {
    let mut text = |status: usize, message: &'static str, body: &'static str| {
        response.status_code(status, message).header(TEXT);
        if asked.with_body {
            response.body(body);
        }
    };
    match asked.page {
        OpsAnswer::Health if shared.metrics.front.state() == ServerState::Stuck => {
            text(503, "Service Unavailable", "every request is refused, and none runs\n");
        }
        OpsAnswer::Health => text(200, "OK", "ok\n"),
        OpsAnswer::Ready => match shared.metrics.front.state() {
            ServerState::Ready => text(200, "OK", "ready\n"),
            ServerState::Loading => {
                text(503, "Service Unavailable", "not ready: the model is being loaded\n");
            }
            ServerState::Draining => {
                text(503, "Service Unavailable", "not ready: the server is about to end\n");
            }
            ServerState::Stuck => {
                text(503, "Service Unavailable", "not ready: every request is refused\n");
            }
        },
        OpsAnswer::Flamegraph => unreachable!("it is answered elsewhere"),
        OpsAnswer::Unknown => {
            let paths = "there are only /metrics, /health, /ready and POST /debug/flamegraph\n";
            text(404, "Not Found", paths);
        }
        OpsAnswer::Method(allow) => {
            text(405, "Method Not Allowed", "see Allow for the methods of this path\n");
            response.header(allow);
        }
        OpsAnswer::Refused(403) => text(403, "Forbidden", "web pages may not take profiles\n"),
        OpsAnswer::Refused(413) => {
            text(413, "Content Too Large", "the body is too long; send none\n")
        }
        OpsAnswer::Refused(414) => text(414, "URI Too Long", "the path is too long\n"),
        OpsAnswer::Refused(503) => text(503, "Service Unavailable", "open a new connection\n"),
        OpsAnswer::Refused(_) => text(400, "Bad Request", "the length of the body is not clear\n"),
        OpsAnswer::Metrics => {
            response.header(OPENMETRICS);
            if asked.with_body {
                // This writes into the connection's buffer, which is reused for each page.
                exposition::write(&shared.metrics, response.body_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, path: &str, headers: &[(&str, &str)]) -> Asked {
        let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        read(method, path, headers, 1)
    }

    #[test]
    fn pages_are_found() {
        let whole = Asked { page: OpsAnswer::Metrics, with_body: true, body_bytes: 0, last: false };
        assert_eq!(asked("GET", "/metrics", &[]), whole);
        assert_eq!(asked("GET", "/metrics?x=1", &[]), whole);
        assert_eq!(asked("HEAD", "/metrics", &[]), Asked { with_body: false, ..whole });
        assert_eq!(asked("GET", "/", &[]).page, OpsAnswer::Unknown);
        let post = asked("POST", "/metrics", &[("Content-Length", "10")]);
        assert_eq!(
            (post.page, post.body_bytes, post.last),
            (OpsAnswer::Method("Allow: GET, HEAD"), 10, false)
        );
        assert_eq!(asked("POST", "/debug/flamegraph?lane=front", &[]).page, OpsAnswer::Flamegraph);
        assert!(asked("POST", "/debug/flamegraph", &[]).last);
        let by_page = asked("POST", "/debug/flamegraph", &[("Origin", "http://127.0.0.1:9090")]);
        assert_eq!(by_page.page, OpsAnswer::Refused(403));
        assert_eq!(asked("GET", "/metrics", &[("Origin", "http://a")]).page, OpsAnswer::Metrics);
        assert_eq!(asked("GET", "/debug/flamegraph", &[]).page, OpsAnswer::Method("Allow: POST"));
        assert!(asked("GET", "/ready", &[("connection", "Close")]).last);
    }

    #[test]
    fn a_length_that_is_not_clear_is_refused_and_not_read() {
        let length = |value| ("content-length", value);
        for headers in [
            vec![length("abc")],
            vec![length("")],
            vec![length("+5")],
            vec![length("-1")],
            vec![length("99999999999999999999999")],
            vec![length("5"), length("5")],
            vec![("Transfer-Encoding", "chunked")],
        ] {
            let asked = asked("GET", "/metrics", &headers);
            let expected = (OpsAnswer::Refused(400), 0, true);
            assert_eq!((asked.page, asked.body_bytes, asked.last), expected, "{headers:?}");
        }
        assert_eq!(asked("GET", "/health", &[length("99999999")]).page, OpsAnswer::Refused(413));
    }

    #[test]
    fn a_connection_has_its_last_request() {
        let nth = |nth| read("GET", "/health", [].into_iter(), nth);
        assert!(!nth(OPS_REQUESTS_MAX - 1).last);
        assert_eq!(
            (nth(OPS_REQUESTS_MAX).last, nth(OPS_REQUESTS_MAX).page),
            (true, OpsAnswer::Health)
        );
        assert_eq!(nth(OPS_REQUESTS_MAX + 1).page, OpsAnswer::Refused(503));
    }
}
