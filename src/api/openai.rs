//! OpenAI's dialect: `/v1/completions`.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::error::ApiError;
use super::json::read_object;
use super::json::refuse;
use super::logprobs::{SpelledLogprobs, TokenColumns};
use super::prompts::read_prompts;
use super::reply::{
    Delta, FinishReason, Guessed, PromptProgress, Reply, ReplyContext, ReplyOptions, Summary, Usage,
};
use super::request::{GenerationRequest, read_generation, refuse_unsupported};
use super::write::{push_string, push_string_inside};
use crate::clock::Micros;
use crate::types::{Sampling, TokenId};

/// OpenAI's default for `max_tokens` of a completion.
const COMPLETION_MAX_TOKENS: u32 = 16;

/// Reads a `/v1/completions` request.
pub fn read_completion(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    read_object(body, |fields| {
        refuse_unsupported(fields)?;
        refuse(fields, &[("add_generation_prompt", "true")])?;
        fields.string("model")?; // any name is accepted, for only one model is served
        let request = read_generation(fields, Sampling::default(), Some(COMPLETION_MAX_TOKENS))?;
        Ok(GenerationRequest { prompts: read_prompts(fields)?, ..request })
    })
}

/// The reply of `/v1/completions`.
#[derive(Debug)]
pub struct CompletionReply {
    options: ReplyOptions,
    /// `{"id":…,"object":"text_completion","created":…,"model":…,"choices":[`, which is the same in
    /// every event.
    prefix: Vec<u8>,
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
    pub fn new(mut options: ReplyOptions, context: &ReplyContext) -> Self {
        let mut prefix = b"{\"id\":".to_vec();
        push_string(&mut prefix, &context.id);
        write!(prefix, ",\"object\":\"text_completion\",\"created\":{}", context.created)
            .expect("memory");
        prefix.extend_from_slice(b",\"model\":");
        push_string(&mut prefix, &context.model);
        prefix.extend_from_slice(b",\"choices\":[");
        let mut echo = std::mem::take(&mut options.echo).into_iter();
        let choice = |_| match echo.next() {
            Some(echo) => Choice {
                logprobs: TokenColumns::after(&echo),
                echo: Some(echo.text),
                ..Choice::default()
            },
            None => Choice::default(),
        };
        let choices = (0..options.choices).map(choice).collect();
        Self { options, prefix, choices }
    }
}

impl Reply for CompletionReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, index: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        let Self { options, prefix, choices } = self;
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
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(prefix);
        push_choice(out, index, choice, options);
        push_event_end(options, delta.summary.as_ref(), out);
        choice.echo = None;
        choice.text.clear();
        choice.tokens.clear();
        choice.logprobs.clear();
    }

    fn push_score(&mut self, index: usize, score: &SpelledLogprobs) {
        self.choices[index].logprobs.extend(std::slice::from_ref(score));
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
        push_choice(out, index, &Choice::default(), &self.options);
        push_progress_end(&self.options, progress, out);
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        let Self { options, prefix, choices } = self;
        if options.stream {
            return push_stream_end(options, prefix, &summary, out);
        }
        out.extend_from_slice(prefix);
        for (index, choice) in choices.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_choice(out, index, choice, options);
        }
        out.extend_from_slice(b"],\"usage\":");
        push_usage(out, summary.usage);
        push_timings(out, &summary);
        out.push(b'}');
    }
}

