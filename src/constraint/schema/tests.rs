//! Tests of JSON schemas over the fake vocabulary.

use serde_json::{Value, json};

use super::super::Constraint;
use super::super::tests::{accepts, compiler, refusal, schema};
use crate::limits::{CONSTRAINT_BYTES_MAX, JSON_INDENT_MAX};

#[test]
fn json_is_laid_out_in_one_line_or_indented() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array"}},
        "required":["a","b"],"additionalProperties":false}"#;
    let compiled = compiler().compile(&Constraint::JsonSchema(schema.into())).unwrap();
    for text in [
        r#"{"a":1,"b":[]}"#,
        r#"{"a": 1, "b": [2, "x"]}"#,
        "{\n  \"a\": 1,\n  \"b\": [\n    true\n  ]\n}",
        "{\n\t\"a\": 1,\n\t\"b\": []\n}",
    ] {
        assert!(accepts(&compiled, text), "{text}");
    }
    let indented = |by: u32| format!("{{\n{}\"a\": 1, \"b\": []}}", " ".repeat(by as usize));
    assert!(accepts(&compiled, &indented(JSON_INDENT_MAX)));
    assert!(!accepts(&compiled, &indented(JSON_INDENT_MAX + 1)));
    for text in [
        " {\"a\":1,\"b\":[]}",    // at the beginning
        "{\"a\":1,\"b\":[]} ",    // at the end
        "{\"a\":  1,\"b\":[]}",   // two spaces
        "{\n\n\"a\":1,\"b\":[]}", // two lines
    ] {
        assert!(!accepts(&compiled, text), "{text:?}");
    }
}

