//! The tools of a request, in any dialect: which of them the model is offered, and which it must
//! call.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::error::ApiError;
use super::json::{Fields, keep, wrong};
use crate::chat::conversation::{Tool, ToolChoice};
use crate::limits::TOOL_NAME_CHARS_MAX;
use crate::types::digits;

/// Most notes of a request about what is ignored.
const IGNORED_MAX: usize = 16;
/// Characters of a client's name for a type, in a note or a placeholder.
const KIND_CHARS_MAX: usize = 64;

/// The tools of a request.
#[derive(Debug, Default)]
pub struct Offer {
    tools: Vec<Tool>,
    names: HashSet<String>,
    left_out: Vec<LeftOut>,
}

/// A tool that the API's owner runs, or one that is not called with JSON. The model is not offered
/// it.
#[derive(Debug)]
struct LeftOut {
    kind: String,
    name: Option<String>,
}

/// The tools that the model is offered.
#[derive(Debug, Default, PartialEq)]
pub struct Offered {
    /// The tools.
    pub tools: Vec<Tool>,
    /// Whether one must be called.
    pub choice: ToolChoice,
    /// What the log says of the tools that are left out.
    pub ignored: Vec<String>,
}

impl Offer {
    /// Adds a tool.
    ///
    /// # Errors
    /// 400 if there is one with its name.
    pub fn add(&mut self, tool: Tool) -> Result<(), ApiError> {
        if !self.names.insert(tool.name.clone()) {
            let message = format!("two tools are called {:?}", tool.name);
            return Err(ApiError::field("tools", message));
        }
        self.tools.push(tool);
        Ok(())
    }

    /// Leaves out a tool of a type that cannot be offered.
    pub fn leave_out(&mut self, kind: &str, fields: &Fields<'_, '_>) -> Result<(), ApiError> {
        self.left_out.push(LeftOut { kind: kind.to_owned(), name: fields.string("name")? });
        Ok(())
    }

    /// Keeps only some of the tools.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.tools.retain(|tool| keeps(&tool.name));
    }

    /// Whether a tool of this name can be called.
    pub fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// Checks that the tools can satisfy a choice. Without tools, the choice `auto` is none.
    ///
    /// # Errors
    /// 400 if it names an unknown tool or one that is left out, or requires a tool where there is
    /// none.
    pub fn chosen(self, choice: ToolChoice) -> Result<Offered, ApiError> {
        const FIELD: &str = "tool_choice";
        let choice = match choice {
            ToolChoice::Named(name) if !self.has(&name) => {
                let mut others = self.left_out.iter();
                let other = others.find(|other| other.name.as_ref() == Some(&name));
                return Err(match other {
                    Some(LeftOut { kind, .. }) => ApiError::unsupported(
                        FIELD,
                        format!(
                            "tool_choice names {name:?}, a tool of type {kind:?}, which this server \
                             cannot offer"
                        ),
                    ),
                    None => ApiError::field(
                        FIELD,
                        format!("tool_choice names {name:?}, which is not among the tools"),
                    ),
                });
            }
            ToolChoice::Required if self.tools.is_empty() => {
                return Err(match self.left_out.first() {
                    Some(LeftOut { kind, .. }) => ApiError::unsupported(
                        FIELD,
                        format!(
                            "tool_choice requires a tool, and this server cannot offer tools of type \
                             {kind:?}"
                        ),
                    ),
                    None => {
                        let message = "tool_choice is required, and there are no tools";
                        ApiError::field(FIELD, message)
                    }
                });
            }
            ToolChoice::Auto if self.tools.is_empty() => ToolChoice::None,
            choice => choice,
        };
        let kinds: BTreeSet<String> = self.left_out.into_iter().map(|left| left.kind).collect();
        let note = |kind: &String| format!("tools of type {kind:.KIND_CHARS_MAX$?}");
        let ignored = kinds.iter().take(IGNORED_MAX).map(note).collect();
        Ok(Offered { tools: self.tools, choice, ignored })
    }
}

/// A function that the model may call, defined in OpenAI's form, which templates expect.
pub fn function(
    name: String,
    description: Option<String>,
    parameters: Value,
    is_strict: bool,
) -> Tool {
    let description = description.unwrap_or_default();
    let definition = json!({"type": "function", "function":
        {"name": name, "description": description, "parameters": parameters}});
    Tool { name, parameters: digits::rounded(parameters), is_strict, definition }
}

