//! The server under overload and with failing parts, over real sockets with the fake model:
//! deadlines, priorities, failing and hanging steps, kept prefixes.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{TestServer, body, config, eventually, fake_text, post_bytes};
use corelane::config::ServeConfig;
use corelane::keys::ApiKey;
use corelane::model::fake::FakeOptions;

fn slow(step_ms: u64) -> FakeOptions {
    FakeOptions { step: Duration::from_millis(step_ms), ..FakeOptions::default() }
}

#[test]
fn a_running_request_ends_at_its_deadline_with_what_it_has() {
    let server = TestServer::fake_with(config(), slow(10));
    let response = server.post("/v1/completions", &body("abc", 4000, "\"timeout_ms\":300,"));
    assert_eq!(response.status, 200);
    let answer = response.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "timeout");
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(!text.is_empty() && fake_text("abc", 4000).starts_with(text), "{text:?}");
    assert_eq!(answer["usage"]["completion_tokens"], text.len());
    assert_eq!(server.metrics.front.finished.timeout.get(), 1);
}

/// Of two prompts in one request, the second never had a slot.
#[test]
fn every_choice_ends_at_the_deadline() {
    let server = TestServer::fake_with(ServeConfig { parallel: 1, ..config() }, slow(5));
    let request = r#"{"prompt":["abc","def"],"max_tokens":4000,"temperature":0,"timeout_ms":300}"#;
    let response = server.post("/v1/completions", request);
    assert_eq!(response.status, 200);
    let answer = response.json();
    let text = |choice: usize| answer["choices"][choice]["text"].as_str().unwrap();
    for choice in [0, 1] {
        assert_eq!(answer["choices"][choice]["finish_reason"], "timeout");
    }
    assert!(!text(0).is_empty() && fake_text("abc", 4000).starts_with(text(0)));
    assert_eq!(text(1), "");
    assert_eq!(server.metrics.front.finished.timeout.get(), 2);
}

#[test]
fn a_queued_request_past_its_deadline_is_answered_504() {
    let server = TestServer::fake_with(ServeConfig { parallel: 1, ..config() }, slow(5));
    let mut holder = server.connect();
    holder.send(post_bytes("/generate_stream", &body("hold", 4000, "")).as_bytes());
    holder.head().unwrap();
    let began = Instant::now();
    let response = server.post("/v1/completions", &body("late", 5, "\"timeout_ms\":200,"));
    assert_eq!(response.status, 504);
    assert_eq!(response.json()["error"]["code"], "timeout");
    assert!(began.elapsed() < Duration::from_secs(15)); // the holder takes 20 s
    // The server's own limit holds where the request has none.
    let limit = Some(Duration::from_millis(200));
    let config = ServeConfig { parallel: 1, request_timeout: limit, ..config() };
    let server = TestServer::fake_with(config, slow(5));
    let answer = server.post("/v1/completions", &body("abc", 4000, "")).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "timeout");
}

#[test]
fn fields_of_urgency_out_of_range_are_refused_with_the_range() {
    let server = TestServer::fake(config(), 0);
    for (field, message) in [
        ("\"timeout_ms\":0,", "timeout_ms must be a whole number from 1 to 86400000, not 0"),
        ("\"priority\":1e9,", "priority must be a whole number from -1000 to 1000, not 1000000000"),
        ("\"cache_prompt\":1,", "cache_prompt must be true or false, not 1"),
    ] {
        let response = server.post("/v1/completions", &body("a", 5, field));
        assert_eq!(response.status, 400);
        assert_eq!(response.json()["error"]["message"], message);
    }
}

