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
