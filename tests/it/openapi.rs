//! `src/api/openapi.json` describes the API that exists: its paths are those of the route table, its
//! schemas are valid JSON schemas, and its numbers are those of `limits.rs`. (`described.rs` compares
//! a server's answers with it.)

use std::collections::{BTreeMap, BTreeSet};

use crate::support::openapi::{
    METHODS, assert_valid, document, operations, paths, payloads, resolve, validator,
};
use corelane::limits;
use serde_json::{Map, Value};

/// Every schema that is no part of another one, with where it stands.
fn schemas(document: &Value) -> Vec<(String, &Value)> {
    fn walk<'a>(path: &str, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), v)).collect(),
            Value::Array(items) => {
                items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect()
            }
            _ => return,
        };
        for (key, child) in children {
            let path = format!("{path}/{key}");
            match key.as_str() {
                "example" => {}
                "schema" | "x-event-schema" => found.push((path, child)),
                "schemas" => {
                    let named = child.as_object().unwrap().iter();
                    found.extend(named.map(|(name, schema)| (format!("{path}/{name}"), schema)));
                }
                _ => walk(&path, child, found),
            }
        }
    }
    let mut found = Vec::new();
    walk("", document, &mut found);
    found
}

/// A schema and all that are in it; fails at a keyword that none has.
fn visit(path: &str, schema: &Value, see: &mut impl FnMut(&str, &Map<String, Value>)) {
    let Some(fields) = schema.as_object() else { panic!("{path} is no schema: {schema}") };
    see(path, fields);
    for (keyword, value) in fields {
        let path = format!("{path}/{keyword}");
        match keyword.as_str() {
            "items" | "additionalProperties" | "contains" | "not" => visit(&path, value, see),
            "allOf" | "anyOf" | "prefixItems" => {
                value.as_array().unwrap().iter().for_each(|part| visit(&path, part, see));
            }
            "properties" | "patternProperties" => {
                let properties = value.as_object().unwrap().iter();
                properties.for_each(|(name, part)| visit(&format!("{path}/{name}"), part, see));
            }
            "$ref" | "type" | "enum" | "const" | "required" | "default" | "description"
            | "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems"
            | "maxProperties" | "pattern" | "contentEncoding" | "x-limits" => {}
            _ => panic!("{path}: no such keyword"),
        }
    }
}

#[test]
fn its_paths_and_methods_are_the_routers() {
    let document = document();
    let described: BTreeMap<&str, BTreeSet<String>> = paths(&document)
        .map(|(path, item)| {
            let methods = METHODS.into_iter().filter(|method| item.get(method).is_some());
            (path, methods.map(str::to_uppercase).collect())
        })
        .collect();
    let mut served: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for route in corelane::api::route::ROUTES {
        for path in route.paths {
            let methods = route.methods().split(", ").chain(["OPTIONS"]);
            served.entry(path).or_default().extend(methods.map(str::to_owned));
        }
    }
    assert_eq!(described, served);
}

#[test]
fn it_is_a_description_of_this_version() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let tags = document["tags"].as_array().unwrap().iter();
    let tags: BTreeSet<&str> = tags.map(|tag| tag["name"].as_str().unwrap()).collect();
    for (path, method, operation) in operations(&document) {
        let what = format!("{method} {path}");
        let mut its_tags = operation["tags"].as_array().unwrap().iter();
        assert!(its_tags.all(|tag| tags.contains(tag.as_str().unwrap())), "{what}");
        let has_body = method == "post" && !path.ends_with("/cancel");
        assert_eq!(operation.get("requestBody").is_some(), has_body, "{what}");
        let responses = operation["responses"].as_object().unwrap();
        let succeeds = responses.keys().any(|status| status.starts_with('2'));
        let is_refused = method == "post" && path.ends_with("/cancel");
        assert_eq!(succeeds, !is_refused, "{what}");
        for (status, response) in responses {
            let response = resolve(&document, response);
            assert!(response["description"].is_string(), "{what} {status}");
            let empty = method == "head" || method == "options";
            assert_eq!(response.get("content").is_none(), empty, "{what} {status}");
        }
        // `{model}` in the path is a parameter, and nothing else is.
        let item = resolve(&document, &document["paths"][path]);
        let parameters = item["parameters"].as_array().unwrap().iter();
        let parameters = parameters.map(|parameter| resolve(&document, parameter));
        let in_path = parameters.filter(|parameter| parameter["in"] == "path");
        let names = in_path.map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap()));
        assert!(names.clone().all(|name| path.contains(&name)), "{what}");
        assert_eq!(names.count(), path.matches('{').count(), "{what}");
    }
}

