//! Requests that cost much more than their bytes: constraints that explode when they are compiled,
//! many texts, and conversations that are kept.

use corelane::config::ServeConfig;
use corelane::keys::ApiKey;
use corelane::limits;
use corelane::types::Pooling;
use serde_json::{Value, json};

use crate::support::{TestServer, config, eventually};

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn with_template() -> ServeConfig {
    ServeConfig { chat_template: Some(CHATML.into()), ..config() }
}

fn text(pattern: &str) -> Value {
    json!({"type": "string", "pattern": pattern})
}

/// Patterns that meet on one value.
fn patterns(many: u8) -> Vec<Value> {
    (0..many).map(|n| text(&format!("[a-{}]+", char::from(b'b' + n % 24)))).collect()
}

fn complete(server: &TestServer, schema: &Value) -> (u16, String) {
    let body = json!({"prompt": "a", "max_tokens": 4, "json_schema": schema}).to_string();
    let response = server.post("/v1/completions", &body);
    (response.status, response.json()["error"]["message"].to_string())
}

#[test]
fn a_schema_that_explodes_is_refused_and_its_part_is_named() {
    let server = TestServer::builtin(config());
    let all_of = json!({"type": "object", "properties": {"a": {"allOf": patterns(60)}}});
    let all = |all, one| json!({"allOf": [all, one]});
    let nested = patterns(30).into_iter().reduce(all).unwrap(); // a body nests at most 64 levels
    let mut parts = patterns(60);
    for (at, part) in parts.iter_mut().enumerate().take(59) {
        part["$ref"] = format!("#/$defs/p{}", at + 1).into();
    }
    let named = parts.into_iter().enumerate().map(|(n, part)| (format!("p{n}"), part));
    let by_reference = json!({"$ref": "#/$defs/p0", "$defs": Value::Object(named.collect())});
    let choices = |n: usize| -> Vec<Value> {
        (0..64).map(|i| json!({"properties": {format!("k{n}_{i}"): {"type": "integer"}}})).collect()
    };
    let products: Vec<Value> = (0..6).map(|n| json!({"anyOf": choices(n)})).collect();
    for (schema, part) in [
        (all_of, "#/properties/a/allOf, where 60 schemas can meet"),
        (nested, "/allOf, where 2 schemas can meet"),
        (by_reference, "stands beside other keywords"),
        (json!({"allOf": products}), "#/allOf, where 6 schemas can meet"),
    ] {
        let (status, message) = complete(&server, &schema);
        assert_eq!(status, 400, "{message}");
        assert!(message.contains(part), "{message}");
        let bounds = ["it would take more than", "schema too large"];
        assert!(bounds.iter().any(|bound| message.contains(bound)), "{message}");
    }
    assert_eq!(server.metrics.trial.time_us.count(), 4, "no other lane saw them");
    // What can be compiled passes the trial.
    assert_eq!(complete(&server, &json!({"allOf": patterns(2)})).0, 200);
}

#[test]
fn a_trial_that_cannot_be_made_is_the_servers_fault() {
    let server =
        TestServer::builtin(ServeConfig { program: Some("/nonexistent".into()), ..config() });
    let (status, message) = complete(&server, &json!({"allOf": patterns(20)}));
    assert_eq!(status, 503, "{message}");
    assert!(message.contains("the constraint cannot be compiled now: No such file"), "{message}");
    assert_eq!(complete(&server, &text("[a-z]{1,9}")).0, 200, "it is cheap, and needs no trial");
}

#[test]
fn a_helper_that_hangs_is_given_up_with_the_request() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/hanging_helper.sh");
    let server = TestServer::builtin(ServeConfig { program: Some(program.into()), ..config() });
    // More than a pipe holds, so that sending it waits, too.
    let names: Vec<String> = (0..4400).map(|n| format!("{n:05}\u{7}")).collect();
    for schema in [json!({"allOf": patterns(20)}), json!({"allOf": [{"enum": names}, {}]})] {
        let mut body = json!({"prompt": "a", "max_tokens": 1, "timeout_ms": 300});
        body["json_schema"] = schema;
        let response = server.post("/v1/completions", &body.to_string());
        assert_eq!(response.status, 504, "{}", response.body);
    }
}

