//! Reads the input of a response: a text, or items.

use serde_json::{Map, Value, json};

use super::fields::Namespaces;
use crate::api::error::ApiError;
use crate::api::json::{Fields, keep, objects, wrong};
use crate::api::stored::{Items, checked_id};
use crate::api::tools::{note, placeholder};
use crate::chat::conversation::{Content, Message, Role, ToolCall};
use crate::limits::{MESSAGES_MAX, PARTS_MAX};
use crate::types::digits;

/// Reads `input`. Returns its items as they came, if they are to be kept, and the messages that they
/// are.
pub fn read_input(
    fields: &Fields<'_, '_>,
    keeps: bool,
    ignored: &mut Vec<String>,
) -> Result<(Items, Vec<Message>), ApiError> {
    const NAME: &str = "input";
    let mut kept = Items::default();
    let Some(value) = fields.get(NAME)? else { return Ok((kept, Vec::new())) };
    if let Some(text) = value.as_str() {
        let item = json!({"role": "user", "content": [{"type": "input_text", "text": text}]});
        if let (true, Value::Object(item)) = (keeps, item) {
            kept.push(&item, "message")?;
        }
        let content = Content::Text(text.to_owned());
        return Ok((kept, vec![Message { content, ..Message::default() }]));
    }
    let Some(array) = value.as_array() else {
        return Err(wrong(NAME, "a string or an array of items", &value));
    };
    let items = objects(NAME, &value, MESSAGES_MAX)?;
    let mut messages = Vec::with_capacity(items.len());
    for (index, (item, value)) in items.iter().zip(array.iter()).enumerate() {
        let within = |error: ApiError| error.within(NAME, format_args!("input[{index}]"));
        let Some(kind) = read_item(item, &mut messages, ignored).map_err(within)? else { continue };
        if let (true, Value::Object(item)) = (keeps, keep(NAME, &value)?) {
            kept.push(&item, kind).map_err(within)?;
        }
    }
    Ok((kept, messages))
}

/// Reads an item, and returns its type. Reasoning, text and calls that follow each other are one
/// message of the assistant, as templates expect. The calls of tools that only another server has,
/// and their results, are left out: an error would come again in each later turn.
fn read_item(
    item: &Fields<'_, '_>,
    messages: &mut Vec<Message>,
    ignored: &mut Vec<String>,
) -> Result<Option<&'static str>, ApiError> {
    match item.string("type")?.as_deref() {
        None | Some("message") => read_message(item, messages).map(|()| Some("message")),
        Some("function_call") => {
            let text = |name: &'static str| {
                let message = format!("a function_call must have a string {name}");
                item.string(name)?.ok_or_else(|| ApiError::field("input", message))
            };
            let arguments = match digits::parse(&text("arguments")?) {
                Ok(object @ Value::Object(_)) => object,
                _ => Value::Object(Map::new()),
            };
            let id = text("call_id")?;
            checked_id("call_id", &id)?;
            let name = match item.string("namespace")? {
                Some(namespace) => Namespaces::join(&namespace, &text("name")?),
                None => text("name")?,
            };
            let call = ToolCall { id, name, arguments };
            assistant(messages, |_| true).tool_calls.push(call);
            Ok(Some("function_call"))
        }
        Some("function_call_output") => {
            let Some(output) = item.get("output")? else {
                let message = "a function_call_output must have an output";
                return Err(ApiError::field("input", message));
            };
            let content = match output.as_str() {
                Some(text) => Content::Text(text.to_owned()),
                None => Content::Parts(read_output(&output, ignored)?),
            };
            let tool_call_id = item.string("call_id")?;
            checked_id("call_id", tool_call_id.as_deref().unwrap_or_default())?;
            messages.push(Message {
                role: Role::Tool,
                content,
                tool_call_id,
                ..Message::default()
            });
            Ok(Some("function_call_output"))
        }
        Some("reasoning") => {
            let mut thought = String::new();
            for name in ["content", "summary"] {
                if let Some(parts) = item.get(name)?
                    && thought.is_empty()
                {
                    thought = read_parts(name, &parts)?.join("\n");
                }
            }
            if !thought.is_empty() {
                let fresh = |m: &Message| m.content == Content::None && m.tool_calls.is_empty();
                let message = assistant(messages, |m| fresh(m) && m.reasoning.is_none());
                message.reasoning = Some(thought);
            }
            Ok(Some("reasoning"))
        }
        Some(kind) if kind.ends_with("_call") || kind.ends_with("_output") => {
            note(ignored, kind);
            Ok(None)
        }
        Some(other) => {
            let message = format!(
                "an item of type {other:?} is not supported; message, function_call, \
                 function_call_output and reasoning are"
            );
            Err(ApiError::unsupported("input", message))
        }
    }
}

