//! Test helpers: writes tool calls as models do, and collects the parser's parts.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fenced::OBJECT_BYTES_MAX;
use super::form::Form;
use super::syntax::ToolSyntax;
use super::{OfferedTools, Parser, ParserOptions, Part, ToolSpec};
use crate::limits::TOOL_HEAD_BYTES_MAX;

/// A part of a message, joined from its pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Content(String),
    Reasoning(String),
    /// A name and arguments.
    Call(String, String),
}

impl Whole {
    pub fn content(text: &str) -> Self {
        Self::Content(text.to_owned())
    }

    pub fn reasoning(text: &str) -> Self {
        Self::Reasoning(text.to_owned())
    }

    pub fn call(name: &str, arguments: &str) -> Self {
        Self::Call(name.to_owned(), arguments.to_owned())
    }
}

/// Writes calls in the family's form, with the marker. Arguments are JSON.
pub(super) fn written(syntax: ToolSyntax, calls: &[(&str, &str)]) -> String {
    let row = syntax.row();
    let open = if row.bare { "" } else { row.open[0] };
    let index = if row.has_index { ":0" } else { "" };
    let call = |(name, arguments): &(&str, &str)| {
        format!("{name}{index}{}{}", row.infix, written_arguments(row.form, arguments))
    };
    let calls: Vec<String> = calls.iter().map(call).collect();
    format!("{open}{}{}{}", row.begin, calls.join(row.between), row.end)
}

fn written_arguments(form: Form, arguments: &str) -> String {
    if form == Form::Json {
        return arguments.to_owned();
    }
    let arguments: Map<String, Value> = serde_json::from_str(arguments).unwrap();
    let members: Vec<String> = match form {
        Form::Tagged(tags) => {
            let member = |(key, value): (&String, &Value)| {
                let (before, text, after) = match value {
                    Value::String(text) => {
                        let line = if tags.value_on_lines { "\n" } else { "" };
                        (tags.before_text, text.clone(), line)
                    }
                    value => (tags.before_json, value.to_string(), tags.after_json),
                };
                let end = format!("{after}{}{}", tags.value_end, tags.after_value);
                format!("{}{key}{before}{text}{end}", tags.members[0])
            };
            let members: String = arguments.iter().map(member).collect();
            return format!("{members}{}", tags.end);
        }
        Form::Gemma => arguments.iter().map(|(k, v)| format!("{k}:{}", gemma(v))).collect(),
        Form::Python => arguments.iter().map(|(k, v)| format!("{k}={}", python(v))).collect(),
        Form::Json => unreachable!(),
    };
    match form {
        Form::Gemma => format!("{}}}", members.join(",")),
        _ => format!("{})", members.join(", ")),
    }
}

fn gemma(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(gemma).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{key}:{}", gemma(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        value => value.to_string(),
    }
}

fn python(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        value => value.to_string(),
    }
}

/// The tools that the tests offer: `weather` has members and is closed, `now` may have any.
pub(super) fn tools() -> Vec<ToolSpec> {
    let weather = json!({
        "type": "object",
        "properties": {
            "days": {"type": "integer"},
            "city": {"type": "string"},
            "kind": {"enum": ["rain", "sun"]},
            "hourly": {"type": "boolean"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "places": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            "other": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
            "extra": {},
        },
        "required": ["city"],
        "additionalProperties": false,
        "$defs": {"place": {"type": "object", "properties": {
            "name": {"type": "string"}, "at": {"type": "number"}, "sea": {"type": "boolean"},
            "next": {"$ref": "#/$defs/place"}},
            "required": ["name"], "additionalProperties": false}},
    });
    vec![
        ToolSpec { name: "weather".into(), parameters: weather },
        ToolSpec { name: "now".into(), parameters: Value::Null },
    ]
}

/// Options for a family, with the tools of the tests and without reasoning.
pub(super) fn calling(tools: ToolSyntax) -> ParserOptions {
    ParserOptions { tools: Some(tools), offered: offered(), ..Default::default() }
}

/// The tools of the tests.
pub(super) fn offered() -> Option<Arc<OfferedTools>> {
    Some(Arc::new(OfferedTools::new(&tools())))
}

/// Parses `pieces` and joins the parts.
pub(super) fn parse<'a>(
    options: &ParserOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<Whole> {
    let mut parts = Vec::new();
    let mut parser = Parser::new(options.clone());
    for piece in pieces {
        parser.push(piece, &mut |part| collect(&mut parts, part));
        let (held, whole) = parser.held();
        assert!(held < TOOL_HEAD_BYTES_MAX, "{held} bytes are held");
        assert!(whole <= OBJECT_BYTES_MAX, "{whole} bytes of a value are held");
    }
    parser.finish(false, &mut |part| collect(&mut parts, part));
    parts
}

fn collect(parts: &mut Vec<Whole>, part: Part<'_>) {
    let calls = parts.iter().filter(|part| matches!(part, Whole::Call(..))).count();
    match part {
        Part::Content(text) => {
            assert!(!text.is_empty());
            match parts.last_mut() {
                Some(Whole::Content(whole)) => whole.push_str(text),
                _ => parts.push(Whole::content(text)),
            }
        }
        Part::Reasoning(text) => {
            assert!(!text.is_empty());
            match parts.last_mut() {
                Some(Whole::Reasoning(whole)) => whole.push_str(text),
                _ => parts.push(Whole::reasoning(text)),
            }
        }
        Part::ToolCallBegin { index, name } => {
            assert_eq!(index, calls);
            assert!(!name.is_empty());
            parts.push(Whole::call(name, ""));
        }
        Part::ToolCallArguments { index, delta } => {
            assert!(!delta.is_empty());
            assert_eq!(index + 1, calls);
            let Some(Whole::Call(_, arguments)) = parts.last_mut() else {
                panic!("arguments follow {:?}", parts.last());
            };
            arguments.push_str(delta);
        }
    }
}
