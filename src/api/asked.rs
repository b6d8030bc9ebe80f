//! What a request asks for, whatever its dialect.

use std::time::Duration;

use super::chat::ChatRequest;
use super::embeddings::EmbeddingsRequest;
use super::error::ApiError;
use super::llama::tokens::Tokenize;
use super::ollama::models::Loading;
use super::rank::RankRequest;
use super::request::GenerationRequest;
use crate::chat::conversation::Message;
use crate::limits::MESSAGES_MAX;
use crate::types::TokenId;

/// A request body, read and checked.
pub enum Request {
    /// Generate text.
    Generate(Box<GenerationRequest>),
    /// Continue a conversation.
    Chat(Box<ChatRequest>),
    /// Count the tokens of a conversation's prompt. The function writes the answer.
    CountTokens(Box<ChatRequest>, fn(&mut Vec<u8>, usize)),
    /// Show the prompt that a conversation becomes.
    ApplyTemplate(Box<ChatRequest>),
    /// Compute vectors of texts.
    Embed(Box<EmbeddingsRequest>),
    /// Rank documents by a query.
    Rank(Box<RankRequest>),
    /// Show the tokens of a text.
    Tokenize(Tokenize),
    /// Show the tokens of a text in cLLM's form.
    Encode(String),
    /// Show the text of tokens.
    Detokenize(Vec<TokenId>),
    /// Load or unload the model, as Ollama's clients ask.
    Loading(Loading),
    /// Show the properties of the model, in Ollama's form.
    ShowModel,
}

impl Request {
    pub(super) fn generate(request: GenerationRequest) -> Self {
        Request::Generate(Box::new(request))
    }

    pub(super) fn chat(request: ChatRequest) -> Self {
        Request::Chat(Box::new(request))
    }

    pub(super) fn embed(request: EmbeddingsRequest) -> Self {
        Request::Embed(Box::new(request))
    }

    pub(super) fn rank(request: RankRequest) -> Self {
        Request::Rank(Box::new(request))
    }

    /// The time limit that the request sets.
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Request::Generate(request) => request.urgency.timeout,
            Request::Chat(chat) => chat.generation.urgency.timeout,
            Request::Embed(request) => request.timeout,
            Request::Rank(request) => request.timeout,
            Request::CountTokens(..)
            | Request::ApplyTemplate(_)
            | Request::Tokenize(_)
            | Request::Encode(_)
            | Request::Detokenize(_)
            | Request::Loading(_)
            | Request::ShowModel => None,
        }
    }

    /// Whether it cannot be finished where it was read: it continues another response, which the
    /// front lane has, or must be compiled.
    pub fn goes_on(&self) -> bool {
        self.previous().is_some() || self.compiles()
    }

    /// The response that the request continues, until [`Request::continue_from`] was called.
    pub fn previous(&self) -> Option<&str> {
        let (Request::Chat(chat) | Request::CountTokens(chat, _)) = self else { return None };
        chat.generation.reply.response.as_ref()?.previous.as_deref()
    }

    /// Puts the messages of that response before the request's own.
    ///
    /// # Errors
    /// 400 if they are too many together.
    pub fn continue_from(&mut self, messages: &[Message]) -> Result<(), ApiError> {
        let (Request::Chat(chat) | Request::CountTokens(chat, _)) = self else { return Ok(()) };
        let Some(fields) = &mut chat.generation.reply.response else { return Ok(()) };
        fields.previous = None;
        let all = &mut chat.conversation.messages;
        let count = all.len() + messages.len();
        if count > MESSAGES_MAX {
            let message = format!(
                "with those before, input has {count} messages; it may have {MESSAGES_MAX}"
            );
            return Err(ApiError::field("previous_response_id", message));
        }
        all.splice(fields.instructions..fields.instructions, messages.iter().cloned());
        Ok(())
    }

    /// Whether a constraint must be compiled, or the whole vocabulary searched. Both may take long.
    pub fn compiles(&self) -> bool {
        match self {
            Request::Generate(request) => request.compiles(),
            Request::Chat(chat) => {
                chat.generation.compiles() || !chat.conversation.tools.is_empty()
            }
            Request::CountTokens(..)
            | Request::ApplyTemplate(_)
            | Request::Embed(_)
            | Request::Rank(_)
            | Request::Tokenize(_)
            | Request::Encode(_)
            | Request::Detokenize(_)
            | Request::Loading(_)
            | Request::ShowModel => false,
        }
    }
}