fn read_message(item: &Fields<'_, '_>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let role = match item.string("role")?.as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        Some("developer") => Role::Developer,
        _ => {
            let message = "role must be user, assistant, system or developer";
            return Err(ApiError::field("input", message));
        }
    };
    let content = match item.get("content")? {
        Some(content) => match content.as_str() {
            Some(text) => Content::Text(text.to_owned()),
            None => Content::Parts(read_parts("content", &content)?),
        },
        None => return Err(ApiError::field("input", "a message must have a content")),
    };
    if role == Role::Assistant {
        let silent = |m: &Message| m.content == Content::None && m.tool_calls.is_empty();
        assistant(messages, silent).content = content;
    } else {
        messages.push(Message { role, content, ..Message::default() });
    }
    Ok(())
}

/// The assistant's message at the end, if it `fits`, or a new one.
fn assistant(messages: &mut Vec<Message>, fits: impl Fn(&Message) -> bool) -> &mut Message {
    let last = messages.last().filter(|last| last.role == Role::Assistant);
    if !last.is_some_and(fits) {
        messages.push(Message { role: Role::Assistant, ..Message::default() });
    }
    messages.last_mut().expect("there is one")
}

/// Reads the parts of a tool's result. A part that is no text becomes a placeholder: an error would
/// come again in each later turn.
fn read_output(
    value: &crate::api::value::Value<'_, '_>,
    ignored: &mut Vec<String>,
) -> Result<Vec<String>, ApiError> {
    let mut texts = Vec::new();
    for part in &objects("output", value, PARTS_MAX)? {
        texts.push(match part.string("text")? {
            Some(text) => text,
            None => placeholder(part.string("type")?.as_deref(), ignored),
        });
    }
    Ok(texts)
}

/// Reads parts with text; refuses all others.
fn read_parts(
    name: &'static str,
    value: &crate::api::value::Value<'_, '_>,
) -> Result<Vec<String>, ApiError> {
    if !value.is_array() {
        return Err(wrong(name, "a string or an array of parts", value));
    }
    let part = |part: &Fields<'_, '_>| {
        let text = match part.string("type")?.as_deref() {
            Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => {
                part.string("text")?
            }
            Some("refusal") => part.string("refusal")?,
            other => {
                let kind = other.unwrap_or("none");
                let message = format!("a part of type {kind:?} is not supported; text is");
                return Err(ApiError::unsupported("input", message));
            }
        };
        text.ok_or_else(|| ApiError::field("input", "a part with text must have a string text"))
    };
    objects(name, value, PARTS_MAX)?.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;

    fn read(input: &str) -> Result<Vec<Message>, String> {
        let mut body = format!("{{\"input\":{input}}}").into_bytes();
        read_object(&mut body, |fields| read_input(fields, true, &mut Vec::new()))
            .map(|(_, messages)| messages)
            .map_err(|error| error.message)
    }

    #[test]
    fn one_turn_of_the_assistant_is_one_message() {
        let messages = read(
            r#"[{"role":"user","content":"Hi"},
            {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I add."}]},
            {"type":"function_call","call_id":"c1","name":"add","arguments":"{\"a\":1}"},
            {"type":"function_call","call_id":"c2","name":"add","arguments":"{\"a\":2}"},
            {"type":"function_call_output","call_id":"c1","output":"1"},
            {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},
            {"role":"assistant","content":"Done."}]"#,
        )
        .unwrap();
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant"]);
        let turn = &messages[1];
        assert_eq!(
            (turn.reasoning.as_deref(), turn.content.text()),
            (Some("Hm."), "I add.".into())
        );
        let ids: Vec<&str> = turn.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!((ids, &turn.tool_calls[1].arguments), (vec!["c1", "c2"], &json!({"a": 2})));
        assert_eq!(messages[3].content.text(), "2");
        assert_eq!(read("\"Hi\"").unwrap()[0].content.text(), "Hi");
    }

    #[test]
    fn mistakes_name_the_item() {
        for (input, message) in [
            ("7", "input must be a string or an array of items, not 7"),
            (r#"[{"role":"king","content":"a"}]"#, "input[0]: role must be user, assistant"),
            (r#"[{"role":"user"}]"#, "input[0]: a message must have a content"),
            (r#"[{"type":"file"}]"#, "an item of type \"file\" is not supp"),
            (r#"[{"type":"function_call","name":"f"}]"#, "must have a string arguments"),
            (
                r#"[{"role":"user","content":[{"type":"input_image"}]}]"#,
                "a part of type \"input_image\" is not supported",
            ),
        ] {
            let error = read(input).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
