//! Reads the requests of `/api/chat` and `/api/generate`.

use serde_json::{Map, Value};

use super::models::{Loading, read_model};
use super::reply::{Form, OllamaReply};
use crate::api::advanced::{RequestedAdvanced, read_advanced, read_logprobs};
use crate::api::asked::Request;
use crate::api::chat::ChatRequest;
use crate::api::chat::messages::read_tool_list;
use crate::api::constrain::{RequestedConstraint, of_schema};
use crate::api::error::ApiError;
use crate::api::json::refuse;
use crate::api::json::{Fields, keep, objects, read_object, wrong};
use crate::api::prompts::Prompt;
use crate::api::reply::{ReplyContext, ReplyOptions};
use crate::api::request::{
    GenerationRequest, Length, read_given, read_sampling, read_seed, read_stop_list, read_suffix,
    read_urgency,
};
use crate::api::tools::Offered;
use crate::chat::conversation::{Content, Conversation, Message, Role, ToolCall, ToolChoice};
use crate::constraint::Constraint;
use crate::limits::{LENGTH_MAX, MESSAGES_MAX, TOOLS_MAX};
use crate::types::Sampling;

/// Ollama's default sampling.
fn sampling() -> Sampling {
    Sampling {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.9,
        repeat_penalty: 1.1,
        repeat_last_n: 64,
        penalise_window: true,
        ..Sampling::default()
    }
}

/// Reads a `/api/chat` request. Without messages it only loads the model.
pub fn read_chat(body: &mut [u8]) -> Result<Request, ApiError> {
    read_object(body, |fields| {
        let mut generation = read_generation(fields, Form::Chat)?;
        let messages = match fields.get("messages")? {
            Some(value) => objects("messages", &value, MESSAGES_MAX)?,
            None => Vec::new(),
        };
        if messages.is_empty() {
            return Ok(Request::Loading(Loading { chat: true, unload: read_unload(fields)? }));
        }
        let message = |(index, message)| {
            read_message(message)
                .map_err(|error| error.within("messages", format_args!("messages[{index}]")))
        };
        let messages = messages.iter().enumerate().map(message).collect::<Result<_, _>>()?;
        let offered = read_tool_list(fields)?.chosen(ToolChoice::Auto)?;
        let Offered { tools, choice: tool_choice, ignored } = offered;
        generation.ignored.extend(ignored);
        let conversation = Conversation { messages, tools, tool_choice, ..talk(fields)? };
        Ok(Request::chat(ChatRequest {
            generation,
            conversation,
            split_reasoning: true,
            turns: None,
        }))
    })
}

/// Reads a `/api/generate` request. Without a prompt it only loads the model.
pub fn read_generate(body: &mut [u8]) -> Result<Request, ApiError> {
    read_object(body, |fields| {
        refuse(fields, &[("template", "\"\""), ("context", "[]")])?;
        refuse_images(fields)?;
        let generation = read_generation(fields, Form::Generate)?;
        let prompt = fields.string("prompt")?.unwrap_or_default();
        let gap = read_suffix(fields)?;
        let raw = fields.boolean("raw")?.unwrap_or(false);
        let system = fields.string("system")?.filter(|system| !system.is_empty());
        if prompt.is_empty() && gap.is_none() {
            return Ok(Request::Loading(Loading { chat: false, unload: read_unload(fields)? }));
        }
        if raw || gap.is_some() {
            let prompts = vec![Prompt::Text(prompt)];
            return Ok(Request::generate(GenerationRequest { prompts, gap, ..generation }));
        }
        let said =
            |role, text| Message { role, content: Content::Text(text), ..Message::default() };
        let system = system.map(|system| said(Role::System, system));
        let messages = system.into_iter().chain([said(Role::User, prompt)]).collect();
        let conversation = Conversation { messages, ..talk(fields)? };
        Ok(Request::chat(ChatRequest {
            generation,
            conversation,
            split_reasoning: true,
            turns: None,
        }))
    })
}

