//! Reads the requests of `/v1/responses` and `/v1/responses/input_tokens`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields::{Members, Namespaces, ResponseFields};
use super::items::read_input;
use crate::api::advanced::RequestedAdvanced;
use crate::api::chat::{ChatRequest, read_reasoning_budget};
use crate::api::constrain::{RequestedConstraint, of_schema};
use crate::api::error::ApiError;
use crate::api::hints::read_hints;
use crate::api::json::refuse;
use crate::api::json::{Fields, keep, objects, read_object, wrong};
use crate::api::reply::ReplyOptions;
use crate::api::request::{
    GenerationRequest, Length, read_cache_salt, read_given, read_sampling, read_seed, read_urgency,
};
use crate::api::stored::checked_id;
use crate::api::tools::{Offer, Offered, checked_name, function, no_parameters, read_parameters};
use crate::api::turn::{Turn, Turns};
use crate::api::write::push_json;
use crate::chat::conversation::{Content, Conversation, Message, Role, Tool, ToolChoice};
use crate::constraint::Constraint;
use crate::limits::{
    LENGTH_MAX, METADATA_BYTES_MAX, TEMPERATURE_MAX, TEXT_BYTES_MAX, TOOLS_MAX, TOP_LOGPROBS_MAX,
};
use crate::types::{Sampling, digits};

/// Bytes of the fields of a request that its response repeats, as JSON. Most of them are parts of the
/// prompt, so they are bounded like its text.
const ECHO_BYTES_MAX: usize = TEXT_BYTES_MAX;

/// Bytes of `user` and similar fields, which change nothing and which a response repeats.
const HINT_BYTES_MAX: usize = 512;

/// Fields that ask for more than this server does, with the values that ask for nothing.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("background", "false"),
    ("conversation", "null"),
    ("prompt", "null"),
    ("n_cmpl", "1"),
    ("add_generation_prompt", "true"),
];

/// Reads a request for a response, or for the number of its input's tokens.
pub fn read(body: &mut [u8]) -> Result<ChatRequest, ApiError> {
    read_object(body, |fields| {
        refuse(fields, UNSUPPORTED)?;
        let instructions = fields.string("instructions")?;
        let previous = read_id("previous_response_id", fields)?;
        let store = fields.boolean("store")?.unwrap_or(true);
        // A response is kept, or repeats these.
        let effective = ["store", "prompt_cache_key", "safety_identifier"];
        let mut ignored = read_hints(fields, &effective)?;
        let (items, mut messages) = read_input(fields, store, &mut ignored)?;
        if messages.is_empty() {
            let message = "input is missing; it must be a string or an array of items";
            return Err(ApiError::field("input", message));
        }
        let own = Turn::new(&messages);
        if let Some(text) = &instructions {
            let content = Content::Text(text.clone());
            messages.insert(0, Message { role: Role::System, content, ..Message::default() });
        }
        let mut namespaces = Namespaces::default();
        let offered = read_choice(fields, read_tools(fields, &mut namespaces)?)?;
        let Offered { tools, choice: tool_choice, ignored: left_out } = offered;
        ignored.extend(left_out);
        let parallel_tool_calls = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let (constraint, text) = read_text(fields)?;
        let (template_kwargs, reasoning) = read_reasoning(fields)?;
        let top_logprobs = read_logprobs(fields)?;
        let max_output_tokens = fields.integer("max_output_tokens", -1..=LENGTH_MAX)?;
        let echo = json!({
            "background": false,
            "instructions": instructions,
            "max_output_tokens": max_output_tokens,
            "max_tool_calls": Value::Null,
            "metadata": read_metadata(fields)?,
            "parallel_tool_calls": parallel_tool_calls,
            "previous_response_id": previous,
            "prompt_cache_key": read_hint("prompt_cache_key", fields)?,
            "reasoning": reasoning,
            "safety_identifier": read_hint("safety_identifier", fields)?,
            "service_tier": "default",
            "store": store,
            "temperature": fields.number("temperature", 0.0..=TEMPERATURE_MAX)?.unwrap_or(1.0),
            "text": text,
            "tool_choice": kept("tool_choice", fields)?.unwrap_or_else(|| "auto".into()),
            "tools": kept("tools", fields)?.unwrap_or_else(|| json!([])),
            "top_logprobs": top_logprobs.unwrap_or(0),
            "top_p": fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0),
            "truncation": "disabled",
            "user": read_hint("user", fields)?,
        });
        let turns = Turns {
            continues: previous.is_some(),
            previous,
            instructions: usize::from(instructions.is_some()),
            own,
        };
        let generation = GenerationRequest {
            length: max_output_tokens.map_or(Length::Default(None), Length::of),
            sampling: read_sampling(fields, Sampling::default())?,
            given: read_given(fields)?,
            advanced: top_logprobs.map(|n| {
                let mut advanced = RequestedAdvanced::default();
                advanced.advanced.logprobs = Some(n as u8); // at most TOP_LOGPROBS_MAX
                Box::new(advanced)
            }),
            seed: read_seed(fields)?,
            urgency: read_urgency(fields)?,
            cache_salt: read_cache_salt(fields)?,
            constraint,
            ignored,
            reply: ReplyOptions {
                stream: fields.boolean("stream")?.unwrap_or(false),
                logprobs: top_logprobs.is_some(),
                ..ReplyOptions::default()
            },
            ..GenerationRequest::new(ResponseFields {
                echo: members(echo)?,
                store,
                items,
                namespaces,
            })
        };
        let conversation = Conversation {
            messages,
            tools,
            tool_choice,
            parallel_tool_calls,
            template_kwargs,
            reasoning_budget: read_reasoning_budget(fields)?,
            ..Conversation::default()
        };
        Ok(ChatRequest {
            generation,
            conversation,
            split_reasoning: true,
            turns: Some(Box::new(turns)),
        })
    })
}

