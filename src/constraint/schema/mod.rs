//! JSON Schema, checked before llguidance reads it.
//!
//! llguidance ignores keywords that the schema's draft does not have, follows
//! some of its own, and names no place in its errors. So every schema that can be
//! reached from the root is looked at here first: what is not known is refused
//! with its name and its place. What goes on to llguidance means the same, with
//! these edits: formats that a calendar or a clock would contradict become
//! patterns, bounds that no output can reach go, and the layout is added.
//!
//! A schema may refer to its own parts (`#/...`), never to another document.

mod disjoint;
mod finite;
mod formats;
mod values;
mod walk;

use serde_json::{Value, json};

use crate::constraint::error::ConstraintError;
use crate::limits::JSON_INDENT_MAX;
use walk::Edit;

/// The schema of any JSON object, for llguidance.
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

/// Checks a schema; what it gives is for llguidance alone.
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

/// Adds llguidance's own options: how the JSON is laid out.
///
/// Between two of its tokens a space, or a line break and an indentation, or
/// nothing, as small models like to write it, and no further: they get lost in
/// endless white space otherwise. Characters that JSON lets stand for themselves
/// are not written as `\uXXXX`: two spellings of one key would pass for two keys.
/// The walk has made sure that one value fits at most one alternative of a `oneOf`.
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
