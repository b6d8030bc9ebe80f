//! What a request asks for, whatever its dialect.

use std::sync::Arc;
use std::time::Duration;

use super::chat::ChatRequest;
use super::embeddings::EmbeddingsRequest;
use super::error::ApiError;
use super::llama::tokens::Tokenize;
use super::ollama::models::Loading;
use super::rank::RankRequest;
use super::request::GenerationRequest;
use super::turn::Turn;
use crate::types::TokenId;

/// A request body, read and checked.
pub enum Request {
    /// Generate text.
    Generate(Box<GenerationRequest>),
    /// Continue a conversation.
    Chat(Box<ChatRequest>),
    /// Count the tokens of a conversation's prompt. The function writes the answer.
    CountTokens(Box<ChatRequest>, fn(&mut Vec<u8>, usize)),
    /// The same with the prompt, where that is long.
    CountPrompt(String, fn(&mut Vec<u8>, usize)),
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
            | Request::CountPrompt(..)
            | Request::ApplyTemplate(_)
            | Request::Tokenize(_)
            | Request::Encode(_)
            | Request::Detokenize(_)
            | Request::Loading(_)
            | Request::ShowModel => None,
        }
    }

    /// Whether its prompt is rendered from messages.
    pub fn is_conversation(&self) -> bool {
        matches!(self, Request::Chat(_) | Request::CountTokens(..) | Request::ApplyTemplate(_))
    }

    /// The response that the request continues, until [`Request::continue_from`] was called.
    pub fn previous(&self) -> Option<&str> {
        let (Request::Chat(chat) | Request::CountTokens(chat, _)) = self else { return None };
        chat.turns.as_ref()?.previous.as_deref()
    }

    /// Takes over the conversation of that response. Its messages are put before the request's own
    /// where the prompt is rendered.
    ///
    /// # Errors
    /// 400 if they are too long together.
    pub fn continue_from(&mut self, conversation: &Arc<Turn>) -> Result<(), ApiError> {
        let (Request::Chat(chat) | Request::CountTokens(chat, _)) = self else { return Ok(()) };
        let Some(turns) = &mut chat.turns else { return Ok(()) };
        turns.previous = None;
        turns.own.follow(conversation.clone())
    }

    /// Bytes of text that are still to be tokenised.
    pub fn text_bytes(&self) -> usize {
        match self {
            Request::Generate(request) => request.text_bytes(),
            Request::Chat(chat) | Request::CountTokens(chat, _) | Request::ApplyTemplate(chat) => {
                chat.text_bytes()
            }
            Request::Embed(request) => request.text_bytes(),
            Request::Rank(request) => request.text_bytes(),
            Request::Tokenize(asked) => asked.content.len(),
            Request::Encode(text) | Request::CountPrompt(text, _) => text.len(),
            Request::Detokenize(ids) => size_of_val(ids.as_slice()),
            Request::Loading(_) | Request::ShowModel => 0,
        }
    }

    /// About the bytes of memory that it takes, which can be many times its body's.
    pub fn bytes(&self) -> usize {
        match self {
            Request::Generate(request) => request.bytes(),
            Request::Chat(chat) | Request::CountTokens(chat, _) | Request::ApplyTemplate(chat) => {
                chat.bytes()
            }
            Request::Embed(request) => request.bytes(),
            Request::Rank(request) => request.bytes(),
            Request::Tokenize(_)
            | Request::CountPrompt(..)
            | Request::Encode(_)
            | Request::Detokenize(_)
            | Request::Loading(_)
            | Request::ShowModel => self.text_bytes(),
        }
    }
}