#[test]
fn its_references_lead_somewhere_and_its_schemas_are_schemas() {
    fn follow(document: &Value, value: &Value) {
        match value {
            Value::Object(fields) => {
                resolve(document, value);
                fields.values().for_each(|child| follow(document, child));
            }
            Value::Array(items) => items.iter().for_each(|child| follow(document, child)),
            _ => {}
        }
    }
    let document = document();
    follow(&document, &document);
    let schemas = schemas(&document);
    assert!(schemas.len() > 100, "{} schemas", schemas.len());
    for (path, schema) in schemas {
        visit(&path, schema, &mut |_, _| ());
        jsonschema::meta::validate(schema).unwrap_or_else(|error| panic!("{path}: {error}"));
        validator(&document, schema);
    }
}

#[test]
fn its_examples_are_examples() {
    fn check(document: &Value, path: &str, value: &Value, checked: &mut usize) {
        let Some(fields) = value.as_object() else { return };
        if let Some(example) = fields.get("example") {
            if let Some(schema) = fields.get("schema") {
                assert_valid(document, schema, example, path);
                *checked += 1;
            }
            if let Some(schema) = fields.get("x-event-schema") {
                for payload in payloads(example.as_str().unwrap()) {
                    assert_valid(document, schema, &payload, path);
                    *checked += 1;
                }
            }
        }
        let children = fields.iter().filter(|(key, _)| *key != "schemas" && *key != "schema");
        children.for_each(|(key, child)| check(document, &format!("{path}/{key}"), child, checked));
    }
    let document = document();
    let mut checked = 0;
    check(&document, "", &document, &mut checked);
    assert!(checked > 50, "{checked} examples");
}