/// Reads the fields that both paths share.
fn read_generation(fields: &Fields<'_, '_>, form: Form) -> Result<GenerationRequest, ApiError> {
    read_model(fields)?;
    let make_reply = move |options, facts, context: &ReplyContext| {
        OllamaReply::new(form, options, facts, context)
    };
    let mut request =
        GenerationRequest { sampling: sampling(), ..GenerationRequest::new(make_reply) };
    if let Some(options) = &fields.object("options")? {
        request.sampling = read_sampling(options, sampling())?;
        request.given = read_given(options)?;
        request.advanced = read_advanced(options)?;
        request.seed = read_seed(options)?;
        request.stops = read_stop_list("stop", options)?;
        let length = options.integer("num_predict", -2..=LENGTH_MAX)?;
        request.length = length.map_or(Length::Default(None), Length::of);
    }
    let logprobs = read_logprobs(fields)?;
    if logprobs.is_some() {
        let advanced: &mut RequestedAdvanced = request.advanced.get_or_insert_default();
        advanced.advanced.logprobs = logprobs;
    }
    request.constraint = read_format(fields)?;
    request.urgency = read_urgency(fields)?;
    request.reply = ReplyOptions {
        stream: fields.boolean("stream")?.unwrap_or(true),
        logprobs: logprobs.is_some(),
        ..ReplyOptions::default()
    };
    Ok(request)
}

/// Reads `format`: `json`, or a schema.
fn read_format(fields: &Fields<'_, '_>) -> Result<Option<RequestedConstraint>, ApiError> {
    const NAME: &str = "format";
    let Some(value) = fields.get(NAME)? else { return Ok(None) };
    let constraint = match value.as_str() {
        Some("") => return Ok(None),
        Some("json") => Constraint::JsonObject,
        Some(_) => return Err(wrong(NAME, "\"json\" or a JSON schema", &value)),
        None => of_schema(NAME, &value)?,
    };
    Ok(Some(RequestedConstraint { field: NAME, constraint }))
}

/// A conversation without messages. Reads `think`, which becomes variables of chat templates.
fn talk(fields: &Fields<'_, '_>) -> Result<Conversation, ApiError> {
    let mut template_kwargs = Map::new();
    if let Some(think) = fields.get("think")? {
        let (enabled, effort) = match (think.as_bool(), think.as_str()) {
            (Some(enabled), _) => (enabled, None),
            (_, Some(effort @ ("low" | "medium" | "high" | "max"))) => (true, Some(effort)),
            _ => return Err(wrong("think", "true, false, low, medium, high or max", &think)),
        };
        template_kwargs.insert("enable_thinking".to_owned(), enabled.into());
        if let Some(effort) = effort {
            template_kwargs.insert("reasoning_effort".to_owned(), effort.into());
        }
    }
    Ok(Conversation { template_kwargs, parallel_tool_calls: true, ..Conversation::default() })
}

/// Whether `keep_alive` asks to unload the model.
fn read_unload(fields: &Fields<'_, '_>) -> Result<bool, ApiError> {
    let Some(time) = fields.get("keep_alive")? else { return Ok(false) };
    Ok(time.cast_f64() == Some(0.0) || matches!(time.as_str(), Some("0" | "0s" | "0m")))
}

fn refuse_images(fields: &Fields<'_, '_>) -> Result<(), ApiError> {
    refuse(fields, &[("images", "[]")])
}

