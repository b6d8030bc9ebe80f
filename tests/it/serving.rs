//! Text generation as a client sees it, with the fake model: the dialects, the queue, and clients
//! that leave early.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{TestServer, body, config, eventually, post_bytes, tokens};
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::limits::{BODY_TIMEOUT, PING_INTERVAL, QUEUE_SEQUENCES, SWEEP_INTERVAL};
use corelane::model::fake::{END, FakeOptions, continuation};
use corelane::placement::Placement;

/// The fake model's text after `prompt`, and whether the model ended it.
fn expected(prompt: &str, max_tokens: usize, end_one_in: u64) -> (String, bool) {
    let text = continuation(&tokens(prompt), max_tokens, end_one_in);
    let ended = text.last() == Some(&END);
    (text.iter().filter(|t| **t != END).map(|t| *t as u8 as char).collect(), ended)
}

#[test]
fn a_completion_streamed_or_not_is_the_same() {
    let server = TestServer::fake(config(), 40);
    let mut ends = 0;
    for i in 0..50 {
        let prompt = format!("prompt {i}");
        let (text, ended) = expected(&prompt, 60, 40);
        let reason = if ended { "stop" } else { "length" };
        let generated = text.len() + usize::from(ended);
        ends += u32::from(ended);

        let whole = server.post("/v1/completions", &body(&prompt, 60, "")).json();
        assert_eq!(whole["choices"][0]["text"], text);
        assert_eq!(whole["choices"][0]["finish_reason"], reason);
        assert_eq!(whole["usage"]["completion_tokens"], generated);
        assert_eq!(whole["usage"]["prompt_tokens"], prompt.len());

        let options = r#""stream":true,"stream_options":{"include_usage":true},"#;
        let stream = server.post("/v1/completions", &body(&prompt, 60, options));
        assert_eq!(stream.header("content-type"), Some("text/event-stream"));
        let events = stream.events();
        assert_eq!(events.last().unwrap(), "[DONE]");
        let events: Vec<serde_json::Value> =
            events[..events.len() - 1].iter().map(|e| serde_json::from_str(e).unwrap()).collect();
        let (usage, deltas) = events.split_last().unwrap();
        assert_eq!(usage["usage"]["completion_tokens"], generated);
        let joined: String =
            deltas.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(joined, text);
        // One event a token; the end token's carries the reason alone.
        assert_eq!(deltas.len(), generated);
        assert_eq!(deltas.last().unwrap()["choices"][0]["finish_reason"], reason);
    }
    assert!(ends > 5 && ends < 45, "both ends were seen: {ends}");
}

#[test]
fn several_prompts_are_several_choices() {
    let server = TestServer::fake(config(), 0);
    let request = r#"{"prompt":["one","two","three"],"max_tokens":7,"temperature":0}"#;
    let whole = server.post("/v1/completions", request).json();
    for (index, prompt) in ["one", "two", "three"].into_iter().enumerate() {
        assert_eq!(whole["choices"][index]["text"], expected(prompt, 7, 0).0);
        assert_eq!(whole["choices"][index]["index"], index);
    }
    assert_eq!(whole["usage"]["prompt_tokens"], 11);
    let request =
        r#"{"prompt":[[111,110,101],[116]],"max_tokens":7,"temperature":0,"stream":true}"#;
    let events = server.post("/v1/completions", request).events();
    let mut texts = [String::new(), String::new()];
    for event in &events[..events.len() - 1] {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        let choice = &event["choices"][0];
        let index = choice["index"].as_u64().unwrap() as usize;
        texts[index].push_str(choice["text"].as_str().unwrap());
    }
    assert_eq!(texts, [expected("one", 7, 0).0, expected("t", 7, 0).0]);
}

/// A prompt is counted once, however many choices it has.
#[test]
fn a_prompt_of_several_choices_counts_once() {
    let server = TestServer::fake(config(), 0);
    let prompt = "x".repeat(600);
    let request = serde_json::json!({"prompt": [prompt, "two"], "n": 3, "max_tokens": 2});
    for cached in [0, 599] {
        let usage = server.post("/v1/completions", &request.to_string()).json()["usage"].clone();
        assert_eq!(usage["prompt_tokens"], 603);
        assert_eq!(usage["completion_tokens"], 12);
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], cached);
    }
}

