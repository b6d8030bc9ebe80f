//! The server over real sockets, with the fake model: HTTP as a peer may send it, well or badly.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Client, TestServer, config, eventually, fake_text, key, post_bytes};
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::limits::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, IDLE_GRACE, SWEEP_INTERVAL, WRITE_TIMEOUT,
};
use corelane::model::fake::FakeOptions;

const GREEDY: &str = r#"{"prompt":"abc","max_tokens":5,"temperature":0}"#;

#[test]
fn a_connection_serves_many_requests_and_pipelines_them() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    for _ in 0..3 {
        let response = client.post("/v1/completions", GREEDY);
        assert_eq!(response.status, 200);
        assert_eq!(response.json()["choices"][0]["text"], fake_text("abc", 5));
        assert_eq!(client.get("/health").json()["status"], "ok");
    }
    // Three at once, the second streamed; answered in order.
    let streamed = GREEDY.replace('}', ",\"stream\":true}");
    let get = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let bytes =
        post_bytes("/v1/completions", GREEDY) + &post_bytes("/v1/completions", &streamed) + get;
    client.send(bytes.as_bytes());
    assert_eq!(client.response().json()["choices"][0]["text"], fake_text("abc", 5));
    assert_eq!(client.response().events().last().unwrap(), "[DONE]");
    assert_eq!(client.response().json()["status"], "ok");
}

#[test]
fn bodies_come_in_chunks_and_pieces() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let (first, second) = GREEDY.split_at(7);
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{first}\r\n{:x};x=y\r\n{second}\r\n0\r\nT: u\r\n\r\n",
        first.len(),
        second.len()
    );
    for piece in request.as_bytes().chunks(11) {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(client.response().json()["choices"][0]["text"], fake_text("abc", 5));
}

#[test]
fn expect_continue_is_answered_before_the_body() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\n\r\n"
        )
    };
    client.send(head("/v1/completions", GREEDY.len()).as_bytes());
    assert_eq!(client.head().unwrap().0, 100);
    client.send(GREEDY.as_bytes());
    assert_eq!(client.response().status, 200);
    // A request that will be refused is refused before its body is sent.
    client.send(head("/nope", 1000).as_bytes());
    assert_eq!(client.response().status, 404);
    assert!(client.is_closed());
    let mut client = server.connect();
    client.send(head("/v1/completions", BODY_BYTES_MAX + 1).as_bytes());
    assert_eq!(client.response().status, 413);
}

