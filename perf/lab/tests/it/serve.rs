//! The load generator: against the real server, and against one that misbehaves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::mock::{Mock, Reaction, STREAM_HEAD, chunk, ending, token, whole};
use crate::support::{Random, TestServer, config};
use corelane::config::ServeConfig;
use corelane::model::fake::{FakeOptions, N_VOCAB, continuation};
use corelane_bench::generator::client::TIMER_LATE_MAX;
use corelane_bench::generator::failure::FailureKind;
use corelane_bench::generator::load::{Load, Outcome, run};
use corelane_bench::generator::prompts::Prompts;

fn prompts(count: usize, length: usize) -> Vec<Vec<u32>> {
    let mut prompts = Prompts::new(u32::try_from(N_VOCAB).unwrap(), 0).unwrap();
    (0..count).map(|_| prompts.draw(length)).collect()
}

fn load(address: std::net::SocketAddr, count: usize) -> Load {
    Load {
        address: address.to_string(),
        prompts: prompts(count, 8),
        output_tokens: 20,
        ignore_eos: true,
        max_concurrency: 4,
        timeout: Duration::from_secs(20),
        ..Load::default()
    }
}

fn quiet(load: &Load) -> Outcome {
    run(load, |_| ()).unwrap()
}

/// What the fake model continues a prompt with.
fn expected(prompt: &[u32], tokens: usize) -> String {
    let prompt: Vec<i32> = prompt.iter().map(|id| i32::try_from(*id).unwrap()).collect();
    continuation(&prompt, tokens, 0).iter().map(|token| char::from(*token as u8)).collect()
}

#[test]
fn every_request_gets_its_own_answer_and_its_numbers() {
    let server = TestServer::fake(config(), 0);
    let load = Load { warmup_prompts: prompts(4, 5), ..load(server.address, 30) };
    let mut seen = Vec::new();
    let outcome = run(&load, |completed| seen.push(completed)).unwrap();
    assert_eq!(seen, (1..=30).collect::<Vec<_>>());
    assert_eq!(outcome.requests.len(), 30);
    for (prompt, request) in load.prompts.iter().zip(&outcome.requests) {
        assert_eq!(request.error, None);
        assert_eq!(request.text, expected(prompt, 20));
        assert_eq!((request.prompt_tokens, request.output_tokens), (8, 20));
        assert!(request.is_counted);
        assert_eq!(request.itls.len(), 19, "an event for each token");
        let sum = request.ttft + request.itls.iter().sum::<Duration>();
        assert_eq!(request.e2el, sum);
        assert!(request.ttft > Duration::ZERO && request.e2el <= outcome.duration);
    }
    assert_eq!(outcome.connections_opened, 0, "all were open, and stayed so");
    assert!(outcome.client_cpu > Duration::ZERO && outcome.client_cpu <= outcome.duration);
}

#[test]
fn lengths_arrivals_and_whole_responses() {
    let server = TestServer::fake(config(), 0);
    let output_lens: Vec<u32> = (1..=10).collect();
    let arrivals: Vec<Duration> = (0..10).map(|i| Duration::from_millis(10 * i)).collect();
    let load = Load { output_lens, arrivals: arrivals.clone(), ..load(server.address, 10) };
    for stream in [true, false] {
        for max_concurrency in [1, usize::MAX] {
            let outcome = quiet(&Load { stream, max_concurrency, ..load.clone() });
            for (index, request) in outcome.requests.iter().enumerate() {
                assert_eq!(request.error, None);
                assert_eq!(request.output_tokens, index as u64 + 1);
                let late = request.arrival.checked_sub(arrivals[index]);
                assert!(late.expect("none arrives early") <= TIMER_LATE_MAX);
                assert!(request.started >= request.arrival, "none is written early");
                assert_eq!(request.ttft.is_zero(), !stream);
                assert_eq!(request.text, expected(&load.prompts[index], index + 1));
            }
        }
    }
}

