//! Numbers that a double or 64 bits cannot hold: they pass through unchanged, or are refused by name.

use corelane::config::ServeConfig;
use corelane::types::digits::parse;

use crate::support::{TestServer, config};

/// Shows tools and calls as JSON, as most templates do.
const TEMPLATE: &str = "{{ n }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}\
    [{{ m.role }}]{{ m.content }}{% if m.tool_calls %}<tool_call>{{ m.tool_calls | tojson }}{% endif %}\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

const LONG: &str = "123456789012345678901234567890";

/// Arguments as JSON, with the spaces of `tojson`.
fn arguments() -> String {
    format!(r#"{{"a": 1e400, "b": [{LONG}, -3.141592653589793238462643], "c": 1E-400, "d": 5}}"#)
}

fn server() -> TestServer {
    TestServer::builtin(ServeConfig { chat_template: Some(TEMPLATE.into()), ..config() })
}

#[test]
fn a_number_of_thirty_digits_passes_through_a_conversation() {
    let server = server();
    let arguments = arguments();
    let schema =
        format!(r#"{{"type": "object", "properties": {{"a": {{"enum": [1e400, {LONG}]}}}}}}"#);
    let quoted = serde_json::to_string(&arguments).unwrap();
    for given in [&arguments, &quoted] {
        let body = format!(
            r#"{{"unknown": 1e400, "chat_template_kwargs": {{"n": {LONG}}}, "tools": [{{"type":
            "function", "function": {{"name": "f", "parameters": {schema}}}}}], "messages": [
            {{"role": "user", "content": "Hi"}}, {{"role": "assistant", "tool_calls": [{{"id": "1",
            "type": "function", "function": {{"name": "f", "arguments": {given}}}}}]}},
            {{"role": "tool", "tool_call_id": "1", "content": "1e400"}}]}}"#
        );
        let shown = server.post("/apply-template", &body).json();
        let prompt = shown["prompt"].as_str().expect("it is served");
        assert!(prompt.starts_with(LONG), "{prompt}");
        assert!(prompt.contains(&schema), "{prompt}");
        assert!(prompt.contains(&format!("\"arguments\": {arguments}")), "{prompt}");
        assert!(!prompt.contains('\u{10FFFE}'), "{prompt}");
    }
}

#[test]
fn every_dialect_takes_numbers_of_any_length() {
    let server = server();
    let arguments = arguments();
    let call = format!(r#"{{"function": {{"name": "f", "arguments": {arguments}}}}}"#);
    for (path, body) in [
        (
            "/v1/messages",
            format!(
                r#"{{"max_tokens": 2, "metadata": {{"n": {LONG}}}, "messages": [
                {{"role": "user", "content": "Hi"}}, {{"role": "assistant", "content": [
                {{"type": "tool_use", "id": "1", "name": "f", "input": {arguments}}}]}},
                {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "1",
                "content": "1"}}]}}]}}"#
            ),
        ),
        (
            "/api/chat",
            format!(
                r#"{{"model": "m", "options": {{"num_predict": 2, "num_ctx": 1e400}}, "messages": [
                {{"role": "user", "content": "Hi"}}, {{"role": "assistant", "tool_calls": [{call}]}}]}}"#
            ),
        ),
        ("/v1/completions", format!(r#"{{"prompt": "a", "max_tokens": 2, "x": [{LONG}, 1e400]}}"#)),
    ] {
        let response = server.post(path, &body);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
    }
}

