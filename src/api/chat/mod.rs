//! Requests to continue a conversation, and OpenAI's shapes of them.

pub mod messages;
pub mod openai;
pub mod reply;

use super::request::GenerationRequest;
use crate::chat::conversation::Conversation;

/// A conversation to be continued.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// How to generate. It has no prompt before the template has made one.
    pub generation: GenerationRequest,
    /// What was said so far.
    pub conversation: Conversation,
    /// Show what the model thinks apart from what it says.
    pub split_reasoning: bool,
}
