//! A request's body to tokens: parsed, checked and tokenised.
//!
//! Pure work, without I/O. Short bodies are prepared on the front lane itself;
//! long ones on the prepare lane, a thread of its own, because nothing on the
//! front lane may run for more than about a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::api::error::ApiError;
use crate::api::{GenerationRequest, Prompt, Route, cllm, openai};
use crate::limits::{PREPARE_JOBS_MAX, TEXT_BYTES_MAX};
use crate::metrics::Metrics;
use crate::model::vocab::Vocab;
use crate::ring::bell::{SocketBell, ThreadBell};
use crate::types::{ModelInfo, TokenId};

/// What is served, as the front lane and the prepare lane see it.
pub struct Serving {
    /// The vocabulary.
    pub vocab: Arc<Vocab>,
    /// The facts of the model.
    pub info: ModelInfo,
    /// The name that clients see.
    pub name: String,
    /// Tokens that one sequence may have, prompt and generated.
    pub sequence_tokens: u32,
    /// The server's own default for `max_tokens`.
    pub n_predict: Option<u32>,
}

/// A body, understood.
pub enum Prepared {
    /// Text is to be generated.
    Generation(PreparedGeneration),
    /// The answer to an `/encode` request, in bytes.
    Encoded(Vec<u8>),
}

/// A generation request with its prompts as tokens.
pub struct PreparedGeneration {
    /// The request.
    pub request: GenerationRequest,
    /// Its prompts, none of them empty, each short enough to be served.
    pub prompts: Vec<Box<[TokenId]>>,
    /// Tokens to generate for each prompt, at least 1.
    pub max_tokens: Vec<u32>,
}

/// Prepares a body.
///
/// # Errors
/// 400 with what is wrong and what would be right.
pub fn prepare(route: Route, mut body: Vec<u8>, serving: &Serving) -> Result<Prepared, ApiError> {
    let (request, default_max_tokens) = match route {
        Route::Encode => {
            let text = cllm::read_encode(&mut body)?;
            check_text("text", &text)?;
            let tokens = serving.vocab.tokenize(&text, false, false);
            let mut answer = Vec::with_capacity(64 + 6 * tokens.len());
            cllm::push_encoded(&mut answer, &tokens);
            return Ok(Prepared::Encoded(answer));
        }
        Route::Generate => (cllm::read_generate(&mut body, false)?, cllm::MAX_TOKENS),
        Route::GenerateStream => (cllm::read_generate(&mut body, true)?, cllm::MAX_TOKENS),
        _ => (openai::read_completion(&mut body)?, openai::COMPLETION_MAX_TOKENS),
    };
    drop(body);
    let default_max_tokens = serving.n_predict.unwrap_or(default_max_tokens);
    let mut prompts = Vec::with_capacity(request.prompts.len());
    let mut max_tokens = Vec::with_capacity(request.prompts.len());
    for prompt in &request.prompts {
        let tokens = tokens_of(prompt, serving)?;
        max_tokens.push(check_length(
            tokens.len(),
            request.max_tokens,
            default_max_tokens,
            serving.sequence_tokens,
        )?);
        prompts.push(tokens.into_boxed_slice());
    }
    Ok(Prepared::Generation(PreparedGeneration { request, prompts, max_tokens }))
}

/// What cannot fit is refused before it costs anything to tokenise.
fn check_text(param: &'static str, text: &str) -> Result<(), ApiError> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{param} has {} bytes; it may have {TEXT_BYTES_MAX}", text.len());
    Err(ApiError::field(param, message))
}

