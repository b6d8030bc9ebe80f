//! Reads the requests of `/v1/chat/completions`.

use super::messages::{read_messages, read_tools};
use super::reply::ChatReply;
use super::{ChatRequest, read_reasoning_budget};
use crate::api::error::ApiError;
use crate::api::hints::refuse_unsupported;
use crate::api::json::refuse;
use crate::api::json::{Fields, keep, read_object};
use crate::api::request::read_generation;
use crate::api::tools::Offered;
use crate::chat::conversation::Conversation;
use crate::types::Sampling;

/// Reads a `/v1/chat/completions` request.
pub fn read_chat(body: &mut [u8]) -> Result<ChatRequest, ApiError> {
    read_object(body, |fields| {
        refuse_unsupported(fields)?;
        refuse(fields, &[("echo", "false"), ("suffix", "\"\"")])?;
        fields.string("model")?; // any name is accepted, for only one model is served
        let Offered { tools, choice: tool_choice, ignored } = read_tools(fields)?;
        let mut generation = read_generation(fields, Sampling::default(), None, ChatReply::new)?;
        generation.ignored.extend(ignored);
        let mut template_kwargs = match fields.get("chat_template_kwargs")? {
            Some(kwargs) => read_kwargs(&kwargs)?,
            None => serde_json::Map::new(),
        };
        if let Some(effort) = fields.string("reasoning_effort")? {
            if effort == "none" {
                template_kwargs.entry("enable_thinking").or_insert(false.into());
            }
            template_kwargs.entry("reasoning_effort").or_insert(effort.into());
        }
        let conversation = Conversation {
            messages: read_messages(fields, &mut generation.ignored)?,
            tools,
            tool_choice,
            parallel_tool_calls: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
            form: None,
            template_kwargs,
            reasoning_budget: read_reasoning_budget(fields)?,
            continue_final_message: fields.boolean("continue_final_message")?.unwrap_or(false),
            without_generation_prompt: fields.boolean("add_generation_prompt")? == Some(false),
        };
        let split_reasoning = read_reasoning_format(fields)?;
        Ok(ChatRequest { generation, conversation, split_reasoning, turns: None })
    })
}

/// Variables that the conversation itself sets.
const TAKEN: [&str; 4] = ["messages", "tools", "add_generation_prompt", "strftime_now"];

fn read_kwargs(
    value: &crate::api::value::Value<'_, '_>,
) -> Result<serde_json::Map<String, serde_json::Value>, ApiError> {
    const NAME: &str = "chat_template_kwargs";
    let serde_json::Value::Object(kwargs) = keep(NAME, value)? else {
        return Err(crate::api::json::wrong(NAME, "an object", value));
    };
    match TAKEN.iter().find(|name| kwargs.contains_key(**name)) {
        Some(taken) => {
            let message = format!("{NAME} has {taken}, which the request itself sets");
            Err(ApiError::field(NAME, message))
        }
        None => Ok(kwargs),
    }
}

/// Reads llama-server's `reasoning_format`: `none` leaves the reasoning in `content`; every other
/// value moves it to `reasoning_content`.
fn read_reasoning_format(fields: &Fields<'_, '_>) -> Result<bool, ApiError> {
    match fields.string("reasoning_format")?.as_deref() {
        Some("none") => Ok(false),
        None | Some("auto" | "deepseek" | "deepseek-legacy") => Ok(true),
        Some(other) => Err(ApiError::field(
            "reasoning_format",
            format!("reasoning_format must be none, auto or deepseek, not {other:?}"),
        )),
    }
}
