//! OpenAI's dialect: `/v1/completions`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::error::{ApiError, Dialect};
use super::hints::refuse_unsupported;
use super::json::read_object;
use super::json::refuse;
use super::logprobs::{SpelledLogprobs, TokenColumns};
use super::prompts::read_prompts;
use super::reply::{
    Delta, FinishReason, PromptFacts, PromptProgress, Reply, ReplyContext, ReplyOptions, Summary,
    Usage,
};
use super::request::{GenerationRequest, read_generation};
use super::write::{List, Object, Spelled, push_event, push_json, rounded};
use crate::clock::Micros;
use crate::metrics::LateCount;
use crate::types::{Sampling, TokenId};

/// OpenAI's dialect.
pub static DIALECT: Dialect = Dialect {
    stream_type: "text/event-stream",
    has_comments: true,
    push_error: |out, error| push_json(out, &error_body(error)),
    push_error_event: |out, error| push_event(out, &error_body(error)),
};

fn error_body(error: &ApiError) -> impl Serialize {
    #[derive(Clone, Copy, Serialize)]
    struct Body<'a> {
        message: &'a str,
        r#type: &'a str,
        param: Option<&'a str>,
        code: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        n_prompt_tokens: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        n_ctx: Option<u32>,
    }
    let ApiError { message, kind, param, code, tokens, .. } = error;
    let body = Body {
        message,
        r#type: kind,
        param: *param,
        code: *code,
        n_prompt_tokens: tokens.as_deref().map(|(prompt, _)| *prompt),
        n_ctx: tokens.as_deref().map(|(_, limit)| *limit),
    };
    Object([("error", body)])
}

/// OpenAI's default for `max_tokens` of a completion.
const COMPLETION_MAX_TOKENS: u32 = 16;

/// Reads a `/v1/completions` request.
pub fn read_completion(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    read_object(body, |fields| {
        refuse_unsupported(fields)?;
        refuse(fields, &[("add_generation_prompt", "true")])?;
        fields.string("model")?; // any name is accepted, for only one model is served
        let request = read_generation(
            fields,
            Sampling::default(),
            Some(COMPLETION_MAX_TOKENS),
            CompletionReply::new,
        )?;
        Ok(GenerationRequest { prompts: read_prompts(fields)?, ..request })
    })
}

/// The reply of `/v1/completions`.
#[derive(Debug)]
pub struct CompletionReply {
    options: ReplyOptions,
    head: Head,
    choices: Vec<Choice>,
}

/// The output of one choice: all of it, or the part that a stream has not sent yet.
#[derive(Debug, Default)]
struct Choice {
    /// The prompt, before the text. All choices of a prompt share it.
    echo: Option<Arc<str>>,
    text: String,
    tokens: Vec<TokenId>,
    logprobs: TokenColumns,
    finish: Option<FinishReason>,
}

impl CompletionReply {
    /// A reply without any text yet.
    pub fn new(options: ReplyOptions, facts: PromptFacts, context: &ReplyContext) -> Self {
        let mut echo = facts.echo.into_iter();
        let choice = |_| match echo.next() {
            Some(echo) => Choice {
                logprobs: TokenColumns::after(&echo),
                echo: Some(echo.text),
                ..Choice::default()
            },
            None => Choice::default(),
        };
        let choices = (0..facts.choices).map(choice).collect();
        Self { options, head: Head::new("text_completion", context), choices }
    }
}

impl Reply for CompletionReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, index: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        let Self { options, head, choices } = self;
        let choice = &mut choices[index];
        choice.text.push_str(delta.text);
        choice.tokens.extend_from_slice(delta.tokens);
        choice.logprobs.extend(delta.logprobs);
        // As in vLLM. Evaluation harnesses count on an entry for each token.
        choice.logprobs.extend(delta.end_token.map_or(&[], std::slice::from_ref));
        choice.finish = delta.finish;
        // Log-probabilities wait for their text.
        let is_empty = choice.text.is_empty() && choice.echo.is_none();
        if !options.stream || (is_empty && delta.finish.is_none()) {
            return;
        }
        head.push_event(options, &choice.shown(index, options), delta.summary.as_ref(), out);
        choice.echo = None;
        choice.text.clear();
        choice.tokens.clear();
        choice.logprobs.clear();
    }

    fn push_score(&mut self, index: usize, score: &SpelledLogprobs) {
        self.choices[index].logprobs.extend(std::slice::from_ref(score));
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        let choice = Choice::default();
        self.head.push_progress(&self.options, &choice.shown(index, &self.options), progress, out);
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        let Self { options, head, choices } = self;
        if options.stream {
            return head.push_stream_end(options, &summary, out);
        }
        let choices = choices.iter().enumerate();
        let choices = List(choices.map(|(index, choice)| choice.shown(index, options)));
        head.push_whole(choices, &summary, out);
    }
}

