//! The parts of a request that its response needs.

use serde_json::Value;

use crate::chat::conversation::{Content, Message};

/// The parts of a request that its response repeats, or that are kept with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseFields {
    /// Members of the response's object: `"instructions":…,"tools":…`.
    pub echo: String,
    /// Whether the response is kept.
    pub store: bool,
    /// The input, as items.
    pub input: Vec<Value>,
    /// The response that this one continues; `None` once its messages are in the conversation.
    pub previous: Option<String>,
    /// Messages at the start of the conversation that come from `instructions`. They are not kept.
    pub instructions: usize,
    /// The conversation, set when the prompt has been rendered.
    pub messages: Vec<Message>,
}

impl ResponseFields {
    /// About the bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        let input: usize = self.input.iter().map(json_bytes).sum();
        self.echo.len() + input + messages_bytes(&self.messages)
    }
}

/// About the bytes of memory that messages take.
pub fn messages_bytes(messages: &[Message]) -> usize {
    let bytes = |message: &Message| {
        let content = match &message.content {
            Content::None => 0,
            Content::Text(text) => text.len(),
            Content::Parts(parts) => parts.iter().map(|part| part.len() + NODE_BYTES).sum(),
        };
        let calls = message.tool_calls.iter();
        let calls: usize =
            calls.map(|call| call.name.len() + call.id.len() + json_bytes(&call.arguments)).sum();
        NODE_BYTES + content + calls + message.reasoning.as_ref().map_or(0, String::len)
    };
    messages.iter().map(bytes).sum()
}

/// About the bytes of memory that a value takes.
pub fn json_bytes(value: &Value) -> usize {
    NODE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(json_bytes).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| name.len() + json_bytes(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// About the bytes of a value or a message without its text.
const NODE_BYTES: usize = 64;
