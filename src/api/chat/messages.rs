//! Reads OpenAI's messages and tools from JSON.

use serde_json::Value;
use simd_json::prelude::*;

use crate::api::error::ApiError;
use crate::api::json::{Fields, keep, objects, wrong};
use crate::chat::conversation::{Content, Message, Role, Tool, ToolCall, ToolChoice};
use crate::limits::{MESSAGES_MAX, PARTS_MAX, TOOL_NAME_CHARS_MAX, TOOLS_MAX};

/// Reads `messages`.
///
/// # Errors
/// 400 with the message's index and the expected form.
pub fn read_messages(fields: &Fields<'_, '_>) -> Result<Vec<Message>, ApiError> {
    let Some(value) = fields.get("messages")? else {
        let message = "messages is missing; it must be an array of objects with role and content";
        return Err(ApiError::field("messages", message));
    };
    let messages = objects("messages", &value, MESSAGES_MAX)?;
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages is empty; it must have at least one"));
    }
    let read = |(index, fields)| {
        read_message(&fields)
            .map_err(|error| error.within("messages", format_args!("messages[{index}]")))
    };
    messages.into_iter().enumerate().map(read).collect()
}

fn read_message(fields: &Fields<'_, '_>) -> Result<Message, ApiError> {
    const ROLES: &str = "system, developer, user, assistant or tool";
    let role = match fields.string("role")?.as_deref() {
        Some("system") => Role::System,
        Some("developer") => Role::Developer,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        Some(other) => {
            let message = format!("role must be {ROLES}, not {other:?}");
            return Err(ApiError::field("role", message));
        }
        None => {
            return Err(ApiError::field("role", format!("role is missing; it must be {ROLES}")));
        }
    };
    let tool_calls = match fields.get("tool_calls")? {
        Some(calls) if role == Role::Assistant => {
            let calls = objects("tool_calls", &calls, TOOLS_MAX)?;
            calls.iter().map(read_tool_call).collect::<Result<_, _>>()?
        }
        Some(_) => {
            let message = "tool_calls belongs to messages of the assistant";
            return Err(ApiError::field("tool_calls", message));
        }
        None => Vec::new(),
    };
    let reasoning = match fields.string("reasoning_content")? {
        None => fields.string("reasoning")?, // OpenRouter's name
        given => given,
    };
    let content = read_content(fields)?;
    if content == Content::None
        && (role != Role::Assistant || tool_calls.is_empty() && reasoning.is_none())
    {
        let message = "content is missing; it must be a string or an array of text parts";
        return Err(ApiError::field("content", message));
    }
    Ok(Message {
        role,
        content,
        name: fields.string("name")?,
        reasoning,
        tool_calls,
        tool_call_id: fields.string("tool_call_id")?,
    })
}

fn read_content(fields: &Fields<'_, '_>) -> Result<Content, ApiError> {
    let Some(value) = fields.get("content")? else { return Ok(Content::None) };
    if let Some(text) = value.as_str() {
        return Ok(Content::Text(text.to_owned()));
    }
    if !value.is_array() {
        return Err(wrong("content", "a string or an array of text parts", &value));
    }
    let parts = objects("content", &value, PARTS_MAX)?;
    parts.iter().map(read_part).collect::<Result<_, _>>().map(Content::Parts)
}

/// Reads a part: `{"type":"text","text":…}` or a `refusal`, which is text, too.
fn read_part(part: &Fields<'_, '_>) -> Result<String, ApiError> {
    let kind = part.string("type")?.unwrap_or_else(|| "text".into());
    let text = match kind.as_str() {
        "text" | "input_text" => part.string("text")?,
        "refusal" => part.string("refusal")?,
        other => {
            let message = format!("a part of type {other:?} is not supported; text is");
            return Err(ApiError::unsupported("content", message));
        }
    };
    text.ok_or_else(|| ApiError::field("content", "a text part must have a string text"))
}

fn read_tool_call(call: &Fields<'_, '_>) -> Result<ToolCall, ApiError> {
    let Some(function) = call.object("function")? else {
        let message = "a tool call must have a function with name and arguments";
        return Err(ApiError::field("tool_calls", message));
    };
    let name = function.string("name")?;
    let name = name.ok_or_else(|| ApiError::field("tool_calls", "a tool call must have a name"))?;
    let arguments = match function.get("arguments")? {
        None => Value::Object(serde_json::Map::new()),
        // OpenAI sends them as text; templates expect an object.
        Some(value) => match value.as_str() {
            Some(text) => parse_arguments(text),
            None => keep("tool_calls", &value)?,
        },
    };
    Ok(ToolCall { id: call.string("id")?.unwrap_or_default(), name, arguments })
}

