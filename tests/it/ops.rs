//! The ops lane over real sockets: the metrics that it shows, and the bounds on its clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::metrics::Samples;
use crate::support::{Client, PATIENCE, TestServer, config, eventually, post_bytes};
use corelane::clock::Clock;
use corelane::config::ServeConfig;
use corelane::lanes::Server;
use corelane::limits::{
    OPS_CONNECTIONS_MAX, OPS_IDLE_TIMEOUT, OPS_PAGE_BYTES, OPS_REQUESTS_MAX, OPS_WATCH_INTERVAL,
};
use corelane::metrics::ServerState;
use corelane::model::fake::{END, FakeOptions, continuation};
use corelane::types::TokenId;

fn with_ops() -> ServeConfig {
    ServeConfig { ops_addr: Some("127.0.0.1:0".into()), ..config() }
}

fn scrape(address: SocketAddr) -> Samples {
    let response = Client::connect(address).get("/metrics");
    assert_eq!(response.status, 200);
    assert!(response.body.len() < OPS_PAGE_BYTES, "a page of {} bytes", response.body.len());
    Samples::parse(&response.body)
}

/// All that comes back for some bytes, until the server closes.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => answer,
        // Closed with something unread.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => answer,
        Err(error) => panic!("{error}"),
    }
}

