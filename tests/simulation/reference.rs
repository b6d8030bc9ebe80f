//! The reply that a request must get, computed for that request alone.
//!
//! The reference knows the prompt and the fake model's text for it. The world tells it when each
//! token came, how much of the prompt was cached, and which steps failed. For each token it searches
//! the whole text for stop strings again. It writes with a [`Reply`] of its own.

use std::time::Duration;

use corelane::api::logprobs::{Scored, SpelledLogprobs};
use corelane::api::reply::{
    Delta, FinishReason, Guessed, PromptProgress, Reply, Restored, Summary, Timings, Usage,
};
use corelane::clock::Micros;
use corelane::model::fake::{END, FakeOptions, N_VOCAB, continuation_with};
use corelane::ring::message::{Sample, Score, TokenLogprobs};
use corelane::scheduler::tuning::STEP_RETRIES_MAX;
use corelane::types::{SlotId, TokenId};

use crate::request::Ask;

/// See the module's description.
pub struct Reference {
    reply: Box<dyn Reply>,
    /// Choices of each prompt.
    n: usize,
    choices: Vec<Choice>,
    stops: Vec<String>,
    logprobs: Option<usize>,
    /// The tokens of the prompts are scored.
    scores: bool,
    options: FakeOptions,
    /// The bytes of the body so far.
    pub out: Vec<u8>,
    /// How it ended: the status of an error, if one ended it.
    pub outcome: Option<Result<(), u16>>,
    pub deadline: Option<Micros>,
    admitted: Micros,
    started: Option<Micros>,
    first_token: Option<Micros>,
    prompt_tokens: u64,
    completion_tokens: u64,
    guessed: Guessed,
}

struct Choice {
    prompt: Vec<TokenId>,
    /// How many of its tokens have a score. The first one has none.
    scored: usize,
    max_tokens: usize,
    /// The model's whole text, with [`END`].
    tokens: Vec<TokenId>,
    /// How many of them have come.
    told: usize,
    /// The bytes of its text so far.
    bytes: Vec<u8>,
    /// The text that was shown.
    shown: String,
    /// When it first got a slot.
    started: Option<Micros>,
    slot: SlotId,
    cached: u64,
    restored: Restored,
    /// Failures since its last row that was computed.
    failures: u32,
    ended: bool,
}

impl Reference {
    /// `reply` is a fresh one for the same body.
    pub fn new(ask: &Ask, options: &FakeOptions, reply: Box<dyn Reply>, received: Micros) -> Self {
        let mut choices = Vec::new();
        for (prompt, max_tokens) in ask.prompts.iter().zip(&ask.max_tokens) {
            let tokens = if ask.constrained {
                constrained(options, prompt, *max_tokens)
            } else {
                continuation_with(options, prompt, *max_tokens)
            };
            choices.extend((0..ask.n).map(|_| Choice {
                prompt: prompt.clone(),
                scored: 0,
                max_tokens: *max_tokens,
                tokens: tokens.clone(),
                told: 0,
                bytes: Vec::new(),
                shown: String::new(),
                started: None,
                slot: SlotId::default(),
                cached: 0,
                restored: Restored::default(),
                failures: 0,
                ended: false,
            }));
        }
        Self {
            reply,
            n: ask.n,
            choices,
            stops: ask.stops.clone(),
            logprobs: ask.logprobs,
            scores: ask.scores,
            options: *options,
            out: Vec::new(),
            outcome: None,
            deadline: ask.timeout.map(|timeout| received + timeout),
            admitted: received,
            started: None,
            first_token: None,
            prompt_tokens: ask.prompts.iter().map(|prompt| prompt.len() as u64).sum(),
            completion_tokens: 0,
            guessed: Guessed::default(),
        }
    }

    /// The text of its first choice so far.
    pub fn text(&self) -> &str {
        &self.choices[0].shown
    }

    pub fn admitted(&mut self, now: Micros) {
        self.admitted = now;
    }

    /// A choice was given a slot.
    pub fn start(&mut self, choice: usize, slot: SlotId, now: Micros) {
        self.started.get_or_insert(now);
        let choice = &mut self.choices[choice];
        choice.started.get_or_insert(now);
        choice.slot = slot;
    }

    /// A choice that was given a slot has `cached` tokens of its prompt, of which `restored` come from
    /// the prefix store. This may change until its first token.
    pub fn count_cached(&mut self, choice: usize, (cached, restored): (usize, Restored)) {
        let choice = &mut self.choices[choice];
        if choice.told == 0 {
            // The last token is computed, unless the logits behind it were kept.
            let may_be_whole = choice.max_tokens > 0 && !self.scores;
            assert!(cached < choice.prompt.len() + usize::from(may_be_whole));
            choice.cached = cached as u64;
            choice.restored = restored;
        }
    }

    /// The only choice was given a slot, and lost it at once.
    pub fn begin(&mut self, now: Micros) {
        self.started.get_or_insert(now);
        self.choices[0].started.get_or_insert(now);
    }

