//! The text side of a live sequence: turns its tokens into text, and the text into bytes of the
//! reply.

use super::exchange::SharedExchange;
use super::late::Late;
use super::times::Times;
use crate::api::error::ApiError;
use crate::api::logprobs::{Scored, SpelledLogprobs};
use crate::api::reply::{Delta, FinishReason, PromptProgress};
use crate::chat::output::ParserOptions;
use crate::clock::Micros;
use crate::metrics::{Counter, FrontMetrics};
use crate::model::vocab::Vocab;
use crate::ring::message::{Score, TokenLogprobs};
use crate::scheduler::{Finish, SequenceId};
use crate::text::lines::Lines;
use crate::text::{Pushed, TextStream};
use crate::types::{Broken, SlotId, TokenId};

/// The text side of a live sequence.
pub(super) struct Stream {
    pub id: SequenceId,
    pub exchange: SharedExchange,
    /// The index among the choices of the request.
    pub choice: usize,
    pub text: TextStream,
    /// Its lines, where it may end at one.
    pub lines: Option<Lines>,
    pub times: Times,
    /// The deadline.
    pub deadline: Option<Micros>,
    /// This is the first choice of its prompt. It counts the prompt's tokens.
    pub counts_prompt: bool,
    /// The slot that it has or had.
    pub slot: SlotId,
    /// The reply shows the progress of the prompt.
    pub shows_progress: bool,
    /// The parser whose control tokens belong to the text.
    pub markers: Option<ParserOptions>,
    /// About the bytes that the state of its constraint holds.
    pub constraint_bytes: usize,
}

/// Everything that a stream needs besides itself.
pub(super) struct Context<'a> {
    pub vocab: &'a Vocab,
    pub metrics: &'a FrontMetrics,
    pub late: &'a mut Late,
    /// Scratch.
    pub text: &'a mut String,
    pub now: Micros,
}

/// A token that came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generated<'a> {
    pub token: TokenId,
    /// The log-probabilities, if the request asked for them. They are in the batch, so they must be
    /// written before the batch is reused.
    pub logprobs: Option<&'a TokenLogprobs>,
    /// This is the last token that the request asked for.
    pub is_last: bool,
}

impl Stream {
    /// Adds a token. Returns true if it ended the text.
    pub fn push_token(&mut self, generated: Generated<'_>, context: Context<'_>) -> bool {
        let Context { vocab, metrics, late, text, now } = context;
        let Generated { token, logprobs, is_last } = generated;
        let spelling = vocab.spelling_of(token);
        let bytes = match (vocab.bytes_of(token), &self.markers) {
            // A control token.
            (b"", Some(markers)) if markers.reads(spelling) => spelling,
            (bytes, _) => bytes,
        };
        text.clear();
        let mut finish = match self.text.push(bytes, text) {
            Pushed::Stopped => Some(FinishReason::Stop),
            Pushed::Open if is_last => {
                self.text.finish(text);
                Some(FinishReason::Length)
            }
            Pushed::Open => None,
        };
        let mut exchange = self.exchange.borrow_mut();
        exchange.count_token(now);
        let cut = self.lines.as_mut().and_then(|lines| lines.push(text, now));
        if let Some(at) = cut {
            text.truncate(at);
            finish = Some(FinishReason::Length);
        }
        if let Some(cause) = self.times.token(metrics, late, now) {
            exchange.late.count(cause);
        }
        if let Some(finish) = finish {
            self.times.end(metrics, counter(metrics, finish), now);
        }
        let logprobs = logprobs.map(|found| spell(token, found, vocab));
        let delta = Delta {
            text,
            tokens: &[token],
            end_token: None,
            finish,
            stop_word: self.text.stop_word().filter(|_| cut.is_none()),
            logprobs: logprobs.as_slice(),
            usage: self.times.usage(),
            slot: self.slot,
            summary: None,
        };
        exchange.push_delta(self.choice, delta, now);
        finish.is_some()
    }

    /// Tells the reply the score of the next token of the prompt.
    pub fn push_score(&mut self, score: &Score, context: Context<'_>) {
        let scored = spell(score.token, &score.logprobs, context.vocab);
        self.exchange.borrow_mut().push_score(self.choice, &scored);
    }

    /// Tells the reply that `processed` tokens of the prompt are in the KV cache.
    pub fn push_progress(&mut self, processed: u64, now: Micros) {
        let usage = self.times.usage();
        let progress = PromptProgress {
            total: usage.prompt_tokens,
            cached: usage.cached_tokens,
            processed,
            time: self.times.since_start(now),
            slot: self.slot,
        };
        self.exchange.borrow_mut().push_progress(self.choice, &progress);
    }

