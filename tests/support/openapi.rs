//! The API's description, and how to ask it something.
#![allow(dead_code)] // each test binary uses its own part of it

use serde_json::Value;

/// The methods that a path may have.
pub const METHODS: [&str; 5] = ["get", "head", "options", "post", "delete"];

pub fn document() -> Value {
    serde_json::from_str(include_str!("../../src/api/openapi.json")).unwrap()
}

/// Follows `$ref` to the value itself.
pub fn resolve<'a>(document: &'a Value, mut value: &'a Value) -> &'a Value {
    while let Some(reference) = value.get("$ref").and_then(Value::as_str) {
        let pointer = reference.strip_prefix('#').expect("references stay in the document");
        let target = document.pointer(pointer);
        value = target.unwrap_or_else(|| panic!("{reference} leads nowhere"));
    }
    value
}

/// Every path with its operations. An alias has those of the path that it refers to.
pub fn paths(document: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.map(|(path, item)| (path.as_str(), resolve(document, item)))
}

/// Every path, method and operation.
pub fn operations(document: &Value) -> impl Iterator<Item = (&str, &'static str, &Value)> {
    paths(document).flat_map(|(path, item)| {
        METHODS.into_iter().filter_map(move |method| Some((path, method, item.get(method)?)))
    })
}

/// A schema that can be asked; its references are into the document.
pub fn validator(document: &Value, schema: &Value) -> jsonschema::Validator {
    let mut root = schema.clone();
    root["components"] = document["components"].clone();
    jsonschema::validator_for(&root).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

pub fn assert_valid(document: &Value, schema: &Value, value: &Value, what: &str) {
    let validator = validator(document, schema);
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{what}: {value}\n{}", errors.join("\n"));
}

/// The payloads of an event stream, but for OpenAI's last, or of lines of JSON.
pub fn payloads(stream: &str) -> Vec<Value> {
    let lines = stream.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let payloads = lines.filter(|line| line.starts_with('{'));
    payloads.map(|payload| serde_json::from_str(payload).unwrap()).collect()
}
