//! Reads OpenAI's messages and tools from JSON.

use serde_json::Value;

use crate::api::error::ApiError;
use crate::api::json::{Fields, keep, objects, wrong};
use crate::api::tools::{
    Offer, Offered, checked_name, no_parameters, placeholder, read_parameters,
};
use crate::chat::conversation::{Content, Message, Role, Tool, ToolCall, ToolChoice};
use crate::limits::{MESSAGES_MAX, PARTS_MAX, TOOLS_MAX};
use crate::types::digits;

/// Reads `messages`.
///
/// # Errors
/// 400 with the message's index and the expected form.
pub fn read_messages(
    fields: &Fields<'_, '_>,
    ignored: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    let Some(value) = fields.get("messages")? else {
        let message = "messages is missing; it must be an array of objects with role and content";
        return Err(ApiError::field("messages", message));
    };
    let messages = objects("messages", &value, MESSAGES_MAX)?;
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages is empty; it must have at least one"));
    }
    let read = |(index, fields)| {
        read_message(&fields, ignored)
            .map_err(|error| error.within("messages", format_args!("messages[{index}]")))
    };
    messages.into_iter().enumerate().map(read).collect()
}

fn read_message(fields: &Fields<'_, '_>, ignored: &mut Vec<String>) -> Result<Message, ApiError> {
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
    let content = read_content(fields, role, ignored)?;
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

fn read_content(
    fields: &Fields<'_, '_>,
    role: Role,
    ignored: &mut Vec<String>,
) -> Result<Content, ApiError> {
    let Some(value) = fields.get("content")? else { return Ok(Content::None) };
    if let Some(text) = value.as_str() {
        return Ok(Content::Text(text.to_owned()));
    }
    if !value.is_array() {
        return Err(wrong("content", "a string or an array of text parts", &value));
    }
    let parts = objects("content", &value, PARTS_MAX)?;
    let read = |part| read_part(part, role, ignored);
    parts.iter().map(read).collect::<Result<_, _>>().map(Content::Parts)
}

/// Reads a part: `{"type":"text","text":…}` or a `refusal`, which is text, too. Any other part of a
/// tool's result becomes a placeholder: an error would come again in each later turn of the
/// conversation.
fn read_part(
    part: &Fields<'_, '_>,
    role: Role,
    ignored: &mut Vec<String>,
) -> Result<String, ApiError> {
    let kind = part.string("type")?.unwrap_or_else(|| "text".into());
    let text = match kind.as_str() {
        "text" | "input_text" => part.string("text")?,
        "refusal" => part.string("refusal")?,
        other if role == Role::Tool => return Ok(placeholder(Some(other), ignored)),
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
    match digits::parse(text) {
        Ok(object @ Value::Object(_)) => object,
        _ => text.into(),
    }
}

/// Reads `tools` and `tool_choice`.
///
/// # Errors
/// 400 that names what is wrong.
pub fn read_tools(fields: &Fields<'_, '_>) -> Result<Offered, ApiError> {
    let offer = read_tool_list(fields)?;
    let choice = read_tool_choice(fields)?;
    offer.chosen(choice)
}

/// Reads `tools`.
///
/// # Errors
/// 400 that names what is wrong.
pub fn read_tool_list(fields: &Fields<'_, '_>) -> Result<Offer, ApiError> {
    let mut offer = Offer::default();
    let Some(value) = fields.get("tools")? else { return Ok(offer) };
    let definitions = objects("tools", &value, TOOLS_MAX)?;
    let elements = value.as_array().into_iter().flat_map(|array| array.iter());
    for (fields, element) in definitions.iter().zip(elements) {
        match fields.string("type")?.as_deref() {
            None | Some("function") => offer.add(read_tool(fields, keep("tools", &element)?)?)?,
            Some(kind) => offer.leave_out(kind, fields)?,
        }
    }
    Ok(offer)
}

fn read_tool(fields: &Fields<'_, '_>, definition: Value) -> Result<Tool, ApiError> {
    let Some(function) = fields.object("function")? else {
        return Err(ApiError::field("tools", "a tool must have a function with a name"));
    };
    let name = checked_name(function.string("name")?)?;
    let parameters = read_parameters("parameters", &function)?.unwrap_or_else(no_parameters);
    let is_strict = function.boolean("strict")?.unwrap_or(false);
    Ok(Tool { name, parameters: digits::rounded(parameters), is_strict, definition })
}

fn read_tool_choice(fields: &Fields<'_, '_>) -> Result<ToolChoice, ApiError> {
    const FORMS: &str =
        "none, auto, required, or {\"type\":\"function\",\"function\":{\"name\":…}}";
    let Some(value) = fields.get("tool_choice")? else { return Ok(ToolChoice::Auto) };
    match value.as_str() {
        Some("none") => Ok(ToolChoice::None),
        Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        Some(_) => Err(wrong("tool_choice", FORMS, &value)),
        None => {
            let choice = fields.object("tool_choice")?;
            let function = choice.map(|choice| choice.object("function")).transpose()?.flatten();
            let name = function.map(|function| function.string("name")).transpose()?.flatten();
            name.map(ToolChoice::Named).ok_or_else(|| wrong("tool_choice", FORMS, &value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::read_object;

    fn messages(body: &str) -> Result<Vec<Message>, String> {
        read_object(&mut body.as_bytes().to_vec(), |fields| read_messages(fields, &mut Vec::new()))
            .map_err(|error| error.message)
    }

    fn tools(body: &str) -> Result<Offered, String> {
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
        let tool = r#"{"type":"function","function":{"name":"f","strict":true}}"#;
        let with = |choice: &str| tools(&format!("{{\"tools\":[{tool}]{choice}}}"));
        let offered = with("").unwrap();
        assert_eq!((offered.choice, offered.tools[0].is_strict), (ToolChoice::Auto, true));
        assert_eq!(offered.tools[0].definition["function"]["name"], "f");
        assert_eq!(with(r#","tool_choice":"none""#).unwrap().choice, ToolChoice::None);
        assert_eq!(with(r#","tool_choice":"required""#).unwrap().choice, ToolChoice::Required);
        let named = r#","tool_choice":{"type":"function","function":{"name":"f"}}"#;
        assert_eq!(with(named).unwrap().choice, ToolChoice::Named("f".into()));
        assert!(with(r#","tool_choice":"maybe""#).unwrap_err().contains("none, auto, required"));
        let other = tools(r#"{"tools":[{"type":"web_search"}]}"#).unwrap();
        assert_eq!((other.choice, other.ignored.len()), (ToolChoice::None, 1));
    }
}