/// Sends requests of every kind and with every end, and compares each counter with the expected
/// number.
#[test]
fn everything_is_counted_exactly() {
    let keys = vec![crate::support::key("key")];
    let server = TestServer::fake(ServeConfig { keys, ..with_ops() }, 40);
    let mut client = server.connect();
    let mut post = |path: &str, body: &str| {
        let keyed = post_bytes(path, body).replacen("Host", "X-Api-Key: key\r\nHost", 1);
        client.send(keyed.as_bytes());
        client.response().status
    };
    let (mut stops, mut lengths, mut generated, mut prompted) = (0, 0, 0, 0);
    for i in 0..30 {
        let prompt = format!("request {i}");
        let tokens: Vec<TokenId> = prompt.bytes().map(TokenId::from).collect();
        let text = continuation(&tokens, 30, 40);
        generated += text.len();
        prompted += prompt.len();
        if text.last() == Some(&END) {
            stops += 1
        } else {
            lengths += 1
        }
        let stream = i % 2 == 0;
        let body =
            format!(r#"{{"prompt":"{prompt}","max_tokens":30,"temperature":0,"stream":{stream}}}"#);
        assert_eq!(post(["/v1/completions", "/generate"][i % 2], &body), 200);
    }
    // Three prompts are three requests, as in vLLM; a stop string is a stop.
    let body = r#"{"prompt":["x","y","z"],"max_tokens":1,"temperature":0}"#;
    assert_eq!(post("/v1/completions", body), 200);
    let first = continuation(&[TokenId::from(b'q')], 1, 40)[0] as u8 as char;
    let stop = serde_json::to_string(&first.to_string()).unwrap();
    let body = format!(r#"{{"prompt":"q","max_tokens":9,"temperature":0,"stop":[{stop}]}}"#);
    assert_eq!(post("/v1/completions", &body), 200);
    (stops, lengths, generated, prompted) = (stops + 1, lengths + 3, generated + 4, prompted + 4);
    // Refusals.
    assert_eq!(post("/v1/completions", "{"), 400);
    assert_eq!(post("/v1/completions", r#"{"prompt":""}"#), 400);
    assert_eq!(post("/nothing", "{}"), 404);
    assert_eq!(post("/health", "{}"), 405);
    assert_eq!(server.post("/generate", "{}").status, 401);
    assert!(!answer_to(server.address, b"GARBAGE\r\n\r\n").is_empty());

    let page = scrape(server.ops_address());
    let requests = (stops + lengths) as f64;
    assert!(stops > 5 && lengths > 5, "both ends were seen: {stops}, {lengths}");
    for (reason, count) in [("stop", stops as f64), ("length", lengths as f64), ("abort", 0.0)] {
        let labels = format!("model_name=\"fake\",engine=\"0\",finished_reason=\"{reason}\"");
        assert_eq!(page.get(&format!("vllm:request_success_total{{{labels}}}")), count, "{reason}");
    }
    assert_eq!(page.of_model("vllm:prompt_tokens_total"), prompted as f64);
    assert_eq!(page.of_model("vllm:generation_tokens_total"), generated as f64);
    for name in ["time_to_first_token", "e2e_request_latency"] {
        assert_eq!(page.of_model(&format!("vllm:{name}_seconds_count")), requests, "{name}");
    }
    for name in ["queue", "prefill"] {
        let count = page.of_model(&format!("vllm:request_{name}_time_seconds_count"));
        assert_eq!(count, requests, "{name}");
    }
    let gaps = page.of_model("vllm:inter_token_latency_seconds_count");
    assert_eq!(gaps, generated as f64 - requests);
    // The parts of a request's time are no longer than the whole.
    let total = |name: &str| page.of_model(&format!("vllm:{name}_seconds_sum"));
    assert!(
        total("request_prefill_time") + total("request_queue_time") <= total("time_to_first_token")
    );
    let parts = total("time_to_first_token") + total("inter_token_latency");
    assert!((parts - total("e2e_request_latency")).abs() < 1e-6, "{parts}");

    let responses = |path: &str, status: u16| {
        page.get(&format!("corelane_http_responses_total{{path=\"{path}\",status=\"{status}\"}}"))
    };
    assert_eq!(responses("/v1/completions", 200), 17.0);
    assert_eq!(responses("/generate", 200), 15.0);
    assert_eq!(responses("/v1/completions", 400), 2.0);
    assert_eq!((responses("other", 404), responses("other", 400)), (1.0, 1.0));
    assert_eq!((responses("/health", 405), responses("/generate", 401)), (1.0, 1.0));
    for (reason, count) in [
        ("bad_request", 3.0),
        ("unauthorized", 1.0),
        ("not_found", 1.0),
        ("method_not_allowed", 1.0),
        ("queue_full", 0.0),
    ] {
        let name = format!("corelane_requests_refused_total{{reason=\"{reason}\"}}");
        assert_eq!(page.get(&name), count, "{reason}");
    }

    // The decode lane's side: every row was a prompt's or a text's, every step
    // has its bubble, and nothing is left in the cache.
    let steps = page.get("corelane_step_seconds_count");
    assert!(steps > 0.0);
    for name in ["bubble_seconds", "sample_seconds", "step_decode_rows", "step_prefill_rows"] {
        assert_eq!(page.get(&format!("corelane_{name}_count")), steps, "{name}");
    }
    let by_rows = |rows: &str| page.get(&format!("corelane_steps_total{{rows=\"{rows}\"}}"));
    let classes = ["1", "2-4", "5-8", "9-16", "17-32", "33-64", "65-256", ">256"];
    assert_eq!(classes.map(by_rows).iter().sum::<f64>(), steps);
    assert_eq!(page.get("corelane_step_prefill_rows_sum"), prompted as f64);
    // A stop string is seen a step late, and the row after it runs in vain.
    let decoded = page.get("corelane_step_decode_rows_sum");
    let continued = generated as f64 - requests;
    assert!(decoded >= continued && decoded <= continued + 2.0, "{decoded}, {continued}");
    assert!(page.get("corelane_rows_dropped_total") <= stops as f64);
    assert_eq!(page.get("corelane_steps_failed_total"), 0.0);
    // The kept tokens include the rows that were planned in vain: one for each end.
    eventually("nobody uses the cache any more", || {
        let page = scrape(server.ops_address());
        let (used, kept) =
            (page.get("corelane_kv_tokens_used"), page.get("corelane_kv_tokens_kept"));
        used > 0.0 && (used..=used + stops as f64).contains(&kept)
    });
    let capacity = f64::from(server.served.context_tokens);
    assert_eq!(page.get("corelane_kv_tokens_capacity"), capacity);
    assert_eq!(scrape(server.ops_address()).get("corelane_kv_tokens_free"), capacity);
}

#[test]
fn names_types_and_bounds_are_vllms() {
    let server = TestServer::fake(with_ops(), 0);
    let response = Client::connect(server.ops_address()).get("/metrics");
    assert_eq!(
        response.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let page = Samples::parse(&response.body);
    for name in [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:inter_token_latency_seconds_bucket",
        "vllm:e2e_request_latency_seconds_bucket",
        "vllm:request_queue_time_seconds_bucket",
        "vllm:request_prefill_time_seconds_bucket",
    ] {
        assert!(page.has(name), "{name}");
    }
    // The order of labels in a bucket is the library's.
    for (name, bounds) in [
        ("time_to_first_token", &["0.001", "0.25", "1.0", "2560.0", "+Inf"]),
        ("inter_token_latency", &["0.01", "0.025", "0.75", "80.0", "+Inf"]),
        ("e2e_request_latency", &["0.3", "0.8", "60.0", "7680.0", "+Inf"]),
    ] {
        for bound in bounds {
            page.get(&format!(
                "vllm:{name}_seconds_bucket{{le=\"{bound}\",model_name=\"fake\",engine=\"0\"}}"
            ));
        }
    }
}

#[test]
fn a_name_with_quotes_is_escaped() {
    let aliases = vec!["a \"b\" \\ c\nd".to_owned()];
    let server = TestServer::fake(ServeConfig { aliases, ..with_ops() }, 0);
    let page = scrape(server.ops_address());
    page.get("vllm:num_requests_running{model_name=\"a \\\"b\\\" \\\\ c\\nd\",engine=\"0\"}");
}

#[test]
fn it_tells_how_full_it_is_and_who_left() {
    let step = Duration::from_millis(2);
    let options = FakeOptions { step, ..FakeOptions::default() };
    let server = TestServer::fake_with(ServeConfig { parallel: 2, ..with_ops() }, options);
    let body = r#"{"prompt":"hold","max_tokens":4000,"stream":true}"#;
    let mut holders = Vec::new();
    for _ in 0..3 {
        let mut holder = server.connect();
        holder.send(post_bytes("/v1/completions", body).as_bytes());
        holders.push(holder);
    }
    holders.iter_mut().take(2).for_each(|holder| assert_eq!(holder.head().unwrap().0, 200));
    eventually("two run and one waits", || {
        let page = scrape(server.ops_address());
        let usage = page.of_model("vllm:kv_cache_usage_perc");
        let used = page.get("corelane_kv_tokens_used");
        let capacity = page.get("corelane_kv_tokens_capacity");
        page.of_model("vllm:num_requests_running") == 2.0
            && page.of_model("vllm:num_requests_waiting") == 1.0
            && page.get("corelane_kv_tokens_kept") == 0.0
            && page.get("corelane_connections") == 3.0
            && used >= 10.0
            && usage == used / capacity
    });
    drop(holders);
    let aborted =
        "vllm:request_success_total{model_name=\"fake\",engine=\"0\",finished_reason=\"abort\"}";
    eventually("all three left", || {
        let page = scrape(server.ops_address());
        page.get(aborted) == 3.0
            && page.get("corelane_connections") == 0.0
            && page.of_model("vllm:num_requests_running") == 0.0
            && page.get("corelane_kv_tokens_used") == page.get("corelane_kv_tokens_kept")
            && page.of_model("vllm:kv_cache_usage_perc") == 0.0
    });
    assert_eq!(
        scrape(server.ops_address()).of_model("vllm:e2e_request_latency_seconds_count"),
        0.0
    );
}

#[test]
fn requests_that_failed_are_counted() {
    let options = FakeOptions { fail_one_in: 40, fail_more: 3, ..FakeOptions::default() };
    let server = TestServer::fake_with(with_ops(), options);
    let (mut failed, mut served) = (0.0, 0.0);
    for i in 0..40 {
        let body = format!(r#"{{"prompt":"attempt {i}","max_tokens":5}}"#);
        match server.post("/v1/completions", &body).status {
            200 => served += 1.0,
            500 => failed += 1.0,
            status => panic!("{status}"),
        }
    }
    assert!(failed > 3.0 && served > 3.0, "{failed} failed, {served} were served");
    let page = scrape(server.ops_address());
    assert_eq!(page.get("corelane_requests_failed_total"), failed);
    assert_eq!(page.get("corelane_requests_refused_total{reason=\"failed\"}"), failed);
    assert_eq!(page.get("corelane_steps_failed_total"), 4.0 * failed);
    assert_eq!(page.get("corelane_requests_retried_total"), 3.0 * failed);
    assert_eq!(page.of_model("vllm:e2e_request_latency_seconds_count"), served);
}

#[test]
fn ready_follows_the_server() {
    let mut server = Server::start(with_ops()).unwrap();
    let ops = server.ops_address().unwrap();
    let mut client = Client::connect(ops);
    let loading = client.get("/ready");
    assert_eq!((loading.status, loading.body.contains("loaded")), (503, true), "{loading:?}");
    assert_eq!(client.get("/health").status, 200);
    let page = scrape(ops);
    assert!(!page.has("vllm:num_requests_running"), "no model, no name");
    assert_eq!(page.get("corelane_ready"), 0.0);

    server.load_fake(FakeOptions { step: Duration::from_millis(2), ..Default::default() }).unwrap();
    assert_eq!(client.get("/ready").status, 200);
    assert_eq!(scrape(ops).get("corelane_ready"), 1.0);

    let mut running = Client::connect(server.address());
    let body = r#"{"prompt":"finish me","max_tokens":300}"#;
    running.send(post_bytes("/generate_stream", body).as_bytes());
    running.head().unwrap();
    let (control, metrics) = (server.control(), server.metrics());
    let ended = std::thread::spawn(move || server.join());
    control.drain();
    eventually("it drains", || metrics.front.state() == ServerState::Draining);
    let draining = client.get("/ready");
    assert_eq!((draining.status, draining.body.contains("about to end")), (503, true));
    assert_eq!(client.get("/health").status, 200);
    while running.chunk().is_some() {}
    ended.join().unwrap().unwrap();
    assert_eq!(metrics.front.finished.length.get(), 1);
    // The lane has ended with the server: nobody listens, and nobody is held.
    eventually("nobody listens", || TcpStream::connect(ops).is_err());
    assert!(client.is_closed());
}

#[test]
fn other_paths_and_methods_are_refused() {
    let server = TestServer::fake(with_ops(), 0);
    let mut client = Client::connect(server.ops_address());
    assert_eq!(client.get("/").status, 404);
    assert_eq!(client.get("/metrics/x").status, 404);
    let refused = client.post("/metrics", "some body");
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
    // And the body was not taken for a request.
    assert_eq!(client.get("/metrics?a=b").status, 200);
    for path in ["/metrics", "/health"] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let (status, headers) = client.head().unwrap();
        assert_eq!(status, 200);
        assert!(headers.iter().any(|(name, _)| name == "Content-Type"));
    }
    assert_eq!(client.get("/ready").body, "ready\n", "HEAD has no body");
    client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().header("connection"), Some("close"));
    assert!(client.is_closed());
}

/// Whatever it sends, a client of the ops lane ends its own connection, and
/// disturbs neither another's scrape nor a stream of the front lane.
#[test]
fn a_malformed_request_ends_its_own_connection_alone() {
    let step = Duration::from_millis(2);
    let options = FakeOptions { step, ..FakeOptions::default() };
    let server = TestServer::fake_with(with_ops(), options);
    let ops = server.ops_address();
    let mut stream = server.connect();
    let body = r#"{"prompt":"go on","max_tokens":500,"temperature":0}"#;
    stream.send(post_bytes("/generate_stream", body).as_bytes());
    stream.head().unwrap();
    let mut bystander = Client::connect(ops);

    let many = |n: usize| (0..n).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    let get = "GET /metrics HTTP/1.1\r\n";
    let malformed = [
        format!("{get}Content-Length: abc\r\n\r\n"),
        format!("{get}Content-Length:\r\n\r\n"),
        format!("{get}Content-Length: -1\r\n\r\n"),
        format!("{get}Content-Length: 18446744073709551616\r\n\r\n"),
        format!("{get}Content-Length: 99999999\r\n\r\n"),
        format!("{get}Content-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
        format!("{get}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{get}{}\r\n", many(17)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)),
        format!("{get}X: {}", "y".repeat(2_000_000)),
        "GARBAGE\r\n\r\n".into(),
        "\0\0\0\0".into(),
        format!("{get}: \r\n\r\n"),
    ];
    for request in &malformed {
        let answer = answer_to(ops, request.as_bytes());
        let refused = answer.is_empty() || answer.starts_with(b"HTTP/1.1 4");
        assert!(refused, "{:?}: {:?}", &request[..40.min(request.len())], &answer[..20]);
        assert_eq!(bystander.get("/metrics").status, 200);
    }
    let mut random = crate::support::Random::new(3);
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..random.within(1, 300)).map(|_| random.next() as u8).collect();
        let mut client = TcpStream::connect(ops).unwrap();
        let _ = client.write_all(&bytes);
    }
    // Half a request, and half a body, and then nothing.
    let mut halves = [TcpStream::connect(ops).unwrap(), TcpStream::connect(ops).unwrap()];
    halves[0].write_all(b"GET /met").unwrap();
    halves[1].write_all(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc").unwrap();
    assert_eq!(bystander.get("/health").status, 200);

    let mut bytes = Vec::new();
    while let Some(chunk) = stream.chunk() {
        bytes.extend(chunk);
    }
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("data: ").count(), 501, "the stream is whole");
    assert!(text.ends_with("\"token\":\"\",\"done\":true}\n\n"));
}

#[test]
fn many_scrapers_at_once_each_get_a_whole_page() {
    let server = TestServer::fake(with_ops(), 0);
    let ops = server.ops_address();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                let mut client = Client::connect(ops);
                for _ in 0..40 {
                    Samples::parse(&client.get("/metrics").body);
                }
            });
        }
        let mut client = server.connect();
        for _ in 0..20 {
            client.post("/v1/completions", r#"{"prompt":"beside","max_tokens":20}"#);
        }
    });
    assert_eq!(scrape(ops).of_model("vllm:generation_tokens_total"), 400.0);
}

