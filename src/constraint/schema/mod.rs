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
use walk::Edit;

/// A schema of any JSON object, for llguidance.
pub(super) fn any_object() -> Value {
    laid_out(json!({ "type": "object" }))
}

/// Reads and checks a schema.
pub(super) fn read(source: &str) -> Result<Value, ConstraintError> {
    match serde_json::from_str(source) {
        Ok(schema) => check(schema),
        Err(error) => Err(ConstraintError(format!("the JSON schema is not JSON: {error}"))),
    }
}

/// Checks a schema. The result is for llguidance only.
pub(super) fn check(mut schema: Value) -> Result<Value, ConstraintError> {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    let edits = walk::walk(&schema)?;
    for edit in edits {
        apply(edit, &mut schema);
    }
    Ok(laid_out(schema))
}

fn apply(edit: Edit, schema: &mut Value) {
    let place = match &edit {
        Edit::Remove(at, _) | Edit::Pattern(at, _) => schema.pointer_mut(at),
    };
    let map = place.and_then(Value::as_object_mut).expect("the walk found an object there");
    match edit {
        Edit::Remove(_, keyword) => {
            map.remove(keyword);
        }
        Edit::Pattern(_, pattern) => {
            map.remove("format");
            let all_of = map.entry("allOf").or_insert_with(|| json!([]));
            all_of
                .as_array_mut()
                .expect("the walk found a list")
                .push(json!({ "pattern": pattern }));
        }
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
