//! Flamegraphs of the running server, over the ops port and by `corelane profile`.
//!
//! Where the kernel lets no process take samples of itself, the tests hold the sentence that says so.

use std::process::Output;
use std::thread;

use corelane::config::ServeConfig;
use serde_json::json;

use crate::command_line::{Running, run};
use crate::support::{Client, TestServer, body, config};

const FORBIDDEN: &str = "kernel.perf_event_paranoid is";

/// Generates texts while something else is done.
fn under_load<T>(running: &Running, act: impl FnOnce() -> T) -> T {
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let text = json!({"prompt": "Once", "max_tokens": 200}).to_string();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(
                    Client::connect(running.address).post("/v1/completions", &text).status,
                    200
                );
            }
        });
        let result = act();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Whether the profile came; if not, the kernel forbids it.
fn came(output: &Output) -> bool {
    let error = text(&output.stderr);
    assert!(output.status.success() || error.contains(FORBIDDEN), "{error}");
    output.status.success()
}

#[test]
fn a_profile_names_the_functions_of_the_model() {
    let running = Running::start(&["--profiling"]);
    let ops = running.ops.unwrap().to_string();
    let profile = |more: &[&str]| {
        let args = ["profile", "--ops-addr", &ops, "--seconds", "1", "--hz", "999"];
        under_load(&running, || run(&[&args, more].concat()))
    };
    let folded = profile(&["--format", "folded"]);
    if !came(&folded) {
        return;
    }
    let folded = text(&folded.stdout);
    assert!(folded.lines().all(|line| line.starts_with("decode;")), "{folded}");
    assert!(folded.contains("ggml_graph_compute"), "llama.cpp's functions have names: {folded}");
    assert!(folded.contains("corelane::decode"), "and ours: {folded}");

    let svg = profile(&["--lane", "front"]);
    assert!(came(&svg));
    let svg = text(&svg.stdout);
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("corelane: front lane") && svg.contains("at 999 Hz in 1 s"));

    // (In a process of its own: other tests' servers have lanes of the same names.)
    let idle = profile(&["--lane", "masks"]);
    assert!(!idle.status.success());
    let error = text(&idle.stderr);
    assert!(error.contains("the masks lane did not run in this time"), "{error}");
}

#[test]
fn there_is_one_profile_at_a_time() {
    let server = TestServer::fake(
        ServeConfig { ops_addr: Some("127.0.0.1:0".into()), profiling: true, ..config() },
        0,
    );
    let address = server.ops_address();
    let ask = |query: &str| Client::connect(address).post(&format!("/debug/flamegraph{query}"), "");
    let long = "/debug/flamegraph?lane=all&seconds=2&hz=999&format=folded";
    let first = thread::spawn(move || {
        loop {
            let answer = Client::connect(address).post(long, "");
            if answer.status != 429 {
                return answer; // it was the first
            }
            thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let second = loop {
        let answer = ask("?seconds=1&lane=masks");
        if answer.status == 429 || first.is_finished() {
            break answer;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    };
    while !first.is_finished() {
        assert_eq!(server.post("/v1/completions", &body("a", 20, "")).status, 200); // some work to see
    }
    let first = first.join().unwrap();
    if first.status == 503 {
        return assert!(first.body.contains(FORBIDDEN), "{}", first.body);
    }
    assert_eq!((second.status, second.header("retry-after")), (429, Some("10")));
    assert!(second.body.contains("one at a time"), "{}", second.body);
    // The ops lane went on meanwhile, and takes the next one.
    assert_eq!(first.status, 200);
    assert_ne!(ask("?seconds=1&lane=masks").status, 429);
}

#[test]
fn a_profile_must_be_allowed_and_be_asked_for_rightly() {
    let closed =
        TestServer::fake(ServeConfig { ops_addr: Some("127.0.0.1:0".into()), ..config() }, 0);
    let refused = Client::connect(closed.ops_address()).post("/debug/flamegraph", "");
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("--profiling"), "{}", refused.body);
    let open = TestServer::fake(
        ServeConfig { ops_addr: Some("127.0.0.1:0".into()), profiling: true, ..config() },
        0,
    );
    let wrong = Client::connect(open.ops_address()).post("/debug/flamegraph?seconds=3600", "");
    assert_eq!((wrong.status, &*wrong.body), (400, "seconds is 1 to 60, not \"3600\"\n"));
    let mut client = Client::connect(open.ops_address());
    let read = client.get("/debug/flamegraph");
    assert_eq!((read.status, read.header("allow")), (405, Some("POST")));
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn a_server_that_takes_no_profiles_is_one_clear_line() {
    let running = Running::start(&[]);
    let ops = running.ops.unwrap().to_string();
    let output = run(&["profile", "--ops-addr", &ops, "--seconds", "1"]);
    let error = text(&output.stderr);
    assert!(error.contains("takes no profile (403 Forbidden)"), "{error}");
    assert!(error.contains("start the server with --profiling"), "{error}");
    let output = run(&["profile", "--ops-addr", "127.0.0.1:1", "--seconds", "1"]);
    let error = text(&output.stderr);
    assert!(error.contains("no profile came from 127.0.0.1:1: "), "{error}");
}
