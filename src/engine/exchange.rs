//! A request in progress. The engine writes the bytes of the reply into it, and the connection
//! takes them out.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crate::api::error::ApiError;
use crate::api::logprobs::SpelledLogprobs;
use crate::api::reply::{
    Delta, FinishReason, Guessed, Ping, PromptProgress, Reply, Restored, Summary, Timings, Usage,
};
use crate::api::stored::Stored;
use crate::clock::Micros;
use crate::engine::budget::Hold;
use crate::metrics::LateCount;
use crate::scheduler::SequenceId;

/// Most bytes of a stream that its client has not read. With more, the request fails.
const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// An exchange, shared by the engine and a connection of the front lane.
pub type SharedExchange = Rc<RefCell<Exchange>>;

/// See the module's description.
pub struct Exchange {
    /// The id of the response.
    pub id: String,
    reply: Box<dyn Reply>,
    /// The request's sequences. Ids of ended sequences match nothing.
    pub sequences: Vec<SequenceId>,
    live: usize,
    /// The request's part of the memory budget.
    hold: Hold,
    /// Bytes that count in `hold`, without a stream's `out` and `unsent`.
    bytes: usize,
    /// Most bytes of a stream's `out` and `unsent` together: [`UNREAD_BYTES_MAX`], and room for
    /// what is sent at once, such as the echo of a prompt.
    unread_max: usize,
    /// Tokens so far.
    pub usage: Usage,
    /// Guessed tokens so far.
    pub guessed: Guessed,
    /// Cached tokens so far that came from the prefix store.
    pub restored: Restored,
    /// Late tokens so far.
    pub late: LateCount,
    /// The time of admission.
    pub admitted: Micros,
    /// The time at which the first sequence got a slot.
    pub started: Option<Micros>,
    /// The time of the first token.
    pub first_token: Option<Micros>,
    /// Bytes of the body for the connection to take. Without streaming, they are written at the
    /// end.
    pub out: Vec<u8>,
    /// Bytes of a stream that the connection has taken but not sent.
    unsent: usize,
    /// True once the head of the response is written.
    pub head_sent: bool,
    /// The outcome, once the request has ended.
    pub outcome: Option<Result<(), ApiError>>,
    /// The status of the error that the request ended with.
    pub failed: Option<u16>,
    /// The reason why each choice ended, in the order of their ends.
    pub finishes: Vec<FinishReason>,
    /// The response to keep, once the request has ended.
    pub stored: Option<Box<Stored>>,
    /// Wakes the connection's task.
    pub waker: Option<Waker>,
}

impl Exchange {
    /// An exchange with `sequences` sequences, which are not admitted yet. `hold` counts the bytes
    /// of the job.
    pub fn new(
        id: String,
        reply: Box<dyn Reply>,
        sequences: usize,
        prompt_tokens: u64,
        hold: Hold,
        admitted: Micros,
    ) -> Self {
        let bytes = hold.bytes();
        Self {
            id,
            reply,
            sequences: Vec::with_capacity(sequences),
            live: sequences,
            hold,
            bytes,
            unread_max: bytes + UNREAD_BYTES_MAX,
            usage: Usage { prompt_tokens, ..Usage::default() },
            guessed: Guessed::default(),
            restored: Restored::default(),
            late: LateCount::default(),
            admitted,
            started: None,
            first_token: None,
            out: Vec::new(),
            unsent: 0,
            head_sent: false,
            outcome: None,
            failed: None,
            finishes: Vec::with_capacity(sequences),
            stored: None,
            waker: None,
        }
    }

    /// True if the reply is sent while it is generated.
    pub fn is_stream(&self) -> bool {
        self.reply.options().stream
    }

    /// True if the connection has bytes to take, or the request has ended.
    pub fn is_ready(&self) -> bool {
        self.outcome.is_some() || !self.out.is_empty()
    }

    /// Adds text to a choice, or ends it, or both.
    pub fn push_delta(&mut self, choice: usize, delta: Delta<'_>, now: Micros) {
        if self.outcome.is_some() {
            return;
        }
        let options = self.reply.options();
        let tokens = if options.return_tokens { delta.tokens } else { &[] };
        let with_summary = options.stream && options.timings_per_token || delta.finish.is_some();
        let (usage, guessed, restored, late) = (self.usage, self.guessed, self.restored, self.late);
        let summary = Summary { usage, timings: self.timings(now), guessed, restored, late };
        let delta = Delta { tokens, summary: with_summary.then_some(summary), ..delta };
        let kept = if self.reply.keeps_text() { delta.bytes() } else { 0 };
        self.reply.push_delta(choice, delta, &mut self.out);
        if let Some(finish) = delta.finish {
            self.finishes.push(finish);
            self.live -= 1;
            if self.live == 0 {
                self.reply.push_end(summary, now, &mut self.out);
                self.stored = self.reply.take_stored();
                self.outcome = Some(Ok(()));
            }
        }
        self.replace_bytes(0, kept);
    }