/// The lower priority number goes first, in whichever order requests came. A key's own minimum
/// bounds it.
#[test]
fn priorities_decide_who_leaves_the_queue_first() {
    let key = |name: &str, priority_min| ApiKey {
        name: Some(name.into()),
        secret: name.into(),
        weight: 1.0,
        priority_min,
    };
    let keys = vec![key("any", -1000), key("plain", 0)];
    let server = TestServer::fake_with(ServeConfig { parallel: 1, keys, ..config() }, slow(3));
    let request = |key: &str, body: &str| {
        let mut client = server.connect();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.send(head.as_bytes());
        client
    };
    let mut holder = request("any", &body("hold", 200, ""));
    eventually("it runs", || server.metrics.front.running.get() == 1);
    let mut late = request("any", &body("late", 5, "\"priority\":5,"));
    eventually("it waits", || server.metrics.front.waiting.get() == 1);
    let mut pushy = request("plain", &body("pushy", 5, "\"priority\":-9,"));
    eventually("they wait", || server.metrics.front.waiting.get() == 2);
    let mut first = request("any", &body("first", 5, "\"priority\":-1,"));
    eventually("all wait", || server.metrics.front.waiting.get() == 3);
    let mut queued: Vec<(f64, &str)> =
        [(&mut late, "late"), (&mut pushy, "pushy"), (&mut first, "first")]
            .into_iter()
            .map(|(client, name)| {
                let answer = client.response().json();
                // From the same moment, nearly: the holder's end.
                (answer["timings"]["queued_ms"].as_f64().unwrap(), name)
            })
            .collect();
    assert_eq!(holder.response().status, 200);
    // The last to come waited shortest by the clock, too: compare ends instead.
    queued.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(
        queued.iter().map(|(_, name)| *name).collect::<Vec<_>>(),
        ["first", "pushy", "late"]
    );
}

/// The queue is bounded in tokens, too. A request that has room in an empty queue is admitted.
#[test]
fn the_queue_is_bounded_in_tokens() {
    let config = ServeConfig { parallel: 1, queue_tokens: 100, ..config() };
    let server = TestServer::fake_with(config, slow(5));
    let mut holder = server.connect();
    holder.send(post_bytes("/generate_stream", &body("hold", 4000, "")).as_bytes());
    holder.head().unwrap();
    let mut first = server.connect();
    first.send(post_bytes("/v1/completions", &body(&"a".repeat(300), 5, "")).as_bytes());
    eventually("a long one waits", || server.metrics.front.waiting.get() == 1);
    let response = server.post("/v1/completions", &body("b", 5, ""));
    assert_eq!(response.status, 429);
    assert!(response.header("retry-after").is_some());
    let message = "the queue is full: prompts of 300 tokens are waiting, 100 may";
    assert_eq!(response.json()["error"]["message"], message);
    drop(holder);
    assert_eq!(first.response().status, 200);
}

/// A step that fails is tried again: nobody notices.
#[test]
fn a_failing_step_is_tried_again() {
    let options = FakeOptions { fail_one_in: 7, ..FakeOptions::default() };
    let server = TestServer::fake_with(config(), options);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let address = server.address;
            scope.spawn(move || {
                let prompt = format!("prompt {i}");
                let mut client = crate::support::Client::connect(address);
                let answer = client.post("/v1/completions", &body(&prompt, 50, "")).json();
                assert_eq!(answer["choices"][0]["text"], fake_text(&prompt, 50));
            });
        }
    });
    assert!(server.metrics.front.retries.get() > 0);
    assert_eq!(server.metrics.front.finished.error.get(), 0);
}

/// A step that hangs is given up and tried again: nobody loses anything but time.
#[test]
fn a_hanging_step_is_given_up() {
    let options = FakeOptions { hang_one_in: 20, ..FakeOptions::default() };
    let step_timeout = Duration::from_millis(100);
    let server = TestServer::fake_with(ServeConfig { step_timeout, ..config() }, options);
    let answer = server.post("/v1/completions", &body("abc", 50, ""));
    assert_eq!(answer.json()["choices"][0]["text"], fake_text("abc", 50));
    assert!(server.metrics.front.retries.get() >= 2);
    // One that hangs again and again fails its requests, and the next ones run.
    let options = FakeOptions { hang_one_in: 10, hang_more: 1, ..FakeOptions::default() };
    let server = TestServer::fake_with(ServeConfig { step_timeout, ..config() }, options);
    assert_eq!(server.post("/v1/completions", &body("abc", 50, "")).status, 500);
    assert_eq!(server.post("/v1/completions", &body("abc", 5, "")).status, 200);
}

/// Nobody waits for the step of a request that a drain has cut off.
#[test]
fn a_drain_does_not_wait_for_a_step_that_hangs() {
    let options = FakeOptions { hang_one_in: 5, ..FakeOptions::default() };
    let drain = Duration::from_millis(100);
    let server = TestServer::fake_with(ServeConfig { drain, ..config() }, options);
    let mut client = server.connect();
    client.send(post_bytes("/generate_stream", &body("abc", 50, "")).as_bytes());
    client.head().unwrap();
    server.drain();
    server.join();
}