#[test]
fn head_and_preflight_have_no_body() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    client.send(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-length".into(), "15".into())));
    client.send(
        b"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n\
          Access-Control-Request-Method: POST\r\n\r\n",
    );
    let preflight = client.response();
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert_eq!(client.get("/v1/models").json()["data"][0]["id"], "fake");
    // Errors, too: the next bytes are the next response.
    client.send(b"HEAD /nope HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.head().unwrap().0, 404);
    assert_eq!(client.response().status, 200);
    client.send(b"HEAD /nope HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.head().unwrap().0, 404);
    assert!(client.is_closed(), "and no body before that");
}

/// A client sends far more ahead than real clients do. The running request is answered whole
/// before the next one is read.
#[test]
fn a_flood_behind_a_running_request_waits_for_it() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let body = r#"{"prompt":"abc","max_tokens":4000,"temperature":0}"#;
    let mut bytes = post_bytes("/v1/completions", body).into_bytes();
    let flood = vec![b'G'; 4 * corelane::limits::PIPELINE_BYTES_MAX];
    bytes.extend(post_bytes("/v1/completions", std::str::from_utf8(&flood).unwrap()).bytes());
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    let flood = std::thread::spawn(move || writer.write_all(&bytes));
    let running = client.response();
    assert_eq!(running.status, 200);
    assert_eq!(running.json()["usage"]["completion_tokens"], 4000);
    assert_eq!(client.response().status, 400, "the flood is no JSON");
    flood.join().unwrap().unwrap();
}

/// After its answer, a connection reads what is still on its way, but not for ever.
#[test]
fn a_refused_client_that_sends_without_end_is_cut_off() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    client.send(b"GARBAGE\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let mut stream = client.stream.get_ref().try_clone().unwrap();
    let (piece, mut sent) = (vec![b'x'; 64 * 1024], 0);
    while sent < 64 * corelane::limits::LINGER_BYTES_MAX && stream.write_all(&piece).is_ok() {
        sent += piece.len();
    }
    assert!(sent < 32 * corelane::limits::LINGER_BYTES_MAX, "{sent} bytes were taken");
}

/// The head's `Connection` field holds even if the request is refused.
#[test]
fn a_refused_head_is_answered_in_its_own_dialect_with_its_own_id() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    client.send(
        b"POST /generate HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\n\
          Content-Length: 9000000\r\n\r\n",
    );
    let response = client.response();
    assert_eq!(response.status, 413);
    assert_eq!(response.header("x-request-id"), Some("mine"));
    assert_eq!(response.json()["success"], false);
    let mut client = server.connect();
    client.send(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nExpect: cake\r\n\r\n");
    assert_eq!(client.head().unwrap().0, 417);
    assert!(client.is_closed(), "and no body before that");
}

#[test]
fn http_1_0_gets_no_chunks() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let body = GREEDY.replace('}', ",\"stream\":true}");
    let request =
        format!("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.send(request.as_bytes());
    let response = client.response();
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(response.events().last().unwrap(), "[DONE]");
}

/// As clients write base URLs, and files that begin with a byte order mark.
#[test]
fn paths_and_bodies_may_be_untidy() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    for path in ["/v1/models/", "//v1//models", "/v1/models"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    let marked = format!("\u{feff}{}", r#"{"prompt":"a","max_tokens":1}"#);
    assert_eq!(client.post("/v1/completions/", &marked).status, 200);
    let unknown = client.post("/api/nothing", "{}");
    assert_eq!((unknown.status, unknown.json()["error"].is_string()), (404, true));
    let body = "{}";
    let length = body.len();
    client.send(
        format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\
             Content-Encoding: gzip\r\n\r\n{body}"
        )
        .as_bytes(),
    );
    let response = client.response();
    assert_eq!(response.status, 415);
    assert!(response.body.contains("Content-Encoding says \\\"gzip\\\""), "{}", response.body);
}

#[test]
fn every_error_has_its_status_and_shape() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let big = format!("{{\"prompt\":\"{}\"}}", "x".repeat(5000));
    for (path, body, status, part) in [
        ("/v1/completions", "{\"prompt\":", 400, "at byte 10"),
        ("/v1/completions", "[]", 400, "must be a JSON object"),
        ("/v1/completions", "", 400, "at byte 0"),
        ("/v1/completions", r#"{"prompt":""}"#, 400, "empty"),
        ("/v1/completions", &big, 400, "5000 tokens and exceeds the available context size"),
        ("/v1/completions", r#"{"prompt":"a","n":0}"#, 400, "n must be a whole number from 1"),
        ("/nothing", "{}", 404, "/nothing"),
        ("/health", "{}", 405, "GET"),
    ] {
        let response = client.post(path, body);
        assert_eq!(response.status, status, "{path} {body}");
        let error = &response.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(part), "{message:?} says {part:?}");
        assert!(error["type"].is_string() && error.get("param").is_some());
        assert!(response.header("x-request-id").is_some());
    }
    assert_eq!(client.get("/generate").header("allow"), Some("POST, OPTIONS"));

    let response = client.post("/generate", "{\"prompt\":");
    assert_eq!((response.status, &response.json()["success"]), (400, &false.into()));
    assert!(response.json()["message"].as_str().unwrap().contains("at byte 10"));

    let mut client = server.connect();
    client.send(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\
          Content-Length: 2\r\n\r\n{}",
    );
    assert_eq!(client.response().status, 415);
    // The connection lives on after each of these.
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn what_cannot_be_trusted_is_refused_and_closed() {
    let server = TestServer::fake(config(), 0);
    for (request, status) in [
        ("GARBAGE\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\
             Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            400,
        ),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        ("POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413),
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        let response = client.response();
        assert_eq!(response.status, status, "{request:?}");
        assert_eq!(response.header("connection"), Some("close"));
        assert!(client.is_closed(), "{request:?}");
    }
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(HEAD_BYTES_MAX)).as_bytes());
    assert_eq!(client.response().status, 431);
    assert_eq!(server.get("/health").status, 200);
}

/// Nothing that a peer sends ends the server or disturbs another client.
#[test]
fn random_bytes_disturb_nobody() {
    let server = TestServer::fake(config(), 0);
    let mut random = crate::support::Random::new(5);
    let template = post_bytes("/v1/completions", GREEDY).into_bytes();
    for round in 0..300 {
        let mut bytes = template.clone();
        if round % 3 == 0 {
            bytes = (0..random.within(1, 400)).map(|_| random.next() as u8).collect();
        } else {
            for _ in 0..random.within(1, 6) {
                let at = random.within(0, bytes.len() - 1);
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(random.within(1, bytes.len()));
        }
        let mut client = server.connect();
        let _ = client.stream.get_mut().write_all(&bytes);
        let _ = client.stream.get_mut().shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "));
    }
    assert_eq!(server.post("/v1/completions", GREEDY).status, 200);
}

#[test]
fn keys_are_asked_for() {
    let keys = vec![crate::support::key("k1"), crate::support::key("k2")];
    let server = TestServer::fake(corelane::config::ServeConfig { keys, ..config() }, 0);
    let mut client = server.connect();
    let mut with = |header: &str| {
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {}\r\n\r\n{GREEDY}",
            GREEDY.len()
        );
        client.send(request.as_bytes());
        client.response()
    };
    assert_eq!(with("").status, 401);
    assert_eq!(with("Authorization: Bearer k3\r\n").status, 401);
    assert_eq!(with("Authorization: Bearer k\r\n").status, 401);
    assert_eq!(with("Authorization: Basic k1\r\n").status, 401);
    assert_eq!(with("Authorization: Bearer k1\r\n").status, 200);
    assert_eq!(with("Authorization: Basic eDp5\r\nX-Api-Key: k1\r\n").status, 200);
    assert_eq!(with("X-Api-Key: k2\r\n").status, 200);
    assert_eq!(with("").header("www-authenticate"), Some("Bearer"));
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.get("/v1/models").status, 200);
}