/// Writes the answer to a request for the number of tokens.
pub fn push_count(out: &mut Vec<u8>, tokens: usize) {
    #[derive(Serialize)]
    struct Count<'a> {
        object: &'a str,
        input_tokens: usize,
    }
    push_json(out, &Count { object: "response.input_tokens", input_tokens: tokens });
}

/// The fields that the response repeats, as JSON. The front lane writes them, so they are bounded.
fn members(object: Value) -> Result<Members, ApiError> {
    let Value::Object(members) = object else { unreachable!("it is an object") };
    let json =
        |(name, value): (_, Value)| (name, digits::spelled(value.to_string()).into_bytes().into());
    let members: Members = members.into_iter().map(json).collect();
    // With quotes, a colon and a comma for each, and the braces.
    let bytes: usize =
        1 + members.iter().map(|(name, json)| name.len() + json.len() + 4).sum::<usize>();
    if bytes > ECHO_BYTES_MAX {
        let message = format!(
            "instructions, tools and the other fields that the response repeats have {bytes} bytes; \
             they may have {ECHO_BYTES_MAX}"
        );
        return Err(ApiError::invalid(message));
    }
    Ok(members)
}

/// Reads an id.
fn read_id(name: &'static str, fields: &Fields<'_, '_>) -> Result<Option<String>, ApiError> {
    let id = fields.string(name)?;
    checked_id(name, id.as_deref().unwrap_or_default())?;
    Ok(id)
}

/// Reads a text that changes nothing here, and that the response repeats.
fn read_hint(name: &'static str, fields: &Fields<'_, '_>) -> Result<Option<String>, ApiError> {
    let hint = fields.string(name)?;
    match hint.as_ref().map_or(0, String::len) {
        bytes if bytes > HINT_BYTES_MAX => {
            let message = format!("{name} has {bytes} bytes; it may have {HINT_BYTES_MAX}");
            Err(ApiError::field(name, message))
        }
        _ => Ok(hint),
    }
}

fn kept(name: &'static str, fields: &Fields<'_, '_>) -> Result<Option<Value>, ApiError> {
    fields.get(name)?.map(|value| keep(name, &value)).transpose()
}

