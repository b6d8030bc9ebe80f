//! A server with scripted answers, right and wrong, to test clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The reaction to one request.
#[derive(Clone)]
pub enum Reaction {
    /// Send these pieces, each by itself, and go on reading.
    Send(Vec<Vec<u8>>),
    /// Send these pieces and close.
    SendAndClose(Vec<Vec<u8>>),
    /// Send nothing, and hold the connection.
    Silence,
}

/// A server on a free port of the loopback address. Ends with the process.
pub struct Mock {
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Mock {
    /// The n-th request is met with the n-th reaction, the last for all after it.
    pub fn start(reactions: Vec<Reaction>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mock = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::new(AtomicUsize::new(0)),
        };
        let (requests, reactions) = (Arc::clone(&mock.requests), Arc::new(reactions));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (requests, reactions) = (Arc::clone(&requests), Arc::clone(&reactions));
                std::thread::spawn(move || serve(stream.unwrap(), &requests, &reactions));
            }
        });
        mock
    }

    /// Requests read so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, requests: &AtomicUsize, reactions: &[Reaction]) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while read_request(&mut reader).is_some() {
        let n = requests.fetch_add(1, Ordering::SeqCst);
        let (pieces, close) = match &reactions[n.min(reactions.len() - 1)] {
            Reaction::Send(pieces) => (pieces, false),
            Reaction::SendAndClose(pieces) => (pieces, true),
            Reaction::Silence => {
                std::thread::sleep(Duration::from_secs(60));
                return;
            }
        };
        for piece in pieces {
            if reader.get_mut().write_all(piece).is_err() {
                return; // the client has seen enough
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if close {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()
}

/// The head of a chunked event stream.
pub const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// `data` as one chunk.
pub fn chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

/// A response that is not streamed.
pub fn whole(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// An event with one token.
pub fn token(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"text\":\"{text}\"}}]}}\n\n")
}

/// The end of a stream that the server has counted.
pub fn ending(tokens: usize) -> String {
    let usage = format!("{{\"prompt_tokens\":3,\"completion_tokens\":{tokens}}}");
    format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n")
}
