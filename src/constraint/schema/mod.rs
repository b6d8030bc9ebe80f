//! Checks JSON Schemas before llguidance reads them.
//!
//! llguidance ignores keywords that the schema's draft lacks, follows some keywords of its own, and
//! gives no place in its errors. So this module first visits every schema that can be reached from
//! the root. It refuses unknown keywords, and names them and their place. It passes the schema on
//! with its meaning unchanged, after three edits: formats that a calendar or clock restricts become
//! patterns, bounds that no output can reach are removed, and the layout is added.
//!
//! A schema may refer to its own parts (`#/...`), but not to another document.

mod disjoint;
mod finite;
mod formats;
mod values;
mod walk;

use serde_json::{Value, json};

use crate::constraint::error::ConstraintError;
use crate::limits::JSON_INDENT_MAX;
use crate::types::digits;
pub use walk::SchemaBudget;
use walk::{Edit, Strictness};

/// Rounds of removing the keywords of a schema that cannot be obeyed. More than two are rare.
const LOOSENING_ROUNDS: usize = 4;

/// A schema of any JSON object, for llguidance.
pub(super) fn any_object() -> Value {
    laid_out(json!({ "type": "object" }))
}

/// Reads and checks a schema.
pub(super) fn read(source: &str) -> Result<Value, ConstraintError> {
    match digits::parse(source) {
        Ok(schema) => check(digits::rounded(schema)),
        Err(error) => Err(ConstraintError(format!("the JSON schema is not JSON: {error}"))),
    }
}

/// Checks a schema. The result is for llguidance only.
pub(super) fn check(schema: Value) -> Result<Value, ConstraintError> {
    check_within(schema, &SchemaBudget::default())
}

fn check_within(mut schema: Value, budget: &SchemaBudget) -> Result<Value, ConstraintError> {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    let edits = walk::walk(&schema, Strictness::Refuse, budget)?;
    for edit in edits {
        apply(edit, &mut schema);
    }
    Ok(laid_out(schema))
}

fn apply(edit: Edit, schema: &mut Value) {
    let place = match &edit {
        Edit::Remove(at, _) | Edit::Pattern(at, _) | Edit::AnyOf(at) | Edit::Any(at) => {
            schema.pointer_mut(at)
        }
    };
    // An edit before this one may have removed the place.
    let Some(place) = place else { return };
    if let Edit::Any(_) = edit {
        *place = json!({});
    }
    let Some(map) = place.as_object_mut() else { return };
    match edit {
        // The order of the others stays: it is the order in which a model writes.
        Edit::Remove(_, keyword) => {
            map.shift_remove(&keyword);
        }
        Edit::Pattern(_, pattern) => {
            map.shift_remove("format");
            let all_of = map.entry("allOf").or_insert_with(|| json!([]));
            if let Some(all_of) = all_of.as_array_mut() {
                all_of.push(json!({ "pattern": pattern }));
            }
        }
        Edit::AnyOf(_) => {
            if let Some(options) = map.shift_remove("oneOf") {
                map.entry("anyOf").or_insert(options);
            }
        }
        Edit::Any(_) => {}
    }
}

/// Checks that a schema can be obeyed.
///
/// # Errors
/// The keyword that cannot, and its place; or that the budget is spent.
pub fn check_schema(schema: &Value, budget: &SchemaBudget) -> Result<(), ConstraintError> {
    check_within(schema.clone(), budget).map(drop)
}

/// A schema that allows at least the values that `schema` allows, and that can be obeyed: without
/// the keywords that cannot be obeyed. For tools whose schemas are hints to the model. Once the budget
/// is spent, it allows any object.
pub fn loosened(schema: &Value, budget: &SchemaBudget) -> Value {
    let mut loose = schema.clone();
    for _ in 0..LOOSENING_ROUNDS {
        // An edit may remove the target of a reference, which the next round then removes.
        match walk::walk(&loose, Strictness::Loosen, budget) {
            Ok(edits) if edits.is_empty() => return loose,
            Ok(edits) => edits.into_iter().for_each(|edit| apply(edit, &mut loose)),
            Err(_) => break,
        }
    }
    json!({ "type": "object" })
}

/// Forbids the members that an object's schema does not name, unless the schema says that there may
/// be others. Small models invent members. Left open are objects that name no members at all, and
/// schemas that are joined with others (`allOf`, `$ref` and the like), where the others may name
/// more.
pub fn close_objects(schema: &mut Value) {
    const JOINS: [&str; 5] = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties"];
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(close_objects),
        Value::Object(map) => {
            let names = map.get("properties").and_then(Value::as_object);
            if names.is_some_and(|names| !names.is_empty())
                && !JOINS.iter().any(|keyword| map.contains_key(*keyword))
            {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            for (keyword, value) in map.iter_mut() {
                match (keyword.as_str(), value) {
                    ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                        named.values_mut().for_each(close_objects);
                    }
                    ("items" | "prefixItems" | "anyOf" | "oneOf", value) => close_objects(value),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Adds llguidance's options for the layout of JSON.
///
/// Between two JSON tokens there may be one space, one line break with an indentation, or nothing.
/// Small models write JSON in these ways. If more were allowed, some would write endless white
/// space. Printable characters are not written as `\uXXXX`: two spellings of one key would count as
/// two keys. The walk has already ensured that a value matches at most one alternative of a
/// `oneOf`.
fn laid_out(mut schema: Value) -> Value {
    let options = json!({
        "whitespace_pattern": format!(r" |\n[ \t]{{0,{JSON_INDENT_MAX}}}"),
        "json_allowed_escapes": "nrbtf\\\"",
        "coerce_one_of": true,
    });
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("x-guidance".into(), options);
    }
    schema
}

#[cfg(test)]
mod tests;
