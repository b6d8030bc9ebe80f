//! OpenAI's dialect: `/v1/completions`, `/v1/models`.

use std::io::Write;
use std::time::Duration;

use super::error::ApiError;
use super::json::{push_string, push_string_inside, read_object};
use super::request::{
    GenerationRequest, read_max_tokens, read_prompts, read_sampling, read_seed, read_stops,
    read_urgency, refuse_unsupported,
};
use super::{FinishReason, ReplyContext, Summary, Usage};
use crate::types::{ModelInfo, Sampling};

/// OpenAI's default for `max_tokens` of a completion.
pub const COMPLETION_MAX_TOKENS: u32 = 16;

/// Reads a `/v1/completions` request.
///
/// # Errors
/// 400 that names the field.
pub fn read_completion(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    read_object(body, |fields| {
        refuse_unsupported(fields)?;
        fields.string("model")?; // one model is served, whatever it is called
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let include_usage = match fields.object("stream_options")? {
            Some(options) => options.boolean("include_usage")?.unwrap_or(false),
            None => false,
        };
        Ok(GenerationRequest {
            prompts: read_prompts(fields)?,
            max_tokens: read_max_tokens(fields)?,
            sampling: read_sampling(fields, Sampling::default())?,
            seed: read_seed(fields)?,
            stops: read_stops(fields)?,
            stream,
            include_usage,
            urgency: read_urgency(fields)?,
            cache_prompt: fields.boolean("cache_prompt")?.unwrap_or(true),
        })
    })
}

/// The answer to `GET /v1/models`: the one model.
pub fn push_models(
    out: &mut Vec<u8>,
    name: &str,
    created: u64,
    context_tokens: u32,
    info: &ModelInfo,
) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[{\"id\":");
    push_string(out, name);
    write!(
        out,
        ",\"object\":\"model\",\"created\":{created},\"owned_by\":\"corelane\",\
         \"max_model_len\":{context_tokens},\"meta\":{{\"n_vocab\":{},\"n_ctx_train\":{},\
         \"n_embd\":{},\"n_params\":{},\"size\":{}}}}}]}}",
        info.n_vocab, info.context_trained, info.n_embd, info.n_params, info.size_bytes
    )
    .expect("memory");
}

/// The reply to `/v1/completions`.
#[derive(Debug)]
pub struct CompletionReply {
    stream: bool,
    include_usage: bool,
    /// `{"id":…,"object":"text_completion","created":…,"model":…,"choices":[`,
    /// the same in every event.
    prefix: Vec<u8>,
    /// What has come of each choice, when it is not streamed.
    choices: Vec<Choice>,
}

#[derive(Debug, Default)]
struct Choice {
    text: String,
    finish: Option<FinishReason>,
}

impl CompletionReply {
    /// A reply without any text yet.
    pub fn new(request: &GenerationRequest, context: ReplyContext) -> Self {
        let mut prefix = b"{\"id\":".to_vec();
        push_string(&mut prefix, &context.id);
        write!(prefix, ",\"object\":\"text_completion\",\"created\":{}", context.created)
            .expect("memory");
        prefix.extend_from_slice(b",\"model\":");
        push_string(&mut prefix, &context.model);
        prefix.extend_from_slice(b",\"choices\":[");
        let choices = if request.stream { 0 } else { request.prompts.len() };
        Self {
            stream: request.stream,
            include_usage: request.include_usage,
            prefix,
            choices: (0..choices).map(|_| Choice::default()).collect(),
        }
    }

    /// True when it is an event stream.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// More text of a choice, and the reason if it is the last.
    pub fn push_delta(
        &mut self,
        index: usize,
        text: &str,
        finish: Option<FinishReason>,
        out: &mut Vec<u8>,
    ) {
        if !self.stream {
            let choice = &mut self.choices[index];
            choice.text.push_str(text);
            choice.finish = finish;
            return;
        }
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
        push_choice(out, index, text, finish);
        // With include_usage, OpenAI's stream has the field in every event.
        out.extend_from_slice(if self.include_usage {
            b"],\"usage\":null}\n\n"
        } else {
            b"]}\n\n"
        });
    }

    /// All choices have ended.
    pub fn push_end(&mut self, summary: Summary, out: &mut Vec<u8>) {
        if self.stream {
            if self.include_usage {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(b"],\"usage\":");
                push_usage(out, summary.usage);
                push_timings(out, &summary);
                out.extend_from_slice(b"}\n\n");
            }
            out.extend_from_slice(b"data: [DONE]\n\n");
            return;
        }
        out.extend_from_slice(&self.prefix);
        for (index, choice) in self.choices.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_choice(out, index, &choice.text, choice.finish);
        }
        out.extend_from_slice(b"],\"usage\":");
        push_usage(out, summary.usage);
        push_timings(out, &summary);
        out.push(b'}');
    }
}