/// The limits that `x-limits` may name.
fn known_limits() -> BTreeMap<&'static str, i64> {
    let size = |n: usize| i64::try_from(n).unwrap();
    BTreeMap::from([
        ("CACHE_SALT_BYTES_MAX", size(limits::CACHE_SALT_BYTES_MAX)),
        ("CHOICES_MAX", size(limits::CHOICES_MAX)),
        ("COMPLETION_LOGPROBS_MAX", limits::COMPLETION_LOGPROBS_MAX),
        ("CONSTRAINT_BYTES_MAX", size(limits::CONSTRAINT_BYTES_MAX)),
        ("DRY_BREAKERS_MAX", size(limits::DRY_BREAKERS_MAX)),
        ("DRY_BREAKER_BYTES_MAX", size(limits::DRY_BREAKER_BYTES_MAX)),
        ("EMBEDDING_INPUTS_MAX", size(limits::EMBEDDING_INPUTS_MAX)),
        ("GUIDED_CHOICES_MAX", size(limits::GUIDED_CHOICES_MAX)),
        ("LLAMA_SAMPLING_MAX", limits::LLAMA_SAMPLING_MAX as i64),
        ("-LLAMA_SAMPLING_MAX", -limits::LLAMA_SAMPLING_MAX as i64),
        ("LOGIT_BIAS_ENTRIES_MAX", size(limits::LOGIT_BIAS_ENTRIES_MAX)),
        ("INDENT_MAX", limits::INDENT_MAX),
        ("INFILL_EXTRA_MAX", size(limits::INFILL_EXTRA_MAX)),
        ("LOGIT_BIAS_MAX", limits::LOGIT_BIAS_MAX as i64),
        ("-LOGIT_BIAS_MAX", -limits::LOGIT_BIAS_MAX as i64),
        ("LOGIT_BIAS_TEXT_BYTES_MAX", size(limits::LOGIT_BIAS_TEXT_BYTES_MAX)),
        ("MESSAGES_MAX", size(limits::MESSAGES_MAX)),
        ("PARTS_MAX", size(limits::PARTS_MAX)),
        ("PENALTY_MAX", limits::PENALTY_MAX as i64),
        ("-PENALTY_MAX", -limits::PENALTY_MAX as i64),
        ("PRIORITY_MAX", limits::PRIORITY_MAX.into()),
        ("-PRIORITY_MAX", (-limits::PRIORITY_MAX).into()),
        ("PROMPTS_MAX", size(limits::PROMPTS_MAX)),
        ("SLOT_FILE_NAME_BYTES_MAX", size(limits::SLOT_FILE_NAME_BYTES_MAX)),
        ("REGEX_BYTES_MAX", size(limits::REGEX_BYTES_MAX)),
        ("REQUEST_ID_BYTES_MAX", size(limits::REQUEST_ID_BYTES_MAX)),
        ("REQUEST_TIMEOUT_MAX", i64::try_from(limits::REQUEST_TIMEOUT_MAX.as_millis()).unwrap()),
        ("LENGTH_MAX", limits::LENGTH_MAX),
        ("RETRY_AFTER_S_MAX", i64::try_from(limits::RETRY_AFTER_S_MAX).unwrap()),
        ("SAMPLERS_MAX", size(limits::SAMPLERS_MAX)),
        ("RESPONSE_FIELDS_MAX", size(limits::RESPONSE_FIELDS_MAX)),
        ("RESPONSE_FIELD_BYTES_MAX", size(limits::RESPONSE_FIELD_BYTES_MAX)),
        ("SEQUENCE_TOKENS_MAX", size(limits::SEQUENCE_TOKENS_MAX)),
        ("SLOTS_MAX", size(limits::SLOTS_MAX)),
        ("STOPS_MAX", size(limits::STOPS_MAX)),
        ("STOP_BYTES_MAX", size(limits::STOP_BYTES_MAX)),
        ("TEMPERATURE_MAX", limits::TEMPERATURE_MAX as i64),
        ("TEXT_BYTES_MAX", size(limits::TEXT_BYTES_MAX)),
        ("TOOLS_MAX", size(limits::TOOLS_MAX)),
        ("TOOL_NAME_CHARS_MAX", size(limits::TOOL_NAME_CHARS_MAX)),
        ("TOP_LOGPROBS_MAX", size(limits::TOP_LOGPROBS_MAX)),
    ])
}

#[test]
fn its_numbers_are_our_limits() {
    let (document, known) = (document(), known_limits());
    let mut named = BTreeSet::new();
    for (path, schema) in schemas(&document) {
        visit(&path, schema, &mut |path, fields| {
            let Some(limits) = fields.get("x-limits") else { return };
            for (keyword, name) in limits.as_object().unwrap() {
                let name = name.as_str().unwrap();
                let limit =
                    known.get(name).unwrap_or_else(|| panic!("{path}: {name} is not known"));
                assert_eq!(fields[keyword], *limit, "{path}: {keyword} is {name}");
                named.insert(name.to_owned());
            }
        });
    }
    let known: BTreeSet<String> = known.into_keys().map(str::to_owned).collect();
    assert_eq!(named, known);
    let text = document.to_string();
    for sentence in [
        format!("{} bytes (`BODY_BYTES_MAX`)", limits::BODY_BYTES_MAX),
        format!("{} bytes (`HEAD_BYTES_MAX`)", limits::HEAD_BYTES_MAX),
        format!("more than {} (`HEADERS_MAX`)", limits::HEADERS_MAX),
        format!("1 to {} printable", limits::REQUEST_ID_BYTES_MAX),
        format!("at most {} bytes", limits::TEXT_BYTES_MAX),
        format!("{} bytes (`CONSTRAINT_BYTES_MAX`)", limits::CONSTRAINT_BYTES_MAX),
        format!("every {} s of silence", limits::PING_INTERVAL.as_secs()),
    ] {
        assert!(text.contains(&sentence), "{sentence}");
    }
}