fn tokens_of(prompt: &Prompt, serving: &Serving) -> Result<Vec<TokenId>, ApiError> {
    let vocab = &serving.vocab;
    let tokens = match prompt {
        Prompt::Text(text) => {
            check_text("prompt", text)?;
            let least_tokens = text.len() / vocab.longest_token_bytes();
            if least_tokens > serving.sequence_tokens as usize {
                return Err(too_long(least_tokens, "at least ", None, 1, serving.sequence_tokens));
            }
            vocab.tokenize(text, true, true)
        }
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    if tokens.is_empty() {
        return Err(ApiError::field("prompt", "prompt has no tokens; it must have at least one"));
    }
    let n_tokens = vocab.n_tokens();
    let known = |token: &TokenId| usize::try_from(*token).is_ok_and(|token| token < n_tokens);
    match tokens.iter().find(|token| !known(token)) {
        Some(unknown) => {
            let message = format!(
                "prompt has the token id {unknown}; this model's are 0 to {}",
                n_tokens - 1
            );
            Err(ApiError::field("prompt", message))
        }
        None => Ok(tokens),
    }
}

/// The number of tokens to generate: what was asked for, which must fit, or
/// the default, cut to what fits.
fn check_length(
    prompt_tokens: usize,
    asked: Option<u32>,
    default: u32,
    limit: u32,
) -> Result<u32, ApiError> {
    let room = (limit as usize).saturating_sub(prompt_tokens);
    let max_tokens = asked.unwrap_or(default.min(room as u32).max(1)); // room is below limit
    if max_tokens as usize > room {
        return Err(too_long(prompt_tokens, "", asked, max_tokens, limit));
    }
    Ok(max_tokens)
}

fn too_long(
    prompt_tokens: usize,
    qualifier: &str,
    asked: Option<u32>,
    max_tokens: u32,
    limit: u32,
) -> ApiError {
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(
            if asked.is_some() { "max_tokens" } else { "prompt" },
            format!(
                "the prompt has {qualifier}{prompt_tokens} tokens and {max_tokens} are to be \
                 generated, {} together; a request may have {limit}",
                prompt_tokens + max_tokens as usize
            ),
        )
    }
}

/// A body for the prepare lane, and afterwards what became of it.
pub struct Job {
    /// The front lane's number for it.
    pub ticket: u64,
    /// Where it was sent.
    pub route: Route,
    /// The body; empty afterwards.
    pub body: Vec<u8>,
    /// Set by the front lane when the client has left.
    pub abandoned: Arc<AtomicBool>,
    /// The answer; none for what was abandoned.
    pub result: Option<Result<Prepared, ApiError>>,
}

/// The front lane's end of the link to the prepare lane.
pub struct PrepareLink {
    jobs: Producer<Box<Job>>,
    done: Consumer<Box<Job>>,
    bell: Arc<ThreadBell>,
    in_flight: usize,
}

impl PrepareLink {
    /// Hands a job over.
    ///
    /// # Errors
    /// The job itself, when [`PREPARE_JOBS_MAX`] are there.
    pub fn send(&mut self, job: Box<Job>) -> Result<(), Box<Job>> {
        // Also bounds `done`, so the lane's own push always finds a place.
        if self.in_flight == PREPARE_JOBS_MAX {
            return Err(job);
        }
        self.in_flight += 1;
        assert!(self.jobs.push(job).is_ok(), "the ring holds every job in flight");
        self.bell.ring();
        Ok(())
    }

    /// The next finished job, if there is one.
    pub fn receive(&mut self) -> Option<Box<Job>> {
        let job = self.done.pop().ok()?;
        self.in_flight -= 1;
        Some(job)
    }

    /// True when [`PrepareLink::receive`] would return a job.
    pub fn is_ready(&self) -> bool {
        !self.done.is_empty()
    }
}

impl Drop for PrepareLink {
    fn drop(&mut self) {
        self.bell.close();
    }
}