impl Choice {
    fn shown<'a>(&'a self, index: usize, options: &ReplyOptions) -> impl Serialize + 'a {
        #[derive(Serialize)]
        struct Shown<'a, T> {
            text: T,
            index: usize,
            logprobs: Option<&'a TokenColumns>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tokens: Option<&'a [TokenId]>,
            finish_reason: Option<&'static str>,
        }
        Shown {
            text: Spelled(fmt::from_fn(|f| {
                f.write_str(self.echo.as_deref().unwrap_or_default())?;
                f.write_str(&self.text)
            })),
            index,
            logprobs: options.logprobs.then_some(&self.logprobs),
            tokens: options.return_tokens.then_some(&self.tokens),
            finish_reason: self.finish.map(FinishReason::as_str),
        }
    }
}

/// The first members of each event and of a whole answer, of completions and of chats.
#[derive(Debug, Serialize)]
pub struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
}

/// An event, or a whole answer.
#[derive(Serialize)]
struct Event<'a, C> {
    #[serde(flatten)]
    head: &'a Head,
    choices: C,
    /// With `include_usage`, OpenAI sends the field in every event: `null` until the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Tokens>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Times>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<Progress>,
}

impl Head {
    /// The head of a response.
    pub fn new(object: &'static str, context: &ReplyContext) -> Self {
        let ReplyContext { id, model, created, .. } = context.clone();
        Self { id, object, created, model }
    }

    fn event<C>(&self, choices: C) -> Event<'_, C> {
        Event { head: self, choices, usage: None, timings: None, prompt_progress: None }
    }

    /// Writes an event with one choice.
    pub fn push_event(
        &self,
        options: &ReplyOptions,
        choice: &impl Serialize,
        summary: Option<&Summary>,
        out: &mut Vec<u8>,
    ) {
        let (usage, timings) = (options.include_usage.then_some(None), summary.map(Times::from));
        push_event(out, &Event { usage, timings, ..self.event([choice]) });
    }

    /// Writes an event about the progress of a choice's prompt.
    pub fn push_progress(
        &self,
        options: &ReplyOptions,
        choice: &impl Serialize,
        progress: &PromptProgress,
        out: &mut Vec<u8>,
    ) {
        let usage = options.include_usage.then_some(None);
        let prompt_progress = Some(progress.into());
        push_event(out, &Event { usage, prompt_progress, ..self.event([choice]) });
    }

    /// Writes the end of a stream, with the token counts if the request asked for them.
    pub fn push_stream_end(&self, options: &ReplyOptions, summary: &Summary, out: &mut Vec<u8>) {
        if options.include_usage {
            push_event(out, &self.whole([(); 0], summary));
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// Writes a whole answer.
    pub fn push_whole(&self, choices: impl Serialize, summary: &Summary, out: &mut Vec<u8>) {
        push_json(out, &self.whole(choices, summary));
    }

    fn whole<C>(&self, choices: C, summary: &Summary) -> Event<'_, C> {
        let (usage, timings) = (Some(Some(summary.usage.into())), Some(summary.into()));
        Event { usage, timings, ..self.event(choices) }
    }
}

/// `usage`.
#[derive(Serialize)]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: Cached,
}

#[derive(Serialize)]
struct Cached {
    cached_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: Cached { cached_tokens },
        }
    }
}

/// `prompt_progress`, with llama-server's names and in milliseconds.
#[derive(Serialize)]
pub struct Progress {
    total: u64,
    cache: u64,
    processed: u64,
    time_ms: f64,
}

impl From<&PromptProgress> for Progress {
    fn from(progress: &PromptProgress) -> Self {
        let PromptProgress { total, cached: cache, processed, time, .. } = *progress;
        Self { total, cache, processed, time_ms: ms(time) }
    }
}

/// `timings`: the times of a request under llama-server's names, in milliseconds and tokens per
/// second.
#[derive(Serialize)]
pub struct Times {
    queued_ms: f64,
    cache_n: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_store_n: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_disk_n: Option<u64>,
    prompt_n: u64,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_n: u64,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_n: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_n_accepted: Option<u64>,
    #[serde(flatten, serialize_with = "late_counts")]
    late: LateCount,
}

