//! Gaps in texts that editors ask to fill: the prompt, the cache and the end of the text.

use std::time::Duration;

use crate::support::{TestServer, config};
use corelane::config::ServeConfig;
use corelane::model::fake::{FakeOptions, continuation};
use corelane::types::TokenId;
use serde_json::{Value, json};

/// The fake model's tokens for a gap.
const PREFIX: char = '\x01';
const SUFFIX: char = '\x02';
const MIDDLE: char = '\x03';

/// The text that follows a prompt of these bytes.
fn text_after(prompt: &str, max_tokens: usize) -> String {
    let tokens: Vec<TokenId> = prompt.bytes().map(TokenId::from).collect();
    let text = continuation(&tokens, max_tokens, 0);
    text.iter().map(|token| *token as u8 as char).collect()
}

fn infill(server: &TestServer, more: Value) -> Value {
    let mut body = json!({"input_prefix": "a;\nb;\n", "input_suffix": "\nd;\n", "prompt": "  c",
        "n_predict": 8, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let response = server.post("/infill", &body.to_string());
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

#[test]
fn the_begun_line_stands_at_the_end_of_the_prompt() {
    let server = TestServer::fake(config(), 0);
    let prompt = format!("{PREFIX}a;\nb;\n{SUFFIX}\nd;\n{MIDDLE}  c");
    let answer = infill(&server, json!({}));
    assert_eq!(answer["content"], text_after(&prompt, 8));
    assert_eq!(answer["tokens_evaluated"], prompt.len());
    let snippet = "\n\n--- snippet ---\n\n";
    let extra = json!([{"filename": "x", "text": "y"}, {"text": "z"}]);
    let answer = infill(&server, json!({"input_extra": extra}));
    assert_eq!(answer["content"], text_after(&format!("{snippet}y{snippet}z{prompt}"), 8));
    // OpenAI's form: the last line of the prompt is the begun one.
    let body =
        json!({"prompt": "a;\nb;\n  c", "suffix": "\nd;\n", "max_tokens": 8, "temperature": 0});
    let answer = server.post("/v1/completions", &body.to_string()).json();
    assert_eq!(answer["choices"][0]["text"], text_after(&prompt, 8));
    let server = TestServer::fake(ServeConfig { spm_infill: true, ..config() }, 0);
    let prompt = format!("{SUFFIX}\nd;\n{PREFIX}a;\nb;\n{MIDDLE}  c");
    assert_eq!(infill(&server, json!({}))["content"], text_after(&prompt, 8));
}

#[test]
fn a_cursor_that_moves_on_finds_the_cache() {
    let server = TestServer::fake(config(), 0);
    let (before, after) = ("x;\n".repeat(100), "y;\n".repeat(20));
    let cached = |prefix: &str, prompt: &str| {
        let more = json!({"input_prefix": prefix, "input_suffix": after, "prompt": prompt});
        infill(&server, more)["timings"]["cache_n"].as_u64().unwrap() as usize
    };
    let all = 3 + before.len() + after.len(); // with the tokens for the gap
    assert_eq!(cached(&before, "le"), 0);
    assert_eq!(cached(&before, "let a"), all + 2, "in the line, only new letters are computed");
    let next = format!("{before}let a;\n");
    assert_eq!(cached(&next, ""), 1 + before.len(), "in the next line, all before the old one");
}

/// The first excerpts go first, then the far ends of prefix and suffix.
#[test]
fn texts_without_room_are_cut() {
    let server = TestServer::fake(ServeConfig { context_tokens: Some(256), ..config() }, 0);
    let (before, after) = ("b".repeat(500), "a".repeat(500));
    let more = json!({"input_prefix": before, "input_suffix": after, "prompt": "",
        "input_extra": [{"text": "none"}]});
    let room = 256 - 8 - 3;
    let answer = infill(&server, more);
    let evaluated = answer["tokens_evaluated"].as_u64().unwrap();
    assert_eq!(answer["truncated"], true);
    assert!((room / 2..=room + 3).contains(&evaluated), "{evaluated}");
    let extra = json!([{"text": "x".repeat(200)}, {"text": "kept"}]);
    let answer = infill(&server, json!({"input_extra": extra}));
    assert!(answer["prompt"].as_str().unwrap().starts_with("\n\n--- snippet ---\n\nkept"));
    // A length that is only the server's default leaves room for the texts.
    let small = ServeConfig { context_tokens: Some(256), n_predict: Some(256), ..config() };
    let server = TestServer::fake(small, 0);
    let answer = infill(&server, json!({"n_predict": null}));
    assert!(answer["prompt"].as_str().unwrap().contains("a;\nb;\n"));
    assert_eq!(answer["truncated"], false);
}

#[test]
fn a_text_ends_at_the_line_that_the_request_says() {
    let phrases: &[&[u8]] = &[b"one;\n    two;\n  three;\n"];
    let options = FakeOptions { phrases: Some(phrases), ..FakeOptions::default() };
    let server = TestServer::fake_with(config(), options);
    let answer = infill(&server, json!({"n_predict": 60, "n_indent": 4}));
    assert_eq!(answer["content"], "one;\n    two;\n  ");
    assert_eq!(answer["stop_type"], "limit");
    let answer = infill(&server, json!({"n_predict": 14, "n_indent": 2}));
    assert_eq!(answer["content"], "one;\n    two;\n");
    // The text takes longer than a millisecond.
    let step = Duration::from_millis(2);
    let server = TestServer::fake_with(config(), FakeOptions { step, ..options });
    let answer = infill(&server, json!({"n_predict": 60, "t_max_predict_ms": 1}));
    assert_eq!(answer["content"], "one;\n");
    assert_eq!(answer["stop_type"], "limit");
}

#[test]
fn a_model_without_tokens_for_a_gap_says_so() {
    let server = TestServer::builtin(config());
    for (path, body) in [
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b"})),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"})),
    ] {
        let response = server.post(path, &body.to_string());
        assert_eq!(response.status, 400);
        let message = response.json()["error"]["message"].to_string();
        assert!(message.contains("its vocabulary has no tokens for a gap"), "{message}");
    }
}
