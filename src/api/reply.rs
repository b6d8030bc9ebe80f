//! A response in the making: it takes the text of each choice as it comes and writes bytes.
//!
//! Each dialect has its own type. All of them implement [`Reply`].

use std::time::Duration;

use super::logprobs::SpelledLogprobs;
use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::types::TokenId;

/// A response in the making. It writes into a buffer: at once when it streams, at the end when
/// it does not.
pub trait Reply: Send {
    /// How it is written.
    fn options(&self) -> &ReplyOptions;

    /// More text of a choice.
    fn push_delta(&mut self, choice: usize, delta: Delta<'_>, out: &mut Vec<u8>);

    /// All choices have ended.
    fn push_end(&mut self, summary: Summary, now: Micros, out: &mut Vec<u8>);
}

/// Makes the reply of a dialect.
pub type MakeReply = fn(ReplyOptions, &ReplyContext) -> Box<dyn Reply>;

/// Facts about a response that do not depend on its text.
#[derive(Clone, Debug)]
pub struct ReplyContext {
    /// The id of the response.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
    /// When the request's head had been read.
    pub received: Micros,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
}

/// How a reply is written. A request sets the first five; [`crate::prepare`] fills in the rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyOptions {
    /// As server-sent events, while the text comes.
    pub stream: bool,
    /// With the token counts at the end of a stream.
    pub include_usage: bool,
    /// With the request's timings in each event of a stream.
    pub timings_per_token: bool,
    /// With the log-probabilities of the tokens.
    pub logprobs: bool,
    /// With the ids of the tokens.
    pub return_tokens: bool,
    /// Choices of all prompts together.
    pub choices: usize,
    /// The text that each choice begins with: its prompt, where the request asked for `echo`.
    pub echo: Vec<String>,
    /// How a chat's text is split into content, reasoning and tool calls.
    pub parser: ParserOptions,
}

/// New text of a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delta<'a> {
    /// The text.
    pub text: &'a str,
    /// The tokens that it came from.
    pub tokens: &'a [TokenId],
    /// Their log-probabilities, where the request asked for them.
    pub logprobs: &'a [SpelledLogprobs],
    /// Why the choice ended, if it did.
    pub finish: Option<FinishReason>,
    /// The stop string that ended it.
    pub stop_word: Option<&'a str>,
    /// The choice's own tokens so far, and its prompt's.
    pub usage: Usage,
    /// The whole request's tokens and times so far, where the choice ends or the request asked
    /// for them in each event.
    pub summary: Option<Summary>,
}

/// Why a choice ended, in the words of OpenAI's `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// Its time was over.
    Timeout,
}

impl FinishReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Timeout => "timeout",
        }
    }
}

/// Tokens of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were found in the KV cache.
    pub cached_tokens: u64,
    /// Tokens generated, an end-of-generation token included.
    pub completion_tokens: u64,
}

/// Where a request's time went: from its admission to its first slot, to its
/// first token, to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// In the queue.
    pub queued: Duration,
    /// Computing prompts.
    pub prefill: Duration,
    /// Generating.
    pub decode: Duration,
}

/// What a finished request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Its tokens.
    pub usage: Usage,
    /// Its time.
    pub timings: Timings,
}