    /// Adds the score of a choice's next prompt token. The reply keeps all scores until the text
    /// begins.
    pub fn push_score(&mut self, choice: usize, score: &SpelledLogprobs) {
        if self.outcome.is_none() {
            self.reply.push_score(choice, score);
            // All scores of a choice are sent at once, with its first text.
            self.unread_max += score.bytes();
            self.replace_bytes(0, score.bytes());
        }
    }

    /// Adds an event about the progress of a prompt.
    pub fn push_progress(&mut self, choice: usize, progress: &PromptProgress) {
        if self.outcome.is_none() {
            self.reply.push_progress(choice, progress, &mut self.out);
            self.replace_bytes(0, 0);
        }
    }

    /// Whether the reply shows the progress of its prompts.
    pub fn shows_progress(&self) -> bool {
        let options = self.reply.options();
        options.stream && options.return_progress
    }

    /// After how long a silence the stream sends a comment.
    pub fn ping(&self) -> Ping {
        self.reply.options().ping
    }

    /// Counts `after` bytes in place of `before` bytes. The request fails if the memory for
    /// requests is full.
    pub fn replace_bytes(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes - before + after;
        let unread = if self.is_stream() { self.out.len() + self.unsent } else { 0 };
        if unread > self.unread_max {
            let message = format!("the client left more than {UNREAD_BYTES_MAX} bytes unread");
            self.fail(ApiError::invalid(message));
        } else if let Err(error) = self.hold.resize(self.bytes + unread) {
            self.fail(error);
        }
    }

    /// Moves the bytes of `out` to the end of `output`. They count as unsent until
    /// [`Exchange::sent`].
    pub fn take_out(&mut self, output: &mut Vec<u8>) {
        self.unsent = self.out.len();
        output.append(&mut self.out);
    }

    /// Notes that the connection has sent the bytes that it took.
    pub fn sent(&mut self) {
        self.unsent = 0;
    }

    /// The time spent in each phase until now.
    pub fn timings(&self, now: Micros) -> Timings {
        let started = self.started.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        let between = |from: Micros, to: Micros| Duration::from_micros(to.since(from));
        Timings {
            queued: between(self.admitted, started),
            prefill: between(started, first_token),
            decode: between(first_token, now),
        }
    }

    /// Ends the request with an error.
    pub fn fail(&mut self, error: ApiError) {
        self.failed.get_or_insert(error.status);
        self.outcome.get_or_insert(Err(error));
    }

    /// Counts a generated token.
    pub fn count_token(&mut self, now: Micros) {
        self.usage.completion_tokens += 1;
        self.first_token.get_or_insert(now);
    }

    /// Wakes the connection if [`Exchange::is_ready`].
    pub fn wake(&mut self) {
        if self.is_ready()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::openai::CompletionReply;
    use crate::api::reply::{PromptFacts, ReplyContext, ReplyOptions};
    use crate::engine::budget::Budget;
    use crate::limits::HOLD_BYTES_STEP;
    use crate::types::KeyId;

    /// A stream's bytes are in the budget until the socket has taken them.
    #[test]
    fn bytes_of_a_stream_are_held_until_they_are_sent() {
        let budget = Budget::new(100 * HOLD_BYTES_STEP, &[1.0]);
        let context = ReplyContext {
            id: "id".into(),
            model: "fake".into(),
            created: 0,
            received: Micros(0),
            prompt_tokens: 1,
        };
        let options = ReplyOptions { stream: true, ..ReplyOptions::default() };
        let facts = PromptFacts { choices: 1, ..PromptFacts::default() };
        let reply = Box::new(CompletionReply::new(options, facts, &context));
        let hold = budget.hold(Some(KeyId::at(0)));
        let mut exchange = Exchange::new("id".into(), reply, 1, 1, hold, Micros(0));
        let text = "x".repeat(3 * HOLD_BYTES_STEP);
        let push = |exchange: &mut Exchange, text: &str| {
            exchange.push_delta(0, Delta { text, ..Delta::default() }, Micros(0));
            budget.held()
        };
        let one = push(&mut exchange, &text);
        assert!(one > 3 * HOLD_BYTES_STEP, "{one}");
        exchange.take_out(&mut Vec::new());
        let two = push(&mut exchange, &text);
        assert!(two > 6 * HOLD_BYTES_STEP, "taken by the connection, and not sent: {two}");
        exchange.sent();
        let three = push(&mut exchange, "");
        assert!(three < two - 2 * HOLD_BYTES_STEP, "{three}");
    }
}
