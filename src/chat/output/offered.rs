//! The tools of a request, as far as a parser needs them.
//!
//! In: names and JSON schemas. Out: the type of a parameter's value, for syntaxes in which the text
//! alone does not show it, and whether an object can be the arguments of a call.

use std::ops::BitOr;

use serde_json::Value;

use crate::types::digits;

/// A tool that a model may call.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Its name: letters, digits, `_`, `-` and `.`, which need no quotes.
    pub name: String,
    /// The JSON schema of its arguments. Without a `type`, it becomes a schema of an object.
    /// llguidance expects an object's members in the schema's order.
    pub parameters: Value,
}

/// The tools that a model may call, with their parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedTools {
    tools: Vec<OfferedTool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfferedTool {
    name: String,
    parameters: Vec<Parameter>,
    /// Whether arguments may have other members than `parameters`.
    is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    types: Types,
    is_required: bool,
}

impl OfferedTools {
    /// The tools of a request.
    pub fn new(tools: &[ToolSpec]) -> Self {
        let offered = |tool: &ToolSpec| {
            let members = Members::of(&tool.parameters, &tool.parameters);
            let parameter = |(name, schema, is_required): &(&String, &Value, bool)| Parameter {
                name: (*name).clone(),
                types: Types::of_schema(schema, &tool.parameters),
                is_required: *is_required,
            };
            OfferedTool {
                name: tool.name.clone(),
                parameters: members.listed.iter().map(parameter).collect(),
                is_open: members.listed.is_empty() && members.is_open,
            }
        };
        Self { tools: tools.iter().map(offered).collect() }
    }

    /// About the bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        let parameter = |parameter: &Parameter| size_of::<Parameter>() + parameter.name.len();
        let tool = |tool: &OfferedTool| {
            let parameters = tool.parameters.iter().map(parameter);
            size_of::<OfferedTool>() + tool.name.len() + parameters.sum::<usize>()
        };
        self.tools.iter().map(tool).sum()
    }

    fn tool(&self, name: &str) -> Option<&OfferedTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Whether there is a tool with this name.
    pub fn has(&self, name: &str) -> bool {
        self.tool(name).is_some()
    }

    /// The types of a parameter's value; all types if the tool or the parameter is unknown.
    pub(super) fn types(&self, tool: &str, parameter: &str) -> Types {
        let tool = self.tool(tool);
        let found = tool.and_then(|tool| tool.parameters.iter().find(|p| p.name == parameter));
        found.map_or(Types::ANY, |parameter| parameter.types)
    }

    /// Whether a text is an object with all required parameters of a tool and no unknown ones.
    pub(super) fn accepts(&self, tool: &str, arguments: &str) -> bool {
        let Some(tool) = self.tool(tool) else { return false };
        let Ok(Value::Object(given)) = digits::parse(arguments) else {
            return false;
        };
        let is_known = |name: &String| tool.parameters.iter().any(|p| p.name == *name);
        let mut required = tool.parameters.iter().filter(|parameter| parameter.is_required);
        required.all(|parameter| given.contains_key(&parameter.name))
            && (tool.is_open || given.keys().all(is_known))
    }
}

/// A set of the types of JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub const STRING: Self = Self(1);
    pub const NUMBER: Self = Self(2);
    pub const BOOLEAN: Self = Self(4);
    pub const NULL: Self = Self(8);
    pub const ARRAY: Self = Self(16);
    pub const OBJECT: Self = Self(32);
    pub const ANY: Self = Self(63);
    /// Numbers, truth values and null.
    pub const SCALAR: Self = Self(2 + 4 + 8);
    pub const NOT_STRING: Self = Self(63 - 1);
    const NONE: Self = Self(0);

    /// Whether all of `types` are in the set.
    pub fn has(self, types: Self) -> bool {
        self.0 & types.0 == types.0
    }

    /// The types of the values that a schema allows. `root` has the schemas that it refers to.
    pub fn of_schema(schema: &Value, root: &Value) -> Self {
        Self::within(schema, root, &mut { OPTIONS_MAX })
    }

    /// `options` is the number of schemas that may still be looked at.
    fn within(schema: &Value, root: &Value, options: &mut usize) -> Self {
        if *options == 0 {
            return Self::ANY;
        }
        *options -= 1;
        let schema = resolve(schema, root);
        let union = |types: &mut dyn Iterator<Item = Self>| types.fold(Self::NONE, BitOr::bitor);
        match &schema["type"] {
            Value::String(name) => return Self::named(name),
            Value::Array(names) => {
                return union(&mut names.iter().filter_map(Value::as_str).map(Self::named));
            }
            _ => {}
        }
        if let Some(values) = schema["enum"].as_array() {
            return union(&mut values.iter().map(Self::of_value));
        }
        if let Some(value) = schema.get("const") {
            return Self::of_value(value);
        }
        match schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            Some(schemas) => {
                union(&mut schemas.iter().map(|schema| Self::within(schema, root, options)))
            }
            None => Self::ANY,
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::STRING,
            "number" | "integer" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "null" => Self::NULL,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::ANY,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::String(_) => Self::STRING,
            Value::Number(_) => Self::NUMBER,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Null => Self::NULL,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// The type of a valid JSON value, by its text.
    pub fn of_json(text: &str) -> Self {
        match text.bytes().next() {
            Some(b'"') => Self::STRING,
            Some(b't' | b'f') => Self::BOOLEAN,
            Some(b'n') => Self::NULL,
            Some(b'[') => Self::ARRAY,
            Some(b'{') => Self::OBJECT,
            _ => Self::NUMBER,
        }
    }
}