#[test]
fn a_response_that_is_kept_repeats_every_digit() {
    let server = server();
    let arguments = arguments();
    let compact = arguments.replace(' ', "");
    let body = format!(
        r#"{{"max_output_tokens": 2, "tool_choice": "none", "tools": [{{"type": "function",
        "name": "f", "parameters": {{"type": "object", "properties": {{"a": {{"maximum": 1e400}}}}}}}}],
        "input": [{{"role": "user", "content": "Hi", "note": {compact}}}, {{"type": "function_call",
        "call_id": "1", "name": "f", "arguments": {}}}, {{"type": "function_call_output",
        "call_id": "1", "output": "ok"}}]}}"#,
        serde_json::to_string(&arguments).unwrap()
    );
    let kept = server.post("/v1/responses", &body);
    assert_eq!(kept.status, 200, "{}", kept.body);
    assert!(kept.body.contains(r#""maximum":1e400"#), "{}", kept.body);
    let id = &parse(&kept.body).unwrap()["id"];
    let items = server.get(&format!("/v1/responses/{}/input_items", id.as_str().unwrap()));
    assert!(items.body.contains(&format!("\"note\":{compact}")), "{}", items.body);
    let next =
        format!(r#"{{"max_output_tokens": 2, "input": "On", "previous_response_id": {id}}}"#);
    let next = server.post("/v1/responses", &next);
    assert_eq!(next.status, 200, "{}", next.body);
    assert!(!(kept.body + &items.body + &next.body).contains('\u{10FFFE}'));
}

#[test]
fn a_field_that_is_no_such_number_is_named_with_its_text() {
    let server = server();
    for (path, field, value, says) in [
        ("/v1/completions", "temperature", "1e400", "a number from 0 to 2, not 1e400"),
        ("/v1/completions", "max_tokens", LONG, LONG),
        ("/v1/completions", "seed", "-1E+400", "9223372036854775807, not -1E+400"),
        ("/v1/completions", "stop", "1e400", "not 1e400"),
        ("/v1/completions", "logit_bias", r#"{"5": 1e400}"#, "not 1e400"),
        ("/v1/chat/completions", "messages", LONG, LONG),
        ("/v1/chat/completions", "tool_choice", "1e400", "not 1e400"),
    ] {
        let body = format!(r#"{{"prompt": "a", "{field}": {value}}}"#);
        let response = server.post(path, &body);
        let error = &response.json()["error"];
        assert_eq!((response.status, &error["param"]), (400, &field.into()), "{}", response.body);
        assert!(error["message"].as_str().unwrap().ends_with(says), "{error}");
    }
}

#[test]
fn a_schema_with_such_a_number_is_obeyed_or_its_keyword_is_named() {
    let server = server();
    for (schema, keyword) in [
        (r#"{"const": 1e400}"#.to_owned(), Some("const")),
        (format!(r#"{{"enum": [1, {LONG}]}}"#), Some("enum")),
        (r#"{"type": "number", "minimum": -1e400}"#.to_owned(), Some("minimum")),
        (r#"{"type": "number", "multipleOf": 1e400}"#.to_owned(), Some("multipleOf")),
        (r#"{"type": "string", "pattern": 1e400}"#.to_owned(), Some("pattern")),
        (r#"{"type": "array", "maxItems": 1e400}"#.to_owned(), Some("maxItems")),
        (r#"{"const": 0.10000000000000000555, "default": 1e400}"#.to_owned(), None),
    ] {
        let text = serde_json::to_string(&schema).unwrap();
        for given in [&schema, &text] {
            let body = format!(r#"{{"prompt": "a", "max_tokens": 4, "json_schema": {given}}}"#);
            let response = server.post("/v1/completions", &body);
            let (status, names) = match keyword {
                Some(keyword) => (400, keyword),
                None => (200, "0.1"),
            };
            assert_eq!(response.status, status, "{given}: {}", response.body);
            assert!(response.body.contains(names), "{given}: {}", response.body);
        }
    }
    // The schemas of tools that are not strict are hints.
    for strict in [false, true] {
        let body = format!(
            r#"{{"max_tokens": 2, "messages": [{{"role": "user", "content": "Hi"}}], "tools": [{{
            "type": "function", "function": {{"name": "f", "strict": {strict}, "parameters": {{"type":
            "object", "properties": {{"a": {{"enum": [1e400]}}}}}}}}}}], "tool_choice": "required"}}"#
        );
        let response = server.post("/v1/chat/completions", &body);
        assert_eq!(response.status == 400, strict, "{}", response.body);
        assert_ne!(response.status, 500, "{}", response.body);
    }
}

#[test]
fn a_form_that_is_no_json_is_refused_beside_tools() {
    let tool = r#"{"type": "function", "function": {"name": "f"}}"#;
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "Hi"}}], "tools": [{tool}],
        "guided_json": "not JSON"}}"#
    );
    let response = server().post("/v1/chat/completions", &body);
    assert_eq!(response.status, 400, "{}", response.body);
    assert!(
        response.body.contains("guided_json: the JSON schema is not JSON"),
        "{}",
        response.body
    );
}