/// Parses arguments; anything but JSON stays text. (serde_json bounds their depth.)
fn parse_arguments(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => object,
        _ => text.into(),
    }
}

/// Reads `tools` and `tool_choice`.
///
/// # Errors
/// 400 that names what is wrong.
pub fn read_tools(fields: &Fields<'_, '_>) -> Result<(Vec<Tool>, ToolChoice), ApiError> {
    let tools = read_tool_list(fields)?;
    let choice = read_tool_choice(fields, &tools)?;
    Ok((tools, choice))
}

/// Reads `tools`.
///
/// # Errors
/// 400 that names what is wrong.
pub fn read_tool_list(fields: &Fields<'_, '_>) -> Result<Vec<Tool>, ApiError> {
    let tools: Vec<Tool> = match fields.get("tools")? {
        None => Vec::new(),
        Some(value) => {
            let definitions = objects("tools", &value, TOOLS_MAX)?;
            let elements = value.as_array().into_iter().flat_map(|array| array.iter());
            let read =
                |(fields, value): (&Fields<'_, '_>, _)| read_tool(fields, keep("tools", &value)?);
            definitions.iter().zip(elements).map(read).collect::<Result<_, _>>()?
        }
    };
    check_names(&tools)?;
    Ok(tools)
}

/// Refuses two tools with one name.
pub fn check_names(tools: &[Tool]) -> Result<(), ApiError> {
    for (index, tool) in tools.iter().enumerate() {
        if tools[..index].iter().any(|other| other.name == tool.name) {
            let message = format!("two tools are called {:?}", tool.name);
            return Err(ApiError::field("tools", message));
        }
    }
    Ok(())
}

/// Checks that a schema of arguments describes an object.
pub fn check_object(parameters: Value) -> Result<Value, ApiError> {
    match parameters.get("type") {
        None => Ok(parameters),
        Some(kind) if kind == "object" => Ok(parameters),
        Some(other) => {
            let message = format!("the arguments of a tool are of the type object, not {other}");
            Err(ApiError::field("tools", message))
        }
    }
}

fn read_tool(fields: &Fields<'_, '_>, definition: Value) -> Result<Tool, ApiError> {
    let kind = fields.string("type")?.unwrap_or_else(|| "function".into());
    if kind != "function" {
        let message = format!("a tool of type {kind:?} is not supported; function is");
        return Err(ApiError::unsupported("tools", message));
    }
    let Some(function) = fields.object("function")? else {
        return Err(ApiError::field("tools", "a tool must have a function with a name"));
    };
    let name = checked_name(function.string("name")?)?;
    let parameters = match function.get("parameters")? {
        Some(schema) if schema.is_object() => check_object(keep("tools", &schema)?)?,
        Some(other) => return Err(wrong("parameters", "a JSON schema, an object", &other)),
        None => any_object(),
    };
    Ok(Tool { name, parameters, definition })
}

/// A function that the model may call, defined in OpenAI's form, which templates expect.
pub fn function(name: String, description: Option<String>, parameters: Value) -> Tool {
    let description = description.unwrap_or_default();
    let definition = serde_json::json!({"type": "function", "function":
        {"name": name, "description": description, "parameters": parameters}});
    Tool { name, parameters, definition }
}

/// The schema of a tool without `parameters`.
pub fn any_object() -> Value {
    serde_json::json!({"type": "object", "properties": {}})
}

