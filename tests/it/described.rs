//! Every answer of a server fits its description in `src/api/openapi.json`.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Duration;

use crate::support::openapi::{assert_valid, document, operations, payloads, resolve, validator};
use crate::support::{Response, TestServer, config, eventually, post_bytes};
use corelane::config::{FileFolder, ServeConfig};
use corelane::limits;
use corelane::model::fake::FakeOptions;
use corelane::types::Pooling;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Sends a request and holds the answer against the document.
fn ask(server: &TestServer, method: &str, path: &str, headers: &str, body: &str) -> Response {
    let mut client = server.connect();
    let target = path.replace("{model}", &server.served.name.replace(' ', "%20"));
    let target = target.replace("{id}", "resp_none");
    let (upper, length) = (method.to_uppercase(), body.len());
    let length = if headers.contains("Content-Length") || headers.contains("Transfer-Encoding") {
        String::new()
    } else {
        format!("Content-Length: {length}\r\n")
    };
    let head = format!("{upper} {target} HTTP/1.1\r\nHost: localhost\r\n{length}{headers}\r\n");
    client.send(format!("{head}{body}").as_bytes());
    let response = if method == "head" {
        let (status, headers) = client.head().unwrap();
        Response { status, headers, body: String::new() }
    } else {
        client.response()
    };
    hold_against(&document(), method, path, &response);
    response
}