#[test]
fn connections_are_bounded_in_number_requests_and_time() {
    let (clock, ahead) = Clock::adjustable();
    let server = TestServer::fake(ServeConfig { clock, ..with_ops() }, 0);
    let ops = server.ops_address();
    // Time: a connection that says nothing is closed.
    let mut client = Client::connect(ops);
    client.send(b"GET /half");
    assert!(!client.hears_within(3 * OPS_WATCH_INTERVAL), "its time is not over");
    ahead.fetch_add(OPS_IDLE_TIMEOUT.as_micros() as u64, Ordering::Relaxed);
    assert!(client.is_closed());
    // Requests: a client that sends many without reading the answers is disconnected.
    let flood = b"GET /metrics HTTP/1.1\r\n\r\n".repeat(3 * OPS_REQUESTS_MAX as usize);
    let answers = String::from_utf8(answer_to(ops, &flood)).unwrap();
    let pages = answers.matches("# EOF\n").count();
    assert!(pages <= OPS_REQUESTS_MAX as usize && pages > 0, "{pages}");
    // Number: one more is closed at once, and served once there is room.
    let mut clients: Vec<Client> = (0..OPS_CONNECTIONS_MAX).map(|_| Client::connect(ops)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/health").status, 200);
    }
    assert_eq!(answer_to(ops, b"GET /health HTTP/1.1\r\n\r\n"), b"");
    drop(clients);
    eventually("there is room again", || {
        answer_to(ops, b"GET /health HTTP/1.0\r\n\r\n").ends_with(b"ok\n")
    });
}

#[test]
fn the_address_is_taken_exclusively() {
    let server = TestServer::fake(with_ops(), 0);
    let ops_addr = Some(server.ops_address().to_string());
    let error = Server::start(ServeConfig { ops_addr, ..config() }).err().expect("it is taken");
    assert!(error.contains("of --ops-addr is in use by another program"), "{error}");
}