#[test]
fn the_old_servers_clients_go_on_working() {
    let server = TestServer::fake(config(), 0);
    let (text, _) = expected("hello", 9, 0);
    let whole = server.post("/generate", &body("hello", 9, "")).json();
    assert_eq!(whole["success"], true);
    assert_eq!(whole["data"]["text"], text);
    assert_eq!(whole["data"]["generated_tokens"], 9);
    assert!(whole["data"]["response_time"].as_f64().unwrap() > 0.0);
    assert!(whole["data"]["tokens_per_second"].as_f64().unwrap() > 0.0);
    for (path, more) in [("/generate_stream", ""), ("/generate", "\"stream\":true,")] {
        let events = server.post(path, &body("hello", 9, more)).events();
        let events: Vec<serde_json::Value> =
            events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        let joined: String = events.iter().map(|e| e["token"].as_str().unwrap()).collect();
        assert_eq!((joined, events.len()), (text.clone(), 10));
        assert_eq!((&events[9]["token"], &events[9]["done"]), (&"".into(), &true.into()));
        assert_eq!(events[8]["done"], false);
    }
    let encoded = server.post("/encode", r#"{"text":"az"}"#).json();
    assert_eq!(encoded["data"]["tokens"], serde_json::json!([97, 122]));
    assert_eq!(encoded["data"]["length"], 2);
    // Left out, max_tokens is 100 there and 16 here.
    let whole = server.post("/generate", r#"{"prompt":"x"}"#).json();
    assert_eq!(whole["data"]["generated_tokens"], 100);
    let whole = server.post("/v1/completions", r#"{"prompt":"x"}"#).json();
    assert_eq!(whole["usage"]["completion_tokens"], 16);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let server = TestServer::fake(config(), 0);
    let (text, _) = expected("stop me", 200, 0);
    let stop = &text[90..93];
    let at = text.find(stop).unwrap();
    let more = format!("\"stop\":[\"~~~~~~\",{}],", serde_json::to_string(stop).unwrap());
    let whole = server.post("/v1/completions", &body("stop me", 200, &more)).json();
    assert_eq!(whole["choices"][0]["text"], text[..at]);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    let more = more + "\"stream\":true,";
    let events = server.post("/v1/completions", &body("stop me", 200, &more)).events();
    let mut joined = String::new();
    for event in &events[..events.len() - 1] {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        joined.push_str(event["choices"][0]["text"].as_str().unwrap());
    }
    assert_eq!(joined, text[..at]);
}

/// A long body goes through the prepare lane and comes back the same.
#[test]
fn a_long_prompt_is_served() {
    let server = TestServer::fake(config(), 0);
    let prompt = "long ".repeat(700);
    let whole = server.post("/v1/completions", &body(&prompt, 20, "")).json();
    assert_eq!(whole["choices"][0]["text"], expected(&prompt, 20, 0).0);
    assert_eq!(whole["usage"]["prompt_tokens"], 3500);
}

#[test]
fn many_clients_at_once_each_get_their_own_text() {
    let server = TestServer::fake(config(), 30);
    std::thread::scope(|scope| {
        for client in 0..64 {
            let address = server.address;
            scope.spawn(move || {
                let mut connection = crate::support::Client::connect(address);
                for i in 0..10 {
                    let prompt = format!("client {client} request {i}");
                    let more = if i % 2 == 0 { "" } else { "\"stream\":true," };
                    let response = connection.post("/generate", &body(&prompt, 40, more));
                    let text = match more {
                        "" => response.json()["data"]["text"].as_str().unwrap().to_owned(),
                        _ => {
                            let events = response.events();
                            let token = |event: &String| {
                                serde_json::from_str::<serde_json::Value>(event).unwrap()["token"]
                                    .as_str()
                                    .unwrap()
                                    .to_owned()
                            };
                            events.iter().map(token).collect()
                        }
                    };
                    assert_eq!(text, expected(&prompt, 40, 30).0);
                }
            });
        }
    });
}

/// Defects 3 and 10 of the old server: ids run out, and the check for room and
/// the admission are two steps.
#[test]
fn a_full_queue_refuses_and_says_when_to_come_back() {
    let parallel = 2;
    let server = TestServer::fake(ServeConfig { parallel, ..config() }, 0);
    // Streams that nobody reads to the end hold the slots.
    let mut holders = Vec::new();
    for _ in 0..parallel {
        let mut holder = server.connect();
        holder.send(post_bytes("/generate_stream", &body("hold", 4000, "")).as_bytes());
        holder.head().unwrap();
        holders.push(holder);
    }
    // One connection asks for as many prompts as it may, until the queue is full.
    let prompts = vec!["q"; 128];
    let request = serde_json::json!({"prompt": prompts, "max_tokens": 4000, "stream": true});
    let mut waiting = Vec::new();
    for _ in 0..QUEUE_SEQUENCES / 128 {
        let mut client = server.connect();
        client.send(post_bytes("/v1/completions", &request.to_string()).as_bytes());
        waiting.push(client);
    }
    let mut refused = None;
    eventually("the queue is full", || {
        let response =
            server.post("/v1/completions", &request.to_string().replace("true", "false"));
        refused = Some(response);
        refused.as_ref().unwrap().status == 429
    });
    let refused = refused.unwrap();
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("1024 may"));
    let mut refused = None;
    eventually("cLLM's clients are refused, too", || {
        refused = Some(server.post("/generate", &body("x", 5, "")));
        refused.as_ref().unwrap().status == 429
    });
    assert!(refused.unwrap().json()["retry_after"].as_u64().is_some());
    // They leave, and there is room again at once.
    drop((holders, waiting));
    eventually("there is room again", || server.post("/generate", &body("x", 5, "")).status == 200);
}

/// Defect 6 of the old server: a client that leaves does not end its generation.
#[test]
fn a_client_that_leaves_frees_its_slot() {
    let step = Duration::from_millis(1); // 4 s for what each of them asks
    let options = FakeOptions { step, ..FakeOptions::default() };
    let server = TestServer::fake_with(ServeConfig { parallel: 1, ..config() }, options);
    for streamed in [true, false] {
        let more = if streamed { "\"stream\":true," } else { "" };
        for _ in 0..20 {
            let mut leaver = server.connect();
            leaver.send(post_bytes("/v1/completions", &body("leave", 4000, more)).as_bytes());
            if streamed {
                leaver.head().unwrap();
            }
            drop(leaver);
        }
        let response = server.post("/v1/completions", &body("stay", 5, ""));
        assert_eq!(response.json()["choices"][0]["text"], expected("stay", 5, 0).0);
    }
    // With one slot, "stay" came after all the others, of which none was run to
    // its end: that would have been 160,000 tokens.
    let front = &server.metrics.front;
    assert_eq!(front.finished.length.get(), 2, "both that stayed");
    assert!(front.finished.abort.get() >= 20, "every stream was begun, and then left");
    assert!(front.generation_tokens.get() < 16_000, "a tenth of that at most");
}

/// Lanes with cores of their own poll instead of sleeping. Their answers are the same.
#[test]
fn lanes_on_cores_of_their_own_serve_the_same() {
    let Some(placement) = two_cores() else {
        println!("one core: not run");
        return;
    };
    let server = TestServer::fake(ServeConfig { placement, ..config() }, 30);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let address = server.address;
            scope.spawn(move || {
                let mut connection = crate::support::Client::connect(address);
                for i in 0..10 {
                    let prompt = format!("client {client} request {i}");
                    let response = connection.post("/generate", &body(&prompt, 40, ""));
                    assert_eq!(response.json()["data"]["text"], expected(&prompt, 40, 30).0);
                }
            });
        }
    });
    let metrics = server.metrics.clone();
    server.drain();
    server.join();
    assert_eq!(metrics.front.responses.total(), 80);
}

