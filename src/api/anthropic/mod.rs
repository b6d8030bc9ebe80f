//! Anthropic's dialect: `/v1/messages` and its `count_tokens`. Reads a request into the same
//! conversation type as OpenAI's dialect.

pub mod reply;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use self::reply::MessagesReply;
use super::chat::ChatRequest;
use super::constrain::{RequestedConstraint, of_schema};
use super::error::{ApiError, Dialect};
use super::hints::{read_hints, refuse_unsupported};
use super::json::refuse;
use super::json::{Fields, keep, objects, read_object, wrong};
use super::reply::ReplyOptions;
use super::request::{
    GenerationRequest, Length, read_given, read_max_tokens, read_sampling, read_stop_list,
    read_urgency,
};
use super::tools::{Offer, Offered, checked_name, function, note, placeholder, read_parameters};
use super::write::{Object, push_json, push_named_event};
use crate::chat::conversation::{
    Content, Conversation, Message, Role, ToolCall, ToolChoice, UNLIMITED,
};
use crate::limits::{LENGTH_MAX, MESSAGES_MAX, PARTS_MAX, TOOLS_MAX};
use crate::types::Sampling;

/// Anthropic's dialect.
pub static DIALECT: Dialect = Dialect {
    stream_type: "text/event-stream",
    has_comments: true,
    push_error: |out, error| push_json(out, &ErrorBody { r#type: "error", error: error.into() }),
    push_error_event: |out, error| {
        push_named_event(out, "error", &Object([("error", Failure::from(error))]))
    },
};

#[derive(Serialize)]
struct ErrorBody<'a> {
    r#type: &'a str,
    error: Failure<'a>,
}

#[derive(Clone, Serialize)]
struct Failure<'a> {
    r#type: &'a str,
    message: Cow<'a, str>,
}

impl<'a> From<&'a ApiError> for Failure<'a> {
    fn from(error: &'a ApiError) -> Self {
        let kind = match error.status {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            500 => "api_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            _ => "invalid_request_error",
        };
        let message = match error.tokens.as_deref() {
            // Anthropic's own words, which its clients look for.
            Some((tokens, limit)) => {
                let most = limit - 1; // an answer needs a token, too
                format!("prompt is too long: {tokens} tokens > {most} maximum").into()
            }
            None => error.message.as_str().into(),
        };
        Self { r#type: kind, message }
    }
}

/// Reads a `/v1/messages` request.
pub fn read_messages(body: &mut [u8]) -> Result<ChatRequest, ApiError> {
    read(body, |max_tokens| {
        let message = "max_tokens is missing; it must be a whole number of at least 1";
        max_tokens.ok_or_else(|| ApiError::field("max_tokens", message))
    })
}

/// Reads a `/v1/messages/count_tokens` request, which needs no `max_tokens`.
pub fn read_count(body: &mut [u8]) -> Result<ChatRequest, ApiError> {
    read(body, |_| Ok(Length::Default(None)))
}

fn read(
    body: &mut [u8],
    length: impl FnOnce(Option<Length>) -> Result<Length, ApiError>,
) -> Result<ChatRequest, ApiError> {
    read_object(body, |fields| {
        refuse_unsupported(fields)?;
        refuse(fields, &[("n_cmpl", "1"), ("add_generation_prompt", "true")])?;
        fields.string("model")?; // any name is accepted, for only one model is served
        let length = length(read_max_tokens(fields)?)?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let mut generation = GenerationRequest {
            length,
            sampling: read_sampling(fields, Sampling::default())?,
            given: read_given(fields)?,
            stops: read_stop_list("stop_sequences", fields)?,
            reply: ReplyOptions { stream, ..ReplyOptions::default() },
            urgency: read_urgency(fields)?,
            constraint: read_format(fields)?,
            ignored: read_hints(fields, &[])?,
            ..GenerationRequest::new(MessagesReply::new)
        };
        let mut messages = read_system(fields)?;
        messages.extend(read_turns(fields, &mut generation.ignored)?);
        let (choice, parallel_tool_calls) = read_choice(fields)?;
        let offered = read_tools(fields)?.chosen(choice)?;
        let Offered { tools, choice: tool_choice, ignored } = offered;
        generation.ignored.extend(ignored);
        // If the last message is the assistant's, the model continues it.
        let last = messages.last();
        let continue_final_message =
            last.is_some_and(|m| m.role == Role::Assistant && m.tool_calls.is_empty());
        let conversation = Conversation {
            messages,
            tools,
            tool_choice,
            parallel_tool_calls,
            form: None,
            template_kwargs: read_effort(fields)?,
            reasoning_budget: read_thinking_budget(fields)?,
            continue_final_message,
            without_generation_prompt: false,
        };
        Ok(ChatRequest { generation, conversation, split_reasoning: true, turns: None })
    })
}