/// Reads `metadata`, which the response repeats.
fn read_metadata(fields: &Fields<'_, '_>) -> Result<Value, ApiError> {
    const NAME: &str = "metadata";
    let Some(value) = fields.get(NAME)? else { return Ok(json!({})) };
    let metadata = keep(NAME, &value)?;
    let bytes = metadata.to_string().len();
    let is_text = |value: &Value| value.as_str().is_some_and(|text| digits::marked(text).is_none());
    let texts = metadata.as_object().is_some_and(|fields| fields.values().all(is_text));
    match (texts, bytes <= METADATA_BYTES_MAX) {
        (true, true) => Ok(metadata),
        (false, _) => Err(wrong(NAME, "an object of strings", &value)),
        (true, false) => {
            let message = format!("metadata has {bytes} bytes; it may have {METADATA_BYTES_MAX}");
            Err(ApiError::field(NAME, message))
        }
    }
}

/// Reads `text`: the constraint that its `format` asks for, and the member of the response.
fn read_text(fields: &Fields<'_, '_>) -> Result<(Option<RequestedConstraint>, Value), ApiError> {
    const NAME: &str = "text";
    let mut shown = json!({"format": {"type": "text"}, "verbosity": "medium"});
    let Some(text) = fields.object(NAME)? else { return Ok((None, shown)) };
    if let Some(verbosity) = text.string("verbosity")? {
        shown["verbosity"] = verbosity.into();
    }
    let Some(format) = text.object("format")? else { return Ok((None, shown)) };
    let constraint = match format.string("type")?.as_deref() {
        Some("text") => return Ok((None, shown)),
        Some("json_object") => Constraint::JsonObject,
        Some("json_schema") => match format.get("schema")? {
            Some(schema) => of_schema(NAME, &schema)?,
            None => {
                let message = "text.format of the type json_schema must have a schema";
                return Err(ApiError::field(NAME, message));
            }
        },
        _ => {
            let message = "text.format must have the type text, json_object or json_schema";
            return Err(ApiError::field(NAME, message));
        }
    };
    if let Some(format) = text.get("format")? {
        shown["format"] = keep(NAME, &format)?;
    }
    Ok((Some(RequestedConstraint { field: NAME, constraint }), shown))
}

/// Reads `reasoning`: variables of chat templates, and the member of the response.
fn read_reasoning(fields: &Fields<'_, '_>) -> Result<(Map<String, Value>, Value), ApiError> {
    let mut kwargs = Map::new();
    let Some(reasoning) = fields.object("reasoning")? else {
        return Ok((kwargs, json!({"effort": null, "summary": null})));
    };
    let effort = reasoning.string("effort")?;
    if let Some(effort) = &effort {
        kwargs.insert("enable_thinking".to_owned(), (effort != "none").into());
        kwargs.insert("reasoning_effort".to_owned(), effort.as_str().into());
    }
    Ok((kwargs, json!({"effort": effort, "summary": reasoning.string("summary")?})))
}

/// The number of alternatives with their log-probabilities, if the request asks for these.
fn read_logprobs(fields: &Fields<'_, '_>) -> Result<Option<i64>, ApiError> {
    const INCLUDE: &str = "include";
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX as i64)?;
    let Some(include) = fields.get(INCLUDE)? else { return Ok(top.filter(|top| *top > 0)) };
    let expected = || wrong(INCLUDE, "an array of strings", &include);
    let mut asked = top.is_some_and(|top| top > 0);
    for element in include.as_array().ok_or_else(expected)?.iter() {
        // The other values are about tools that only OpenAI has, and about encryption.
        asked |= element.as_str().ok_or_else(expected)? == "message.output_text.logprobs";
    }
    Ok(asked.then_some(top.unwrap_or(0)))
}

