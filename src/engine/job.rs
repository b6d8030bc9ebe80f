//! A request that generates text, ready to run.

use crate::api::reply::Reply;
use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::scheduler::NewSequence;

/// A request that generates text: prompts as tokens, and the reply that takes their texts.
pub struct Job {
    /// The id of its response.
    pub id: String,
    /// One sequence for each choice. The choices of a prompt stand behind each other.
    pub sequences: Vec<NewSequence>,
    /// Choices of each prompt, at least 1.
    pub choices: usize,
    /// Texts that end a choice and are not part of it.
    pub stops: Vec<String>,
    /// The control tokens that belong to the text: those that this parser reads.
    pub markers: Option<ParserOptions>,
    /// Tokens of all prompts, each counted once.
    pub prompt_tokens: u64,
    /// Writes the response.
    pub reply: Box<dyn Reply>,
    /// When the request's head had been read.
    pub received: Micros,
    /// When its time is over.
    pub deadline: Option<Micros>,
}
