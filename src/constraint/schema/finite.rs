//! Decides whether a recursive schema has any finite value.
//!
//! A list with an optional tail has one. A list with a required tail has none: a model would
//! generate until it reaches its limit of tokens.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Finds a schema that no finite value can satisfy because it always contains itself, and returns
/// its JSON pointer. `reached` has each schema with its pointer, subschemas before the schemas that
/// contain them.
pub(super) fn endless<'a>(reached: &'a [(String, &Value)]) -> Option<&'a str> {
    // Schemas known to have a finite value; each pass adds more.
    let mut finite: HashSet<&str> = HashSet::new();
    loop {
        let before = finite.len();
        for (at, schema) in reached {
            if !finite.contains(at.as_str()) && is_finite(at, schema, &finite) {
                finite.insert(at);
            }
        }
        if finite.len() == before {
            break;
        }
    }
    reached.iter().map(|(at, _)| at.as_str()).find(|at| !finite.contains(at))
}

fn is_finite(at: &str, schema: &Value, finite: &HashSet<&str>) -> bool {
    // llguidance reports schemas that forbid everything.
    let Value::Object(map) = schema else { return true };
    let has = |path: String| finite.contains(path.as_str());
    let all = |keyword: &str| (0..len(map, keyword)).all(|i| has(format!("{at}/{keyword}/{i}")));
    let any = |keyword: &str| {
        let n = len(map, keyword);
        n == 0 || (0..n).any(|i| has(format!("{at}/{keyword}/{i}")))
    };
    let reference = map.get("$ref").and_then(Value::as_str);
    reference.is_none_or(|target| finite.contains(target.trim_start_matches('#')))
        && all("allOf")
        && any("anyOf")
        && any("oneOf")
        && (is_literal(map)
            || allows_scalar(map)
            || (allows(map, "array") && array_is_finite(map, at, &has))
            || (allows(map, "object") && object_is_finite(map, at, &has)))
}

fn len(map: &Map<String, Value>, keyword: &str) -> usize {
    map.get(keyword).and_then(Value::as_array).map_or(0, Vec::len)
}

fn is_literal(map: &Map<String, Value>) -> bool {
    map.contains_key("const") || map.contains_key("enum")
}

fn allows(map: &Map<String, Value>, name: &str) -> bool {
    match map.get("type") {
        None => true,
        Some(Value::Array(names)) => names.iter().any(|n| n == name),
        Some(one) => one == name,
    }
}

fn allows_scalar(map: &Map<String, Value>) -> bool {
    ["null", "boolean", "integer", "number", "string"].iter().any(|name| allows(map, name))
}

/// Whether all required items of an array have finite values.
fn array_is_finite(map: &Map<String, Value>, at: &str, has: &dyn Fn(String) -> bool) -> bool {
    let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let (tuple, rest) = match map.get("items") {
        Some(Value::Array(_)) => ("items", "additionalItems"),
        _ => ("prefixItems", "items"),
    };
    let tuple_len = len(map, tuple) as u64;
    (0..tuple_len.min(least)).all(|i| has(format!("{at}/{tuple}/{i}")))
        && (least <= tuple_len || !map.contains_key(rest) || has(format!("{at}/{rest}")))
}

/// Whether all required properties of an object have finite values.
fn object_is_finite(map: &Map<String, Value>, at: &str, has: &dyn Fn(String) -> bool) -> bool {
    let required = map.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let properties = map.get("properties").and_then(Value::as_object);
    required.iter().filter_map(Value::as_str).all(|name| {
        if properties.is_some_and(|properties| properties.contains_key(name)) {
            let name = name.replace('~', "~0").replace('/', "~1");
            return has(format!("{at}/properties/{name}"));
        }
        // If a pattern covers the property, this check is stricter than needed.
        !map.contains_key("additionalProperties") || has(format!("{at}/additionalProperties"))
    })
}