impl BitOr for Types {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The members of the objects that a schema allows.
pub(super) struct Members<'a> {
    /// The names, schemas, and whether they are required, in the schema's order.
    pub listed: Vec<(&'a String, &'a Value, bool)>,
    /// Whether there may be others.
    pub is_open: bool,
}

impl<'a> Members<'a> {
    /// The members in a schema of an object. `root` has the schemas that it refers to.
    pub fn of(schema: &'a Value, root: &'a Value) -> Self {
        let schema = resolve(schema, root);
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        let is_required = |name: &str| required.iter().any(|one| one.as_str() == Some(name));
        let listed = schema["properties"].as_object().into_iter().flatten();
        Self {
            listed: listed.map(|(name, schema)| (name, schema, is_required(name))).collect(),
            is_open: schema["additionalProperties"] != Value::Bool(false),
        }
    }
}

/// Schemas that are looked at for the types of one. An option of a schema may have options, too, and
/// may refer to the schema itself.
const OPTIONS_MAX: usize = 64;
/// References that are followed from one schema to the next. Schemas may refer to themselves.
const REFERENCES_MAX: usize = 8;

/// The schema that `$ref` refers to, if it refers to one in `root`.
pub(super) fn resolve<'a>(mut schema: &'a Value, root: &'a Value) -> &'a Value {
    for _ in 0..REFERENCES_MAX {
        let path = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        let Some(target) = path.and_then(|path| root.pointer(path)) else { break };
        schema = target;
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_shows_the_types_of_its_values() {
        let root = json!({"$defs": {
            "color": {"enum": ["red", "blue"]},
            "loop": {"$ref": "#/$defs/loop"},
            "tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}});
        let cases = [
            (json!({"type": "string"}), Types::STRING),
            (json!({"type": "integer"}), Types::NUMBER),
            (json!({"type": ["string", "null"]}), Types::STRING | Types::NULL),
            (json!({"anyOf": [{"type": "array"}, {"type": "null"}]}), Types::ARRAY | Types::NULL),
            (json!({"$ref": "#/$defs/color"}), Types::STRING),
            (json!({"$ref": "#/$defs/none"}), Types::ANY),
            (json!({"$ref": "#/$defs/loop"}), Types::ANY),
            (json!({"$ref": "#/$defs/tree"}), Types::ANY),
            (json!({"const": true}), Types::BOOLEAN),
            (json!({"description": "anything"}), Types::ANY),
            (json!(true), Types::ANY),
        ];
        for (schema, types) in cases {
            assert_eq!(Types::of_schema(&schema, &root), types, "{schema}");
        }
    }

    #[test]
    fn arguments_have_what_is_required_and_nothing_unknown() {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a"]});
        let tools = [
            ToolSpec { name: "f".into(), parameters: schema },
            ToolSpec { name: "open".into(), parameters: Value::Null },
        ];
        let tools = OfferedTools::new(&tools);
        assert!(tools.accepts("f", r#"{"a": 1}"#) && tools.accepts("f", r#"{"b": 1, "a": 2}"#));
        assert!(tools.accepts("open", r#"{"x": 1}"#));
        for wrong in [r#"{"b": 1}"#, r#"{"a": 1, "c": 2}"#, "[1]", r#"{"a": 1"#, ""] {
            assert!(!tools.accepts("f", wrong), "{wrong}");
        }
        assert!(!tools.accepts("other", "{}"));
    }
}
