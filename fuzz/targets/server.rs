//! A whole server with the fake model. A connection sends the bytes, in two pieces, and nothing
//! after them. What comes back is HTTP, and the server lives.
#![no_main]
#![expect(clippy::disallowed_types, reason = "libFuzzer has no start-up to build things at")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

use corelane::config::ServeConfig;
use corelane::lanes::Server;
use corelane::model::fake::FakeOptions;
use corelane::placement::{Topology, Wishes};

static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        // Panics of minijinja and llguidance are caught, and end one request.
        if panic.location().is_none_or(|location| location.file().starts_with("src/")) {
            std::process::abort();
        }
    }));
    let placement = Topology::read().and_then(|topology| topology.place(&Wishes::default()));
    let config = ServeConfig {
        batch_rows: 512,
        ubatch_rows: 512,
        entropy: 1,
        placement: placement.expect("two lanes have a place"),
        poll: 0,
        ..ServeConfig::default()
    };
    let mut server = Server::start(config).expect("a free port on loopback");
    server.load_fake(FakeOptions { end_one_in: 20, ..FakeOptions::default() }).expect("it is fake");
    let address = server.address();
    // It runs until the process ends.
    std::mem::forget(server);
    address
});

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