impl From<&Summary> for Times {
    fn from(summary: &Summary) -> Self {
        let Summary { usage, timings, guessed, restored, late } = *summary;
        let rate = |tokens: u64, time: Duration| match time.is_zero() {
            true => 0.0,
            false => rounded(tokens as f64 / time.as_secs_f64()),
        };
        let each = |tokens: u64, time: Duration| match tokens {
            0 => 0.0,
            tokens => rounded(time.as_secs_f64() * 1e3 / tokens as f64),
        };
        let computed = usage.prompt_tokens - usage.cached_tokens;
        let later = usage.completion_tokens.saturating_sub(1); // the first one ends the prompt's time
        let made_any = guessed.made > 0;
        Self {
            queued_ms: ms(timings.queued),
            cache_n: usage.cached_tokens,
            cache_store_n: (restored.tokens > 0).then_some(restored.tokens),
            cache_disk_n: (restored.fetched > 0).then_some(restored.fetched),
            prompt_n: computed,
            prompt_ms: ms(timings.prefill),
            prompt_per_token_ms: each(computed, timings.prefill),
            prompt_per_second: rate(computed, timings.prefill),
            predicted_n: usage.completion_tokens,
            predicted_ms: ms(timings.decode),
            predicted_per_token_ms: each(later, timings.decode),
            predicted_per_second: rate(later, timings.decode),
            draft_n: made_any.then_some(guessed.made),
            draft_n_accepted: made_any.then_some(guessed.kept),
            late,
        }
    }
}