fn hold_against(document: &Value, method: &str, path: &str, response: &Response) {
    let what = format!("{method} {path}: {} {}", response.status, response.body);
    let operation = &resolve(document, &document["paths"][path])[method];
    let described = operation["responses"].get(response.status.to_string());
    let described = resolve(document, described.unwrap_or_else(|| panic!("not described: {what}")));
    for (name, header) in described["headers"].as_object().unwrap() {
        let schema = &resolve(document, header)["schema"];
        let text = response.header(name).unwrap_or_else(|| panic!("no {name}: {what}"));
        let value = match schema["type"].as_str() {
            Some("integer") => serde_json::from_str(text).unwrap(),
            _ => text.into(),
        };
        assert_valid(document, schema, &value, &what);
    }
    let Some(content) = described.get("content") else {
        assert!(response.body.is_empty(), "{what}");
        return;
    };
    let media = response.header("content-type").unwrap();
    let media = content.get(media).unwrap_or_else(|| panic!("{media} is not described: {what}"));
    match media.get("x-event-schema") {
        None if media["schema"]["type"] == "string" => {} // text
        None => assert_valid(document, &media["schema"], &response.json(), &what),
        Some(schema) => {
            let payloads = payloads(&response.body);
            assert!(!payloads.is_empty(), "{what}");
            payloads.iter().for_each(|payload| assert_valid(document, schema, payload, &what));
        }
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

/// The built-in model, with a template that knows tools and with pooling, which it lacks itself.
fn able() -> ServeConfig {
    let chat_template = Some(include_str!("../templates/qwen2.5.jinja").to_owned());
    ServeConfig { chat_template, pooling: Some(Pooling::Mean), metrics: true, ..config() }
}

/// Requests that [`able`] serves, some for every path.
fn good() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "What is 3 plus 4?"}]);
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}},
        "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}});
    let usage = json!({"include_usage": true});
    let city = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"], "additionalProperties": false});
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": city}}]);
    vec![
        ("/v1/completions", json!({"prompt": "Once", "max_tokens": 8, "temperature": 0})),
        ("/v1/completions", json!({"prompt": ["Once", "The"], "n": 2, "max_tokens": 4})),
        ("/v1/completions", json!({"prompt": "Once", "max_tokens": 4, "logprobs": 2})),
        ("/v1/completions", json!({"prompt": "Once", "max_tokens": 4, "echo": true})),
        (
            "/v1/completions",
            json!({"prompt": "Once", "max_tokens": 0, "echo": true, "logprobs": 1}),
        ),
        (
            "/v1/completions",
            json!({"prompt": "Once", "max_tokens": 2, "echo": true, "logprobs": 1, "stream": true}),
        ),
        ("/v1/completions", json!({"prompt": "Once", "max_tokens": 60, "json_schema": schema})),
        (
            "/v1/completions",
            json!({"prompt": [100, 101], "max_tokens": 4, "stream": true, "stream_options": usage}),
        ),
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 16})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": 4, "n": 2, "logprobs": true,
                "top_logprobs": 3}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": 60, "response_format": format}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": 8, "stream": true, "stream_options": usage}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": 200, "tools": tools,
                "tool_choice": "required", "parallel_tool_calls": false}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": 200, "tools": tools,
                "tool_choice": "required", "stream": true}),
        ),
        ("/v1/responses", json!({"input": "What is 3 plus 4?", "top_logprobs": 2})),
        (
            "/v1/responses",
            json!({"input": messages, "stream": true, "instructions": "Be brief.",
                "max_output_tokens": 8, "metadata": {"a": "b"}}),
        ),
        (
            "/v1/responses",
            json!({"input": "a", "stream": true, "tool_choice": "required",
                "tools": [{"type": "function", "name": "weather", "parameters": city}]}),
        ),
        (
            "/v1/responses",
            json!({"input": "a", "text": {"format": {"type": "json_schema", "name": "s",
                "schema": schema}}}),
        ),
        ("/v1/responses/input_tokens", json!({"input": "What is 3 plus 4?"})),
        ("/v1/chat/completions/input_tokens", json!({"messages": messages})),
        ("/v1/embeddings", json!({"input": ["hello", "world"]})),
        ("/v1/embeddings", json!({"input": [[100, 101]], "encoding_format": "base64"})),
        ("/v1/embeddings", json!({"input": "hello", "input_type": "query"})),
        ("/embedding", json!({"content": ["hello", "world"], "embd_normalize": -1})),
        ("/embedding", json!({"input": [100, 101]})),
        ("/v1/messages", json!({"model": "any", "messages": messages, "max_tokens": 16})),
        (
            "/v1/messages",
            json!({"model": "any", "messages": messages, "max_tokens": 200, "stream": true,
                "tools": [{"name": "weather", "input_schema": city}],
                "tool_choice": {"type": "any"}}),
        ),
        (
            "/v1/messages",
            json!({"model": "any", "messages": messages, "max_tokens": 16, "stream": true}),
        ),
        ("/v1/messages/count_tokens", json!({"model": "any", "messages": messages})),
        ("/completion", json!({"prompt": "Once", "n_predict": 4, "n_probs": 2})),
        ("/completion", json!({"prompt": ["Once", "The"], "n_predict": 4, "return_tokens": true})),
        ("/completion", json!({"prompt": "Once", "n_predict": 4, "stream": true})),
        (
            "/completion",
            json!({"prompt": "Once", "n_predict": 4, "stream": true, "return_progress": true,
                "sse_ping_interval": -1, "id_slot": 0, "timings_per_token": true}),
        ),
        (
            "/completion",
            json!({"prompt": "Once", "n_predict": 4,
                "response_fields": ["content", "generation_settings/n_predict", "nothing"]}),
        ),
        (
            "/v1/completions",
            json!({"prompt": "Once", "max_tokens": 4, "stream": true, "return_progress": true}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "max_tokens": 4, "stream": true, "return_progress": true,
                "stream_options": usage}),
        ),
        ("/api/chat", json!({"model": "m", "messages": messages, "stream": false})),
        (
            "/api/chat",
            json!({"model": "m", "messages": messages, "options": {"num_predict": 4},
                "logprobs": true, "top_logprobs": 2}),
        ),
        ("/api/chat", json!({"model": "m", "messages": messages, "tools": tools})),
        ("/api/chat", json!({"model": "m", "messages": []})),
        ("/api/generate", json!({"model": "m", "prompt": "Hi", "format": schema})),
        ("/api/generate", json!({"model": "m", "prompt": "Once", "raw": true, "stream": false})),
        ("/api/generate", json!({"model": "m", "keep_alive": 0})),
        ("/api/embed", json!({"model": "m", "input": ["hello", "world"]})),
        ("/api/embeddings", json!({"model": "m", "prompt": "hello"})),
        ("/api/show", json!({"model": "m", "verbose": true})),
        ("/tokenize", json!({"content": "Hello w\u{f6}rld"})),
        ("/tokenize", json!({"content": "Hello w\u{f6}rld", "with_pieces": true})),
        ("/detokenize", json!({"tokens": [100, 101]})),
        ("/apply-template", json!({"messages": messages})),
        ("/generate", json!({"prompt": "Once", "max_tokens": 8})),
        ("/generate", json!({"prompt": "Once", "max_tokens": 8, "stream": true})),
        ("/generate_stream", json!({"prompt": "Once", "max_tokens": 8})),
        ("/encode", json!({"text": "Once"})),
    ]
}