#[test]
fn request_ids_are_echoed_or_made() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: my-1\r\n\r\n");
    assert_eq!(client.response().header("x-request-id"), Some("my-1"));
    let (a, b) = (client.get("/health"), client.get("/health"));
    assert_ne!(a.header("x-request-id").unwrap(), b.header("x-request-id").unwrap());
}

#[test]
fn a_slow_head_is_timed_out_and_an_idle_connection_is_not() {
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake(ServeConfig { clock, ..config() }, 0);
    let mut idle = server.connect();
    let mut client = server.connect();
    client.send(b"GET /health HT");
    assert!(!client.hears_within(2 * SWEEP_INTERVAL), "its time is not over");
    ahead.fetch_add(HEAD_TIMEOUT.as_micros() as u64, Ordering::Relaxed);
    assert_eq!(client.response().status, 408);
    assert_eq!(idle.get("/health").status, 200);
}

/// More idle connections than there are places shut nobody out.
#[test]
fn the_oldest_idle_connection_gives_way_to_a_new_one() {
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake(ServeConfig { clock, connections: 40, ..config() }, 0);
    let one_more = |_| {
        let mut client = server.connect();
        assert_eq!(client.get("/health").status, 200);
        ahead.fetch_add(IDLE_GRACE.as_micros() as u64, Ordering::Relaxed);
        client
    };
    let mut clients: Vec<Client> = (0..200).map(one_more).collect();
    assert!(clients[0].is_closed());
    assert_eq!(server.get("/health").status, 200);
    eventually("30 are left", || server.metrics.front.connections.get() <= 30);
    assert_eq!(clients[198].get("/health").status, 200, "it was not among the oldest");
}