#[test]
fn the_servers_refusals_are_failures_with_its_reasons() {
    let server =
        TestServer::fake(ServeConfig { keys: vec![crate::support::key("k")], ..config() }, 0);
    let outcome = quiet(&load(server.address, 3));
    for request in &outcome.requests {
        assert_eq!(request.error_kind, Some(FailureKind::Status(401)));
        assert!(request.error.as_ref().unwrap().contains("key"), "{:?}", request.error);
    }
    let keyed = Load { api_key: Some("k".into()), ..load(server.address, 3) };
    assert!(quiet(&keyed).requests.iter().all(|request| request.is_ok()));
    let too_long = Load { prompts: prompts(2, 5000), ..keyed };
    assert!(quiet(&too_long).requests.iter().all(|r| !r.is_ok() && r.error.is_some()));
}

#[test]
fn a_load_that_makes_no_sense_does_not_begin() {
    let server = TestServer::fake(config(), 0);
    let load = load(server.address, 2);
    for (wrong, why) in [
        (Load { prompts: Vec::new(), ..load.clone() }, "0 requests"),
        (Load { prompts: vec![vec![]], ..load.clone() }, "empty"),
        (Load { max_concurrency: 0, ..load.clone() }, "concurrency is 0"),
        (Load { output_lens: vec![1], ..load.clone() }, "1 output lengths for 2 requests"),
        (Load { endpoint: "v1".into(), ..load.clone() }, "not a path"),
        (Load { address: "nowhere".into(), ..load.clone() }, "not the address"),
        (Load { api_key: Some("a\nb".into()), ..load.clone() }, "key"),
        (Load { warmup_prompts: vec![vec![999_999]], ..load.clone() }, "a warm-up request failed"),
    ] {
        let error = run(&wrong, |_| ()).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// A stream of two tokens, cut in odd places.
fn good() -> Vec<Vec<u8>> {
    let text = format!(": ping\r\n\r\n{}{}{}", token("a"), token("b"), ending(2));
    let mut bytes = STREAM_HEAD.as_bytes().to_vec();
    for part in text.as_bytes().chunks(7) {
        bytes.extend(chunk(std::str::from_utf8(part).unwrap()));
    }
    bytes.extend(b"0\r\n\r\n");
    bytes.chunks(11).map(<[u8]>::to_vec).collect()
}

fn stream(parts: &[&str]) -> Vec<Vec<u8>> {
    let chunks = parts.iter().map(|part| chunk(part));
    std::iter::once(STREAM_HEAD.as_bytes().to_vec()).chain(chunks).collect()
}

#[test]
fn whatever_a_server_does_is_a_result() {
    use FailureKind::*;
    use Reaction::{Send, SendAndClose, Silence};
    let error = "data: {\"error\":{\"message\":\"no room\"}}\n\n";
    let json = r#"{"error":{"message":"broken"}}"#;
    let cases: Vec<(Reaction, Option<FailureKind>)> = vec![
        (Send(good()), None),
        (Send(vec![whole("500 Oh", json)]), Some(Status(500))),
        (Send(vec![whole("429 Slow", "later\x1b[2J")]), Some(Status(429))),
        (Send(vec![whole("302 Found", "")]), Some(Status(302))),
        (Send(good()), None),
        (SendAndClose(stream(&[&token("a"), "data: {\"cho"])), Some(Closed)),
        (SendAndClose(vec![]), Some(Closed)),
        (SendAndClose(vec![b"HTTP/1.1 200".to_vec()]), Some(Closed)),
        (SendAndClose(vec![b"\x16\x03\x01 not HTTP at all\r\n\r\n".to_vec()]), Some(NotHttp)),
        (SendAndClose(vec![b"HTTP/1.1 200 OK\r\n".repeat(1 << 16)]), Some(NotHttp)),
        (Send(stream(&[&token("a"), "data: {]\n\n"])), Some(BadResponse)),
        (Send(stream(&[&token("a"), "data: \n\n"])), Some(BadResponse)),
        (Send(stream(&[error])), Some(ErrorEvent)),
        (Send(stream(&[&token("a"), "event: error\ndata: x\n\n"])), Some(ErrorEvent)),
        (Send(stream(&["data: [DONE]\n\n", ""])), Some(NoTokens)),
        (Send(vec![whole("200 OK", "{\"choices\":[]}")]), Some(NoTokens)),
        (Silence, Some(Timeout)),
        (Send(stream(&[&token("a")])), Some(Timeout)),
        // [DONE], and then no end: the result counts, the connection does not.
        (Send(stream(&[&token("a"), &ending(1)])), None),
        (Send(good()), None),
    ];
    let (reactions, kinds): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    let mock = Mock::start(reactions);
    let outcome = quiet(&Load {
        max_concurrency: 1,
        timeout: Duration::from_millis(1500),
        ..load(mock.address, kinds.len())
    });
    for (index, (request, kind)) in outcome.requests.iter().zip(&kinds).enumerate() {
        assert_eq!(request.error_kind, *kind, "request {index}: {:?}", request.error);
        assert_eq!(request.error.is_some(), kind.is_some());
        let error = request.error.as_deref().unwrap_or_default();
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
    assert_eq!(mock.requests(), kinds.len(), "no request was sent twice");
    assert_eq!(outcome.requests[0].text, "ab");
    assert!(outcome.requests[1].error.as_ref().unwrap().contains("broken"));
    // The text before the end is kept, and the time of its first token.
    assert_eq!(outcome.requests[5].output_tokens, 1);
    assert!(outcome.requests.is_sorted_by_key(|request| request.started));
    assert!(outcome.requests.iter().all(|request| request.started > Duration::ZERO));
}

/// Good responses with bytes changed, and cut anywhere.
#[test]
fn garbage_ends_in_a_result() {
    let mut random = Random::new(11);
    let mut damaged = || {
        let mut bytes = good().concat();
        for _ in 0..random.within(0, 4) {
            let at = random.within(0, bytes.len() - 1);
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(random.within(0, bytes.len()));
        Reaction::SendAndClose(bytes.chunks(64).map(<[u8]>::to_vec).collect())
    };
    let mock = Mock::start((0..300).map(|_| damaged()).collect());
    let timeout = Duration::from_secs(2);
    let outcome = quiet(&Load { timeout, max_concurrency: 8, ..load(mock.address, 300) });
    assert!(outcome.requests.iter().any(|request| !request.is_ok()));
}

#[test]
fn connections_are_reused_and_reopened() {
    let plain = String::from_utf8(good().concat()).unwrap();
    let closing = plain.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1).into_bytes();
    let mock = Mock::start(vec![
        Reaction::Send(good()),
        Reaction::Send(good()),
        Reaction::SendAndClose(vec![closing]),         // said
        Reaction::SendAndClose(vec![good().concat()]), // and not said
        Reaction::Send(good()),
    ]);
    // The one after the silent close may be under way already: then it is sent again.
    let outcome = quiet(&Load { max_concurrency: 1, ..load(mock.address, 6) });
    for request in &outcome.requests {
        assert_eq!(request.error, None);
    }
    assert_eq!(outcome.connections_opened, 2);
}

/// A request that a used connection swallows is sent again, and that is counted.
#[test]
fn what_is_sent_again_is_counted() {
    let mock = Mock::start(vec![
        Reaction::Send(good()),
        Reaction::SendAndClose(vec![]), // read, and closed without a byte
        Reaction::Send(good()),
    ]);
    let outcome = quiet(&Load { max_concurrency: 1, ..load(mock.address, 2) });
    assert!(outcome.requests.iter().all(|request| request.is_ok()));
    assert_eq!((outcome.requests_resent, outcome.connections_opened), (1, 1));
}

/// The program, with no key in its environment.
fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane-bench"));
    command.args(["serve"]).args(flags.split_whitespace()).stdin(Stdio::null());
    for variable in ["CORELANE_API_KEY", "OPENAI_API_KEY", "CORELANE_VS_API_KEY"] {
        command.env_remove(variable);
    }
    command
}

/// Runs the program to its end.
fn bench(flags: &str, more: &[&str]) -> Output {
    command(flags).args(more).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs the program, which must succeed, and reads the file that it saves.
fn saved(flags: &str, name: &str) -> (String, serde_json::Value) {
    let file = scratch(name);
    let output = bench(flags, &["--save-result", "--result-filename", file.to_str().unwrap()]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{flags}: {stderr}");
    assert!(stderr.is_empty(), "{flags}: {stderr}");
    (stdout, read(&file))
}

fn read(file: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Equal up to rounding in the printed digits.
fn close(found: &serde_json::Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} and not {expected}");
}

fn url(server: &TestServer) -> String {
    format!("http://{}", server.address)
}

#[test]
fn the_program_prints_a_table_and_saves_vllms_keys() {
    let server = TestServer::fake(config(), 0);
    let flags = format!(
        "--base-url {} --num-prompts 12 --random-input-len 8 --random-output-len 10 \
         --max-concurrency 4 --num-warmups 4 --ignore-eos --temperature 0 --request-rate 200 \
         --goodput ttft:100000 --metric-percentiles 50,99 --save-detailed --metadata commit=1a",
        url(&server)
    );
    let (table, result) = saved(&flags, "load.json");
    assert!(table.contains("Successful requests:                     12\n"), "{table}");
    for name in ["P99 TTFT", "Median ITL", "Mean TPOT", "E2EL incl. Client Queue", "Client CPU"] {
        assert!(table.contains(name), "{name}: {table}");
    }
    assert_eq!(result["completed"], 12);
    assert_eq!(result["failed"], 0);
    assert_eq!(result["total_input_tokens"], 96);
    assert_eq!(result["total_output_tokens"], 120);
    assert_eq!(result["commit"], "1a");
    assert_eq!(result["ttfts"].as_array().unwrap().len(), 12);
    assert_eq!(result["itls"][0].as_array().unwrap().len(), 9);
    close(&result["request_goodput"], 12.0 / result["duration"].as_f64().unwrap());
    close(&result["output_throughput"], 120.0 / result["duration"].as_f64().unwrap());
    for key in ["p99_ttft_ms", "mean_e2el_including_client_queue_ms", "client_cpu_seconds"] {
        assert!(result[key].as_f64().unwrap() > 0.0, "{key}");
    }
}

#[test]
fn the_stall_tells_before_from_during() {
    let options = FakeOptions { step: Duration::from_millis(1), ..FakeOptions::default() };
    let server = TestServer::fake_with(config(), options);
    let base = format!("--base-url {} --scenario stall --ignore-eos --streams 3", url(&server));
    let flags = format!("{base} --long-input-len 600 --random-output-len 2000");
    let (table, result) = saved(&flags, "stall.json");
    assert!(table.contains("P99 ITL during / before"), "{table}");
    assert_eq!(result["completed"], 5);
    assert_eq!((&result["streams"], result.get("num_prompts")), (&3.into(), None));
    assert!(result["gaps_before"].as_u64().unwrap() >= 3 * 50);
    assert!(result["gaps_during"].as_u64().unwrap() >= 3);
    for key in ["itl_before_p50_ms", "itl_during_max_ms", "itl_max_ratio", "long_ttft_ratio"] {
        assert!(result[key].as_f64().unwrap() > 0.0, "{key}");
    }
    // Streams that are over before the long prompt begins say nothing.
    let output = bench(&format!("{base} --random-output-len 5"), &[]);
    let (stdout, stderr) = texts(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("a stream ended after 5 of 5 tokens"), "{stderr}");
}

#[test]
fn the_burst_compares_the_last_with_one_alone() {
    let server = TestServer::fake(config(), 0);
    let flags = format!(
        "--base-url {} --scenario burst --prefix-len 100 --random-output-len 5 --ignore-eos",
        url(&server)
    );
    let (table, result) = saved(&flags, "burst.json");
    assert!(table.contains("TTFT last / alone"), "{table}");
    assert_eq!((&result["completed"], &result["prefix_len"]), (&8.into(), &100.into()));
    let ms = |key: &str| result[key].as_f64().unwrap();
    assert!(ms("min_ttft_ms") <= ms("median_ttft_ms") && ms("median_ttft_ms") <= ms("max_ttft_ms"));
    close(&result["last_to_alone_ratio"], ms("max_ttft_ms") / ms("ttft_alone_ms"));
}

#[test]
fn two_servers_are_compared_in_turns() {
    let (first, second) = (TestServer::fake(config(), 0), TestServer::fake(config(), 0));
    for (scenario, key) in [
        ("load --num-prompts 6 --max-concurrency 2", "output_throughput"),
        ("burst --num-prompts 3 --prefix-len 30", "max_ttft_ms"),
        ("stall --streams 2 --long-input-len 100 --random-output-len 3000", "itl_during_p99_ms"),
    ] {
        let flags = format!(
            "--base-url {} --vs {} --rounds 2 --ignore-eos --scenario {scenario}",
            url(&first),
            url(&second)
        );
        let (table, result) = saved(&flags, "versus.json");
        assert!(table.contains("first/second (min..max)"), "{table}");
        assert!(!table.contains("requests ended") && !table.contains("unequal"), "{table}");
        assert_eq!(result["rounds"].as_array().unwrap().len(), 2);
        let value = |round: usize, side: &str| result["rounds"][round][side][key].as_f64().unwrap();
        for round in 0..2 {
            let ratio = value(round, "first") / value(round, "second");
            close(&result["ratios"][key]["pairs"][round], ratio);
        }
    }
    let served = |server: TestServer| {
        let metrics = server.metrics.clone();
        server.drain();
        server.join();
        metrics.front.responses.total()
    };
    assert_eq!(served(first), served(second), "both got the same");
}

#[test]
fn two_servers_that_do_not_do_the_same_are_said_to() {
    let two = Mock::start(vec![Reaction::Send(good())]);
    let one = Mock::start(vec![Reaction::Send(stream(&[&token("a"), &ending(1), ""]))]);
    let flags = format!(
        "--base-url http://{} --vs http://{} --model m --vocab-size 1000 --num-prompts 3 \
         --max-concurrency 1 --rounds 2 --random-output-len 2",
        two.address, one.address
    );
    let (table, result) = saved(&flags, "unequal.json");
    let (_, notes) = table.split_once("\nClient CPU (s)").unwrap();
    let notes: Vec<&str> = notes.lines().skip(1).collect();
    let expected = [
        "second: 6 requests ended before --random-output-len (see --ignore-eos)",
        "The ratios are of unequal work, first and second:",
        "  round 1: 6 and 3 output tokens",
        "  round 2: 6 and 3 output tokens",
    ];
    assert_eq!(notes, expected, "{table}");
    assert_eq!(result["rounds"][1]["second"]["total_output_tokens"], 3);
}

#[test]
fn words_go_to_completions_and_to_chats() {
    let server = TestServer::builtin(config());
    for (backend, flags) in [
        ("openai", "--text-prompts"),
        ("openai-chat", "--backend openai-chat"),
        ("openai-chat", "--backend openai-chat --no-stream"),
    ] {
        let flags = format!(
            "--base-url {} --num-prompts 4 --random-input-len 8 --random-output-len 10 \
             --max-concurrency 2 --ignore-eos --save-detailed {flags}",
            url(&server)
        );
        let (_, result) = saved(&flags, "words.json");
        assert_eq!((&result["completed"], &result["backend"]), (&4.into(), &backend.into()));
        assert_eq!(result["total_output_tokens"], 40, "{flags}");
        assert_eq!(result["requests_without_usage"], 0, "{flags}");
        let tokens = result["total_input_tokens"].as_u64().unwrap();
        assert!(tokens >= 4 * 8, "a token at least for each word, and {tokens}: {flags}");
        let texts = result["generated_texts"].as_array().unwrap();
        assert!(texts.iter().any(|text| text != ""), "{flags}: {texts:?}");
        let ttfts = result["ttfts"].as_array().unwrap();
        let is_streamed = !flags.contains("--no-stream");
        assert!(ttfts.iter().all(|ttft| (ttft.as_f64() > Some(0.0)) == is_streamed), "{flags}");
    }
}

#[test]
fn failures_are_counted_shown_and_end_with_one() {
    let json = r#"{"error":{"message":"broken"}}"#;
    let bad = Reaction::Send(vec![whole("500 Oh", json)]);
    let mock = Mock::start(vec![Reaction::Send(good()), bad]);
    let file = scratch("failed.json");
    let flags = format!(
        "--base-url http://{} --model m --vocab-size 1000 --num-prompts 4 --max-concurrency 1",
        mock.address
    );
    let output = bench(&flags, &["--save-result", "--result-filename", file.to_str().unwrap()]);
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr, "corelane-bench: 3 of 4 requests failed: 3 x status 500: broken\n");
    assert!(stdout.contains("3 x status 500: broken\n"), "{stdout}");
    let result = read(&file);
    assert_eq!((&result["completed"], &result["failed"]), (&1.into(), &3.into()));
    assert_eq!(result["failures"], serde_json::json!({"status 500": 3}));
}

#[test]
fn what_is_missing_is_one_clear_line() {
    let refused = |flags: &str| {
        let (stdout, stderr) = texts(&bench(flags, &[]));
        assert!(stdout.is_empty(), "{stdout}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        stderr
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = refused(&format!("--port {}", free.port()));
    assert!(line.contains("no connection"), "{line}");
    assert!(refused("--base-url https://127.0.0.1").contains("https is not supported"));
    assert!(refused("--num-prompts 0").contains("--num-prompts is 0"));
    let line = refused("--scenario stall --max-concurrency 8");
    assert!(line.contains("--max-concurrency is for --scenario load"), "{line}");
    let models = whole("200 OK", r#"{"data":[{"id":"m"}]}"#);
    let mock = Mock::start(vec![Reaction::Send(vec![models])]);
    let line = refused(&format!("--base-url http://{}", mock.address));
    assert!(line.contains("give --vocab-size"), "{line}");
    let mock = Mock::start(vec![Reaction::Send(vec![whole("404 Not Found", "nothing")])]);
    let line = refused(&format!("--base-url http://{}", mock.address));
    assert!(line.contains("answers 404: nothing"), "{line}");
}

#[test]
fn the_key_comes_from_the_environment() {
    let server =
        TestServer::fake(ServeConfig { keys: vec![crate::support::key("k")], ..config() }, 0);
    let flags = format!("--num-prompts 2 --base-url {}", url(&server));
    let run = |variable: &str, value: &str| {
        command(&flags).env(variable, value).output().unwrap().status.code()
    };
    assert_eq!(run("CORELANE_API_KEY", "k,other"), Some(0));
    assert_eq!(run("OPENAI_API_KEY", "k"), Some(0));
    assert_eq!(run("OPENAI_API_KEY", "wrong"), Some(1));
}

/// Not even where it would do: a secret is for the server that it was given for.
#[test]
fn the_second_server_is_not_sent_the_firsts_key() {
    let keyed =
        || TestServer::fake(ServeConfig { keys: vec![crate::support::key("k")], ..config() }, 0);
    let servers = (keyed(), keyed());
    let (first, second) = (url(&servers.0), url(&servers.1));
    let flags = format!("--num-prompts 2 --rounds 1 --base-url {first} --vs {second}");
    let (stdout, stderr) = texts(&bench(&flags, &["--api-key", "k"]));
    assert!(stderr.contains("2 of 4 requests failed: 2 x status 401"), "{stderr}");
    assert!(stdout.contains("second: 2 of 2 requests failed\n"), "{stdout}");
    let both = bench(&flags, &["--api-key", "k", "--vs-api-key", "k"]);
    assert_eq!(both.status.code(), Some(0), "{}", texts(&both).1);
    let mut of_environment = command(&flags);
    of_environment.env("CORELANE_API_KEY", "k").env("CORELANE_VS_API_KEY", "k");
    assert_eq!(of_environment.output().unwrap().status.code(), Some(0));
}
