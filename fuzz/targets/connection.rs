//! A few clients of a whole server with few places and the fake model. Each byte is an action: open a
//! connection, send a request or a part of one, close a half or all, wait until the idle ones may be
//! told to leave. What comes back is HTTP, and afterwards the server serves requests.
#![no_main]
#![expect(clippy::disallowed_types, reason = "libFuzzer has no start-up to build things at")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use corelane::limits::IDLE_GRACE;

/// Places of the server. All clients have one network, which may have three quarters of them.
const PLACES: usize = 16;
/// With fewer connections, nobody is told to leave, even if those of the last input still end.
const FEW: usize = 4;
const ACTIONS_MAX: usize = 64;
/// Connections of one input. More than that only replace others.
const CONNECTIONS_MAX: usize = 24;

static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| corelane_fuzz::serve(PLACES));

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n\
                    {\"prompt\":\"a\",\"max_tokens\":99}";

/// Requests, and whether the connection goes on after them.
const REQUESTS: [(&str, bool); 9] = [
    (HEALTH, true),
    (POST, true),
    (
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         10\r\n{\"stream\":true, \r\nd;x=y\r\n\"prompt\":\"a\"}\r\n0\r\nT: u\r\n\r\n",
        true,
    ),
    ("HEAD /nope HTTP/1.1\r\nHost: a\r\n\r\n", true),
    ("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n{", true),
    ("POST /nope HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", false),
    ("GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false),
    ("GET /slots HTTP/1.0\r\n\r\n", false),
    ("GARBAGE\r\n\r\n", false),
];

struct Client {
    stream: TcpStream,
    /// Answers that are due, while that is known: until a part of a request was sent.
    due: Option<usize>,
    /// It may still send.
    is_open: bool,
    /// The server keeps the connection open after the last request.
    stays_open: bool,
}

impl Client {
    fn new() -> Self {
        let stream = TcpStream::connect(*ADDRESS).expect("the server takes connections");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a TCP socket");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a TCP socket");
        Self { stream, due: Some(0), is_open: true, stays_open: true }
    }

    /// Sends a whole request, or bytes that are none.
    fn send(&mut self, bytes: &[u8], request: Option<bool>) {
        if !self.is_open {
            return;
        }
        // The server may have closed it.
        let _ = self.stream.write_all(bytes);
        match (request, &mut self.due) {
            (Some(stays_open), Some(due)) if self.stays_open => {
                *due += 1;
                self.stays_open = stays_open;
            }
            // What follows an answer that closes can reset the connection, and destroy it.
            _ => self.due = None,
        }
    }

    fn half_close(&mut self) {
        self.is_open = false;
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads to the end. With `all_have_places`, there is an answer for each request.
    fn end(mut self, all_have_places: bool) {
        self.half_close();
        let mut reply = Vec::new();
        match self.stream.read_to_end(&mut reply) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("no answer and no end for 20 s after {:?}", String::from_utf8_lossy(&reply))
            }
            // Otherwise it was reset.
            _ => (),
        }
        const BEGIN: &[u8] = b"HTTP/1.1 ";
        let shown = String::from_utf8_lossy(&reply);
        assert!(reply.iter().zip(BEGIN).all(|(a, b)| a == b), "{shown:?}");
        if let (true, Some(due)) = (all_have_places, self.due) {
            let answers = reply.windows(BEGIN.len()).filter(|bytes| *bytes == BEGIN).count();
            assert_eq!(answers, due, "answers: {shown:?}");
        }
    }
}

corelane_fuzz::target!(|bytes: &[u8]| {
    let mut clients = vec![Client::new()];
    let (mut current, mut opened, mut has_waited) = (0, 1, false);
    let mut rest = bytes;
    for _ in 0..ACTIONS_MAX {
        let Some((byte, after)) = rest.split_first() else { break };
        rest = after;
        let number = usize::from(byte >> 3);
        let (request, stays_open) = REQUESTS[number % REQUESTS.len()];
        match byte & 7 {
            0 if clients.len() < CONNECTIONS_MAX => {
                clients.push(Client::new());
                (current, opened) = (clients.len() - 1, opened + 1);
            }
            0 | 1 => current = number % clients.len(),
            2 | 3 => clients[current].send(request.as_bytes(), Some(stays_open)),
            4 => clients[current].send(&request.as_bytes()[..request.len() / 2], None),
            5 => {
                let (raw, after) = rest.split_at(number.min(rest.len()));
                rest = after;
                clients[current].send(raw, None);
            }
            6 if number % 4 == 0 => {
                clients[current] = Client::new(); // the old one leaves
                opened += 1;
            }
            6 => clients[current].half_close(),
            _ if !has_waited => {
                has_waited = true;
                std::thread::sleep(IDLE_GRACE + Duration::from_millis(10));
            }
            _ => (),
        }
    }
    let few = opened <= FEW;
    clients.into_iter().for_each(|client| client.end(few));
    let began = Instant::now();
    for request in [HEALTH, POST] {
        // Connections that have just ended may still have their places.
        while !is_served(request) {
            assert!(began.elapsed() < Duration::from_secs(10), "refused for 10 s: {request}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
});

fn is_served(request: &str) -> bool {
    let mut client = Client::new();
    client.send(request.as_bytes(), None);
    client.half_close();
    let mut reply = Vec::new();
    let _ = client.stream.read_to_end(&mut reply);
    reply.starts_with(b"HTTP/1.1 200 ")
}