/// The link and the lane's main function, to be run on a thread of its own.
pub fn lane(
    serving: Arc<Serving>,
    front_bell: Arc<SocketBell>,
    metrics: Arc<Metrics>,
) -> (PrepareLink, impl FnOnce() + Send + 'static) {
    let (jobs_tx, mut jobs_rx) = RingBuffer::<Box<Job>>::new(PREPARE_JOBS_MAX);
    let (mut done_tx, done_rx) = RingBuffer::new(PREPARE_JOBS_MAX);
    let bell = Arc::new(ThreadBell::default());
    let link = PrepareLink { jobs: jobs_tx, done: done_rx, bell: bell.clone(), in_flight: 0 };
    let run = move || {
        // In turns the shortest, so that nobody waits for more than one long text
        // of others, and the oldest, so that a long one has its turn.
        let mut oldest_next = false;
        let mut waiting = heapless::Vec::<Box<Job>, PREPARE_JOBS_MAX>::new();
        loop {
            let idle = waiting.is_empty();
            bell.wait(Duration::ZERO, || !idle || !jobs_rx.is_empty());
            if bell.is_closed() {
                return; // whoever waited for these has been cut off
            }
            while let Ok(job) = jobs_rx.pop() {
                assert!(waiting.push(job).is_ok(), "there are no more jobs in flight than this");
            }
            let shortest = (0..waiting.len()).min_by_key(|index| waiting[*index].body.len());
            let Some(shortest) = shortest else { continue };
            let mut job = waiting.remove(if oldest_next { 0 } else { shortest });
            oldest_next = !oldest_next;
            let body = std::mem::take(&mut job.body);
            if !job.abandoned.load(Ordering::Relaxed) {
                let began = metrics.clock.now();
                job.result = Some(prepare(job.route, body, &serving));
                metrics.prepare.time_us.observe(metrics.clock.now().since(began));
            }
            assert!(done_tx.push(job).is_ok(), "the ring holds every job in flight");
            front_bell.ring();
        }
    };
    (link, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving() -> Serving {
        Serving {
            vocab: Arc::new(Vocab::of_fake()),
            info: ModelInfo::default(),
            name: "fake".into(),
            sequence_tokens: 10,
            n_predict: None,
        }
    }

    fn generation(route: Route, body: &str) -> Result<PreparedGeneration, ApiError> {
        match prepare(route, body.as_bytes().to_vec(), &serving())? {
            Prepared::Generation(generation) => Ok(generation),
            Prepared::Encoded(_) => panic!("not a generation"),
        }
    }

    #[test]
    fn a_request_beyond_the_context_is_refused_with_both_numbers() {
        let error = generation(Route::Completions, r#"{"prompt":"abcdef","max_tokens":5}"#)
            .err()
            .expect("11 tokens do not fit into 10");
        assert_eq!(error.status, 400);
        assert_eq!(
            error.message,
            "the prompt has 6 tokens and 5 are to be generated, 11 together; \
             a request may have 10"
        );
        // A prompt is never cut to fit, with or without max_tokens.
        let error = generation(Route::Generate, r#"{"prompt":"abcdefghijkl"}"#).err();
        assert!(error.expect("12 tokens do not fit").message.contains("12 tokens"));
    }

    #[test]
    fn the_default_is_cut_to_what_fits_and_the_asked_for_is_not() {
        let prepared = generation(Route::Generate, r#"{"prompt":"abcdef"}"#).unwrap();
        assert_eq!(prepared.max_tokens, [4]);
        let prepared = generation(Route::Completions, r#"{"prompt":["a","bcd"]}"#).unwrap();
        assert_eq!(prepared.max_tokens, [9, 7]);
        let prepared = generation(Route::Completions, r#"{"prompt":"a","max_tokens":3}"#).unwrap();
        assert_eq!(prepared.max_tokens, [3]);
    }

    #[test]
    fn token_ids_outside_the_vocabulary_are_refused() {
        for token in ["-1", "257", "2147483647"] {
            let body = format!(r#"{{"prompt":[65,{token}]}}"#);
            let error = generation(Route::Completions, &body).err().expect("out of range");
            assert!(error.message.ends_with("this model's are 0 to 256"), "{}", error.message);
        }
    }
}