fn push_choice(out: &mut Vec<u8>, index: usize, text: &str, finish: Option<FinishReason>) {
    out.extend_from_slice(b"{\"text\":\"");
    push_string_inside(out, text);
    write!(out, "\",\"index\":{index},\"logprobs\":null,\"finish_reason\":").expect("memory");
    match finish {
        Some(reason) => push_string(out, reason.as_str()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

fn push_usage(out: &mut Vec<u8>, usage: Usage) {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    write!(
        out,
        "{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":{completion_tokens},\
         \"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{cached_tokens}}}}}",
        prompt_tokens + completion_tokens
    )
    .expect("memory");
}

/// `timings`, with llama-server's names for what it has, in milliseconds and
/// tokens a second.
fn push_timings(out: &mut Vec<u8>, summary: &Summary) {
    let Summary { usage, timings } = summary;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let rate = |tokens: u64, time: Duration| {
        if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
    };
    let computed = usage.prompt_tokens - usage.cached_tokens;
    write!(
        out,
        ",\"timings\":{{\"queued_ms\":{:.3},\"cache_n\":{},\"prompt_n\":{computed},\
         \"prompt_ms\":{:.3},\"prompt_per_second\":{:.3},\"predicted_n\":{},\
         \"predicted_ms\":{:.3},\"predicted_per_second\":{:.3}}}",
        ms(timings.queued),
        usage.cached_tokens,
        ms(timings.prefill),
        rate(computed, timings.prefill),
        usage.completion_tokens,
        ms(timings.decode),
        rate(usage.completion_tokens.saturating_sub(1), timings.decode),
    )
    .expect("memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Prompt;
    use crate::clock::Micros;

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
            r#"{"prompt":7}"#,
            r#"{"prompt":[1,"a"]}"#,
            r#"{"prompt":["a",1]}"#,
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
                r#"{"prompt":"a","max_tokens":0}"#,
                "max_tokens must be a whole number from 1 to 1048576, not 0",
            ),
            (
                r#"{"prompt":"a","stream":"yes"}"#,
                "stream must be true or false, not the string \"yes\"",
            ),
            (r#"{"prompt":"a","stop":""}"#, "a stop string has 1 to 256 bytes; one has 0"),
            (r#"{"prompt":"a","stop":[1]}"#, "stop must be an array of strings, not 1"),
            (r#"{"prompt":"a","n":2}"#, "n is not supported by this server"),
            (r#"{"prompt":"a","logprobs":1}"#, "logprobs is not supported by this server"),
            (r#"{"prompt":"a","echo":true}"#, "echo is not supported by this server"),
            (
                r#"{"prompt":"a","stop_token_ids":[1]}"#,
                "stop_token_ids is not supported by this server",
            ),
            (
                r#"{"prompt":"a","n_predict":5}"#,
                "n_predict is not supported by this server; use max_tokens",
            ),
            (
                r#"{"prompt":"a","response_format":{"type":"json_object"}}"#,
                "response_format is not supported by this server",
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
        assert_eq!((request.max_tokens, request.seed, request.stream), (None, None, false));
    }

    fn context() -> ReplyContext {
        ReplyContext { id: "cmpl-1".into(), model: "m".into(), created: 5, started: Micros(0) }
    }

    #[test]
    fn a_whole_reply_is_one_object() {
        let mut reply = CompletionReply::new(&read(r#"{"prompt":["a","b"]}"#).unwrap(), context());
        let mut out = Vec::new();
        reply.push_delta(1, "x\"", None, &mut out);
        reply.push_delta(0, "y", Some(FinishReason::Length), &mut out);
        reply.push_delta(1, "z", Some(FinishReason::Stop), &mut out);
        assert!(out.is_empty());
        let usage = Usage { prompt_tokens: 2, cached_tokens: 1, completion_tokens: 3 };
        let timings =
            crate::api::Timings { queued: Duration::from_millis(5), ..Default::default() };
        reply.push_end(Summary { usage, timings }, &mut out);
        let mut value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let told = value.as_object_mut().unwrap().remove("timings").unwrap();
        assert_eq!((&told["queued_ms"], &told["cache_n"]), (&5.0.into(), &1.into()));
        assert_eq!(
            value,
            serde_json::json!({
                "id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m",
                "choices": [
                    {"text": "y", "index": 0, "logprobs": null, "finish_reason": "length"},
                    {"text": "x\"z", "index": 1, "logprobs": null, "finish_reason": "stop"},
                ],
                "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 1}},
            })
        );
    }

    #[test]
    fn a_stream_is_an_event_for_each_delta() {
        let request =
            read(r#"{"prompt":"a","stream":true,"stream_options":{"include_usage":true}}"#);
        let mut reply = CompletionReply::new(&request.unwrap(), context());
        let mut out = Vec::new();
        reply.push_delta(0, "\n", None, &mut out);
        reply.push_delta(0, "b", Some(FinishReason::Stop), &mut out);
        let usage = Usage { prompt_tokens: 1, cached_tokens: 0, completion_tokens: 2 };
        reply.push_end(Summary { usage, ..Summary::default() }, &mut out);
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
