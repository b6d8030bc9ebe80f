//! Prepares the JSON schemas of tools for a grammar.

use serde_json::{Map, Value, json};

use crate::chat::output::offered::{Types, resolve};

/// Makes sure that a schema of arguments is the schema of an object.
pub(super) fn schema_of_object(parameters: &Value) -> Value {
    match without_annotations(parameters) {
        Value::Object(schema) if schema.contains_key("type") || schema.contains_key("$ref") => {
            Value::Object(schema)
        }
        Value::Object(schema) => {
            let mut object = Map::from_iter([("type".to_owned(), json!("object"))]);
            object.extend(schema);
            Value::Object(object)
        }
        _ => json!({"type": "object"}),
    }
}

/// Removes annotations from a schema, such as descriptions. They are most of the text of a large
/// set of tools, do not restrict values, and the model has read them in its prompt.
pub(super) fn without_annotations(schema: &Value) -> Value {
    const ANNOTATIONS: &[&str] = &[
        "title",
        "description",
        "default",
        "examples",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    ];
    // The keys in these objects are names chosen by the user; each has a schema.
    const NAMED: &[&str] =
        &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
    // These hold values rather than schemas.
    const VALUES: &[&str] = &["enum", "const"];
    match schema {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !ANNOTATIONS.contains(&name.as_str()));
            let field = |(name, value): (&String, &Value)| {
                let value = match value {
                    Value::Object(named) if NAMED.contains(&name.as_str()) => {
                        let one = |(name, schema): (&String, &Value)| {
                            (name.clone(), without_annotations(schema))
                        };
                        Value::Object(named.iter().map(one).collect())
                    }
                    value if VALUES.contains(&name.as_str()) => value.clone(),
                    value => without_annotations(value),
                };
                (name.clone(), value)
            };
            Value::Object(kept.map(field).collect())
        }
        Value::Array(schemas) => schemas.iter().map(without_annotations).collect(),
        value => value.clone(),
    }
}

/// A grammar of the values of a schema in JSON. The schemas of `root` that it may refer to are
/// carried along.
pub(super) fn json_of(schema: &Value, root: &Value) -> String {
    let mut schema = without_annotations(schema);
    if schema.to_string().contains("\"$ref\"")
        && let Value::Object(fields) = &mut schema
    {
        for name in ["$defs", "definitions"] {
            if let Some(schemas) = root.get(name).filter(|_| !fields.contains_key(name)) {
                let schemas = without_annotations(&json!({ name: schemas }))[name].take();
                fields.insert(name.to_owned(), schemas);
            }
        }
    }
    format!("%json {schema}")
}

/// The texts that a value may be, if it must be one of several.
pub(super) fn choices<'a>(schema: &'a Value, root: &'a Value) -> Option<Vec<&'a str>> {
    let schema = resolve(schema, root);
    let values = schema["enum"].as_array().map(Vec::as_slice);
    let values = values.or_else(|| schema.get("const").map(std::slice::from_ref))?;
    let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
    texts.filter(|texts| !texts.is_empty() && texts.iter().all(|text| !text.is_empty()))
}

/// Whether any text can be a value. `null` may be among the values: no text is needed for it to be
/// valid.
pub(super) fn is_any_text(schema: &Value, root: &Value) -> bool {
    let schema = resolve(schema, root);
    let is_bound = |schema: &Value| schema.get("enum").or(schema.get("const")).is_some();
    let options = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    let mut options = options.into_iter().flatten().map(|option| resolve(option, root));
    if is_bound(schema) || options.any(is_bound) {
        return false;
    }
    let types = Types::of_schema(schema, root);
    let is_free = match without_annotations(schema) {
        Value::Object(fields) => fields.is_empty(),
        schema => schema == true,
    };
    types == Types::STRING || types == Types::STRING | Types::NULL || is_free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_of_the_values_is_left_out() {
        let long = "a".repeat(100_000);
        let parameters = json!({"title": "T", "description": long, "type": "object", "properties": {
            "description": {"type": "string", "description": "d", "default": "x"},
            "kind": {"enum": [{"title": 1}], "examples": [1]},
            "more": {"anyOf": [{"const": {"default": 1}, "title": "t"}, {"type": "null"}]}}});
        assert_eq!(
            schema_of_object(&parameters),
            json!({"type": "object", "properties": {"description": {"type": "string"},
                "kind": {"enum": [{"title": 1}]},
                "more": {"anyOf": [{"const": {"default": 1}}, {"type": "null"}]}}})
        );
    }
}
