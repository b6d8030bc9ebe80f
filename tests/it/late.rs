//! Late tokens: each has a cause, and all that shows them says the same.

use std::time::Duration;

use corelane::config::ServeConfig;
use corelane::metrics::Cause;
use corelane::model::fake::FakeOptions;
use corelane::types::ItlTarget;
use serde_json::Value;

use crate::support::metrics::Samples;
use crate::support::{Client, TestServer, config, eventually, post_bytes};

/// Each step takes five times as long as a token may.
fn slow_server() -> TestServer {
    let config = ServeConfig {
        itl_target: ItlTarget::Within(Duration::from_millis(1)),
        ops_addr: Some("127.0.0.1:0".into()),
        ..config()
    };
    let step = Duration::from_millis(5);
    TestServer::fake_with(config, FakeOptions { step, ..FakeOptions::default() })
}

fn page(server: &TestServer) -> Samples {
    let mut client = Client::connect(server.ops_address());
    Samples::parse(&client.get("/metrics").body)
}

/// The late tokens of an answer by cause.
fn by_cause(timings: &Value, lanes: &Value) -> Vec<(String, u64)> {
    let causes = lanes["late_causes"].as_array().unwrap().iter();
    causes
        .map(|name| {
            let name = name.as_str().unwrap();
            (name.to_owned(), timings[format!("late_{name}_n")].as_u64().unwrap_or(0))
        })
        .collect()
}

#[test]
fn late_tokens_are_the_same_in_the_answer_the_metrics_and_the_history() {
    let server = slow_server();
    let body = r#"{"prompt": "abc", "max_tokens": 20, "n": 4}"#;
    let timings = &server.post("/v1/completions", body).json()["timings"];
    let late = timings["late_n"].as_u64().unwrap();
    // Where the front lane had no core, two answers come at once, and the second is not late.
    assert!((10..=4 * 19).contains(&late), "the first tokens are none: {timings}");
    let lanes = server.get("/lanes").json();
    let causes = by_cause(timings, &lanes);
    assert_eq!(causes.iter().map(|(_, n)| n).sum::<u64>(), late, "{timings}");
    let page = page(&server);
    for (cause, n) in &causes {
        let counted = page.get(&format!("corelane_late_tokens_total{{cause=\"{cause}\"}}"));
        assert_eq!(counted as u64, *n, "{cause}");
    }
    assert_eq!(page.get("corelane_late_after_seconds"), 1e-3);
    let fields = lanes["steps"]["fields"].as_array().unwrap();
    let column = fields.iter().position(|name| name == "late_tokens").unwrap();
    let steps = lanes["steps"]["values"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| step[column].as_u64().unwrap()).sum::<u64>(), late);
}

#[test]
fn a_reader_that_does_not_read_is_a_cause() {
    let step = Duration::from_millis(1);
    let config = ServeConfig { itl_target: ItlTarget::Within(step), ..config() };
    let server = TestServer::fake_with(config, FakeOptions { step, ..FakeOptions::default() });
    let mut client = server.connect();
    client.buffer_little();
    let body = r#"{"prompt": "abc", "n": 2, "n_predict": 4000, "stream": true, "n_probs": 20, "timings_per_token": true}"#;
    client.send(post_bytes("/completion", body).as_bytes());
    // More than the kernel's buffers hold stays in the server's.
    eventually("the server waits for the reader", || {
        server.metrics.front.request_bytes.get() >= 1 << 18
    });
    // It reads again seconds before the text ends, so its end can say so.
    let response = client.response();
    assert!(server.metrics.front.late_tokens.of(Cause::SlowReader).get() >= 1);
    let last: Value = serde_json::from_str(response.events().last().unwrap()).unwrap();
    assert!(last["timings"]["late_slow_reader_n"].as_u64().unwrap() >= 1, "{last}");
}