/// Milliseconds.
fn ms(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

/// Writes the number of late tokens, and that of each cause, without zeros.
fn late_counts<S: Serializer>(late: &LateCount, serializer: S) -> Result<S::Ok, S::Error> {
    let mut counts = serializer.serialize_map(None)?;
    if late.all() > 0 {
        counts.serialize_entry("late_n", &late.all())?;
    }
    for (cause, count) in late.by_cause().filter(|(_, count)| *count > 0) {
        counts.serialize_entry(&Spelled(format_args!("late_{}_n", cause.name())), &count)?;
    }
    counts.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::logprobs::Echo;
    use crate::api::prompts::Prompt;
    use crate::api::reply::Timings;
    use crate::api::request::Length;

    fn read(body: &str) -> Result<GenerationRequest, ApiError> {
        read_completion(&mut body.as_bytes().to_vec())
    }

    #[test]
    fn every_form_of_prompt_is_read() {
        let prompts = |body: &str| read(body).unwrap().prompts;
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(prompts(r#"{"prompt":"a"}"#), [text("a")]);
        assert_eq!(prompts(r#"{"prompt":["a","b"]}"#), [text("a"), text("b")]);
        assert_eq!(prompts(r#"{"prompt":[1,2]}"#), [Prompt::Tokens(vec![1, 2])]);
        let object = r#"{"prompt_string":"a","multimodal_data":[]}"#;
        assert_eq!(prompts(&format!(r#"{{"prompt":{object}}}"#)), [text("a")]);
        assert_eq!(prompts(&format!(r#"{{"prompt":["b",{object}]}}"#)), [text("b"), text("a")]);
        assert_eq!(
            prompts(r#"{"prompt":[[1],[2,3]]}"#),
            [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]
        );
    }

    #[test]
    fn an_empty_prompt_is_refused_at_once() {
        for body in [
            r#"{}"#,
            r#"{"prompt":null}"#,
            r#"{"prompt":""}"#,
            r#"{"prompt":[]}"#,
            r#"{"prompt":[""]}"#,
            r#"{"prompt":[[]]}"#,
            r#"{"prompt":{}}"#,
            r#"{"prompt":[{"prompt_string":""}]}"#,
            r#"{"prompt":7}"#,
            r#"{"prompt":[1,{}]}"#,
            r#"{"prompt":[["a",null]]}"#,
            r#"{"prompt":[1.5]}"#,
            r#"{"prompt":[99999999999]}"#,
        ] {
            let error = read(body).expect_err(body);
            assert_eq!((error.status, error.param), (400, Some("prompt")), "{body}");
        }
    }

    #[test]
    fn fields_out_of_range_are_refused_with_the_range() {
        for (body, message) in [
            (
                r#"{"prompt":"a","temperature":-1}"#,
                "temperature must be a number from 0 to 2, not -1",
            ),
            (
                r#"{"prompt":"a","temperature":"0.5"}"#,
                "temperature must be a number from 0 to 2, not the string \"0.5\"",
            ),
            (r#"{"prompt":"a","top_p":1.5}"#, "top_p must be a number from 0 to 1, not 1.5"),
            (
                r#"{"prompt":"a","max_tokens":-2}"#,
                "max_tokens must be a whole number from -1 to 9007199254740991, not -2",
            ),
            (
                r#"{"prompt":"a","stream":"yes"}"#,
                "stream must be true or false, not the string \"yes\"",
            ),
            (r#"{"prompt":"a","stop":""}"#, "a stop string has 1 to 256 bytes; one has 0"),
            (r#"{"prompt":"a","stop":[1]}"#, "stop must be an array of strings, not 1"),
            (
                r#"{"prompt":"a","logprobs":6}"#,
                "logprobs must be true, false or a whole number from 0 to 5, not 6",
            ),
            (r#"{"prompt":"a","n":0}"#, "n must be a whole number from 1 to 128, not 0"),
            (
                r#"{"prompt":"a","n":2,"best_of":3}"#,
                "best_of is 3 and n is 2; this server shows all",
            ),
            (r#"{"prompt":"a","length_penalty":2}"#, "length_penalty is not supported here"),
            (r#"{"prompt":"a","stop_token_ids":[1]}"#, "stop_token_ids is not supported here"),
            (
                r#"{"prompt":"a","response_format":{"type":"xml"}}"#,
                "response_format must have the type text, json_object or json_schema",
            ),
            (
                r#"{"prompt":"a","regex":"a+","grammar":"root ::= \"a\""}"#,
                "regex and grammar cannot be given together",
            ),
            (
                r#"{"prompt":"a","stream_options":{"include_usage":1}}"#,
                "include_usage must be true or false, not 1",
            ),
        ] {
            assert_eq!(read(body).expect_err(body).message, message);
        }
    }

    #[test]
    fn temperature_zero_stays_zero_and_defaults_are_openais() {
        assert_eq!(read(r#"{"prompt":"a","temperature":0}"#).unwrap().sampling.temperature, 0.0);
        let harmless = r#"{"prompt":"a","unknown":{"x":[1]},"n":1.0,"suffix":null,"best_of":1,
            "logprobs":false,"response_format":{"type":"text"},"logit_bias":{},"echo":false}"#;
        let request = read(harmless).unwrap();
        assert_eq!(request.sampling, Sampling::default());
        assert_eq!(request.length, Length::Default(Some(16)));
        assert_eq!((request.seed, request.reply), (None, ReplyOptions::default()));
    }

    fn context() -> ReplyContext {
        ReplyContext {
            id: "cmpl-1".into(),
            model: "m".into(),
            created: 5,
            received: Micros(0),
            prompt_tokens: 2,
        }
    }

    fn delta(text: &str, finish: Option<FinishReason>) -> Delta<'_> {
        Delta { text, finish, ..Delta::default() }
    }

    #[test]
    fn a_whole_reply_is_one_object() {
        let echo = Echo { text: "<".into(), first_token: b"<"[..].into() };
        let facts = PromptFacts { choices: 2, echo: vec![echo], ..Default::default() };
        let mut reply = CompletionReply::new(ReplyOptions::default(), facts, &context());
        let mut out = Vec::new();
        reply.push_delta(1, delta("x\"", None), &mut out);
        reply.push_delta(0, delta("y", Some(FinishReason::Length)), &mut out);
        reply.push_delta(1, delta("z", Some(FinishReason::Stop)), &mut out);
        assert!(out.is_empty());
        let usage = Usage { prompt_tokens: 2, cached_tokens: 1, completion_tokens: 3 };
        let timings = Timings { queued: Duration::from_millis(5), ..Default::default() };
        reply.push_end(Summary { usage, timings, ..Summary::default() }, Micros(0), &mut out);
        let mut value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let told = value.as_object_mut().unwrap().remove("timings").unwrap();
        assert_eq!((&told["queued_ms"], &told["cache_n"]), (&5.0.into(), &1.into()));
        assert_eq!(
            value,
            serde_json::json!({
                "id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m",
                "choices": [
                    {"text": "<y", "index": 0, "logprobs": null, "finish_reason": "length"},
                    {"text": "x\"z", "index": 1, "logprobs": null, "finish_reason": "stop"},
                ],
                "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 1}},
            })
        );
    }

    #[test]
    fn a_stream_is_an_event_for_each_delta() {
        let options = ReplyOptions { stream: true, include_usage: true, ..Default::default() };
        let facts = PromptFacts { choices: 1, ..Default::default() };
        let mut reply = CompletionReply::new(options, facts, &context());
        let mut out = Vec::new();
        reply.push_delta(0, delta("\n", None), &mut out);
        reply.push_delta(0, delta("", None), &mut out);
        reply.push_delta(0, delta("b", Some(FinishReason::Stop)), &mut out);
        let usage = Usage { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 2 };
        reply.push_end(Summary { usage, ..Summary::default() }, Micros(0), &mut out);
        let text = String::from_utf8(out).unwrap();
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 4);
        assert_eq!(events[3], "data: [DONE]");
        let event = |i: usize| {
            serde_json::from_str::<serde_json::Value>(events[i].strip_prefix("data: ").unwrap())
                .unwrap()
        };
        assert_eq!(event(0)["choices"][0]["text"], "\n");
        assert_eq!(event(0)["usage"], serde_json::Value::Null);
        assert_eq!(event(1)["choices"][0]["finish_reason"], "stop");
        assert_eq!(event(2)["choices"], serde_json::json!([]));
        assert_eq!(event(2)["usage"]["total_tokens"], 3);
    }
}
