//! A request that generates text, ready to run.

use crate::api::reply::Reply;
use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::scheduler::NewSequence;
use crate::types::LineLimits;

/// A request that generates text: its prompts as tokens, and the reply that turns texts into bytes.
pub struct Job {
    /// The id of its response.
    pub id: String,
    /// One sequence for each choice. The choices of a prompt are next to each other.
    pub sequences: Vec<NewSequence>,
    /// Choices of each prompt, at least 1.
    pub choices: usize,
    /// Stop strings. They end a choice and are not part of its text.
    pub stops: Vec<String>,
    /// Limits at which a choice ends after a line.
    pub lines: LineLimits,
    /// The parser of the output. Control tokens that it reads are kept in the text; all others are
    /// left out.
    pub markers: Option<ParserOptions>,
    /// Tokens of all prompts, each counted once.
    pub prompt_tokens: u64,
    /// About the bytes that the request holds from the start: its prompts, their echo in the
    /// answer, sampler options, constraints, and fields that the response repeats.
    pub bytes: usize,
    /// Writes the response.
    pub reply: Box<dyn Reply>,
    /// The time at which the request's head was complete.
    pub received: Micros,
    /// The time at which the request is ended.
    pub deadline: Option<Micros>,
}