fn read_message(fields: &Fields<'_, '_>) -> Result<Message, ApiError> {
    refuse_images(fields)?;
    let role = match fields.string("role")?.as_deref() {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool") => Role::Tool,
        _ => {
            return Err(ApiError::field("role", "role must be system, user, assistant or tool"));
        }
    };
    let tool_calls = match fields.get("tool_calls")? {
        Some(calls) => objects("tool_calls", &calls, TOOLS_MAX)?
            .iter()
            .map(read_call)
            .collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let content = match fields.string("content")? {
        Some(text) if tool_calls.is_empty() || !text.is_empty() => Content::Text(text),
        None if tool_calls.is_empty() => Content::Text(String::new()),
        _ => Content::None,
    };
    Ok(Message {
        role,
        content,
        name: fields.string("tool_name")?,
        reasoning: fields.string("thinking")?.filter(|thinking| !thinking.is_empty()),
        tool_calls,
        tool_call_id: fields.string("tool_call_id")?,
    })
}

fn read_call(call: &Fields<'_, '_>) -> Result<ToolCall, ApiError> {
    let function = call.object("function")?;
    let name = function.as_ref().map(|function| function.string("name")).transpose()?.flatten();
    let (Some(function), Some(name)) = (function, name) else {
        let message = "a tool call must have a function with name and arguments";
        return Err(ApiError::field("tool_calls", message));
    };
    let arguments = match function.get("arguments")? {
        Some(arguments) if arguments.is_object() => keep("tool_calls", &arguments)?,
        Some(other) => return Err(wrong("arguments", "an object", &other)),
        None => Value::Object(Map::new()),
    };
    Ok(ToolCall { id: call.string("id")?.unwrap_or_default(), name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Result<ChatRequest, String> {
        match read_chat(&mut body.as_bytes().to_vec()).map_err(|error| error.message)? {
            Request::Chat(chat) => Ok(*chat),
            _ => panic!("not a chat"),
        }
    }

    #[test]
    fn a_stream_is_the_default_and_the_sampling_is_ollamas() {
        let hi = r#""model":"m","messages":[{"role":"user","content":"Hi"}]"#;
        let read = chat(&format!("{{{hi}}}")).unwrap();
        assert!(read.generation.reply.stream);
        assert_eq!(read.generation.sampling, sampling());
        let options = r#""options":{"temperature":0,"num_predict":7,"num_ctx":4096,"stop":["x"]}"#;
        let read = chat(&format!(r#"{{{hi},"stream":false,{options}}}"#)).unwrap().generation;
        assert!(!read.reply.stream);
        assert_eq!((read.sampling.temperature, read.sampling.top_k), (0.0, 40));
        assert_eq!((read.length, read.stops), (Length::AtMost(7), vec!["x".to_owned()]));
        for (n, length) in [("-1", Length::Fit), ("-2", Length::Fit), ("0", Length::PromptOnly)] {
            let body = format!(r#"{{{hi},"options":{{"num_predict":{n}}}}}"#);
            assert_eq!(chat(&body).unwrap().generation.length, length);
        }
    }

    #[test]
    fn a_prompt_is_a_turn_of_the_user_unless_it_is_raw() {
        let read = |more: &str| {
            let body = format!(r#"{{"model":"m","prompt":"Hi"{more}}}"#);
            read_generate(&mut body.into_bytes()).unwrap()
        };
        match read(r#","system":"Be brief.","think":"low""#) {
            Request::Chat(chat) => {
                let roles: Vec<Role> = chat.conversation.messages.iter().map(|m| m.role).collect();
                assert_eq!(roles, [Role::System, Role::User]);
                assert_eq!(chat.conversation.template_kwargs["reasoning_effort"], "low");
            }
            _ => panic!("not a chat"),
        }
        match read(r#","raw":true"#) {
            Request::Generate(request) => assert_eq!(request.prompts, [Prompt::Text("Hi".into())]),
            _ => panic!("not a prompt"),
        }
    }

    #[test]
    fn nothing_to_say_loads_the_model() {
        for (more, unload) in [("", false), (r#","keep_alive":0"#, true)] {
            let body = format!(r#"{{"model":"m"{more}}}"#);
            match read_chat(&mut body.into_bytes()).unwrap() {
                Request::Loading(loading) => assert_eq!(loading, Loading { chat: true, unload }),
                _ => panic!("not that"),
            }
        }
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        for (body, message) in [
            (r#"{"messages":[{"role":"king"}]}"#, "messages[0]: role must be system, user"),
            (r#"{"messages":[{"role":"user","images":["x"]}]}"#, "images is not supported here"),
            (r#"{"messages":[{"role":"user"}],"format":"xml"}"#, "format must be \"json\" or a"),
            (r#"{"messages":[{"role":"user"}],"think":7}"#, "think must be true, false, low"),
            (r#"{"messages":7}"#, "messages must be an array of objects"),
        ] {
            let body = body.replacen('{', r#"{"model":"m","#, 1);
            let error = chat(&body).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
