//! Chat requests, and OpenAI's form of them.

pub mod messages;
pub mod openai;
pub mod reply;

use super::request::GenerationRequest;
use crate::chat::conversation::Conversation;

/// A request to continue a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// How to generate. Its prompt is empty until the template has rendered it.
    pub generation: GenerationRequest,
    /// The messages so far, and the tools.
    pub conversation: Conversation,
    /// Whether the reply has the model's reasoning in a field of its own.
    pub split_reasoning: bool,
}

impl ChatRequest {
    /// Bytes of the texts of the conversation, with those of the turns before that are still to be
    /// put into it.
    pub fn text_bytes(&self) -> usize {
        let response = self.generation.reply.response.as_ref();
        let before = response.filter(|fields| fields.continues);
        self.conversation.text_bytes() + before.map_or(0, |fields| fields.turn.size.bytes)
    }

    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.generation.bytes() + self.conversation.bytes()
    }

    /// Puts the messages of the turns before into the conversation, if it continues some.
    pub fn join_turns(&mut self) {
        let Some(fields) = &mut self.generation.reply.response else { return };
        if std::mem::take(&mut fields.continues) {
            let place = fields.instructions..fields.instructions;
            self.conversation.messages.splice(place, fields.turn.messages_before());
        }
    }
}
