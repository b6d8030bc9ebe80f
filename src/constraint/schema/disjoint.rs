//! Decides whether one value can match two schemas, in simple cases. In all others, assumes that it
//! can.

use std::cell::Cell;

use serde_json::{Map, Value};

/// Most references that are followed in a row to decide whether two subschemas exclude each other.
const SCHEMA_REFERENCES_IN_A_ROW_MAX: usize = 16;

/// Finds two of the schemas, by index, that may share a value. `work` is the number of comparisons
/// left of [`crate::limits::SCHEMA_COMPARISONS_MAX`]; at zero, any two count as sharing one.
pub(super) fn overlap(
    root: &Value,
    options: &[Value],
    work: &Cell<usize>,
) -> Option<(usize, usize)> {
    let options: Vec<&Value> = options.iter().map(|option| resolved(root, option)).collect();
    let mut pairs = (0..options.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    pairs.find(|(a, b)| !are_disjoint(options[*a], options[*b], work))
}

/// Follows references to the schema that they name.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..SCHEMA_REFERENCES_IN_A_ROW_MAX {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
        match target.and_then(|pointer| root.pointer(pointer)) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}

fn are_disjoint(a: &Value, b: &Value, work: &Cell<usize>) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return *a == Value::Bool(false) || *b == Value::Bool(false);
    };
    types_of(a) & types_of(b) == 0
        || have_nothing_in_common(values_of(a), values_of(b), work)
        || (types_of(a) == OBJECT && types_of(b) == OBJECT && have_different_tags(a, b, work))
}

/// Whether a property that one of them requires has different constants in both.
fn have_different_tags(a: &Map<String, Value>, b: &Map<String, Value>, work: &Cell<usize>) -> bool {
    let required = |map: &Map<String, Value>, name: &str| {
        let names = map.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|n| n == name))
    };
    fn constants<'a>(map: &'a Map<String, Value>, name: &str) -> Option<Vec<&'a Value>> {
        let property = map.get("properties").and_then(|properties| properties.get(name));
        property.and_then(Value::as_object).and_then(values_of)
    }
    let mut names = a.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    names.any(|name| {
        (required(a, name) || required(b, name))
            && have_nothing_in_common(constants(a, name), constants(b, name), work)
    })
}

/// All values of a schema, if it lists them in `const` or `enum`.
fn values_of(map: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (map.get("const"), map.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

fn have_nothing_in_common(
    a: Option<Vec<&Value>>,
    b: Option<Vec<&Value>>,
    work: &Cell<usize>,
) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    let Some(left) = work.get().checked_sub(a.len() * b.len() + 1) else { return false };
    work.set(left);
    let equal = |x: &Value, y: &Value| match (x.as_f64(), y.as_f64()) {
        (Some(x), Some(y)) => x == y,
        // Nested numbers may be equal in different spellings, so arrays and objects count as equal.
        _ => x == y || x.is_array() || x.is_object(),
    };
    !a.iter().any(|x| b.iter().any(|y| equal(x, y)))
}

/// Types as bits. Integers are numbers, too.
const OBJECT: u8 = 1 << 5;

fn types_of(map: &Map<String, Value>) -> u8 {
    let bit = |name: &str| match name {
        "null" => 1,
        "boolean" => 1 << 1,
        "integer" | "number" => 1 << 2,
        "string" => 1 << 3,
        "array" => 1 << 4,
        _ => OBJECT,
    };
    match (map.get("type"), values_of(map)) {
        (Some(Value::String(name)), _) => bit(name),
        (Some(Value::Array(names)), _) => {
            names.iter().filter_map(Value::as_str).map(bit).fold(0, |types, bit| types | bit)
        }
        (_, Some(values)) => values.iter().map(|value| bit(type_of(value))).fold(0, |a, b| a | b),
        _ => u8::MAX,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