/// Requests that the built-in model cannot serve, for its vocabulary has no tokens for a gap.
fn good_for_fake() -> Vec<(&'static str, Value)> {
    let extra = [json!({"filename": "a.rs", "text": "b"}), json!({"text": "c"})];
    let gap = |more: Value| {
        let mut body = json!({"input_prefix": "a\n", "input_suffix": "b", "n_predict": 4});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("/infill", body)
    };
    vec![
        gap(json!({"prompt": "c", "input_extra": extra, "n_indent": 2, "t_max_predict_ms": 1000,
            "samplers": ["top_k", "top_p", "infill"], "response_fields": ["content"]})),
        gap(json!({"stream": true})),
        ("/v1/completions", json!({"prompt": "a", "suffix": "b"})),
    ]
}

/// Requests for a model with a ranking head.
fn good_for_ranks() -> Vec<(&'static str, Value)> {
    let documents = json!(["a fox", {"text": "a river"}]);
    vec![
        (
            "/v1/rerank",
            json!({"query": "fox", "documents": documents, "top_n": 1, "return_documents": true,
                "max_tokens_per_doc": 64, "use_activation": false}),
        ),
        (
            "/v1/rerank",
            json!({"query": "fox", "texts": documents, "return_text": true, "raw_scores": true}),
        ),
        ("/v1/score", json!({"text_1": "fox", "text_2": documents, "use_activation": true})),
        ("/v1/score", json!({"text_1": ["fox", "sun"], "text_2": ["a fox", "the sun"]})),
    ]
}