    /// The state of its constraint holds this many bytes now. They are part of the request's memory.
    pub fn hold_constraint(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.constraint_bytes, bytes);
        if before != bytes {
            self.exchange.borrow_mut().replace_bytes(before, bytes);
        }
    }

    /// The scheduler ended the sequence without a further token of text. `logprobs` are those of
    /// the batch.
    pub fn finish(&mut self, finish: Finish, logprobs: &[TokenLogprobs], context: Context<'_>) {
        let Context { metrics, now, .. } = context;
        let error = match finish {
            Finish::End { token, logprobs: index } => {
                let mut exchange = self.exchange.borrow_mut();
                if let Some(cause) = self.times.token(metrics, context.late, now) {
                    exchange.late.count(cause);
                }
                exchange.count_token(now);
                drop(exchange);
                let found = index.map(|index| &logprobs[usize::from(index)]);
                let scored = found.map(|found| spell(token, found, context.vocab));
                return self.end(FinishReason::Stop, scored.as_ref(), context);
            }
            Finish::PromptComputed => {
                self.times.prompt(metrics, now);
                self.exchange.borrow_mut().first_token.get_or_insert(now);
                return self.end(FinishReason::Length, None, context);
            }
            Finish::Failed => ApiError::internal("the model failed to run a step; try again"),
            Finish::Broken(broken) => broken_constraint(broken),
        };
        metrics.finished.of_error(error.status).increment();
        self.exchange.borrow_mut().fail(error);
    }

    /// The deadline has passed. Without a token this is an error; otherwise the text ends here.
    pub fn expire(&mut self, context: Context<'_>) {
        if self.exchange.borrow().first_token.is_some() {
            return self.end(FinishReason::Timeout, None, context);
        }
        self.refuse(ApiError::deadline(), context);
    }

    /// Ends the request with an error before its first token.
    pub fn refuse(&mut self, error: ApiError, context: Context<'_>) {
        context.metrics.finished.of_error(error.status).increment();
        self.exchange.borrow_mut().fail(error);
    }

    /// Ends the text here. `end_token` is the token that did, with its log-probability.
    fn end(
        &mut self,
        finish: FinishReason,
        end_token: Option<&SpelledLogprobs>,
        context: Context<'_>,
    ) {
        let Context { metrics, text, now, .. } = context;
        text.clear();
        self.text.finish(text);
        self.times.end(metrics, counter(metrics, finish), now);
        let (finish, usage, slot) = (Some(finish), self.times.usage(), self.slot);
        let delta = Delta { text, finish, end_token, usage, slot, ..Delta::default() };
        self.exchange.borrow_mut().push_delta(self.choice, delta, now);
    }
}

/// Says why a text cannot follow its constraint.
fn broken_constraint(broken: Broken) -> ApiError {
    match broken {
        Broken::TooMuch => ApiError::invalid(
            "the text's schema, regular expression or grammar could not be followed any \
             further: it takes more states or more time than this server gives it; shorter texts \
             and fewer choices in it take less",
        ),
        Broken::NoToken => ApiError::invalid(
            "the text's schema, regular expression or grammar could not be followed any \
             further: it requires text here that no token of this model spells",
        ),
        Broken::Fault => ApiError::internal(
            "the text's schema, regular expression or grammar could not be followed any \
             further; this is a fault of the server, and its log says more",
        ),
    }
}

/// The counter for texts that ended for this reason.
fn counter(metrics: &FrontMetrics, finish: FinishReason) -> &Counter {
    match finish {
        FinishReason::Stop => &metrics.finished.stop,
        FinishReason::Length => &metrics.finished.length,
        FinishReason::Timeout => &metrics.finished.timeout,
    }
}

/// Adds the texts of the tokens to their log-probabilities. Allocates, but only for requests that
/// asked for them.
fn spell(token: TokenId, found: &TokenLogprobs, vocab: &Vocab) -> SpelledLogprobs {
    let scored = |token: TokenId, logprob: f32| Scored {
        token,
        bytes: vocab.spelling_of(token).to_vec(),
        logprob,
    };
    SpelledLogprobs {
        chosen: scored(token, found.logprob),
        top: found.top.iter().map(|(token, logprob)| scored(*token, *logprob)).collect(),
    }
}