    /// The last row of a choice in a step was computed.
    pub fn progress(&mut self, choice: usize, position: usize, now: Micros) {
        let options = self.reply.options();
        let found = &self.choices[choice];
        let is_over = self.outcome.is_some() || found.ended;
        let is_prompt = found.told == 0 && position < found.prompt.len();
        if is_over || !is_prompt || !options.stream || !options.return_progress {
            return;
        }
        let progress = PromptProgress {
            total: found.prompt.len() as u64,
            cached: found.cached,
            processed: position as u64 + 1,
            time: Duration::from_micros(now.0 - found.started.unwrap().0),
            slot: found.slot,
        };
        self.reply.push_progress(choice, &progress, &mut self.out);
    }

    /// The next token of a choice's prompt was scored.
    pub fn score(&mut self, choice: usize, score: &Score) {
        let found = &mut self.choices[choice];
        if self.outcome.is_some() || found.ended {
            return;
        }
        let before = &found.prompt[..=found.scored];
        found.scored += 1;
        assert_eq!(score.token, found.prompt[found.scored]);
        // The fake model gives the next token a logit of 20, and 0 to all others.
        let is_next = continuation_with(&self.options, before, 1)[0] == score.token;
        let total = (20f32.exp() + (N_VOCAB - 1) as f32).ln();
        let logprob = if is_next { 20.0 - total } else { -total };
        assert!((score.logprobs.logprob - logprob).abs() < 1e-3, "{score:?}");
        let top = self.logprobs.expect("scores are log-probabilities");
        self.reply.push_score(choice, &spell(score.token, top, &score.logprobs));
    }

    /// A row of a choice was computed.
    pub fn row(&mut self, choice: usize, position: usize, now: Micros) {
        let is_over = self.outcome.is_some();
        let found = &mut self.choices[choice];
        found.failures = 0;
        let prompt_is_whole = found.max_tokens == 0 && position + 1 == found.prompt.len();
        if prompt_is_whole && !found.ended && !is_over {
            assert_eq!(found.scored, if self.scores { position } else { 0 });
            self.first_token.get_or_insert(now);
            self.end(choice, FinishReason::Length, None, now);
        }
    }

    /// Of a choice's guesses, some came true. Their tokens follow.
    pub fn guessed(&mut self, choice: usize, made: u8, kept: usize) {
        if !self.choices[choice].ended {
            self.guessed.made += u64::from(made);
            self.guessed.kept += kept as u64;
        }
    }

    /// A token of a choice came.
    pub fn token(
        &mut self,
        choice: usize,
        sample: &Sample,
        logprobs: Option<&TokenLogprobs>,
        now: Micros,
    ) {
        let index = choice;
        let choice = &mut self.choices[index];
        if self.outcome.is_some() || choice.ended {
            return;
        }
        assert_eq!(sample.token, choice.tokens[choice.told], "the text is the prompt's own");
        assert_eq!(sample.end, sample.token == END);
        let scored = if self.scores { choice.prompt.len() - 1 } else { 0 };
        assert_eq!(choice.scored, scored, "the prompt comes first");
        choice.told += 1;
        self.completion_tokens += 1;
        self.first_token.get_or_insert(now);
        let spelled = self.logprobs.map(|top| {
            let found = logprobs.expect("the request asked for log-probabilities");
            assert!(found.top[0].0 == sample.token && found.logprob > -1e-3, "{found:?}");
            spell(sample.token, top, found)
        });
        if sample.end {
            return self.end(index, FinishReason::Stop, spelled.as_ref(), now);
        }
        choice.bytes.push(sample.token as u8);
        let is_last = choice.told == choice.max_tokens;
        let (text, stop) = visible(&choice.bytes, &self.stops, is_last);
        let finish = match stop {
            Some(_) => Some(FinishReason::Stop),
            None => is_last.then_some(FinishReason::Length),
        };
        let tokens = &[sample.token];
        let delta = Delta { tokens, logprobs: spelled.as_slice(), finish, ..Delta::default() };
        self.push(index, &text, stop, delta, now);
    }

    /// A step failed, and this choice's rows with it.
    pub fn failed(&mut self, choice: usize, aborted: bool) {
        let choice = &mut self.choices[choice];
        if self.outcome.is_some() || choice.ended {
            return;
        }
        choice.failures += if aborted { STEP_RETRIES_MAX } else { 1 };
        if choice.failures > STEP_RETRIES_MAX {
            self.outcome = Some(Err(500));
        }
    }

    /// Its time is over. `order` has the choices in the order in which they end.
    pub fn expire(&mut self, order: &[usize], now: Micros) {
        if self.outcome.is_some() {
            return;
        }
        if self.first_token.is_none() {
            self.outcome = Some(Err(504));
            return;
        }
        for choice in order {
            if !self.choices[*choice].ended {
                self.end(*choice, FinishReason::Timeout, None, now);
            }
        }
    }