fn two_cores() -> Option<Placement> {
    let all = config().placement;
    let (last, first) = (*all.decode_cores.last()?, all.front_core);
    (last != first).then(|| Placement { front_core: first, decode_cores: vec![last], pinned: true })
}

/// Defect 4 of the old server: a step that fails left its positions advanced.
/// Here its requests are told, and everybody else is served as before.
#[test]
fn steps_that_fail_again_and_again_fail_their_requests_alone() {
    let options = FakeOptions { fail_one_in: 50, fail_more: 3, ..FakeOptions::default() };
    let server = TestServer::fake_with(config(), options);
    let (mut failed, mut served) = (0, 0);
    for i in 0..60 {
        let prompt = format!("attempt {i}");
        let response = server.post("/v1/completions", &body(&prompt, 20, ""));
        match response.status {
            200 => {
                served += 1;
                assert_eq!(response.json()["choices"][0]["text"], expected(&prompt, 20, 0).0);
            }
            500 => {
                failed += 1;
                assert_eq!(response.json()["error"]["type"], "server_error");
            }
            status => panic!("{status}"),
        }
    }
    assert!(failed > 5 && served > 5, "{failed} failed, {served} were served");
    // A stream that has begun ends with an error event, and without [DONE].
    let mut broken = 0;
    for i in 0..20 {
        let more = "\"stream\":true,";
        let response = server.post("/v1/completions", &body(&format!("stream {i}"), 40, more));
        if response.status == 500 {
            continue; // before its first token: a plain status
        }
        let events = response.events();
        if events.last().unwrap() != "[DONE]" {
            assert!(events.last().unwrap().starts_with("{\"error\":{"));
            broken += 1;
        }
    }
    assert!(broken > 0);
}

