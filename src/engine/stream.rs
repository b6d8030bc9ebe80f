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
    /// The lines of the text. `None` if the request sets no
    /// [`LineLimits`](crate::types::LineLimits).
    pub lines: Option<Lines>,
    pub times: Times,
    /// The time at which the text is ended.
    pub deadline: Option<Micros>,
    /// True for the first choice of a prompt, which counts the prompt's cached tokens for the
    /// request.
    pub counts_prompt: bool,
    /// The slot that the sequence has, or had last.
    pub slot: SlotId,
    /// The reply shows the progress of the prompt.
    pub shows_progress: bool,
    /// See [`Job::markers`](super::job::Job::markers).
    pub markers: Option<ParserOptions>,
    /// The approximate bytes of the constraint's state.
    pub constraint_bytes: usize,
}

/// The engine's parts that a change of a stream needs.
pub(super) struct Context<'a> {
    pub vocab: &'a Vocab,
    pub metrics: &'a FrontMetrics,
    pub late: &'a mut Late,
    /// Scratch, for the text of one token.
    pub text: &'a mut String,
    pub now: Micros,
}

/// A token that came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generated<'a> {
    pub token: TokenId,
    /// The log-probabilities, if the request asked for them. They borrow from the batch.
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

    /// Passes the score of the next prompt token to the reply.
    pub fn push_score(&mut self, score: &Score, context: Context<'_>) {
        let scored = spell(score.token, &score.logprobs, context.vocab);
        self.exchange.borrow_mut().push_score(self.choice, &scored);
    }

    /// Passes the progress to the reply: `processed` tokens of the prompt are in the KV cache.
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

    /// Counts this many bytes for the constraint's state in the request's memory, instead of the
    /// earlier number.
    pub fn hold_constraint(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.constraint_bytes, bytes);
        if before != bytes {
            self.exchange.borrow_mut().replace_bytes(before, bytes);
        }
    }

    /// Ends the sequence as the scheduler did, without a further token of text. `logprobs` are
    /// those of the whole batch.
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

    /// Ends the sequence at its deadline. If the request has no token yet, this is an error.
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

    /// Ends the text. `end_token` is the end-of-generation token, if the request asked for
    /// log-probabilities.
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

/// The error for a text that can follow its constraint no further.
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

/// The counter of texts that ended for this reason.
fn counter(metrics: &FrontMetrics, finish: FinishReason) -> &Counter {
    match finish {
        FinishReason::Stop => &metrics.finished.stop,
        FinishReason::Length => &metrics.finished.length,
        FinishReason::Timeout => &metrics.finished.timeout,
    }
}

/// Adds the tokens' texts to log-probabilities. This allocates, but only for requests that ask for
/// log-probabilities.
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