    /// A choice ends without another token of its text.
    fn end(
        &mut self,
        index: usize,
        finish: FinishReason,
        end_token: Option<&SpelledLogprobs>,
        now: Micros,
    ) {
        let (text, _) = visible(&self.choices[index].bytes, &[], true);
        let delta = Delta { finish: Some(finish), end_token, ..Delta::default() };
        self.push(index, &text, None, delta, now);
    }

    /// Writes the new part of a choice's `text`. The end of the last choice ends the reply.
    fn push(
        &mut self,
        index: usize,
        text: &str,
        stop: Option<usize>,
        delta: Delta<'_>,
        now: Micros,
    ) {
        let summary = self.summary(now);
        let choice = &mut self.choices[index];
        let options = self.reply.options();
        let with_summary = delta.finish.is_some() || options.stream && options.timings_per_token;
        let delta = Delta {
            text: &text[choice.shown.len()..],
            tokens: if options.return_tokens { delta.tokens } else { &[] },
            stop_word: stop.map(|stop| self.stops[stop].as_str()),
            usage: Usage {
                prompt_tokens: choice.started.map_or(0, |_| choice.prompt.len() as u64),
                cached_tokens: choice.cached,
                completion_tokens: choice.told as u64,
            },
            slot: choice.slot,
            summary: with_summary.then_some(summary),
            ..delta
        };
        choice.ended = delta.finish.is_some();
        self.reply.push_delta(index, delta, &mut self.out);
        choice.shown = text.to_owned();
        if self.choices.iter().all(|choice| choice.ended) {
            self.reply.push_end(summary, now, &mut self.out);
            self.outcome = Some(Ok(()));
        }
    }

    fn summary(&self, now: Micros) -> Summary {
        let between = |from: Micros, to: Micros| Duration::from_micros(to.0 - from.0);
        let started = self.started.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        // Each prompt counts once, with its first choice.
        let cached_tokens = self.choices.iter().step_by(self.n).map(|choice| choice.cached).sum();
        let restored = self.choices.iter().step_by(self.n).map(|choice| choice.restored);
        let restored = restored.fold(Restored::default(), |all, of| Restored {
            tokens: all.tokens + of.tokens,
            fetched: all.fetched + of.fetched,
        });
        Summary {
            restored,
            usage: Usage {
                prompt_tokens: self.prompt_tokens,
                cached_tokens,
                completion_tokens: self.completion_tokens,
            },
            guessed: self.guessed,
            timings: Timings {
                queued: between(self.admitted, started),
                prefill: between(started, first_token),
                decode: between(first_token, now),
            },
            ..Summary::default()
        }
    }
}

/// The continuation under [`PATTERN`](crate::request::PATTERN).
fn constrained(options: &FakeOptions, prompt: &[TokenId], max: usize) -> Vec<TokenId> {
    let mut tokens: Vec<TokenId> = Vec::new();
    while tokens.len() < max && tokens.last() != Some(&END) {
        let text: Vec<TokenId> = prompt.iter().chain(&tokens).copied().collect();
        let wanted = continuation_with(options, &text, 1)[0];
        tokens.push(match tokens.len() % 4 {
            3 => b'X'.into(),
            // All others are alike to the model, and the first one wins.
            1 | 2 if wanted == END => b' '.into(),
            _ => wanted,
        });
    }
    tokens
}

/// The part of a text that a client may see: whole characters, before the first stop string, and
/// without an end that may become one. Also the stop string that ended it.
fn visible(bytes: &[u8], stops: &[String], is_whole: bool) -> (String, Option<usize>) {
    let unfinished = |tail: &usize| {
        let tail = std::str::from_utf8(&bytes[bytes.len() - tail..]);
        tail.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    let cut = (1..=bytes.len().min(3)).find(unfinished).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..bytes.len() - cut]);
    let found =
        stops.iter().enumerate().filter_map(|(index, stop)| Some((text.find(stop)?, index)));
    if let Some((at, stop)) = found.min() {
        return (text[..at].to_owned(), Some(stop));
    }
    if is_whole {
        return (String::from_utf8_lossy(bytes).into_owned(), None);
    }
    let may_become_one = |at: &usize| {
        let end = &text[*at..];
        stops.iter().any(|stop| stop.starts_with(end))
    };
    let mut starts = text.char_indices().map(|(at, _)| at);
    let shown = starts.find(may_become_one).unwrap_or(text.len());
    (text[..shown].to_owned(), None)
}

/// The log-probabilities of a token, with its bytes.
fn spell(token: TokenId, top: usize, found: &TokenLogprobs) -> SpelledLogprobs {
    assert_eq!(found.top.len(), top);
    // The last token has no bytes.
    let bytes = |token: TokenId| u8::try_from(token).into_iter().collect();
    let scored = |(token, logprob): (TokenId, f32)| Scored { token, bytes: bytes(token), logprob };
    SpelledLogprobs {
        chosen: scored((token, found.logprob)),
        top: found.top.iter().copied().map(scored).collect(),
    }
}