/// Reads the schema of a tool's arguments.
///
/// # Errors
/// 400 if it does not describe an object.
pub fn read_parameters(
    name: &'static str,
    tool: &Fields<'_, '_>,
) -> Result<Option<Value>, ApiError> {
    let Some(schema) = tool.get(name)? else { return Ok(None) };
    if !schema.is_object() {
        return Err(wrong(name, "a JSON schema, an object", &schema));
    }
    let parameters = keep("tools", &schema)?;
    let is_object = match parameters.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !is_object {
        let kind = digits::spelled(parameters["type"].to_string());
        let message = format!("the arguments of a tool are of the type object, not {kind}");
        return Err(ApiError::field("tools", message));
    }
    Ok(Some(parameters))
}

/// The text in place of a part of a tool's result that is no text. The log says so.
pub fn placeholder(kind: Option<&str>, ignored: &mut Vec<String>) -> String {
    let kind = kind.unwrap_or("unknown");
    note(ignored, kind);
    let kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
    format!("[a part of type {kind}, which this model cannot see]")
}

/// Notes for the log that parts of a type are ignored.
pub fn note(ignored: &mut Vec<String>, kind: &str) {
    let kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
    let note = format!("parts of type {kind:?}");
    if ignored.len() < IGNORED_MAX && !ignored.contains(&note) {
        ignored.push(note);
    }
}

/// The schema of a tool without arguments.
pub fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

/// Checks a tool's name.
///
/// # Errors
/// 400 with the characters that a name may have.
pub fn checked_name(name: Option<String>) -> Result<String, ApiError> {
    let is_good = |name: &String| {
        (1..=TOOL_NAME_CHARS_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    name.filter(is_good).ok_or_else(|| {
        let message = format!(
            "a tool's name has 1 to {TOOL_NAME_CHARS_MAX} letters, digits, underscores, dashes and \
             dots"
        );
        ApiError::field("tools", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;

    fn offer(names: &[&str], others: &[&str]) -> Offer {
        let mut offer = Offer::default();
        for name in names {
            offer.add(function((*name).into(), None, no_parameters(), false)).unwrap();
        }
        for other in others {
            let mut body = format!(r#"{{"name":{other:?}}}"#).into_bytes();
            read_object(&mut body, |fields| offer.leave_out("web_search", fields)).unwrap();
        }
        offer
    }

    #[test]
    fn tools_that_cannot_be_offered_are_left_out_unless_one_must_be_called() {
        let chosen = |names: &[&str], choice| {
            let offered = offer(names, &["search", "find"]).chosen(choice);
            offered.map_err(|error| error.message)
        };
        let named = |name: &str| ToolChoice::Named(name.into());
        let auto = chosen(&["f"], ToolChoice::Auto).unwrap();
        assert_eq!((auto.tools.len(), auto.choice), (1, ToolChoice::Auto));
        assert_eq!(auto.ignored, ["tools of type \"web_search\""]);
        assert_eq!(chosen(&[], ToolChoice::Auto).unwrap().choice, ToolChoice::None);
        assert_eq!(chosen(&["f"], ToolChoice::Required).unwrap().choice, ToolChoice::Required);
        assert!(chosen(&[], ToolChoice::Required).unwrap_err().contains("cannot offer tools of"));
        assert!(chosen(&["f"], named("search")).unwrap_err().contains("a tool of type"));
        assert!(chosen(&["f"], named("g")).unwrap_err().contains("is not among the tools"));
        let none = offer(&[], &[]).chosen(ToolChoice::Required).unwrap_err();
        assert_eq!(none.message, "tool_choice is required, and there are no tools");
    }

    #[test]
    fn names_differ_and_have_few_kinds_of_characters() {
        let twice = offer(&["f"], &[]).add(function("f".into(), None, json!({}), false));
        assert_eq!(twice.unwrap_err().message, "two tools are called \"f\"");
        let name = |name: &str| checked_name(Some(name.into()));
        for good in ["mcp__a-b.c", &"a".repeat(TOOL_NAME_CHARS_MAX)] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "a b", "é", &"a".repeat(TOOL_NAME_CHARS_MAX + 1)] {
            assert!(name(bad).unwrap_err().message.contains("1 to 128 letters"), "{bad}");
        }
    }

    #[test]
    fn arguments_are_an_object() {
        let read = |schema: &str| {
            let mut body = format!(r#"{{"parameters":{schema}}}"#).into_bytes();
            let read = read_object(&mut body, |fields| read_parameters("parameters", fields));
            read.map_err(|error| error.message)
        };
        assert_eq!(read("null"), Ok(None));
        for good in ["{}", r#"{"type":"object"}"#, r#"{"type":["object","null"]}"#] {
            assert!(read(good).unwrap().is_some(), "{good}");
        }
        assert!(read("7").unwrap_err().contains("a JSON schema, an object"));
        assert!(read(r#"{"type":"array"}"#).unwrap_err().contains("of the type object, not"));
    }
}
