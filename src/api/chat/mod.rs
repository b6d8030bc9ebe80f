//! Chat requests, and OpenAI's form of them.

pub mod messages;
pub mod openai;
pub mod reply;

use super::request::GenerationRequest;
use super::turn::Turns;
use crate::chat::conversation::Conversation;

/// A request to continue a conversation.
#[derive(Debug)]
pub struct ChatRequest {
    /// How to generate. Its prompt is empty until the template has rendered it.
    pub generation: GenerationRequest,
    /// The messages so far, and the tools.
    pub conversation: Conversation,
    /// Whether the reply has the model's reasoning in a field of its own.
    pub split_reasoning: bool,
    /// Its place in a conversation that is kept.
    pub turns: Option<Box<Turns>>,
}

impl ChatRequest {
    /// Bytes of the texts of the conversation, with those of the turns before that are still to be
    /// put into it.
    pub fn text_bytes(&self) -> usize {
        let before = self.turns.as_ref().filter(|turns| turns.continues);
        self.conversation.text_bytes() + before.map_or(0, |turns| turns.own.size.bytes)
    }

    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let turns = self.turns.as_ref().map_or(0, |turns| turns.own.size.bytes);
        self.generation.bytes() + self.conversation.bytes() + turns
    }

    /// Puts the messages of the turns before into the conversation, if it continues some.
    pub fn join_turns(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        if std::mem::take(&mut turns.continues) {
            let place = turns.instructions..turns.instructions;
            self.conversation.messages.splice(place, turns.own.messages_before());
        }
    }
}
