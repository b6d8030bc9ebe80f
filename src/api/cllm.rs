//! The dialect of cLLM, the server that corelane replaces: `/generate`, `/generate_stream` and
//! `/encode`. Its clients keep working.

use serde::Serialize;

use super::error::{ApiError, Dialect};
use super::hints::refuse_unsupported;
use super::json::read_object;
use super::json::refuse;
use super::prompts::read_text;
use super::reply::{Delta, PromptFacts, Reply, ReplyContext, ReplyOptions, Summary};
use super::request::{GenerationRequest, read_generation};
use super::write::{push_event, push_json, rounded};
use crate::clock::Micros;
use crate::types::{Sampling, TokenId};

/// cLLM's dialect.
pub static DIALECT: Dialect = Dialect {
    stream_type: "text/event-stream",
    has_comments: true,
    push_error: |out, error| push_json(out, &Failure::from(error)),
    push_error_event: |out, error| push_event(out, &Failure::from(error)),
};

/// The body of an error.
#[derive(Serialize)]
struct Failure<'a> {
    success: bool,
    error: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl<'a> From<&'a ApiError> for Failure<'a> {
    fn from(error: &'a ApiError) -> Self {
        let ApiError { kind, message, retry_after, .. } = error;
        Self { success: false, error: kind, message, retry_after: *retry_after }
    }
}

/// cLLM's default for `max_tokens`.
const MAX_TOKENS: u32 = 100;

/// Reads a `/generate_stream` request.
pub fn read_generate_stream(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    let mut request = read_generate(body)?;
    request.reply.stream = true;
    Ok(request)
}

/// Reads a `/generate` request.
pub fn read_generate(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    // cLLM replaced temperature 0 by 0.7; here 0 is greedy.
    let defaults = Sampling { temperature: 0.7, top_p: 0.9, ..Sampling::default() };
    read_object(body, |fields| {
        refuse_unsupported(fields)?;
        let Some(prompt) = fields.string("prompt")? else {
            return Err(ApiError::field("prompt", "prompt is missing; it must be a string"));
        };
        refuse(fields, &[("n_cmpl", "1"), ("add_generation_prompt", "true")])?;
        let request = read_generation(fields, defaults, Some(MAX_TOKENS), GenerateReply::new)?;
        // cLLM's answers hold one text, without room for these.
        for (name, asked) in [
            ("n", request.n > 1),
            ("echo", request.echo),
            ("logprobs", request.reply.logprobs),
            ("stream_options", request.reply.include_usage),
            ("return_tokens", request.reply.return_tokens),
            ("timings_per_token", request.reply.timings_per_token),
        ] {
            if asked {
                return Err(ApiError::unsupported(name, format!("{name} is not supported here")));
            }
        }
        Ok(GenerationRequest { prompts: vec![read_text("prompt", &prompt)?], ..request })
    })
}

/// Reads the text of an `/encode` request.
pub fn read_encode(body: &mut [u8]) -> Result<String, ApiError> {
    read_object(body, |fields| {
        let text = fields.string("text")?;
        text.ok_or_else(|| ApiError::field("text", "text is missing; it must be a string"))
    })
}

/// Writes the answer to `/encode`.
pub fn push_encoded(out: &mut Vec<u8>, tokens: &[TokenId]) {
    #[derive(Serialize)]
    struct Encoded<'a> {
        tokens: &'a [TokenId],
        length: usize,
    }
    push_json(out, &Answer { success: true, data: Encoded { tokens, length: tokens.len() } });
}

/// A whole answer.
#[derive(Serialize)]
struct Answer<T> {
    success: bool,
    data: T,
}

/// A whole text.
#[derive(Serialize)]
struct Generated<'a> {
    id: &'a str,
    text: &'a str,
    response_time: f64,
    tokens_per_second: f64,
    generated_tokens: u64,
}

/// A part of a text.
#[derive(Serialize)]
struct Event<'a> {
    id: &'a str,
    token: &'a str,
    done: bool,
}

/// The reply to `/generate` and `/generate_stream`.
#[derive(Debug)]
pub struct GenerateReply {
    options: ReplyOptions,
    id: String,
    received: Micros,
    text: String,
}

impl GenerateReply {
    /// A reply without any text yet.
    pub fn new(options: ReplyOptions, _: PromptFacts, context: &ReplyContext) -> Self {
        let (id, received) = (context.id.clone(), context.received);
        Self { options, id, received, text: String::new() }
    }

    fn push_event(&self, token: &str, done: bool, out: &mut Vec<u8>) {
        push_event(out, &Event { id: &self.id, token, done });
    }
}

impl Reply for GenerateReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, _: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        if !self.options.stream {
            self.text.push_str(delta.text);
        } else if !delta.text.is_empty() {
            self.push_event(delta.text, false, out);
        }
    }

    fn push_end(&mut self, summary: Summary, now: Micros, out: &mut Vec<u8>) {
        if self.options.stream {
            self.push_event("", true, out);
            return;
        }
        let seconds = now.seconds_since(self.received);
        let tokens = summary.usage.completion_tokens;
        let rate = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
        let data = Generated {
            id: &self.id,
            text: &self.text,
            response_time: seconds,
            tokens_per_second: rounded(rate),
            generated_tokens: tokens,
        };
        push_json(out, &Answer { success: true, data });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reply::Usage;

    fn read(body: &str) -> GenerationRequest {
        read_generate(&mut body.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn defaults_are_cllms_and_zero_is_greedy() {
        let request = read(r#"{"prompt":"a"}"#);
        assert_eq!((request.sampling.temperature, request.sampling.top_p), (0.7, 0.9));
        assert_eq!(read(r#"{"prompt":"a","temperature":0}"#).sampling.temperature, 0.0);
    }

    #[test]
    fn an_empty_prompt_is_refused_at_once() {
        for body in [r#"{}"#, r#"{"prompt":""}"#, r#"{"prompt":["a"]}"#] {
            let error = read_generate(&mut body.as_bytes().to_vec()).unwrap_err();
            assert_eq!((error.status, error.param), (400, Some("prompt")));
        }
    }

    #[test]
    fn replies_have_cllms_shape() {
        let context = || ReplyContext {
            id: "i".into(),
            model: "m".into(),
            created: 0,
            received: Micros(1_000_000),
            prompt_tokens: 1,
        };
        let mut out = Vec::new();
        let mut reply =
            GenerateReply::new(ReplyOptions::default(), PromptFacts::default(), &context());
        reply.push_delta(0, Delta { text: "hi", ..Delta::default() }, &mut out);
        let usage = Usage { prompt_tokens: 1, completion_tokens: 4, ..Usage::default() };
        let summary = Summary { usage, ..Summary::default() };
        reply.push_end(summary, Micros(3_000_000), &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"success": true, "data": {"id": "i", "text": "hi",
                "response_time": 2.0, "tokens_per_second": 2.0, "generated_tokens": 4}})
        );

        let mut out = Vec::new();
        let options = ReplyOptions { stream: true, ..ReplyOptions::default() };
        let mut reply = GenerateReply::new(options, PromptFacts::default(), &context());
        reply.push_delta(0, Delta { text: "h\"", ..Delta::default() }, &mut out);
        reply.push_end(summary, Micros(3_000_000), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "data: {\"id\":\"i\",\"token\":\"h\\\"\",\"done\":false}\n\n\
             data: {\"id\":\"i\",\"token\":\"\",\"done\":true}\n\n"
        );

        let mut out = Vec::new();
        push_encoded(&mut out, &[5, 6]);
        assert_eq!(out, br#"{"success":true,"data":{"tokens":[5,6],"length":2}}"#);
    }
}