#[test]
fn good_requests_are_described_and_answered_as_described() {
    let server = TestServer::builtin(able());
    let fake = TestServer::fake(config(), 0);
    let ranks = TestServer::ranking(config());
    let document = document();
    let mut left: BTreeSet<&str> = operations(&document)
        .filter(|(_, method, _)| *method == "post")
        .filter(|(path, ..)| document["paths"][path].get("$ref").is_none())
        .filter(|(path, ..)| !path.contains("{id"))
        .map(|(path, ..)| path)
        .collect();
    let asked =
        [(&server, good()), (&fake, good_for_fake()), (&ranks, good_for_ranks())].into_iter();
    for (server, path, body) in asked
        .flat_map(|(server, asked)| asked.into_iter().map(move |(path, body)| (server, path, body)))
    {
        let media = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        assert_valid(&document, &media["schema"], &body, path);
        let response = ask(server, "post", path, JSON, &body.to_string());
        assert_eq!(response.status, 200, "{path} {body}: {}", response.body);
        left.remove(path);
    }
    assert!(left.is_empty(), "no good request for {left:?}");
    for (path, method, _) in operations(&document) {
        let expected = match method {
            "post" => continue,
            "options" => 204,
            _ if path.contains("{id}") => 404,
            _ => 200,
        };
        assert_eq!(ask(&server, method, path, "", "").status, expected, "{method} {path}");
    }
    let kept = server.post("/v1/responses", r#"{"input":"Hi","max_output_tokens":4}"#).json();
    let kept = format!("/v1/responses/{}", kept["id"].as_str().unwrap());
    for (method, path, after, status) in [
        ("get", "/v1/responses/{id}", "", 200),
        ("get", "/v1/responses/{id}/input_items", "/input_items?limit=1", 200),
        ("get", "/v1/responses/{id}/input_items", "/input_items?limit=0", 400),
        ("post", "/v1/responses/{id}/cancel", "/cancel", 400),
        ("delete", "/v1/responses/{id}", "", 200),
        ("delete", "/v1/responses/{id}", "", 404),
    ] {
        let mut client = server.connect();
        let method_upper = method.to_uppercase();
        let head = format!("{method_upper} {kept}{after} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.send(head.as_bytes());
        let response = client.response();
        assert_eq!(response.status, status, "{method} {path}: {}", response.body);
        hold_against(&document, method, path, &response);
    }
    for (room, wanted) in [(64, [200, 200, 200, 400, 404]), (0, [507, 404, 200, 400, 404])] {
        let folder = TempDir::new().unwrap();
        let files = FileFolder { path: folder.path().to_owned(), mib: room };
        let server = TestServer::builtin(ServeConfig { slot_save: Some(files), ..config() });
        let prompt = "A robot and a fox walk to the river. ".repeat(4);
        let text = json!({"prompt": prompt, "n_predict": 4, "id_slot": 0}).to_string();
        assert_eq!(server.post("/completion", &text).status, 200);
        let names = ["a", "a", "", "a", "none"].map(|name| json!({"filename": name}));
        let actions = ["save", "restore", "erase", "save", "restore"];
        for ((action, name), status) in actions.into_iter().zip(names).zip(wanted) {
            let asked = format!("/slots/0?action={action}");
            let response = server.post(&asked, &name.to_string());
            assert_eq!(response.status, status, "{asked}: {}", response.body);
            hold_against(&document, "post", "/slots/{id_slot}", &response);
        }
    }
    for level in ["basic", "detailed", "full"] {
        let response = server.get(&format!("/health?level={level}"));
        assert_eq!(response.status, 200);
        hold_against(&document, "get", "/health", &response);
    }
    assert_eq!(server.get("/openapi.json").json(), document);
}

/// Requests with a wrong field. The schema refuses each of them, too.
fn bad() -> Vec<(&'static str, Value)> {
    let image = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
    vec![
        ("/v1/completions", json!({"prompt": ""})),
        ("/v1/completions", json!({"prompt": "a", "temperature": 3})),
        ("/v1/completions", json!({"prompt": "a", "n": 0})),
        ("/v1/completions", json!({"prompt": "a", "stop": [""]})),
        ("/v1/completions", json!({"prompt": "a", "response_format": {"type": "xml"}})),
        ("/v1/chat/completions", json!({"messages": []})),
        ("/v1/chat/completions", json!({"messages": [{"role": "king", "content": "a"}]})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": image}]})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user"}]})),
        ("/v1/responses", json!({"input": []})),
        ("/v1/responses", json!({"input": [{"role": "king", "content": "a"}]})),
        ("/v1/responses", json!({"input": "a", "tools": [{"type": "function", "name": "a b"}]})),
        ("/v1/responses", json!({"input": "a", "metadata": {"a": 1}})),
        ("/v1/responses/input_tokens", json!({"input": 5})),
        ("/v1/chat/completions/input_tokens", json!({"messages": "a"})),
        ("/v1/embeddings", json!({"input": ""})),
        ("/v1/embeddings", json!({"input": "a", "encoding_format": "hex"})),
        ("/v1/messages", json!({"max_tokens": 5, "messages": [{"role": "king", "content": "a"}]})),
        ("/v1/messages", json!({"max_tokens": -2, "messages": [{"role": "user", "content": "a"}]})),
        ("/v1/messages/count_tokens", json!({"messages": "a"})),
        ("/completion", json!({"prompt": "a", "n_predict": "many"})),
        ("/completion", json!({"prompt": "a", "response_fields": "content"})),
        ("/completion", json!({"prompt": "a", "sse_ping_interval": 0})),
        ("/api/chat", json!({"model": "m", "messages": [{"role": "king", "content": "a"}]})),
        ("/api/chat", json!({"model": "m", "options": {"top_p": 2}})),
        ("/api/generate", json!({"model": "m", "prompt": "a", "format": "xml"})),
        ("/api/embed", json!({"model": "m", "input": [1, 2]})),
        ("/api/embeddings", json!({"model": "m", "prompt": ["a"]})),
        ("/api/show", json!({"model": 5})),
        ("/tokenize", json!({"content": 5})),
        ("/detokenize", json!({"tokens": ["a"]})),
        ("/detokenize", json!({"tokens": [-1]})),
        ("/apply-template", json!({"messages": "a"})),
        ("/generate", json!({"prompt": 5})),
        ("/generate_stream", json!({"prompt": "a", "max_tokens": -2})),
        ("/infill", json!({"input_prefix": "a", "input_suffix": "b", "input_extra": ["c"]})),
        ("/infill", json!({"input_prefix": "a"})),
        ("/encode", json!({"text": ["a"]})),
    ]
}