/// A stream is silent for long only when its client is told that it lives.
#[test]
fn a_silent_stream_is_pinged_from_the_queue_on() {
    let step = Duration::from_millis(20);
    let options = FakeOptions { step, ..FakeOptions::default() };
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake_with(ServeConfig { parallel: 1, clock, ..config() }, options);
    let mut holder = server.connect();
    holder.send(post_bytes("/generate_stream", &body("hold", 1000, "")).as_bytes());
    holder.head().unwrap();
    let mut waiting = server.connect();
    waiting.send(post_bytes("/generate_stream", &body("wait", 5, "")).as_bytes());
    eventually("it waits", || server.metrics.front.waiting.get() == 1);
    ahead.fetch_add((PING_INTERVAL / 2).as_micros() as u64, Ordering::Relaxed);
    assert!(!waiting.hears_within(2 * SWEEP_INTERVAL), "a ping after half of the interval");
    ahead.fetch_add((PING_INTERVAL / 2).as_micros() as u64, Ordering::Relaxed);
    assert_eq!(waiting.head().unwrap().0, 200);
    assert_eq!(waiting.chunk().unwrap(), b": ping\n\n");
    drop(holder);
    let first = String::from_utf8(waiting.chunk().unwrap()).unwrap();
    assert!(first.starts_with("data: {\"id\""), "{first}");
}

/// Lines of JSON have no comments.
#[test]
fn a_silent_stream_of_ollama_says_nothing() {
    let step = Duration::from_millis(20);
    let options = FakeOptions { step, ..FakeOptions::default() };
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake_with(ServeConfig { parallel: 1, clock, ..config() }, options);
    let mut holder = server.connect();
    holder.send(post_bytes("/generate_stream", &body("hold", 1000, "")).as_bytes());
    holder.head().unwrap();
    let mut waiting = server.connect();
    let request = r#"{"model":"m","prompt":"wait","raw":true,"options":{"num_predict":5}}"#;
    waiting.send(post_bytes("/api/generate", request).as_bytes());
    eventually("it waits", || server.metrics.front.waiting.get() == 1);
    ahead.fetch_add((2 * BODY_TIMEOUT).as_micros() as u64, Ordering::Relaxed);
    assert!(!waiting.hears_within(2 * SWEEP_INTERVAL));
    drop(holder);
    let answer = waiting.response();
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<_> = answer.body.lines().collect();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.starts_with('{')), "{}", answer.body);
}

#[test]
fn a_drain_finishes_what_runs_and_takes_nothing_new() {
    let server = TestServer::fake(config(), 0);
    let mut running = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.get("/health").status, 200);
    running.send(post_bytes("/generate_stream", &body("finish me", 4000, "")).as_bytes());
    running.head().unwrap();
    let address = server.address;
    server.drain();
    eventually("nobody listens any more", || {
        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err()
    });
    assert!(idle.is_closed(), "a connection without a request is closed");
    let mut bytes = Vec::new();
    while let Some(chunk) = running.chunk() {
        bytes.extend(chunk);
    }
    let body = String::from_utf8(bytes).unwrap();
    assert!(body.ends_with("\"token\":\"\",\"done\":true}\n\n"), "the stream came to its end");
    assert_eq!(body.matches("data: ").count(), 4001);
    server.join();
}