/// Reads `tools`. The functions in a namespace are offered like the others.
fn read_tools(fields: &Fields<'_, '_>, namespaces: &mut Namespaces) -> Result<Offer, ApiError> {
    let mut offer = Offer::default();
    let Some(value) = fields.get("tools")? else { return Ok(offer) };
    for tool in &objects("tools", &value, TOOLS_MAX)? {
        let (kind, inner) = (tool.string("type")?, tool.get("tools")?);
        match (kind.as_deref(), inner) {
            (Some("function"), _) => offer.add(read_function(tool, None)?)?,
            (Some("namespace"), Some(inner)) => {
                let namespace = tool.string("name")?.unwrap_or_default();
                for tool in &objects("tools", &inner, TOOLS_MAX)? {
                    match tool.string("type")?.as_deref() {
                        Some("function") => {
                            let name = tool.string("name")?.unwrap_or_default();
                            let name = namespaces.add(&namespace, &name);
                            offer.add(read_function(tool, Some(name))?)?;
                        }
                        kind => offer.leave_out(kind.unwrap_or("none"), tool)?,
                    }
                }
            }
            (kind, _) => offer.leave_out(kind.unwrap_or("none"), tool)?,
        }
    }
    Ok(offer)
}

/// Reads a function. `joined` is its name in a namespace.
fn read_function(tool: &Fields<'_, '_>, joined: Option<String>) -> Result<Tool, ApiError> {
    let name = checked_name(joined.or(tool.string("name")?))?;
    let parameters = read_parameters("parameters", tool)?.unwrap_or_else(no_parameters);
    let is_strict = tool.boolean("strict")?.unwrap_or(false);
    Ok(function(name, tool.string("description")?, parameters, is_strict))
}