#[test]
fn bad_requests_are_refused_as_described() {
    let server = TestServer::builtin(config());
    let document = document();
    for (path, body) in bad() {
        let media = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        let accepted = validator(&document, &media["schema"]).is_valid(&body);
        assert!(!accepted, "{path}: the document allows {body}");
        let response = ask(&server, "post", path, JSON, &body.to_string());
        assert_eq!(response.status, 400, "{path} {body}: {}", response.body);
    }
    // It has no pooling.
    assert_eq!(ask(&server, "post", "/v1/embeddings", JSON, r#"{"input":"a"}"#).status, 400);
    let too_long = format!("Content-Length: {}\r\n", limits::BODY_BYTES_MAX + 1);
    for (path, method, _) in operations(&document) {
        let refused = |headers: &str, body: &str, status: u16| {
            let response = ask(&server, method, path, headers, body);
            assert_eq!(response.status, status, "{method} {path} {headers:?} {body}");
        };
        if method == "post" && !path.contains("{id}") {
            for body in ["", "{", "[1]", "{}", "{\"a\":1e400}", "nul"] {
                refused(JSON, body, 400);
            }
            refused("Content-Type: text/plain\r\n", "{}", 415);
        }
        if method == "get" || method == "post" {
            refused("Expect: cake\r\n", "", 417);
            refused("Transfer-Encoding: gzip\r\n", "", 501);
            refused(&format!("X: {}\r\n", "x".repeat(limits::HEAD_BYTES_MAX)), "", 431);
            refused(&too_long, "", 413);
        }
    }
    let response = server.get("/v1/models/nope");
    assert_eq!(response.status, 404);
    hold_against(&document, "get", "/v1/models/{model}", &response);
    let response = server.get("/health?level=most");
    assert_eq!(response.status, 400);
    hold_against(&document, "get", "/health", &response);
}

#[test]
fn who_may_come_in_is_described() {
    let keys = vec![crate::support::key("secret")];
    let server = TestServer::builtin(ServeConfig { keys, ..config() });
    for (path, method, operation) in operations(&document()) {
        let public = operation.get("security") == Some(&json!([]));
        let response = ask(&server, method, path, JSON, "");
        assert_eq!(response.status == 401, !public, "{method} {path}: {}", response.status);
        for header in ["Authorization: Bearer secret\r\n", "X-Api-Key: secret\r\n"] {
            assert_ne!(ask(&server, method, path, header, "").status, 401, "{method} {path}");
        }
    }
}

#[test]
fn what_a_server_says_while_it_loads_is_described() {
    let mut server = corelane::lanes::Server::start(config()).unwrap();
    let document = document();
    for (path, method, _) in operations(&document).filter(|(_, method, _)| *method != "options") {
        let mut client = crate::support::Client::connect(server.address());
        let (upper, target) = (method.to_uppercase(), path.replace(['{', '}'], ""));
        client.send(format!("{upper} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let (status, headers) = client.head().unwrap();
        let length = headers.iter().find(|(name, _)| name == "content-length").unwrap();
        let mut body = vec![0; if method == "head" { 0 } else { length.1.parse().unwrap() }];
        client.stream.read_exact(&mut body).unwrap();
        let response = Response { status, headers, body: String::from_utf8(body).unwrap() };
        assert_eq!(response.status, 503, "{method} {path}");
        hold_against(&document, method, path, &response);
    }
    server.load_fake(FakeOptions::default()).unwrap();
    server.control().drain();
    server.join().unwrap();
}

#[test]
fn a_full_server_and_a_late_answer_are_described() {
    let step = Duration::from_millis(20);
    let options = FakeOptions { step, ..FakeOptions::default() };
    let one = ServeConfig { parallel: 1, queue_requests: 1, ..config() };
    let server = TestServer::fake_with(one, options);
    let hold = r#"{"prompt":"hold","max_tokens":4000}"#;
    let mut holder = server.connect();
    holder.send(post_bytes("/generate_stream", hold).as_bytes());
    holder.head().unwrap();
    let generating = ["/v1/completions", "/completion", "/generate", "/generate_stream"];
    for path in generating {
        let late = r#"{"prompt":"late","timeout_ms":30}"#;
        assert_eq!(ask(&server, "post", path, JSON, late).status, 504, "{path}");
    }
    let mut waiting = server.connect();
    waiting.send(post_bytes("/generate_stream", hold).as_bytes());
    for path in generating {
        eventually("the queue is full", || {
            let refused = r#"{"prompt":"refused","timeout_ms":30}"#;
            ask(&server, "post", path, JSON, refused).status == 429
        });
    }
}