#[test]
fn a_trial_of_one_key_delays_no_cheap_schema_of_another() {
    let keys = ["alice:alice", "bob:bob"].map(|key| key.parse::<ApiKey>().unwrap());
    let server = TestServer::builtin(ServeConfig { keys: keys.into(), ..config() });
    let post = |key: &str, schema: Value| {
        let body = json!({"prompt": "a", "max_tokens": 1, "json_schema": schema}).to_string();
        let mut client = server.connect();
        client.send(format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ).as_bytes());
        client
    };
    let mut waiting = post("alice", json!({"allOf": patterns(60)}));
    assert_eq!(post("bob", json!({"type": "integer"})).response().status, 200);
    assert_eq!(server.metrics.trial.time_us.count(), 0, "the trial still ran");
    assert_eq!(waiting.response().status, 400);
}

#[test]
fn many_texts_are_tokenised_in_pieces() {
    let server = TestServer::builtin(ServeConfig { pooling: Some(Pooling::Mean), ..config() });
    let mut inputs: Vec<String> =
        (0..127).map(|n| format!("{n} {}", "words ".repeat(250))).collect();
    inputs.push("x ".repeat(32 * 1024)); // it is refused before a vector is computed
    let body = json!({"input": inputs}).to_string();
    assert_eq!(server.post("/v1/embeddings", &body).status, 400);
    let pieces = server.metrics.prepare_long.time_us.count();
    assert_eq!(pieces, (body.len() / limits::PIECE_BYTES) as u64, "one for each 64 KiB");
}

/// Everybody's short texts would wait for it, on a stack that is too small for it.
#[test]
fn a_text_goes_to_the_lane_for_its_length() {
    let chat_template =
        Some("{% for n in range(40) %}{{ messages[-1].content }}{% endfor %}".into());
    let server = TestServer::builtin(ServeConfig { chat_template, ..config() });
    let tasks =
        || [&server.metrics.prepare, &server.metrics.prepare_long].map(|lane| lane.time_us.count());
    let done_by = |act: &dyn Fn()| {
        let before = tasks();
        act();
        let after = tasks();
        [after[0] - before[0], after[1] - before[1]]
    };
    let (_, kept) = keep(&server, None, json!("a"));
    let long = "words ".repeat(limits::PREPARE_LONG_BYTES_MIN / 6 + 1);
    // It does not fit into the context, which is found on the lane.
    let continued = done_by(&|| {
        assert_eq!(keep(&server, kept["id"].as_str(), json!(long)).0, 400);
    });
    assert_eq!(continued, [0, 2], "read there, and tokenised there");
    let short = json!([{"role": "user", "content": "words ".repeat(300)}]);
    let body = json!({"messages": short, "model": "m"}).to_string();
    let counted = done_by(&|| {
        assert_eq!(server.post("/v1/messages/count_tokens", &body).status, 200);
    });
    assert_eq!(counted, [1, 1], "the template makes a long text of a short one");
}

/// Keeps a response to these items, and returns the answer.
fn keep(server: &TestServer, previous: Option<&str>, items: Value) -> (u16, Value) {
    let mut body = json!({"input": items, "max_output_tokens": 1});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous.into();
    }
    let response = server.post("/v1/responses", &body.to_string());
    (response.status, response.json())
}

/// Items with reasoning that the template does not show.
fn thoughts(bytes: usize) -> Value {
    let thought = json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "x".repeat(bytes)}]});
    json!([{"role": "user", "content": "Hi"}, thought, {"role": "assistant", "content": "Ok"}, {"role": "user", "content": "On"}])
}

