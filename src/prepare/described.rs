//! Tests that `openapi.json` describes exactly the fields that are read from requests.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::OPENAPI;
use crate::api::json::ASKED;
use crate::api::llama::slots;
use crate::api::route::{self, Action};
use crate::http::head::Method;

/// Described fields that have no effect here. Clients send them.
const IGNORED: &[&str] = &[
    "data",
    "description",
    "metadata",
    "model",
    "name",
    "signature",
    "strict",
    "user",
    "verbosity",
];

/// The sampling fields of all dialects.
const SAMPLING: &[&str] = &[
    "frequency_penalty",
    "ignore_eos",
    "max_completion_tokens",
    "min_p",
    "n_predict",
    "presence_penalty",
    "repeat_last_n",
    "repeat_penalty",
    "repetition_penalty",
];

/// Sampling fields of chats that requests of the Responses API may also have.
const RESPONSES: &[&str] = &[
    "frequency_penalty",
    "ignore_eos",
    "min_p",
    "presence_penalty",
    "repeat_last_n",
    "repeat_penalty",
    "repetition_penalty",
];

/// llama-server's names that Ollama's `options` may also have.
const OLLAMA_OPTIONS: &[&str] = &[
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_exponent",
    "dynatemp_range",
    "ignore_eos",
    "logit_bias",
    "min_keep",
    "min_tokens",
    "n_probs",
    "repetition_penalty",
    "samplers",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
];

type Names = BTreeSet<String>;

/// Collects the names of a schema's properties, and of the properties inside them.
fn described(document: &Value, schema: &Value, seen: &mut Names, names: &mut Names) {
    if let Some(reference) = schema["$ref"].as_str()
        && seen.insert(reference.to_owned())
    {
        let target = document.pointer(&reference[1..]).expect("it leads somewhere");
        described(document, target, seen, names);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        names.insert(name.clone());
        described(document, property, seen, names);
    }
    for keyword in ["allOf", "anyOf", "prefixItems"] {
        let parts = schema[keyword].as_array().into_iter().flatten();
        parts.for_each(|part| described(document, part, seen, names));
    }
    for keyword in ["items", "additionalProperties"] {
        let part = schema.get(keyword).into_iter();
        part.for_each(|part| described(document, part, seen, names));
    }
}

/// Fields that the reader of this path looks for but `openapi.json` does not describe: they are
/// refused, have no effect on this path, or are another dialect's names.
fn undescribed(path: &str) -> &'static [&'static str] {
    match path {
        "/v1/completions" => &["top_logprobs"],
        "/v1/chat/completions" | "/chat/completions" => &["echo", "suffix"],
        "/completion" | "/completions" | "/infill" | "/generate" | "/generate_stream" => {
            &["echo", "logprobs", "suffix", "top_logprobs"]
        }
        "/v1/messages" => SAMPLING,
        "/v1/responses" | "/responses" => RESPONSES,
        "/api/chat" | "/api/generate" => OLLAMA_OPTIONS,
        _ => &[],
    }
}

/// The field names that the reader looks for in these bodies.
fn asked(path: &str, bodies: &[Value]) -> Names {
    ASKED.take();
    let route = route::find(Method::Post, path).unwrap();
    for body in bodies {
        let mut bytes = body.to_string().into_bytes();
        let read = match route.action {
            Action::Slot => slots::read_file(&mut bytes).map(drop),
            action => action.read_body().expect("it has a body")(&mut bytes).map(drop),
        };
        if let Err(error) = read {
            panic!("{path}: {error:?}: {body}");
        }
    }
    ASKED.take().into_iter().map(str::to_owned).collect()
}