/// Writes the answer of `count_tokens`.
pub fn push_count(out: &mut Vec<u8>, tokens: usize) {
    push_json(out, &Object([("input_tokens", tokens)]));
}

/// Converts `thinking` and `output_config.effort` to the variables of chat templates.
fn read_effort(fields: &Fields<'_, '_>) -> Result<Map<String, Value>, ApiError> {
    let thinking = fields.object("thinking")?;
    // Without `thinking`, clients expect the answer in the first block.
    let enabled = match thinking.map(|thinking| thinking.string("type")).transpose()?.flatten() {
        None if fields.get("thinking")?.is_none() => false,
        Some(kind) if kind == "enabled" || kind == "adaptive" => true,
        Some(kind) if kind == "disabled" => false,
        _ => {
            let message = "thinking.type must be enabled, adaptive or disabled";
            return Err(ApiError::field("thinking", message));
        }
    };
    let mut kwargs = Map::from_iter([("enable_thinking".to_owned(), enabled.into())]);
    let config = fields.object("output_config")?;
    if let Some(effort) = config.map(|config| config.string("effort")).transpose()?.flatten() {
        if effort == "none" {
            kwargs.insert("enable_thinking".to_owned(), false.into());
        }
        kwargs.insert("reasoning_effort".to_owned(), effort.into());
    }
    Ok(kwargs)
}

/// Reads `thinking.budget_tokens`.
fn read_thinking_budget(fields: &Fields<'_, '_>) -> Result<Option<u32>, ApiError> {
    let Some(thinking) = fields.object("thinking")? else { return Ok(None) };
    let tokens = thinking.integer("budget_tokens", 0..=LENGTH_MAX)?;
    Ok(tokens.map(|tokens| u32::try_from(tokens).unwrap_or(UNLIMITED)))
}

/// Reads `output_config.format`, the schema of the answer, or `output_format`, its older name.
fn read_format(fields: &Fields<'_, '_>) -> Result<Option<RequestedConstraint>, ApiError> {
    const NAME: &str = "output_config";
    const OLDER: &str = "output_format";
    let config = fields.object(NAME)?;
    let newer = config.map(|config| config.object("format")).transpose()?.flatten();
    let (field, format) = match (newer, fields.object(OLDER)?) {
        (Some(format), _) => (NAME, format),
        (None, Some(format)) => (OLDER, format),
        (None, None) => return Ok(None),
    };
    match (format.string("type")?.as_deref(), format.get("schema")?) {
        (Some("json_schema"), Some(schema)) => {
            Ok(Some(RequestedConstraint { field, constraint: of_schema(field, &schema)? }))
        }
        _ => {
            let message = "output_config.format must have the type json_schema and a schema";
            Err(ApiError::field(field, message))
        }
    }
}

fn read_system(fields: &Fields<'_, '_>) -> Result<Vec<Message>, ApiError> {
    let Some(value) = fields.get("system")? else { return Ok(Vec::new()) };
    let content = match value.as_str() {
        Some(text) => Content::Text(text.to_owned()),
        None => {
            let mut texts = read_texts("system", &value)?;
            texts.retain(|text| !is_billing(text));
            if texts.is_empty() {
                return Ok(Vec::new());
            }
            Content::Parts(texts)
        }
    };
    Ok(vec![Message { role: Role::System, content, ..Message::default() }])
}

