//! The embed lane: computes vectors, and makes room for streams.
//!
//! While streams run, it computes with one thread, for a share of one processor. Threads of low
//! priority run at different times, and each operation would wait for the last of them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use super::share::Share;
use crate::api::error::ApiError;
use crate::limits::EMBEDDING_TOKENS_MAX;
use crate::metrics::Metrics;
use crate::model::StepError;
use crate::model::embed::Embedder;
use crate::prepare::worker::{Outcome, Task, Wanted};
use crate::prepare::{Prepared, Step, Texts};

/// The time that a call of the model for embeddings shall take. Texts of other keys wait for it.
const EMBEDDING_CALL_TIME: Duration = Duration::from_millis(50);

/// The least tokens of a call for embeddings, if there are as many. A shorter call takes almost as long, because
/// it reads all weights, too.
const EMBEDDING_CALL_TOKENS_MIN: usize = 64;

/// Texts to embed.
impl Task for Box<Texts> {
    fn size(&self) -> usize {
        self.tokens_left()
    }
}

/// See the module's description.
pub(super) struct EmbedLane {
    embedder: Embedder,
    metrics: Arc<Metrics>,
    /// A call was given up for a stream, so the next one has one thread, whatever runs then.
    gave_way: bool,
    /// The tokens that a call can compute in [`EMBEDDING_CALL_TIME`], by the speed of the last call.
    call_tokens: usize,
}

impl EmbedLane {
    pub fn new(embedder: Embedder, metrics: Arc<Metrics>) -> Self {
        Self { embedder, metrics, gave_way: false, call_tokens: EMBEDDING_CALL_TOKENS_MIN }
    }

    /// Computes vectors of a task with one call of the model. Writes the answer once it has all of
    /// them.
    pub fn compute(&mut self, mut texts: Box<Texts>, wanted: &Wanted<'_>) -> Outcome<Box<Texts>> {
        if !texts.texts.is_empty() {
            match self.call(&mut texts, wanted) {
                Ok(()) => self.gave_way = false,
                Err(StepError::Aborted) if self.gave_way && wanted.is_wanted() => {}
                Err(StepError::Aborted) => {
                    self.gave_way = false;
                    return Outcome::Done(Err(ApiError::deadline()));
                }
                Err(error) => {
                    tracing::error!(%error, "embeddings failed");
                    let message = "the model failed to make the embeddings; try again";
                    return Outcome::Done(Err(ApiError::internal(message)));
                }
            }
        }
        if texts.vectors.len() < texts.texts.len() {
            return Outcome::More(texts);
        }
        let mut answer = Vec::new();
        (texts.answer)(texts.vectors, &mut answer);
        Outcome::Done(Ok(Step::Done(Prepared::Answer(answer))))
    }

    /// Adds vectors of the next texts. A call with all threads is given up when a stream starts.
    fn call(&mut self, texts: &mut Texts, wanted: &Wanted<'_>) -> Result<(), StepError> {
        let streams_run = || self.metrics.front.running.get() > 0;
        let one_thread = self.gave_way || streams_run();
        self.embedder.use_one_thread(one_thread);
        let share = RefCell::new(Share::new());
        let gives_way = Cell::new(false);
        let is_wanted = || {
            if one_thread {
                share.borrow_mut().keep(|| streams_run() && wanted.is_wanted());
            } else if streams_run() {
                gives_way.set(true);
            }
            !gives_way.get() && wanted.is_wanted()
        };
        let Texts { texts, vectors, .. } = texts;
        let (done, began) = (vectors.len(), self.metrics.clock.now());
        let result = self.embedder.embed(&texts[done..], self.call_tokens, &is_wanted, vectors);
        self.gave_way |= gives_way.get();
        if result.is_ok() {
            let tokens: usize = texts[done..vectors.len()].iter().map(|text| text.len()).sum();
            let took_us = self.metrics.clock.now().since(began).max(1);
            let in_time = tokens as u128 * EMBEDDING_CALL_TIME.as_micros() / u128::from(took_us);
            let in_time = usize::try_from(in_time).unwrap_or(usize::MAX);
            self.call_tokens = in_time.clamp(EMBEDDING_CALL_TOKENS_MIN, EMBEDDING_TOKENS_MAX);
        }
        result
    }
}
