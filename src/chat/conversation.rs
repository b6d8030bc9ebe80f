//! A conversation: messages, tools and the template's other variables. Every chat dialect reads its
//! own JSON into this type.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::types::digits;

/// A [`Conversation::reasoning_budget`] without a limit.
pub const UNLIMITED: u32 = u32::MAX;

/// A conversation that the model is to continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The messages, oldest first; one or more.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether the model may, must or must not call a tool.
    pub tool_choice: ToolChoice,
    /// Whether one message may call several tools.
    pub parallel_tool_calls: bool,
    /// The JSON schema of an answer that calls no tool.
    pub form: Option<Value>,
    /// More variables for the template.
    pub template_kwargs: Map<String, Value>,
    /// The most tokens of reasoning, or [`UNLIMITED`]; `None` leaves it to the effort and to the
    /// server.
    pub reasoning_budget: Option<u32>,
    /// The last message is the start of the answer, and the model continues it.
    pub continue_final_message: bool,
    /// The prompt ends with the last message, without the header of an answer.
    pub without_generation_prompt: bool,
}

impl Conversation {
    /// Replaces every text of the client that a template can see by `map` of it.
    pub fn map_texts(&mut self, map: &dyn Fn(&str) -> String) {
        let each = |text: &mut String| *text = map(text);
        for message in &mut self.messages {
            match &mut message.content {
                Content::None => {}
                Content::Text(text) => each(text),
                Content::Parts(parts) => parts.iter_mut().for_each(each),
            }
            let Message { name, reasoning, tool_calls, tool_call_id, .. } = message;
            [name, reasoning, tool_call_id].into_iter().flatten().for_each(each);
            for call in tool_calls {
                each(&mut call.id);
                each(&mut call.name);
                map_json(&mut call.arguments, map);
            }
        }
        for tool in &mut self.tools {
            map_json(&mut tool.definition, map);
        }
        self.template_kwargs.values_mut().for_each(|value| map_json(value, map));
    }
}

/// Replaces every text in a value, including the names of fields, by `map` of it.
fn map_json(value: &mut Value, map: &dyn Fn(&str) -> String) {
    match value {
        // A number has no control token.
        Value::String(text) if digits::marked(text).is_some() => {}
        Value::String(text) => *text = map(text),
        Value::Array(values) => values.iter_mut().for_each(|value| map_json(value, map)),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut value)| {
                    map_json(&mut value, map);
                    (map(&name), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author: `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: Role,
    /// The text.
    pub content: Content,
    /// The name of the author, or of the tool that answers.
    pub name: Option<String>,
    /// The assistant's reasoning before this text.
    pub reasoning: Option<String>,
    /// The assistant's tool calls.
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that this message answers.
    pub tool_call_id: Option<String>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The operator's instructions.
    System,
    /// Like `System`; the name that OpenAI's newer models use.
    Developer,
    /// The person.
    #[default]
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The name that templates use.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::Developer => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// The text of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// No text: an assistant's message that only calls tools.
    #[default]
    None,
    /// Text.
    Text(String),
    /// Text in parts, which some templates format separately.
    Parts(Vec<String>),
}

impl Content {
    /// The whole text. Parts are joined by a line break, as in llama-server and vLLM.
    pub fn text(&self) -> String {
        match self {
            Content::None => String::new(),
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.join("\n"),
        }
    }
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the client or the server gave to this call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: an object, or the text as the client sent it if that is not an object. As in
    /// all JSON here, a number that only its text can hold is a marked string:
    /// [`digits`].
    pub arguments: Value,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments, with numbers rounded to doubles.
    pub parameters: Value,
    /// Whether the client relies on the schema: every keyword is obeyed, or the request refused.
    pub is_strict: bool,
    /// The whole definition in OpenAI's form, which templates expect.
    pub definition: Value,
}

/// Whether the model calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Never. The template does not see the tools either.
    #[default]
    None,
    /// If the model chooses to.
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}