/// Whether a text is the header that some versions of Claude Code put before their instructions. It
/// has a number that changes with each request, so no prefix after it would be found in the cache.
fn is_billing(text: &str) -> bool {
    text.starts_with("x-anthropic-billing-header:") && !text.trim_end().contains('\n')
}

/// Reads text blocks; refuses all other blocks.
fn read_texts(
    name: &'static str,
    value: &crate::api::value::Value<'_, '_>,
) -> Result<Vec<String>, ApiError> {
    if !value.is_array() {
        return Err(wrong(name, "a string or an array of text blocks", value));
    }
    let text = |block: &Fields<'_, '_>| match block.string("type")?.as_deref() {
        Some("text") => text_of(name, block),
        other => Err(unsupported_block(name, other)),
    };
    objects(name, value, PARTS_MAX)?.iter().map(text).collect()
}

fn text_of(name: &'static str, block: &Fields<'_, '_>) -> Result<String, ApiError> {
    let text = block.string("text")?;
    text.ok_or_else(|| ApiError::field(name, "a text block must have a string text"))
}

fn unsupported_block(name: &'static str, kind: Option<&str>) -> ApiError {
    let kind = kind.unwrap_or("none");
    ApiError::unsupported(name, format!("a content block of type {kind:?} is not supported"))
}

fn read_turns(
    fields: &Fields<'_, '_>,
    ignored: &mut Vec<String>,
) -> Result<Vec<Message>, ApiError> {
    const NAME: &str = "messages";
    let Some(value) = fields.get(NAME)? else {
        let message = "messages is missing; it must be an array of objects with role and content";
        return Err(ApiError::field(NAME, message));
    };
    let turns = objects(NAME, &value, MESSAGES_MAX)?;
    if turns.is_empty() {
        return Err(ApiError::field(NAME, "messages is empty; it must have at least one"));
    }
    let mut messages = Vec::with_capacity(turns.len());
    for (index, turn) in turns.iter().enumerate() {
        read_turn(turn, &mut messages, ignored)
            .map_err(|error| error.within(NAME, format_args!("messages.{index}")))?;
    }
    Ok(messages)
}

/// Reads one turn. It becomes several messages if it holds tool results.
fn read_turn(
    turn: &Fields<'_, '_>,
    messages: &mut Vec<Message>,
    ignored: &mut Vec<String>,
) -> Result<(), ApiError> {
    let role = match turn.string("role")?.as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err(ApiError::field("role", "role must be user or assistant")),
    };
    let Some(content) = turn.get("content")? else {
        return Err(ApiError::field(
            "content",
            "content is missing; it must be a string or blocks",
        ));
    };
    if let Some(text) = content.as_str() {
        let content = Content::Text(text.to_owned());
        messages.push(Message { role, content, ..Message::default() });
        return Ok(());
    }
    if !content.is_array() {
        return Err(wrong("content", "a string or an array of blocks", &content));
    }
    let mut said = Message { role, ..Message::default() };
    let mut texts = Vec::new();
    let blocks = objects("content", &content, PARTS_MAX)?;
    if blocks.is_empty() {
        return Err(ApiError::field(
            "content",
            "content is empty; it must have at least one block",
        ));
    }
    for block in blocks {
        match (block.string("type")?.as_deref(), role) {
            (Some("text"), _) => texts.push(text_of("content", &block)?),
            (Some("tool_use"), Role::Assistant) => said.tool_calls.push(read_tool_use(&block)?),
            (Some("thinking"), Role::Assistant) => {
                let thought = block.string("thinking")?.unwrap_or_default();
                said.reasoning.get_or_insert_default().push_str(&thought);
            }
            (Some("redacted_thinking"), Role::Assistant) => {}
            (Some("tool_result"), Role::User) => messages.push(read_tool_result(&block, ignored)?),
            // The work of tools that another server ran.
            (Some(kind), Role::Assistant)
                if kind == "server_tool_use" || kind.ends_with("_tool_result") =>
            {
                note(ignored, kind);
            }
            (other, _) => return Err(unsupported_block("content", other)),
        }
    }
    let is_empty = texts.is_empty();
    if !is_empty {
        said.content = Content::Parts(texts);
    }
    if !is_empty || !said.tool_calls.is_empty() || said.reasoning.is_some() {
        messages.push(said);
    }
    Ok(())
}