#[test]
fn a_kept_conversation_is_counted_for_each_request_that_continues_it() {
    let request_memory = Some(limits::REQUEST_MEMORY_BYTES_MIN);
    let server = TestServer::builtin(ServeConfig { request_memory, ..with_template() });
    let (status, first) = keep(&server, None, thoughts(1 << 20));
    assert_eq!(status, 200, "{first}");
    let id = first["id"].as_str().unwrap();
    let (status, second) = keep(&server, Some(id), json!("Go on"));
    assert_eq!(status, 200, "{second}");
    let before = first["usage"]["input_tokens"].as_u64().unwrap();
    assert!(second["usage"]["input_tokens"].as_u64().unwrap() > before);
    eventually("everything is given back", || server.metrics.front.request_bytes.get() == 0);
    // An eighth of the memory is for kept responses.
    let most = limits::REQUEST_MEMORY_BYTES_MIN / limits::RESPONSES_SHARE;
    let (status, large) = keep(&server, None, thoughts(most));
    assert_eq!(status, 200);
    let (status, error) = keep(&server, large["id"].as_str(), json!("Go on"));
    assert_eq!(status, 400, "it was too large to be kept: {error}");
}

#[test]
fn long_ids_are_refused_while_they_are_read() {
    let server = TestServer::builtin(with_template());
    let long = "c".repeat(limits::ID_BYTES_MAX + 1);
    let output = json!({"type": "function_call_output", "call_id": long, "output": "ok"});
    let call = json!({"type": "function_call", "call_id": long, "name": "f", "arguments": "{}"});
    let item = json!({"role": "user", "content": "a", "id": long});
    for (previous, items) in [
        (None, json!([output])),
        (None, json!([call])),
        (None, json!([item])),
        (Some(long.as_str()), json!("a")),
    ] {
        let (status, answer) = keep(&server, previous, items);
        assert_eq!(status, 400, "{answer}");
        let message = answer["error"]["message"].to_string();
        assert!(message.contains("has 65 bytes; an id has at most 64"), "{message}");
    }
    let response = server.get(&format!("/v1/responses/{long}"));
    assert_eq!(response.status, 404);
    assert!(response.body.contains("its id has 65 bytes"), "{}", response.body);
}

#[test]
fn a_long_page_of_items_is_written_on_a_lane() {
    let server = TestServer::builtin(with_template());
    let (status, kept) = keep(&server, None, thoughts(limits::RANGE_BYTES_MAX));
    assert_eq!(status, 200, "{kept}");
    let tasks = || server.metrics.prepare_long.time_us.count();
    let before = tasks();
    let path = format!("/v1/responses/{}/input_items", kept["id"].as_str().unwrap());
    let page = server.get(&format!("{path}?limit=1")).json();
    assert_eq!((page["data"][0]["content"].as_str(), tasks()), (Some("On"), before));
    let page = server.get(&path).json();
    assert_eq!(page["data"].as_array().unwrap().len(), 4);
    assert_eq!(
        page["data"][2]["summary"][0]["text"].as_str().unwrap().len(),
        limits::RANGE_BYTES_MAX
    );
    assert_eq!(tasks(), before + 1);
}

/// A request may be many times as large as its body once it is read.
#[test]
fn a_request_that_waits_is_counted_as_it_was_read() {
    let request_memory = Some(limits::REQUEST_MEMORY_BYTES_MIN);
    let server = TestServer::builtin(ServeConfig { request_memory, ..with_template() });
    let (_, kept) = keep(&server, None, json!("Hi"));
    let arguments = json!({"a": vec![0; 700_000]}).to_string();
    let call =
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments});
    let body = json!({"input": [call], "previous_response_id": kept["id"]}).to_string();
    assert!(body.len() < 3 << 20);
    let response = server.post("/v1/responses", &body);
    assert_eq!(response.status, 400, "{}", response.body);
    assert!(response.body.contains("bytes of memory; they may take"), "{}", response.body);
    eventually("everything is given back", || server.metrics.front.request_bytes.get() == 0);
}
