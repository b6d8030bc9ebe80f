//! A whole server with the fake model. A connection sends the bytes, in two pieces, and nothing
//! after them. What comes back is HTTP, and the server lives.
#![no_main]
#![expect(clippy::disallowed_types, reason = "libFuzzer has no start-up to build things at")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| corelane_fuzz::serve(16_384));

corelane_fuzz::target!(|bytes: &[u8]| {
    let reply = send(bytes);
    assert!(reply.is_empty() || reply.starts_with(b"HTTP/1.1 "), "{reply:?}");
    if !bytes.is_empty() && bytes[0].is_multiple_of(16) {
        let health = send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(health.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&health));
    }
});

fn send(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(*ADDRESS).expect("the server takes connections");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a TCP socket");
    let mut reply = Vec::new();
    // A server that refuses the first piece may have closed before the second.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let sent = stream.write_all(first).and_then(|()| stream.write_all(second));
    if sent.is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
        match stream.read_to_end(&mut reply) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("no answer and no end for 10 s")
            }
            _ => (),
        }
    }
    reply
}
