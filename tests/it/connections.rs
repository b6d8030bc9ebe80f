//! What clients do with their connections: close a half, leave, keep one without a request.

use std::io::Read;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::{Client, TestServer, body, config, eventually, fake_text, post_bytes};
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::limits::{IDLE_GRACE, PIPELINE_BYTES_MAX};
use corelane::model::fake::FakeOptions;

const GET: &str = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn slow() -> FakeOptions {
    FakeOptions { step: Duration::from_millis(5), ..FakeOptions::default() }
}

fn half_close(client: &Client) {
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
}

#[test]
fn a_client_that_closes_its_half_gets_its_answers() {
    let server = TestServer::fake_with(config(), slow());
    for more in ["", "\"stream\":true,"] {
        let mut client = server.connect();
        let post = post_bytes("/v1/completions", &body("abc", 60, more));
        client.send((post + GET).as_bytes());
        eventually("it runs", || server.metrics.front.running.get() == 1);
        half_close(&client);
        let answer = client.response();
        assert_eq!(answer.status, 200);
        if more.is_empty() {
            assert_eq!(answer.json()["choices"][0]["text"], fake_text("abc", 60));
        } else {
            assert_eq!(answer.events().last().unwrap(), "[DONE]");
        }
        assert_eq!(client.response().json()["status"], "ok", "it was sent before the end");
        assert!(client.is_closed());
    }
}

/// Clients of HTTP/1.0 know no interim response. The bytes ahead of an answer are part of it.
#[test]
fn the_first_bytes_of_an_answer_may_come_ahead_of_it() {
    let server = TestServer::fake_with(config(), slow());
    let mut client = server.connect();
    let post = post_bytes("/v1/completions", &body("abc", 100, ""));
    client.send(post.replace("HTTP/1.1", "HTTP/1.0").as_bytes());
    half_close(&client);
    let mut ahead = [0; 9];
    client.stream.read_exact(&mut ahead).unwrap();
    assert_eq!(&ahead, b"HTTP/1.1 ");
    assert!(!client.hears_within(Duration::from_millis(100)), "the answer takes half a second");
    let mut rest = String::new();
    client.stream.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("200 OK\r\n"), "{rest}");
    let answer: serde_json::Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["text"], fake_text("abc", 100));
}

/// Of HTTP/1.0, too, which proxies speak; and if bytes are left in the kernel's buffer.
#[test]
fn a_client_that_leaves_is_noticed_within_a_second() {
    let server = TestServer::fake_with(config(), slow());
    let post = post_bytes("/v1/completions", &body("abc", 4000, "")); // 20 s
    let flood = "G".repeat(2 * PIPELINE_BYTES_MAX);
    for bytes in [post.clone(), post.replace("HTTP/1.1", "HTTP/1.0"), post + &flood] {
        let mut client = server.connect();
        client.send(bytes.as_bytes());
        eventually("it runs", || server.metrics.front.running.get() == 1);
        std::thread::sleep(Duration::from_millis(50)); // until the flood has come, too
        drop(client);
        let left = Instant::now();
        eventually("it is cancelled", || server.metrics.front.running.get() == 0);
        let seconds = left.elapsed().as_secs_f64();
        assert!(seconds < 3.0, "{seconds} s: of these, a second or two belong to a busy machine");
    }
    assert_eq!(server.metrics.front.finished.length.get(), 0, "nobody was answered");
}

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