/// Never a server that accepts and does not answer: a supervisor starts it again. The
/// server is this very test, in a process of its own.
#[test]
fn a_decode_lane_that_dies_or_hangs_for_good_ends_the_process() {
    const THIS: &str = "pressure::a_decode_lane_that_dies_or_hangs_for_good_ends_the_process";
    const FAULT: &str = "CORELANE_TEST_FAULT";
    if let Ok(fault) = std::env::var(FAULT) {
        corelane::lanes::end_on_panic();
        let options = if fault == "dies" {
            FakeOptions { panic_one_in: 5, ..FakeOptions::default() }
        } else {
            FakeOptions { hang_one_in: 5, hangs_for_good: true, ..FakeOptions::default() }
        };
        let step_timeout = Duration::from_millis(300);
        let server = TestServer::fake_with(ServeConfig { step_timeout, ..config() }, options);
        server.post("/v1/completions", &body("abc", 50, ""));
        unreachable!("the process should have ended");
    }
    for (fault, said) in
        [("dies", "the fake model was told to panic"), ("hangs", "cannot be given up")]
    {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", THIS, "--nocapture"]).env(FAULT, fault);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(signal_hook::consts::SIGABRT), "{fault}: {stderr}");
        assert!(stderr.contains(said), "{fault}: {stderr}");
    }
}

#[test]
fn a_second_turn_finds_the_first() {
    let server = TestServer::fake(config(), 0);
    let prompt = "p".repeat(500);
    let first = server.post("/v1/completions", &body(&prompt, 20, "")).json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(first["timings"]["prompt_n"], 500);
    let second = format!("{prompt}{} and then?", first["choices"][0]["text"].as_str().unwrap());
    let answer = server.post("/v1/completions", &body(&second, 20, "")).json();
    assert_eq!(answer["choices"][0]["text"], fake_text(&second, 20));
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 519);
    assert_eq!(answer["timings"]["cache_n"], 519);
    assert_eq!(answer["timings"]["prompt_n"], second.len() - 519);
    let without = server.post("/v1/completions", &body(&second, 20, "\"cache_prompt\":false,"));
    let without = without.json();
    assert_eq!(without["choices"][0]["text"], fake_text(&second, 20));
    assert_eq!(without["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn slots_show_who_is_doing_what() {
    let server = TestServer::fake_with(ServeConfig { parallel: 3, ..config() }, slow(5));
    let mut holder = server.connect();
    holder.send(post_bytes("/v1/completions", &body("hold", 4000, "\"stream\":true,")).as_bytes());
    holder.head().unwrap();
    let slots = server.get("/slots").json();
    let slots = slots.as_array().unwrap();
    assert_eq!(slots.len(), 3);
    let busy: Vec<_> = slots.iter().filter(|slot| slot["is_processing"] == true).collect();
    assert_eq!(busy.len(), 1);
    assert_eq!(busy[0]["state"], "decode");
    assert_eq!(busy[0]["n_prompt_tokens"], 4);
    assert!(busy[0]["id_task"].as_str().unwrap().starts_with("cmpl-"));
    assert!(busy[0]["n_past"].as_u64().unwrap() >= 4);
}

/// No request sees another one's text through the KV cache: random prompts with shared prefixes get
/// the same texts as without reuse.
#[test]
fn the_cache_changes_no_text() {
    let config = ServeConfig { parallel: 4, context_tokens: Some(4 * 300), ..config() };
    let server = TestServer::fake(config, 0);
    std::thread::scope(|scope| {
        for client in 0..8u64 {
            let address = server.address;
            scope.spawn(move || {
                let mut random = crate::support::Random::new(client);
                let mut connection = crate::support::Client::connect(address);
                for _ in 0..60 {
                    let shared = "abcdefghijklmnopqrstuvwxyz".repeat(4);
                    let own: String = (0..random.within(0, 60))
                        .map(|_| (b'a' + random.next() as u8 % 3) as char)
                        .collect();
                    let prompt = format!("{}{own}.", &shared[..random.within(0, 104)]);
                    let n = random.within(1, 40);
                    let answer = connection.post("/v1/completions", &body(&prompt, n, "")).json();
                    assert_eq!(answer["choices"][0]["text"], fake_text(&prompt, n), "{prompt:?}");
                }
            });
        }
    });
    assert!(server.metrics.front.cached_tokens.get() > 1000, "the cache was of use");
}