#[test]
fn a_drain_has_an_end() {
    let drain = Duration::from_millis(300);
    let server = TestServer::fake(ServeConfig { drain, parallel: 1, ..config() }, 0);
    let mut stuck = server.connect();
    // A head that promises a body that never comes.
    stuck.send(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{");
    std::thread::sleep(Duration::from_millis(50));
    server.drain();
    server.join();
    assert!(stuck.is_closed());
}

/// A drain that begins while the model loads ends the loading.
#[test]
fn a_drain_while_loading_serves_nothing() {
    let mut server = corelane::lanes::Server::start(config()).unwrap();
    server.control().drain();
    let source = corelane::model::load::Source::BuiltIn;
    assert!(server.load(&source, |_| ()).unwrap().is_none());
    let metrics = server.metrics();
    server.join().unwrap();
    assert_eq!((metrics.front.responses.total(), metrics.decode.step_us.count()), (0, 0));
}

#[test]
fn while_the_model_loads_everybody_is_told_to_wait() {
    let mut server = corelane::lanes::Server::start(config()).unwrap();
    let mut client = crate::support::Client::connect(server.address());
    let response = client.get("/health");
    assert_eq!(response.status, 503);
    assert!(response.header("retry-after").is_some());
    assert!(response.json()["error"]["message"].as_str().unwrap().contains("loaded"));
    assert_eq!(client.post("/generate", &body("x", 5, "")).status, 503);
    server.load_fake(FakeOptions::default()).unwrap();
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.post("/generate", &body("x", 5, "")).status, 200);
    server.control().drain();
    server.join().unwrap();
}

/// llama-server's counts are of each prompt.
#[test]
fn each_prompt_of_a_completion_has_its_own_counts() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let body = r#"{"prompt":["one","three"],"n_predict":4,"temperature":0}"#;
    let whole = client.post("/completion", body).json();
    for (index, prompt_tokens) in [3, 5].into_iter().enumerate() {
        assert_eq!(whole[index]["tokens_evaluated"], prompt_tokens, "{whole}");
        assert_eq!(whole[index]["tokens_predicted"], 4, "{whole}");
    }
    let stream = client.post("/completions", &body.replacen('{', r#"{"stream":true,"#, 1)).body;
    let events = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.map(|event| serde_json::from_str::<serde_json::Value>(event).unwrap());
    let ends: Vec<_> = events.filter(|event| event["stop"] == true).collect();
    assert_eq!(ends.len(), 2, "{stream}");
    for end in ends {
        let prompt_tokens = [3, 5][end["index"].as_u64().unwrap() as usize];
        assert_eq!(
            (&end["tokens_evaluated"], &end["tokens_predicted"]),
            (&prompt_tokens.into(), &4.into()),
            "{end}"
        );
    }
}

/// llama-server's way to warm a prompt up.
#[test]
fn a_prompt_alone_is_computed_and_kept() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let prompt = "p".repeat(100);
    let body = |n: i32, more: &str| format!(r#"{{"prompt":"{prompt}","n_predict":{n}{more}}}"#);
    let whole = client.post("/completion", &body(0, "")).json();
    assert_eq!((&whole["content"], &whole["stop_type"]), (&"".into(), &"limit".into()), "{whole}");
    assert_eq!((&whole["tokens_evaluated"], &whole["tokens_predicted"]), (&100.into(), &0.into()));
    let stream = client.post("/completion", &body(0, r#","stream":true"#)).body;
    assert_eq!(stream.matches("data: ").count(), 1, "{stream}");
    let after = client.post("/completion", &body(4, "")).json();
    assert_eq!(after["tokens_predicted"], 4);
    assert!(after["tokens_cached"].as_u64().unwrap() > 50, "{after}");
}

#[test]
fn no_free_slot_is_an_error_to_who_asks_so() {
    let options = FakeOptions { step: Duration::from_millis(5), ..FakeOptions::default() };
    let server = TestServer::fake_with(ServeConfig { parallel: 1, ..config() }, options);
    let mut client = server.connect();
    let asked = "/slots?fail_on_no_slot=1";
    assert_eq!(client.get(asked).status, 200);
    let mut other = server.connect();
    other.send(post_bytes("/generate", &body("x", 400, "")).as_bytes());
    eventually("no slot is free", || client.get(asked).status == 503);
    assert_eq!(client.get("/slots").status, 200);
    assert_eq!(client.get("/slots?fail_on_no_slot=yes").status, 400);
    let metrics = client.get("/metrics");
    assert_eq!(metrics.status, 501);
    assert!(metrics.body.contains("--ops-addr"));
}