/// Checks a tool's name.
///
/// # Errors
/// 400 with the characters that a name may have.
pub fn checked_name(name: Option<String>) -> Result<String, ApiError> {
    let is_good = |name: &String| {
        (1..=TOOL_NAME_CHARS_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    name.filter(is_good).ok_or_else(|| {
        let message = format!(
            "a tool's name has 1 to {TOOL_NAME_CHARS_MAX} letters, digits, underscores and dashes"
        );
        ApiError::field("tools", message)
    })
}

fn read_tool_choice(fields: &Fields<'_, '_>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    const FORMS: &str =
        "none, auto, required, or {\"type\":\"function\",\"function\":{\"name\":…}}";
    let Some(value) = fields.get("tool_choice")? else {
        return Ok(if tools.is_empty() { ToolChoice::None } else { ToolChoice::Auto });
    };
    let choice = match value.as_str() {
        Some("none") => ToolChoice::None,
        Some("auto") => ToolChoice::Auto,
        Some("required") => ToolChoice::Required,
        Some(_) => return Err(wrong("tool_choice", FORMS, &value)),
        None => {
            let choice = fields.object("tool_choice")?;
            let function = choice.map(|choice| choice.object("function")).transpose()?.flatten();
            let name = function.map(|function| function.string("name")).transpose()?.flatten();
            ToolChoice::Named(name.ok_or_else(|| wrong("tool_choice", FORMS, &value))?)
        }
    };
    check_choice(choice, tools)
}

/// Checks that the tools can satisfy a choice.
///
/// # Errors
/// 400 if it names an unknown tool, or requires a tool where there is none.
pub fn check_choice(choice: ToolChoice, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    match &choice {
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
            let message = format!("tool_choice names {name:?}, which is not among the tools");
            Err(ApiError::field("tool_choice", message))
        }
        ToolChoice::Required if tools.is_empty() => {
            Err(ApiError::field("tool_choice", "tool_choice is required, and there are no tools"))
        }
        ToolChoice::Auto if tools.is_empty() => Ok(ToolChoice::None),
        _ => Ok(choice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;

    fn messages(body: &str) -> Result<Vec<Message>, String> {
        read_object(&mut body.as_bytes().to_vec(), read_messages).map_err(|error| error.message)
    }

    fn tools(body: &str) -> Result<(Vec<Tool>, ToolChoice), String> {
        read_object(&mut body.as_bytes().to_vec(), read_tools).map_err(|error| error.message)
    }

    #[test]
    fn every_form_of_content_is_read() {
        let body = r#"{"messages":[
            {"role":"system","content":"a"},
            {"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]},
            {"role":"assistant","content":null,"tool_calls":[
                {"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}},
                {"id":"2","type":"function","function":{"name":"g","arguments":"oops"}}]},
            {"role":"tool","tool_call_id":"1","content":"d"}]}"#;
        let messages = messages(body).unwrap();
        assert_eq!(messages[1].content, Content::Parts(vec!["b".into(), "c".into()]));
        assert_eq!(messages[2].content, Content::None);
        // In the order of the request.
        assert_eq!(messages[2].tool_calls[0].arguments.to_string(), r#"{"z":1,"a":2}"#);
        assert_eq!(messages[2].tool_calls[1].arguments, "oops");
        assert_eq!(
            (messages[3].role, messages[3].tool_call_id.as_deref()),
            (Role::Tool, Some("1"))
        );
    }

    #[test]
    fn what_is_wrong_with_a_message_is_said_with_its_place() {
        for (body, message) in [
            (r#"{}"#, "messages is missing; it must be an array of objects with role and content"),
            (r#"{"messages":[]}"#, "messages is empty; it must have at least one"),
            (r#"{"messages":"a"}"#, "messages must be an array of objects, not the string \"a\""),
            (
                r#"{"messages":[{"role":"me","content":"a"}]}"#,
                "messages[0]: role must be system, developer, user, assistant or tool, not \"me\"",
            ),
            (
                r#"{"messages":[{"role":"user","content":"a"},{"role":"user"}]}"#,
                "messages[1]: content is missing; it must be a string or an array of text parts",
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}"#,
                "messages[0]: a part of type \"image_url\" is not supported; text is",
            ),
            (
                r#"{"messages":[{"role":"user","content":"a","tool_calls":[]}]}"#,
                "messages[0]: tool_calls belongs to messages of the assistant",
            ),
        ] {
            assert_eq!(messages(body).unwrap_err(), message, "{body}");
        }
    }

    #[test]
    fn tools_and_the_choice_among_them_are_checked() {
        let tool = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}"#;
        let with = |choice: &str| tools(&format!("{{\"tools\":[{tool}]{choice}}}"));
        assert_eq!(with("").unwrap().1, ToolChoice::Auto);
        assert_eq!(with(r#","tool_choice":"none""#).unwrap().1, ToolChoice::None);
        assert_eq!(with(r#","tool_choice":"required""#).unwrap().1, ToolChoice::Required);
        let named = r#","tool_choice":{"type":"function","function":{"name":"f"}}"#;
        assert_eq!(with(named).unwrap().1, ToolChoice::Named("f".into()));
        assert_eq!(with("").unwrap().0[0].definition["function"]["name"], "f");
        let other = r#","tool_choice":{"type":"function","function":{"name":"g"}}"#;
        let message = "tool_choice names \"g\", which is not among the tools";
        assert_eq!(with(other).unwrap_err(), message);
        assert!(tools(r#"{"tool_choice":"required"}"#).unwrap_err().contains("there are no tools"));
        assert!(
            tools(&format!("{{\"tools\":[{tool},{tool}]}}")).unwrap_err().contains("two tools")
        );
        assert!(
            tools(r#"{"tools":[{"type":"web_search"}]}"#).unwrap_err().contains("not supported")
        );
        assert!(
            tools(r#"{"tools":[{"function":{"name":"a b"}}]}"#).unwrap_err().contains("64 letters")
        );
    }
}