fn read_tool_use(block: &Fields<'_, '_>) -> Result<ToolCall, ApiError> {
    let name = block.string("name")?;
    let arguments = match block.get("input")? {
        Some(input) => keep("content", &input)?,
        None => Value::Object(Map::new()),
    };
    Ok(ToolCall {
        id: block.string("id")?.unwrap_or_default(),
        name: name
            .ok_or_else(|| ApiError::field("content", "a tool_use block must have a name"))?,
        arguments,
    })
}

/// Reads the result of a tool. A block that is no text becomes a placeholder: an error would come
/// again in each later turn of the conversation.
fn read_tool_result(
    block: &Fields<'_, '_>,
    ignored: &mut Vec<String>,
) -> Result<Message, ApiError> {
    let mut content = match block.get("content")? {
        None => Content::Text(String::new()),
        Some(value) => match value.as_str() {
            Some(text) => Content::Text(text.to_owned()),
            None => {
                let blocks = objects("content", &value, PARTS_MAX)?;
                let mut text = |block: &Fields<'_, '_>| match block.string("type")?.as_deref() {
                    Some("text") => text_of("content", block),
                    kind => Ok(placeholder(kind, ignored)),
                };
                Content::Parts(blocks.iter().map(&mut text).collect::<Result<_, _>>()?)
            }
        },
    };
    if block.boolean("is_error")? == Some(true) {
        // Templates have no other place for an error.
        content = Content::Text(format!("Error: {}", content.text()));
    }
    let tool_call_id = block.string("tool_use_id")?;
    Ok(Message { role: Role::Tool, content, tool_call_id, ..Message::default() })
}

fn read_tools(fields: &Fields<'_, '_>) -> Result<Offer, ApiError> {
    let mut offer = Offer::default();
    let Some(value) = fields.get("tools")? else { return Ok(offer) };
    for tool in &objects("tools", &value, TOOLS_MAX)? {
        if let Some(kind) = tool.string("type")?.filter(|kind| kind != "custom") {
            offer.leave_out(&kind, tool)?;
            continue;
        }
        let name = checked_name(tool.string("name")?)?;
        let message = "a tool must have an input_schema, an object";
        let parameters = read_parameters("input_schema", tool)?;
        let parameters = parameters.ok_or_else(|| ApiError::field("tools", message))?;
        let is_strict = tool.boolean("strict")?.unwrap_or(false);
        offer.add(function(name, tool.string("description")?, parameters, is_strict))?;
    }
    Ok(offer)
}

/// Reads `tool_choice`, and whether several tools may be called at once.
fn read_choice(fields: &Fields<'_, '_>) -> Result<(ToolChoice, bool), ApiError> {
    let Some(choice) = fields.object("tool_choice")? else { return Ok((ToolChoice::Auto, true)) };
    let parallel = !choice.boolean("disable_parallel_tool_use")?.unwrap_or(false);
    let choice = match (choice.string("type")?.as_deref(), choice.string("name")?) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("any"), _) => ToolChoice::Required,
        (Some("tool"), Some(name)) => ToolChoice::Named(name),
        _ => {
            let message = "tool_choice.type must be auto, any, none, or tool with a name";
            return Err(ApiError::field("tool_choice", message));
        }
    };
    Ok((choice, parallel))
}
