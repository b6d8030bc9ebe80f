//! One request in progress: where the engine leaves text and the connection
//! finds bytes.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use crate::api::error::ApiError;
use crate::api::{FinishReason, Reply, Usage};
use crate::clock::Micros;
use crate::limits::UNREAD_BYTES_MAX;
use crate::scheduler::SequenceId;

/// An exchange, shared by the engine and the connection on the front lane.
pub type SharedExchange = Rc<RefCell<Exchange>>;

/// See the module's description.
pub struct Exchange {
    reply: Reply,
    /// Its sequences; those that ended have ids that no longer match.
    pub sequences: Vec<SequenceId>,
    live: usize,
    /// Tokens so far.
    pub usage: Usage,
    /// When the first token came.
    pub first_token: Option<Micros>,
    /// Bytes of the body for the connection to take. A reply that is not
    /// streamed stays empty until the end.
    pub out: Vec<u8>,
    /// How it ended, once it has.
    pub outcome: Option<Result<(), ApiError>>,
    /// It ended with an error of ours.
    pub failed: bool,
    /// The connection's task.
    pub waker: Option<Waker>,
}

impl Exchange {
    /// An exchange with `sequences` still to be admitted.
    pub fn new(reply: Reply, sequences: usize, prompt_tokens: u64) -> Self {
        Self {
            reply,
            sequences: Vec::with_capacity(sequences),
            live: sequences,
            usage: Usage { prompt_tokens, completion_tokens: 0 },
            first_token: None,
            out: Vec::new(),
            outcome: None,
            failed: false,
            waker: None,
        }
    }

    /// True when bytes may leave before the end.
    pub fn is_stream(&self) -> bool {
        self.reply.is_stream()
    }

    /// True when the connection has something to do.
    pub fn is_ready(&self) -> bool {
        self.outcome.is_some() || !self.out.is_empty()
    }

    /// A choice has new text, or ends, or both.
    pub fn push_delta(
        &mut self,
        choice: usize,
        text: &str,
        finish: Option<FinishReason>,
        now: Micros,
    ) {
        if self.outcome.is_some() || (text.is_empty() && finish.is_none()) {
            return;
        }
        self.reply.push_delta(choice, text, finish, &mut self.out);
        if finish.is_some() {
            self.live -= 1;
            if self.live == 0 {
                self.reply.push_end(self.usage, now, &mut self.out);
                self.outcome = Some(Ok(()));
            }
        }
        if self.is_stream() && self.out.len() > UNREAD_BYTES_MAX {
            let message = format!("the client left more than {UNREAD_BYTES_MAX} bytes unread");
            self.fail(ApiError::internal(message));
        }
    }

    /// It ends here, with an error.
    pub fn fail(&mut self, error: ApiError) {
        self.failed = true;
        self.outcome.get_or_insert(Err(error));
    }

    /// The stream ends with an error, after its head has been sent.
    pub fn push_stream_error(&self, error: &ApiError, out: &mut Vec<u8>) {
        self.reply.push_stream_error(error, out);
    }

    /// Wakes the connection if it has something to do.
    pub fn wake(&mut self) {
        if self.is_ready()
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}
