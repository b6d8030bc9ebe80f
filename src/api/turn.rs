//! The turns of a conversation that is kept. A turn is one block of memory, and the responses of one
//! conversation share the turns before them. So keeping, continuing and forgetting a response takes
//! little time, however long the conversation is.

use std::sync::Arc;

use super::error::ApiError;
use crate::chat::conversation::Message;
use crate::limits::{BODY_BYTES_MAX, JSON_MARKS_MAX, MESSAGES_MAX};

/// The place of a request in a conversation that is kept.
#[derive(Debug, Default)]
pub struct Turns {
    /// The id of the response that it continues, until its turns are found.
    pub previous: Option<String>,
    /// Whether the messages of the turns before are still to be put into the conversation.
    pub continues: bool,
    /// Messages at the start of the conversation that are instructions. They are not kept.
    pub instructions: usize,
    /// The request's own messages, after the turns before.
    pub own: Turn,
}

/// The messages of one request and the answer to it, without instructions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// The messages as JSON, one after another.
    json: Vec<u8>,
    /// The turn before it.
    before: Option<Arc<Turn>>,
    /// The size of the conversation up to its end.
    pub size: Size,
}

/// The size of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes as JSON.
    pub bytes: usize,
    /// Its messages.
    messages: usize,
    /// Values in the arguments of tool calls.
    values: usize,
}

impl Turn {
    /// A turn of these messages.
    pub fn new(messages: &[Message]) -> Self {
        let mut turn = Self::default();
        messages.iter().for_each(|message| turn.push(message));
        turn
    }

    /// Adds a message.
    pub fn push(&mut self, message: &Message) {
        let begin = self.json.len();
        serde_json::to_writer(&mut self.json, message).expect("its maps have texts as keys");
        self.size.bytes += self.json.len() - begin;
        self.size.messages += 1;
        self.size.values += message.values();
    }

    /// Puts a conversation before it.
    ///
    /// # Errors
    /// 400 if they are too long together.
    pub fn follow(&mut self, before: Arc<Turn>) -> Result<(), ApiError> {
        let (own, old) = (self.size, before.size);
        let size = Size {
            bytes: own.bytes + old.bytes,
            messages: own.messages + old.messages,
            values: own.values + old.values,
        };
        for (count, most, what) in [
            (size.messages, MESSAGES_MAX, "messages"),
            (size.bytes, BODY_BYTES_MAX, "bytes"),
            (size.values, JSON_MARKS_MAX, "values in the arguments of tool calls"),
        ] {
            if count > most {
                let message =
                    format!("with those before, input has {count} {what}; it may have {most}");
                return Err(ApiError::field("previous_response_id", message));
            }
        }
        self.size = size;
        self.before = Some(before);
        Ok(())
    }

    /// The messages of the turns before it, oldest first.
    pub fn messages_before(&self) -> Vec<Message> {
        let mut turns: Vec<&Turn> =
            std::iter::successors(self.before.as_deref(), |turn| turn.before.as_deref()).collect();
        turns.reverse();
        let messages = turns.into_iter().flat_map(|turn| {
            let messages = serde_json::Deserializer::from_slice(&turn.json).into_iter();
            messages.map(|message| message.expect("a turn has whole messages"))
        });
        messages.collect()
    }
}

impl Drop for Turn {
    /// Frees a long conversation turn by turn. Without this, each turn would take a part of the
    /// stack.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut turn) = next.and_then(Arc::into_inner) {
            next = turn.before.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::conversation::{Content, Role, ToolCall};

    fn message(text: &str) -> Message {
        Message { content: Content::Text(text.into()), ..Message::default() }
    }

    #[test]
    fn a_conversation_comes_back_as_it_was() {
        let arguments =
            json!({"b": [1.0, 0.1, -7, 18_446_744_073_709_551_615u64, null], "a": "\n"});
        let call = ToolCall { id: "c1".into(), name: "f".into(), arguments };
        let first = [
            message("Hi \"you\""),
            Message {
                role: Role::Assistant,
                content: Content::Parts(vec!["a".into(), "b".into()]),
                reasoning: Some("Hm.".into()),
                tool_calls: vec![call],
                ..Message::default()
            },
        ];
        let second =
            [Message { tool_call_id: Some("c1".into()), role: Role::Tool, ..message("3") }];
        let mut turn = Turn::new(&second);
        turn.follow(Arc::new(Turn::new(&first))).unwrap();
        let mut last = Turn::new(&[message("Go on")]);
        last.follow(Arc::new(turn)).unwrap();
        assert_eq!(last.messages_before(), [&first[..], &second[..]].concat());
        assert_eq!((last.size.messages, last.size.values), (4, 1 + 2 * 2 + 5));
    }

    #[test]
    fn a_conversation_is_as_long_as_one_that_is_sent_whole() {
        let long = Arc::new(Turn::new(&[message(&"x".repeat(BODY_BYTES_MAX / 2))]));
        let mut turn = Turn::new(&[message(&"x".repeat(BODY_BYTES_MAX / 2))]);
        let error = turn.follow(long).unwrap_err();
        assert!(error.message.contains("bytes; it may have 8388608"), "{}", error.message);
        let many = Arc::new(Turn::new(&vec![message(""); MESSAGES_MAX]));
        let error = Turn::new(&[message("")]).follow(many).unwrap_err();
        assert!(error.message.contains("4097 messages; it may have 4096"), "{}", error.message);
    }

    #[test]
    fn a_long_conversation_is_freed_on_a_small_stack() {
        let free = || {
            let mut last = Arc::new(Turn::default());
            for _ in 0..100_000 {
                let mut turn = Turn::default();
                turn.follow(last).unwrap();
                last = Arc::new(turn);
            }
        };
        std::thread::Builder::new().stack_size(64 * 1024).spawn(free).unwrap().join().unwrap();
    }
}
