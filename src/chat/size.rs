//! Estimates the memory that a conversation takes.

use serde_json::Value;

use super::conversation::{Content, Conversation, Message};

/// Estimated bytes of a value, a message or a text, without its characters.
const NODE_BYTES: usize = 72;

impl Conversation {
    /// The estimated bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let tools = self.tools.iter().map(|tool| {
            tool.name.len() + json_bytes(&tool.definition) + json_bytes(&tool.parameters)
        });
        let messages = self.messages.iter().map(Message::bytes);
        let kwargs =
            self.template_kwargs.iter().map(|(name, value)| name.len() + json_bytes(value));
        let form = self.form.as_ref().map_or(0, json_bytes);
        tools.chain(messages).chain(kwargs).sum::<usize>() + form
    }

    /// Bytes of the texts in it.
    pub fn text_bytes(&self) -> usize {
        let messages = self.messages.iter().map(Message::text_bytes);
        let tools = self.tools.iter().map(|tool| text_bytes_of(&tool.definition));
        let kwargs = self.template_kwargs.values().map(text_bytes_of);
        messages.chain(tools).chain(kwargs).sum()
    }
}

impl Message {
    /// The estimated bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let parts = match &self.content {
            Content::None | Content::Text(_) => 0,
            Content::Parts(parts) => parts.len() * NODE_BYTES,
        };
        let arguments = self.tool_calls.iter().map(|call| json_bytes(&call.arguments));
        size_of::<Self>() + self.own_text_bytes() + parts + arguments.sum::<usize>()
    }

    fn text_bytes(&self) -> usize {
        let arguments = self.tool_calls.iter().map(|call| text_bytes_of(&call.arguments));
        self.own_text_bytes() + arguments.sum::<usize>()
    }

    /// Values in the arguments of its calls.
    pub fn values(&self) -> usize {
        self.tool_calls.iter().map(|call| values_in(&call.arguments)).sum()
    }

    /// Bytes of its texts, without the arguments of calls.
    fn own_text_bytes(&self) -> usize {
        let content = match &self.content {
            Content::None => 0,
            Content::Text(text) => text.len(),
            Content::Parts(parts) => parts.iter().map(String::len).sum(),
        };
        let calls = self.tool_calls.iter().map(|call| call.id.len() + call.name.len());
        let texts = [&self.name, &self.reasoning, &self.tool_call_id].into_iter().flatten();
        content + calls.sum::<usize>() + texts.map(String::len).sum::<usize>()
    }
}

/// The estimated bytes of memory that a value takes.
pub fn json_bytes(value: &Value) -> usize {
    values_in(value) * NODE_BYTES + text_bytes_of(value)
}

/// The number of values in a value, including itself.
fn values_in(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(values_in).sum(),
        Value::Object(fields) => fields.values().map(|value| 1 + values_in(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Bytes of the texts and names in a value.
fn text_bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes_of).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + text_bytes_of(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::conversation::ToolCall;

    #[test]
    fn every_string_of_a_message_counts() {
        let long = "x".repeat(1000);
        let call =
            ToolCall { id: long.clone(), name: long.clone(), arguments: json!({&long: long}) };
        let text = || Some(long.clone());
        let whole = Message {
            content: Content::Parts(vec![long.clone()]),
            name: text(),
            reasoning: text(),
            tool_calls: vec![call],
            tool_call_id: text(),
            ..Message::default()
        };
        let bytes = whole.bytes() - Message::default().bytes();
        assert!((8000..9000).contains(&bytes), "{bytes}");
        assert_eq!(whole.values(), 3);
        let conversation = Conversation { messages: vec![whole], ..Conversation::default() };
        assert_eq!(conversation.text_bytes(), 8000);
    }
}