/// Bodies that together have every form of each nested field.
fn bodies(path: &str) -> Vec<Value> {
    // The fields of all paths that generate text. Each path adds its own.
    let forms = [
        json!({"stream_options": {"include_usage": false}}),
        json!({"response_format": {"type": "json_object", "schema": {"type": "object"}}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}),
        json!({"response_format": {"type": "regex", "pattern": "a"}}),
        json!({"response_format": {"type": "grammar", "grammar": "root ::= \"a\""}}),
    ];
    let with = |needed: Value| {
        let forms = forms.iter().map(move |form| {
            let mut body = needed.clone();
            body.as_object_mut().unwrap().extend(form.as_object().unwrap().clone());
            body
        });
        forms.collect()
    };
    match path {
        "/v1/chat/completions"
        | "/chat/completions"
        | "/apply-template"
        | "/v1/chat/completions/input_tokens"
        | "/chat/completions/input_tokens" => {
            let function = json!({"name": "f", "parameters": {"type": "object"}});
            let choice = json!({"type": "function", "function": {"name": "f"}});
            let call = json!({"id": "1", "type": "function",
                "function": {"name": "f", "arguments": "{}"}});
            with(json!({
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a"}]},
                    {"role": "assistant", "content": [{"type": "refusal", "refusal": "b"}]},
                    {"role": "assistant", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "1", "content": "c"}],
                "tools": [{"type": "function", "function": function}],
                "tool_choice": choice,
            }))
        }
        "/slots/{id_slot}" => vec![json!({"filename": "a"})],
        "/v1/messages" | "/v1/messages/count_tokens" => {
            let blocks = [
                json!({"type": "text", "text": "a"}),
                json!({"type": "thinking", "thinking": "b", "signature": "c"}),
                json!({"type": "tool_use", "id": "1", "name": "f", "input": {}}),
            ];
            let result = json!({"type": "tool_result", "tool_use_id": "1", "content": "d"});
            vec![json!({
                "max_tokens": 1,
                "system": [{"type": "text", "text": "a"}],
                "messages": [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "tool", "name": "f"},
                "output_format": {"type": "json_schema", "schema": {}},
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "output_config": {"effort": "low",
                    "format": {"type": "json_schema", "schema": {"type": "object"}}},
            })]
        }
        "/v1/responses"
        | "/responses"
        | "/v1/responses/input_tokens"
        | "/responses/input_tokens" => {
            let text = json!([{"type": "input_text", "text": "a"}]);
            let body = |choice: Value, format: Value| {
                json!({
                    "input": [
                        {"role": "user", "content": text},
                        {"role": "assistant", "content": [{"type": "refusal", "refusal": "b"}]},
                        {"type": "reasoning", "summary": [], "content": []},
                        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                        {"type": "function_call_output", "call_id": "1", "output": text},
                    ],
                    "tools": [{"type": "function", "name": "f", "parameters": {}}],
                    "tool_choice": choice,
                    "text": {"format": format},
                    "reasoning": {"effort": "low"},
                })
            };
            let tool = json!({"type": "function", "name": "f"});
            let some = json!({"type": "allowed_tools", "mode": "auto", "tools": [tool]});
            vec![
                body(tool, json!({"type": "json_schema", "schema": {}})),
                body(some, json!({"type": "text"})),
            ]
        }
        "/v1/embeddings" => vec![json!({"input": "a"})],
        "/embedding" | "/embeddings" => vec![json!({"input": "a"}), json!({"content": "a"})],
        "/v1/rerank" | "/v2/rerank" | "/rerank" | "/v1/reranking" | "/reranking" => {
            let documents = json!(["a", {"text": "b"}]);
            vec![
                json!({"query": "q", "documents": documents}),
                json!({"query": "q", "texts": documents}),
            ]
        }
        "/v1/score" | "/score" => vec![json!({"text_1": "a", "text_2": [{"text": "b"}]})],
        "/api/chat" => {
            let function = json!({"name": "f", "arguments": {}, "parameters": {}});
            vec![
                json!({"model": "m"}),
                json!({
                    "model": "m",
                    "options": {"temperature": 0},
                    "messages": [{"role": "assistant", "content": "a",
                        "tool_calls": [{"function": function}]}],
                    "tools": [{"type": "function", "function": function}],
                }),
            ]
        }
        "/api/generate" => {
            vec![json!({"model": "m"}), json!({"model": "m", "prompt": "a", "options": {}})]
        }
        "/api/embed" => vec![json!({"model": "m", "input": "a"})],
        "/api/embeddings" => vec![json!({"model": "m", "prompt": "a"})],
        "/api/show" => vec![json!({"model": "m"})],
        "/tokenize" => vec![json!({"content": "a"})],
        "/detokenize" => vec![json!({"tokens": [1]})],
        "/encode" => vec![json!({"text": "a"})],
        "/infill" => {
            let extra = [json!({"filename": "a", "text": "b"})];
            with(json!({"input_prefix": "a", "input_suffix": "b", "input_extra": extra}))
        }
        "/generate" | "/generate_stream" => with(json!({"prompt": "a"})),
        _ => with(json!({"prompt": ["a", {"prompt_string": "b"}]})),
    }
}

#[test]
fn every_field_that_is_read_is_described_and_every_other_one_is_not() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let ignored: Names = IGNORED.iter().map(|name| (*name).to_owned()).collect();
    for (path, methods) in route::ROUTES
        .iter()
        .flat_map(|route| route.paths.iter().map(|path| (*path, route.methods())))
    {
        // These read all fields of a generation request, but use only the conversation.
        let is_prompt_alone = path == "/apply-template"
            || path == "/v1/messages/count_tokens"
            || path.ends_with("/input_tokens");
        if methods != "POST" || path.ends_with("/cancel") {
            continue;
        }
        let mut item = &document["paths"][path];
        while let Some(reference) = item["$ref"].as_str() {
            item = document.pointer(&reference[1..]).unwrap();
        }
        let schema = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        let mut names = Names::new();
        described(&document, schema, &mut Names::new(), &mut names);
        assert!(!names.is_empty(), "{path}");
        let asked = asked(path, &bodies(path));
        let idle: Vec<_> =
            names.difference(&asked).filter(|name| !ignored.contains(*name)).collect();
        assert!(idle.is_empty(), "{path}: described, and not read: {idle:?}");
        let mut hidden: Names = asked.difference(&names).cloned().collect();
        hidden.retain(|name| !ignored.contains(name));
        if is_prompt_alone {
            continue;
        }
        let expected: Names = undescribed(path).iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(hidden, expected, "{path}: read, and not described");
    }
}
