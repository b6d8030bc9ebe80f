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

/// A grammar of the values of a schema in JSON. The definitions in `root` that it refers to are
/// carried along. If it refers to another place, any value is allowed.
pub(super) fn json_of(schema: &Value, root: &Value) -> String {
    let mut schema = without_annotations(schema);
    match definitions(&schema, root) {
        Some(definitions) => {
            if let Value::Object(fields) = &mut schema {
                for (name, schemas) in definitions {
                    fields.entry(name).or_insert(Value::Object(schemas));
                }
            }
            format!("%json {schema}")
        }
        None => "%json {}".to_owned(),
    }
}

/// The definitions that a schema refers to, directly or through others: for `$defs` and
/// `definitions`, names and schemas. `None` if one is missing.
fn definitions(schema: &Value, root: &Value) -> Option<Vec<(String, Map<String, Value>)>> {
    let mut found = ["$defs", "definitions"].map(|place| (place.to_owned(), Map::new()));
    let mut paths = Vec::new();
    references(schema, &mut paths);
    while let Some(path) = paths.pop() {
        let mut parts = path.strip_prefix("#/")?.splitn(3, '/');
        let (place, name) = (parts.next()?, parts.next()?);
        let (_, schemas) = found.iter_mut().find(|(known, _)| known == place)?;
        if !schemas.contains_key(name) {
            let definition = without_annotations(root.get(place)?.get(name)?);
            references(&definition, &mut paths);
            schemas.insert(name.to_owned(), definition);
        }
    }
    Some(found.into_iter().filter(|(_, schemas)| !schemas.is_empty()).collect())
}

/// Adds the targets of all `$ref` in a schema.
fn references(schema: &Value, paths: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            paths.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| references(field, paths));
        }
        Value::Array(schemas) => schemas.iter().for_each(|schema| references(schema, paths)),
        _ => {}
    }
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
    fn a_part_of_a_schema_brings_what_it_refers_to() {
        let root = json!({"$defs": {
            "a": {"items": {"$ref": "#/$defs/b"}, "title": "A"},
            "b": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
            "c": {}}});
        let carried = json_of(&json!({"$ref": "#/$defs/a"}), &root);
        let schema: Value = serde_json::from_str(carried.strip_prefix("%json ").unwrap()).unwrap();
        let expected = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"items": {"$ref": "#/$defs/b"}},
            "b": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}}});
        assert_eq!(schema, expected);
        assert_eq!(json_of(&json!({"type": "string"}), &root), r#"%json {"type":"string"}"#);
        for elsewhere in ["#/properties/a", "#/$defs/d", "https://a/b", "#"] {
            assert_eq!(json_of(&json!({"$ref": elsewhere}), &root), "%json {}", "{elsewhere}");
        }
    }

    #[test]
    fn a_text_is_free_where_the_schema_says_nothing_else() {
        let root = json!({"$defs": {"kind": {"enum": ["a", "b"]}, "text": {"type": "string"}}});
        let free = [
            json!({"type": "string", "minLength": 1}),
            json!({"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]}),
            json!({"type": ["string", "null"], "description": "a"}),
            json!({"description": "anything"}),
            json!(true),
        ];
        let bound = [
            json!({"$ref": "#/$defs/kind"}),
            json!({"anyOf": [{"$ref": "#/$defs/kind"}, {"type": "null"}]}),
            json!({"type": ["string", "integer"]}),
            json!({"allOf": [{"type": "string"}]}),
        ];
        free.iter().for_each(|schema| assert!(is_any_text(schema, &root), "{schema}"));
        bound.iter().for_each(|schema| assert!(!is_any_text(schema, &root), "{schema}"));
        assert_eq!(choices(&bound[0], &root), Some(vec!["a", "b"]));
        assert_eq!(choices(&json!({"const": "x"}), &root), Some(vec!["x"]));
        assert_eq!(choices(&json!({"enum": ["a", 1]}), &root), None);
    }

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