/// Without a key nobody keeps a place: not with a body that does not come, and not by reading an
/// answer slowly.
#[test]
fn a_client_without_a_key_gives_way() {
    let (clock, ahead) = Clock::adjustable();
    let config = ServeConfig { clock, connections: 8, keys: vec![key("secret")], ..config() };
    let server = TestServer::fake(config, 0);
    let bodies = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n";
    let slow = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    for request in [&bodies[..], slow.as_bytes()] {
        let held: Vec<Client> = (0..6)
            .map(|_| {
                let mut client = server.connect();
                client.buffer_little();
                client.send(request);
                client
            })
            .collect();
        for _ in 0..20 {
            std::thread::sleep(SWEEP_INTERVAL / 4);
            ahead.fetch_add(IDLE_GRACE.as_micros() as u64, Ordering::Relaxed);
            let mut other = server.connect();
            let key = "Authorization: Bearer secret\r\n";
            other.send(format!("GET /slots HTTP/1.1\r\nHost: localhost\r\n{key}\r\n").as_bytes());
            assert_eq!(other.response().status, 200, "a spare place answers 503");
        }
        drop(held);
    }
}

/// A client that takes a kilobyte a second of an answer of megabytes.
#[test]
fn a_reader_that_is_too_slow_is_cut_off() {
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake(ServeConfig { clock, ..config() }, 0);
    let mut client = server.connect();
    client.buffer_little();
    // Answers of 240 kB: together more than the kernel's buffers hold.
    let body = format!(r#"{{"content":"{}"}}"#, "z".repeat(60_000));
    client.send(post_bytes("/tokenize", &body).repeat(40).as_bytes());
    let answered = || server.metrics.prepare.time_us.count();
    let mut before = 0;
    eventually("the server waits for its client", || {
        let now = answered();
        let rests = now > 0 && std::mem::replace(&mut before, now) == now;
        std::thread::sleep(Duration::from_millis(if rests { 0 } else { 500 }));
        rests
    });
    assert!(answered() < 40, "all answers fit into the kernel's buffers");
    let connections = &server.metrics.front.connections;
    let mut seconds = 0;
    while connections.get() == 1 {
        client.skip(1024);
        ahead.fetch_add(1_000_000, Ordering::Relaxed);
        seconds += 1;
        assert!(seconds < 1000, "it may read as slowly as it likes");
        std::thread::sleep(SWEEP_INTERVAL / 10);
    }
    assert!(seconds >= WRITE_TIMEOUT.as_secs(), "cut off after {seconds} s");
}

/// Where all places have a request, health checks are answered all the same.
#[test]
fn connections_beyond_the_bound_are_told_so() {
    let slow = FakeOptions { step: Duration::from_millis(5), ..FakeOptions::default() };
    let server = TestServer::fake_with(ServeConfig { connections: 4, ..config() }, slow);
    let body = r#"{"prompt":"abc","max_tokens":4000,"stream":true}"#;
    let mut busy: Vec<Client> = (0..3).map(|_| server.connect()).collect(); // three quarters
    for client in &mut busy {
        client.send(post_bytes("/v1/completions", body).as_bytes());
        client.head().unwrap();
    }
    let mut check = server.connect();
    assert_eq!(check.get("/health").status, 200);
    assert!(check.is_closed(), "for one request");
    let answer = server.post("/v1/completions", body);
    assert_eq!(answer.status, 503);
    assert!(answer.header("x-request-id").is_some() && answer.header("retry-after").is_some());
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("4 connections"));
    busy.pop();
    let short = r#"{"prompt":"abc","max_tokens":1}"#;
    eventually("a place is free again", || server.post("/v1/completions", short).status == 200);
}
