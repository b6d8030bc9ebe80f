//! A response being written. It takes the text of each choice as it arrives and appends bytes.
//!
//! Each dialect has its own type. All of them implement [`Reply`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::logprobs::{Echo, SpelledLogprobs};
use super::stored::Stored;
use super::turn::Turn;
use super::write::bytes_inside;
use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::metrics::LateCount;
use crate::types::defaults::SamplingDefaults;
use crate::types::{SlotId, TokenId};

/// A response being written. A stream writes each delta into the buffer at once, a whole reply
/// writes everything at the end.
pub trait Reply: Send {
    /// The options of this reply.
    fn options(&self) -> &ReplyOptions;

    /// Takes new text of a choice.
    fn push_delta(&mut self, choice: usize, delta: Delta<'_>, out: &mut Vec<u8>);

    /// Takes the score of the next token of a choice's prompt, if the request asked for scores.
    fn push_score(&mut self, _choice: usize, _score: &SpelledLogprobs) {}

    /// Takes the progress of a choice's prompt, if the request asked for it.
    fn push_progress(&mut self, _choice: usize, _progress: &PromptProgress, _out: &mut Vec<u8>) {}

    /// Takes the end of the last choice.
    fn push_end(&mut self, summary: Summary, now: Micros, out: &mut Vec<u8>);

    /// Whether it keeps the text until the end.
    fn keeps_text(&self) -> bool {
        !self.options().stream
    }

    /// Takes out the response to keep, once, after the end.
    fn take_stored(&mut self) -> Option<Box<Stored>> {
        None
    }
}

/// Makes the reply of a request. A dialect's `read` puts it into the request, with whatever the
/// reply needs of the body. The function that makes a reply from the rest is one, too.
pub trait MakeReply: Send {
    /// Makes it.
    fn make(
        self: Box<Self>,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Box<dyn Reply>;

    /// About the bytes of memory that it takes, with those of its copies in `choices` choices.
    fn bytes(&self, _choices: usize) -> usize {
        0
    }
}

impl<R, F> MakeReply for F
where
    R: Reply + 'static,
    F: FnOnce(ReplyOptions, PromptFacts, &ReplyContext) -> R + Send,
{
    fn make(
        self: Box<Self>,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Box<dyn Reply> {
        Box::new(self(options, facts, context))
    }
}

impl fmt::Debug for dyn MakeReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeReply")
    }
}

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

/// How a reply is written.
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
    /// With events about the progress of the prompt before the text of a stream.
    pub return_progress: bool,
    /// When a silent stream sends a comment.
    pub ping: Ping,
    /// With the prompts.
    pub with_prompts: bool,
}

/// Facts about a request's prompts. [`crate::prepare`] fills them in.
#[derive(Debug, Default)]
pub struct PromptFacts {
    /// Choices of all prompts together.
    pub choices: usize,
    /// Choices of each prompt.
    pub n: usize,
    /// The seed of the first choice of each prompt.
    pub seed: u64,
    /// The server's values for the sampling that the request leaves out.
    pub defaults: SamplingDefaults,
    /// Whether a part of a prompt was cut.
    pub is_cut: bool,
    /// The start of each choice, if the request asked for `echo`.
    pub echo: Vec<Echo>,
    /// The prompts as JSON strings, if the reply shows them.
    pub prompts: Vec<Arc<[u8]>>,
    /// How a chat's text is split into content, reasoning and tool calls.
    pub parser: ParserOptions,
    /// The messages to keep with the response, if its dialect keeps some.
    pub turn: Turn,
}

impl PromptFacts {
    /// Bytes of the prompts, the turn and the offered tools, with the copies of the prompts in an
    /// answer.
    pub fn bytes(&self) -> usize {
        let prompts = self.prompts.iter().map(|prompt| (1 + self.n) * prompt.len());
        let offered = self.parser.offered.as_ref().map_or(0, |offered| offered.bytes());
        prompts.sum::<usize>() + self.turn.size.bytes + offered
    }
}

/// When a stream that has had nothing to send for a while sends a comment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ping {
    /// After the time that the server is configured for.
    #[default]
    AsConfigured,
    /// After this time.
    After(Duration),
    /// Never.
    Never,
}

/// How much of a choice's prompt is computed.
#[derive(Clone, Copy, Debug)]
pub struct PromptProgress {
    /// Tokens of the prompt.
    pub total: u64,
    /// Tokens that were found in the KV cache.
    pub cached: u64,
    /// Tokens that are in the KV cache now, those included.
    pub processed: u64,
    /// The time since the choice got its slot.
    pub time: Duration,
    /// The slot.
    pub slot: SlotId,
}

/// New text of a choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delta<'a> {
    /// The text.
    pub text: &'a str,
    /// The tokens that it came from.
    pub tokens: &'a [TokenId],
    /// Their log-probabilities, if the request asked for them.
    pub logprobs: &'a [SpelledLogprobs],
    /// The end-of-generation token that ended the choice, if the request asked for
    /// log-probabilities. It is no part of the text.
    pub end_token: Option<&'a SpelledLogprobs>,
    /// Why the choice ended, if it did.
    pub finish: Option<FinishReason>,
    /// The stop string that ended it.
    pub stop_word: Option<&'a str>,
    /// The choice's own tokens so far, and its prompt's.
    pub usage: Usage,
    /// The slot of the KV cache that it has or had.
    pub slot: SlotId,
    /// Tokens and times of the whole request so far. Set when the choice ends, or in each delta if
    /// the request asked for it.
    pub summary: Option<Summary>,
}

impl Delta<'_> {
    /// Bytes of memory that it takes in a whole reply: kept until the end, and then written.
    pub fn bytes(&self) -> usize {
        let scored = self.logprobs.iter().chain(self.end_token);
        let scored: usize = scored.map(SpelledLogprobs::bytes).sum();
        self.text.len() + bytes_inside(self.text) + scored + self.tokens.len() * TOKEN_BYTES
    }
}

/// The memory of one token: itself, and as digits.
const TOKEN_BYTES: usize = 12;

/// Why a choice ended, in the words of OpenAI's `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// The choice has as many tokens as its limit allows.
    Length,
    /// The request's time limit passed.
    Timeout,
}

impl FinishReason {
    /// The word in the reply.
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
    /// Prompt tokens whose results were already in the KV cache.
    pub cached_tokens: u64,
    /// Generated tokens, with the end-of-generation token.
    pub completion_tokens: u64,
}

/// The three parts of a request's time: from admission to the first slot, to the first token, to
/// the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Waiting in the queue.
    pub queued: Duration,
    /// Computing prompts.
    pub prefill: Duration,
    /// Generating.
    pub decode: Duration,
}

/// Guessed tokens of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guessed {
    /// Guesses that were computed.
    pub made: u64,
    /// Those that came true.
    pub kept: u64,
}

/// Cached tokens that came from the prefix store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// All of them.
    pub tokens: u64,
    /// Those that were read from files.
    pub fetched: u64,
}

/// The totals of a finished request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Its tokens.
    pub usage: Usage,
    /// Its time.
    pub timings: Timings,
    /// Its guesses.
    pub guessed: Guessed,
    /// Its cached tokens that came from the prefix store.
    pub restored: Restored,
    /// Its late tokens.
    pub late: LateCount,
}
