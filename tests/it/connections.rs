//! What clients do with their connections: close a half, leave, keep one without a request.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Client, TestServer, body, config, eventually};
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::limits::IDLE_GRACE;

const GET: &str = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Connections that are told to leave again and again have the next request waiting each time. They
/// were counted out each time, until every request was refused for ever.
#[test]
fn a_connection_that_must_leave_is_counted_out_once() {
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake(ServeConfig { clock, connections: 4, ..config() }, 0);
    for _ in 0..3 {
        let busy: Vec<_> = (0..3)
            .map(|_| {
                let mut client = server.connect();
                client.send(GET.repeat(200).as_bytes());
                // It ends with the connection, which may be reset.
                std::thread::spawn(move || std::io::copy(&mut client.stream, &mut std::io::sink()))
            })
            .collect();
        let mut others: Vec<Client> = Vec::new();
        for _ in 0..12 {
            ahead.fetch_add(IDLE_GRACE.as_micros() as u64, Ordering::Relaxed);
            others.push(server.connect());
            std::thread::sleep(Duration::from_millis(3));
        }
        drop(others);
        ahead.fetch_add(IDLE_GRACE.as_micros() as u64, Ordering::Relaxed);
        eventually("a request is served", || {
            let answer = server.connect().try_post("/v1/completions", &body("abc", 1, ""));
            answer.is_some_and(|answer| answer.status == 200)
        });
        drop(server.connect()); // the last ones that wait must leave
        ahead.fetch_add(80_000_000, Ordering::Relaxed); // and time out
        busy.into_iter().for_each(|client| drop(client.join().unwrap()));
        eventually("all have left", || server.metrics.front.connections.get() == 0);
    }
}

/// Whoever asks for public pages again and again, without a key, does not keep a place by that.
#[test]
fn health_checks_hold_no_place() {
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake(ServeConfig { clock, connections: 4, ..config() }, 0);
    let mut checks: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for _ in 0..2 {
        for check in &mut checks {
            assert_eq!(check.get("/health").status, 200);
        }
        ahead.fetch_add(IDLE_GRACE.as_micros() as u64 / 2 + 1, Ordering::Relaxed);
    }
    assert_eq!(server.post("/v1/completions", &body("abc", 1, "")).status, 200);
}