#[test]
fn characters_have_one_spelling_in_json() {
    let compiled = compiler().compile(&schema(r#"{"type":"string"}"#)).unwrap();
    assert!(accepts(&compiled, r#""\n\t\"\\ é漢🦀""#));
    assert!(!accepts(&compiled, r#""\u0061""#));
    // A key in another spelling would bypass the schema of its name.
    let named = r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#;
    let compiled = compiler().compile(&schema(named)).unwrap();
    assert!(accepts(&compiled, r#"{"a":1,"b":"x"}"#));
    assert!(!accepts(&compiled, r#"{"a":"x"}"#));
    assert!(!accepts(&compiled, r#"{"\u0061":"x"}"#));
}

#[test]
fn json_object_is_an_object_of_anything() {
    let compiled = compiler().compile(&Constraint::JsonObject).unwrap();
    assert!(accepts(&compiled, r#"{"a": [1, null, {"b": "c"}], "d": -1.5e3}"#));
    assert!(accepts(&compiled, "{}"));
    assert!(!accepts(&compiled, "[]"));
    assert!(!accepts(&compiled, "1"));
}

#[test]
fn dates_exist() {
    let compiled = compiler().compile(&schema(r#"{"type":"string","format":"date"}"#)).unwrap();
    for (date, exists) in [
        ("2024-02-29", true),
        ("2000-02-29", true),
        ("2023-02-28", true),
        ("2023-02-29", false),
        ("1900-02-29", false),
        ("2023-04-31", false),
        ("2023-12-31", true),
        ("2023-13-01", false),
        ("2023-00-10", false),
    ] {
        assert_eq!(accepts(&compiled, &format!("{date:?}")), exists, "{date}");
    }
    let time = compiler().compile(&schema(r#"{"format":"date-time","type":"string"}"#)).unwrap();
    assert!(accepts(&time, r#""2024-02-29T23:59:59.5Z""#));
    assert!(accepts(&time, r#""2024-02-29T00:00:00+02:00""#));
    assert!(!accepts(&time, r#""2023-02-29T00:00:00Z""#));
    assert!(!accepts(&time, r#""2023-02-28T12:30:60Z""#));
}

#[test]
fn a_format_and_a_pattern_hold_together() {
    let both = r#"{"type":"string","format":"date","pattern":"^2024"}"#;
    let compiled = compiler().compile(&schema(both)).unwrap();
    assert!(accepts(&compiled, "\"2024-02-29\""));
    assert!(!accepts(&compiled, "\"2023-02-28\""));
}

#[test]
fn one_of_is_any_of_where_nothing_fits_twice() {
    let accepted = [
        r#"{"oneOf":[{"type":"string"},{"type":["null","integer"]}]}"#,
        r#"{"oneOf":[{"const":1},{"const":2},{"enum":["a","b"]}]}"#,
        r##"{"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
            "a":{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},
            "b":{"type":"object","properties":{"t":{"enum":["b","c"]}},"required":["t"]}}}"##,
    ];
    for source in accepted {
        compiler().compile(&schema(source)).unwrap();
    }
    for source in [
        r#"{"oneOf":[{"type":"integer"},{"type":"number"}]}"#,
        r#"{"oneOf":[{"const":1},{"const":1.0}]}"#,
        r#"{"oneOf":[{"type":"object"},{"type":"object","required":["a"]}]}"#,
        r#"{"oneOf":[{},{"type":"null"}]}"#,
    ] {
        assert!(refusal(&schema(source)).contains("#: \"oneOf\""), "{source}");
    }
}

#[test]
fn what_a_schema_cannot_keep_is_named_with_its_place() {
    for (source, named) in [
        (r#"{"not":{}}"#, r##"#: "not""##),
        (r#"{"properties":{"a":{"if":{},"then":{}}}}"#, r##"#/properties/a: "if""##),
        (r#"{"items":{"uniqueItems":true}}"#, r##"#/items: "uniqueItems""##),
        (r#"{"anyOf":[{},{"contains":{}}]}"#, r##"#/anyOf/1: "contains""##),
        (r#"{"properties":{"a/b~":{"dependentRequired":{}}}}"#, "#/properties/a~1b~0: \"dependent"),
        (r##"{"$ref":"#/$defs/x","$defs":{"x":{"propertyNames":{}}}}"##, "#/$defs/x: \"propertyN"),
        (r#"{"type":"string","format":"idn-email"}"#, r#""format" "idn-email""#),
        (r#"{"tpye":"string"}"#, r#""tpye""#),
        (r#"{"nullable":true}"#, r#""nullable""#),
        (r#"{"x-guidance":{"lenient":true}}"#, r#""x-guidance""#),
        (r#"{"items":{"$schema":"http://json-schema.org/draft-07/schema#"}}"#, r#""$schema""#),
        (r#"{"$schema":"http://json-schema.org/draft-04/schema#"}"#, r#""$schema""#),
        (r#"{"minimum":1,"exclusiveMinimum":true}"#, r#""exclusiveMinimum" must be a number"#),
        (r#"{"minProperties":2,"required":["a"]}"#, r#""minProperties""#),
        (r#"{"prefixItems":[{}],"items":[{}]}"#, r#""prefixItems""#),
        (r#"{"items":{},"additionalItems":false}"#, r#""additionalItems""#),
        (r#"{"const":"\u0001"}"#, "U+0001"),
        (r#"{"enum":[9007199254740993]}"#, r#""enum""#),
        (r#"{"multipleOf":0}"#, r#""multipleOf""#),
        (r#"{"type":"text"}"#, r#""type""#),
        (r#"{"enum":[]}"#, r#""enum""#),
        (r#"{"maxLength":-1}"#, r#""maxLength""#),
        (r#"{"required":["a","a"]}"#, r#""required""#),
        (r#"{"properties":[]}"#, r#""properties""#),
        (r#"{"anyOf":[1]}"#, "#/anyOf/0"),
        (r#"{"pattern":"("}"#, r#""pattern""#),
        (r#"{"pattern":"(?=a)"}"#, r#""pattern""#),
        (r#"{"pattern":"(?P<stop>a)"}"#, r#""pattern""#),
        (r#"{"$ref":"https://example.com/a"}"#, r#""$ref" must begin with #/"#),
        (r##"{"$ref":"#a"}"##, r#""$ref" must begin with #/"#),
        (r##"{"$ref":"#/$defs/a"}"##, "#/$defs/a, which is not there"),
        (r##"{"$ref":"#/$defs/a~1b","$defs":{"a/b":{}}}"##, "escapes"),
        ("[]", "an object or a boolean"),
        ("{", "not JSON"),
    ] {
        let said = refusal(&schema(source));
        assert!(said.contains(named), "{source}: {said}");
    }
}

#[test]
fn annotations_and_bounds_without_effect_are_accepted() {
    let source = r##"{"$schema":"http://json-schema.org/draft-07/schema#","$id":"urn:x","title":"t",
        "description":"d","default":1,"examples":[1],"$comment":"c","deprecated":true,
        "readOnly":false,"writeOnly":false,"definitions":{"unused":{"not":{}}},
        "type":"array","uniqueItems":false,"maxItems":9007199254740991,
        "items":[{"const":1}],"additionalItems":false,"minItems":1}"##;
    let compiled = compiler().compile(&schema(source)).unwrap();
    assert!(accepts(&compiled, "[1]"));
    assert!(!accepts(&compiled, "[1,1]"));
}

#[test]
fn schemas_that_contain_themselves_need_a_way_out() {
    let list = r##"{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[
        {"type":"null"},{"$ref":"#"}]}},"required":["v","next"],"additionalProperties":false}"##;
    let compiled = compiler().compile(&schema(list)).unwrap();
    assert!(accepts(&compiled, r#"{"v":1,"next":{"v":2,"next":null}}"#));
    for source in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"type":"array","items":{"$ref":"#"},"minItems":1}"##,
        r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##,
        r##"{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"anyOf":[{"$ref":"#/$defs/y"}]},
            "y":{"$ref":"#/$defs/x"}}}"##,
    ] {
        let said = refusal(&schema(source));
        assert!(said.contains("no finite value"), "{source}: {said}");
    }
}

#[test]
fn deep_json_is_refused() {
    let said = refusal(&schema(&"[".repeat(CONSTRAINT_BYTES_MAX)));
    assert!(said.contains("not JSON"), "{said}");
}

fn loosened(schema: &Value) -> Value {
    super::loosened(schema, &super::SchemaBudget::of_tools())
}

#[test]
fn thousands_of_tools_share_one_budget() {
    let budget = super::SchemaBudget::of_tools();
    let tool = json!({"type": "object", "properties": {
        "a": {"type": "string", "pattern": "^a+$"}, "b": {"type": "integer"}}});
    assert_eq!(super::loosened(&tool, &budget), tool);
    for _ in 0..1000 {
        super::loosened(&tool, &budget);
    }
    assert_eq!(super::loosened(&tool, &budget), json!({"type": "object"}));
    assert!(
        super::check_schema(&tool, &budget).unwrap_err().to_string().contains("too many parts")
    );
}

/// Schemas of the tools that agents send.
#[test]
fn a_loosened_schema_is_without_what_cannot_be_obeyed() {
    for (source, loose) in [
        (r#"{"type":"object","propertyNames":{"pattern":"a"}}"#, r#"{"type":"object"}"#),
        (r#"{"type":"string","format":"byte","x-go-name":"A"}"#, r#"{"type":"string"}"#),
        (r#"{"not":{"const":1},"if":{},"then":{},"else":{}}"#, "{}"),
        (r#"{"type":"array","contains":{},"uniqueItems":true}"#, r#"{"type":"array"}"#),
        (r#"{"dependentRequired":{"a":["b"]},"unevaluatedProperties":false}"#, "{}"),
        (r#"{"type":"string","pattern":"(?=a)"}"#, r#"{"type":"string"}"#),
        (r#"{"type":"string","pattern":"("}"#, r#"{"type":"string"}"#),
        (
            r#"{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,
                "exclusiveMinimum":true}"#,
            r#"{"minimum":1}"#,
        ),
        (
            r#"{"type":"object","required":null,"properties":{}}"#,
            r#"{"type":"object","properties":{}}"#,
        ),
        (r#"{"type":"any","enum":[]}"#, "{}"),
        (
            r#"{"properties":{"a":null,"b":{"type":"integer"}}}"#,
            r#"{"properties":{"a":{},"b":{"type":"integer"}}}"#,
        ),
        (
            r#"{"oneOf":[{"minLength":1},{"type":"string"}]}"#,
            r#"{"anyOf":[{"minLength":1},{"type":"string"}]}"#,
        ),
        (r##"{"items":{"$ref":"#/$defs/none"}}"##, r#"{"items":{}}"#),
        (
            r##"{"properties":{"a":{"$ref":"https://example.com/a"}}}"##,
            r#"{"properties":{"a":{}}}"#,
        ),
        (r#"{"prefixItems":[{}],"items":[{}]}"#, r#"{"items":[{}]}"#),
        (r#"{"items":{},"additionalItems":false}"#, r#"{"items":{}}"#),
        // The target of a reference is removed first, and then the reference.
        (r##"{"not":{"type":"string"},"items":{"$ref":"#/not"}}"##, r#"{"items":{}}"#),
        (
            r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##,
            r#"{"type":"object"}"#,
        ),
        ("[]", "{}"),
    ] {
        let loosened = loosened(&serde_json::from_str(source).unwrap());
        assert_eq!(loosened, serde_json::from_str::<Value>(loose).unwrap(), "{source}");
        compiler().compile(&schema(&loosened.to_string())).expect(source);
    }
    let kept = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5},
        "b": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": false});
    assert_eq!(loosened(&kept), kept);
}

#[test]
fn a_schema_that_is_too_large_loses_its_details_and_not_its_compilation() {
    let deep = (0..120).fold(json!({}), |inner, _| json!({ "items": inner }));
    let wide: serde_json::Map<String, Value> =
        (0..5000).map(|n| (n.to_string(), json!({"not": {}, "x-a": 1}))).collect();
    for large in [deep, json!({"properties": wide})] {
        let loosened = loosened(&large);
        compiler().compile(&schema(&loosened.to_string())).unwrap();
    }
}

#[test]
fn members_that_are_not_named_are_left_out() {
    let mut tool = json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "integer"}}},
        "open": {"type": "object", "properties": {"b": {}}, "additionalProperties": true},
        "free": {"type": "object"},
        "list": {"items": {"properties": {"c": {}}}},
        "joined": {"allOf": [{"properties": {"d": {}}}], "properties": {"e": {}}},
    }});
    super::close_objects(&mut tool);
    let closed = json!({"type": "object", "additionalProperties": false, "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "integer"}},
            "additionalProperties": false},
        "open": {"type": "object", "properties": {"b": {}}, "additionalProperties": true},
        "free": {"type": "object"},
        "list": {"items": {"properties": {"c": {}}, "additionalProperties": false}},
        "joined": {"allOf": [{"properties": {"d": {}}}], "properties": {"e": {}}},
    }});
    assert_eq!(tool, closed);
}
