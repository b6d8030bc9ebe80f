//! Chat requests, and OpenAI's form of them.

pub mod messages;
pub mod openai;
pub mod reply;

use super::error::ApiError;
use super::json::Fields;
use super::request::GenerationRequest;
use super::turn::Turns;
use crate::chat::conversation::{Conversation, UNLIMITED};
use crate::limits::LENGTH_MAX;

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

/// Reads `reasoning_budget`, the most tokens of reasoning, under the names of llama-server and vLLM,
/// too. -1 sets no limit.
pub fn read_reasoning_budget(fields: &Fields<'_, '_>) -> Result<Option<u32>, ApiError> {
    let mut given = None;
    for name in ["reasoning_budget", "thinking_budget_tokens", "thinking_token_budget"] {
        let Some(tokens) = fields.integer(name, -1..=LENGTH_MAX)? else { continue };
        let (first, budget) = *given.get_or_insert((name, tokens));
        if budget != tokens {
            let message = format!("{first} is {budget} and {name} is {tokens}; give one of them");
            return Err(ApiError::field(name, message));
        }
    }
    Ok(given.map(|(_, tokens)| u32::try_from(tokens).unwrap_or(UNLIMITED)))
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