fn push_choice(out: &mut Vec<u8>, index: usize, choice: &Choice, options: &ReplyOptions) {
    out.extend_from_slice(b"{\"text\":\"");
    for text in choice.echo.as_deref().into_iter().chain([&*choice.text]) {
        push_string_inside(out, text);
    }
    write!(out, "\",\"index\":{index},\"logprobs\":").expect("memory");
    if options.logprobs {
        choice.logprobs.push(out);
    } else {
        out.extend_from_slice(b"null");
    }
    push_tokens(options, &choice.tokens, out);
    out.extend_from_slice(b",\"finish_reason\":");
    match choice.finish {
        Some(reason) => push_string(out, reason.as_str()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Writes `tokens` if the request asked for it.
pub fn push_tokens(options: &ReplyOptions, tokens: &[TokenId], out: &mut Vec<u8>) {
    if options.return_tokens {
        out.extend_from_slice(b",\"tokens\":");
        serde_json::to_writer(out, tokens).expect("memory");
    }
}

/// Writes the end of an event, after its choice.
pub fn push_event_end(options: &ReplyOptions, summary: Option<&Summary>, out: &mut Vec<u8>) {
    out.push(b']');
    if options.include_usage {
        // With `include_usage`, OpenAI sends the field in every event.
        out.extend_from_slice(b",\"usage\":null");
    }
    if let Some(summary) = summary {
        push_timings(out, summary);
    }
    out.extend_from_slice(b"}\n\n");
}

/// Writes the end of an event about the progress of a prompt.
pub fn push_progress_end(options: &ReplyOptions, progress: &PromptProgress, out: &mut Vec<u8>) {
    out.push(b']');
    if options.include_usage {
        out.extend_from_slice(b",\"usage\":null");
    }
    push_progress(out, progress);
    out.extend_from_slice(b"}\n\n");
}

/// Writes the end of a stream, with the token counts if the request asked for them.
pub fn push_stream_end(
    options: &ReplyOptions,
    prefix: &[u8],
    summary: &Summary,
    out: &mut Vec<u8>,
) {
    if options.include_usage {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(prefix);
        out.extend_from_slice(b"],\"usage\":");
        push_usage(out, summary.usage);
        push_timings(out, summary);
        out.extend_from_slice(b"}\n\n");
    }
    out.extend_from_slice(b"data: [DONE]\n\n");
}

/// Writes `usage`.
pub fn push_usage(out: &mut Vec<u8>, usage: Usage) {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    write!(
        out,
        "{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":{completion_tokens},\
         \"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{cached_tokens}}}}}",
        prompt_tokens + completion_tokens
    )
    .expect("memory");
}

/// Writes `prompt_progress`, with llama-server's names and in milliseconds.
pub fn push_progress(out: &mut Vec<u8>, progress: &PromptProgress) {
    let PromptProgress { total, cached, processed, time, .. } = progress;
    write!(
        out,
        ",\"prompt_progress\":{{\"total\":{total},\"cache\":{cached},\"processed\":{processed},\
         \"time_ms\":{:.3}}}",
        time.as_secs_f64() * 1e3
    )
    .expect("memory");
}

/// Writes `timings`, after another field.
pub fn push_timings(out: &mut Vec<u8>, summary: &Summary) {
    out.extend_from_slice(b",\"timings\":");
    push_timings_object(out, summary);
}

/// Writes the times of a request under llama-server's names, in milliseconds and tokens per second.
pub fn push_timings_object(out: &mut Vec<u8>, summary: &Summary) {
    let Summary { usage, timings, guessed, late } = summary;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let rate = |tokens: u64, time: Duration| {
        if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
    };
    let each =
        |tokens: u64, time: Duration| if tokens == 0 { 0.0 } else { ms(time) / tokens as f64 };
    let computed = usage.prompt_tokens - usage.cached_tokens;
    let later = usage.completion_tokens.saturating_sub(1); // the first one ends the prompt's time
    write!(
        out,
        "{{\"queued_ms\":{:.3},\"cache_n\":{},\"prompt_n\":{computed},\
         \"prompt_ms\":{:.3},\"prompt_per_token_ms\":{:.3},\"prompt_per_second\":{:.3},\
         \"predicted_n\":{},\"predicted_ms\":{:.3},\"predicted_per_token_ms\":{:.3},\
         \"predicted_per_second\":{:.3}",
        ms(timings.queued),
        usage.cached_tokens,
        ms(timings.prefill),
        each(computed, timings.prefill),
        rate(computed, timings.prefill),
        usage.completion_tokens,
        ms(timings.decode),
        each(later, timings.decode),
        rate(later, timings.decode),
    )
    .expect("memory");
    if guessed.made > 0 {
        let Guessed { made, kept } = guessed;
        write!(out, ",\"draft_n\":{made},\"draft_n_accepted\":{kept}").expect("memory");
    }
    if late.all() > 0 {
        write!(out, ",\"late_n\":{}", late.all()).expect("memory");
        for (cause, count) in late.by_cause().filter(|(_, count)| *count > 0) {
            write!(out, ",\"late_{}_n\":{count}", cause.name()).expect("memory");
        }
    }
    out.push(b'}');
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
                r#"{"prompt":"a","max_tokens":-1}"#,
                "max_tokens must be a whole number from 0 to 1048576, not -1",
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
        let options = ReplyOptions { choices: 2, echo: vec![echo], ..Default::default() };
        let mut reply = CompletionReply::new(options, &context());
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
        let options =
            ReplyOptions { choices: 1, stream: true, include_usage: true, ..Default::default() };
        let mut reply = CompletionReply::new(options, &context());
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