/// Reads `tool_choice`. It may also leave only some of the tools.
fn read_choice(fields: &Fields<'_, '_>, mut offer: Offer) -> Result<Offered, ApiError> {
    const NAME: &str = "tool_choice";
    const FORMS: &str = "none, auto, required, or an object of the type function or allowed_tools";
    let word = |word: Option<&str>| match word {
        None | Some("auto") => Some(ToolChoice::Auto),
        Some("none") => Some(ToolChoice::None),
        Some("required") => Some(ToolChoice::Required),
        Some(_) => None,
    };
    let Some(value) = fields.get(NAME)? else { return offer.chosen(ToolChoice::Auto) };
    let expected = || wrong(NAME, FORMS, &value);
    let choice = if value.is_str() {
        word(value.as_str()).ok_or_else(expected)?
    } else {
        let choice = fields.object(NAME)?.ok_or_else(expected)?;
        match (choice.string("type")?.as_deref(), choice.string("name")?) {
            (Some("function"), Some(name)) => ToolChoice::Named(name),
            (Some("allowed_tools"), _) => {
                let Some(allowed) = choice.get("tools")? else { return Err(expected()) };
                let names = objects(NAME, &allowed, TOOLS_MAX)?;
                let names: Vec<Option<String>> =
                    names.iter().map(|tool| tool.string("name")).collect::<Result<_, _>>()?;
                offer.retain(|tool| names.iter().flatten().any(|name| name == tool));
                word(choice.string("mode")?.as_deref()).ok_or_else(expected)?
            }
            _ => return Err(expected()),
        }
    };
    offer.chosen(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reply::{ReplyContext, Summary};
    use crate::clock::Micros;

    fn parse(body: &str) -> Result<ChatRequest, String> {
        read(&mut body.as_bytes().to_vec()).map_err(|error| error.message)
    }

    #[test]
    fn the_response_repeats_what_was_asked() {
        let chat = parse(
            r#"{"input":"Hi","instructions":"Be brief.","temperature":0.7,"metadata":{"a":"b"},
            "text":{"format":{"type":"json_schema","name":"s","schema":{}}},
            "reasoning":{"effort":"low"},"previous_response_id":"resp_1","max_output_tokens":9}"#,
        )
        .unwrap();
        let context = ReplyContext {
            id: "resp_2".into(),
            model: "m".into(),
            created: 5,
            received: Micros(0),
            prompt_tokens: 1,
        };
        assert_eq!(chat.conversation.messages[0].role, Role::System);
        assert_eq!(chat.conversation.template_kwargs["reasoning_effort"], "low");
        let turns = chat.turns.unwrap();
        assert_eq!((turns.previous.as_deref(), turns.instructions), (Some("resp_1"), 1));
        let GenerationRequest { make_reply, reply, facts, length, constraint, .. } =
            chat.generation;
        assert_eq!((length, constraint.is_some()), (Length::AtMost(9), true));
        let mut out = Vec::new();
        make_reply.make(reply, facts, &context).push_end(Summary::default(), Micros(0), &mut out);
        let shown: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&shown["temperature"], &shown["top_p"]), (&0.7.into(), &1.0.into()));
        assert_eq!((&shown["store"], &shown["tools"]), (&true.into(), &json!([])));
        assert_eq!(shown["text"]["format"]["name"], "s");
    }

    #[test]
    fn tools_are_flat_and_may_be_fewer() {
        let tools = r#""tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]"#;
        let with = |choice: &str| {
            let chat = parse(&format!(r#"{{"input":"a",{tools},"tool_choice":{choice}}}"#))?;
            Ok::<_, String>((chat.conversation.tools.len(), chat.conversation.tool_choice))
        };
        assert_eq!(with("\"required\""), Ok((2, ToolChoice::Required)));
        let named = r#"{"type":"function","name":"g"}"#;
        assert_eq!(with(named), Ok((2, ToolChoice::Named("g".into()))));
        let allowed = r#"{"type":"allowed_tools","mode":"required",
            "tools":[{"type":"function","name":"g"}]}"#;
        assert_eq!(with(allowed), Ok((1, ToolChoice::Required)));
        assert!(with(r#"{"type":"mcp"}"#).unwrap_err().contains("tool_choice must be none, auto"));
        let hosted = parse(r#"{"input":"a","tools":[{"type":"web_search"}]}"#).unwrap();
        assert_eq!(hosted.conversation.tool_choice, ToolChoice::None);
        assert_eq!(hosted.generation.ignored, ["tools of type \"web_search\""]);
    }

    /// In the form of Codex, which puts the tools of each MCP server into a namespace.
    #[test]
    fn tools_in_namespaces_are_offered_and_called_by_both_names() {
        let chat = parse(
            r#"{"input":[{"role":"user","content":"a"},
                {"type":"function_call","namespace":"mcp__x","name":"open","call_id":"1",
                "arguments":"{}"},
                {"type":"function_call_output","call_id":"1","output":[
                {"type":"input_text","text":"b"},{"type":"input_image","image_url":"data:"}]},
                {"type":"web_search_call","id":"ws_1"}],
                "tools":[{"type":"namespace","name":"mcp__x","tools":[
                {"type":"function","name":"open","strict":false,"parameters":{"type":"object"}},
                {"type":"custom","name":"exec"}]},{"type":"custom","name":"apply_patch"}]}"#,
        )
        .unwrap();
        let Conversation { tools, messages, .. } = &chat.conversation;
        assert_eq!((tools.len(), tools[0].name.as_str()), (1, "mcp__x__open"));
        assert_eq!(messages[1].tool_calls[0].name, "mcp__x__open");
        let shown = "b\n[a part of type input_image, which this model cannot see]";
        assert_eq!(messages[2].content.text(), shown);
        assert_eq!(chat.generation.ignored.len(), 3, "{:?}", chat.generation.ignored);
    }

    #[test]
    fn what_asks_for_more_is_refused() {
        for (body, message) in [
            ("{}", "input is missing"),
            (r#"{"input":"a","background":true}"#, "background is not supported here"),
            (r#"{"input":"a","metadata":{"a":1}}"#, "metadata must be an object of strings"),
            (r#"{"input":"a","text":{"format":{"type":"xml"}}}"#, "text.format must have the type"),
            (r#"{"input":"a","include":[1]}"#, "include must be an array of strings"),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
