//! llama-server's `/completion`.

use std::io::Write;

use super::super::error::ApiError;
use super::super::json::{Fields, read_object, refuse};
use super::super::logprobs::TokenList;
use super::super::openai::{push_progress, push_timings_object};
use super::super::prompts::read_prompts;
use super::super::reply::{
    Delta, FinishReason, PromptProgress, Reply, ReplyContext, ReplyOptions, Summary, Usage,
};
use super::super::request::{GenerationRequest, read_generation, refuse_unsupported};
use super::super::write::push_string;
use super::settings::Repeated;
use crate::clock::Micros;
use crate::types::{Sampling, SlotId, TokenId};

/// llama-server's default sampling.
pub fn sampling() -> Sampling {
    let (temperature, top_k, top_p, min_p) = (0.8, 40, 0.95, 0.05);
    Sampling { temperature, top_k, top_p, min_p, penalise_window: true, ..Sampling::default() }
}

/// Reads a `/completion` request.
pub fn read_completion(body: &mut [u8]) -> Result<GenerationRequest, ApiError> {
    read_object(body, |fields| {
        let prompts = read_prompts(fields)?;
        Ok(GenerationRequest { prompts, ..read_settings(fields)? })
    })
}

/// Reads the options of `/completion`.
pub fn read_settings(fields: &Fields<'_, '_>) -> Result<GenerationRequest, ApiError> {
    refuse_unsupported(fields)?;
    refuse(fields, &[("echo", "false"), ("add_generation_prompt", "true")])?;
    let mut request = read_generation(fields, sampling(), None)?;
    // Events of a stream always have the tokens of their text.
    request.reply.return_tokens |= request.reply.stream;
    request.reply.llama = Some(Box::new(Repeated::read(fields)?));
    Ok(request)
}

/// The reply of `/completion`: one object for each choice, in an array if there are several.
#[derive(Debug)]
pub struct LlamaReply {
    options: ReplyOptions,
    repeated: Repeated,
    model: String,
    choices: Vec<Choice>,
}

#[derive(Debug, Default)]
struct Choice {
    content: String,
    tokens: Vec<TokenId>,
    logprobs: TokenList,
    finish: Option<FinishReason>,
    stop_word: String,
    has_new_line: bool,
    slot: SlotId,
    usage: Usage,
}

/// The fields of each event of a stream, and of the last object of a choice.
const FIELDS: [&str; 7] =
    ["index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"];

/// Those that the last object has besides.
const LAST_FIELDS: [&str; 8] = [
    "model",
    "generation_settings",
    "prompt",
    "has_new_line",
    "truncated",
    "stop_type",
    "stopping_word",
    "tokens_cached",
];

/// Those that both have if the request asked for them; timings are always in the last object.
const EXTRA_FIELDS: [&str; 2] = ["completion_probabilities", "timings"];

impl LlamaReply {
    /// A reply without any text yet.
    pub fn new(mut options: ReplyOptions, context: &ReplyContext) -> Self {
        let repeated = options.llama.take().map(|repeated| *repeated).unwrap_or_default();
        let choices = (0..options.choices).map(|_| Choice::default()).collect();
        Self { options, repeated, model: context.model.clone(), choices }
    }

    /// Writes the value of a field. Returns false if there is no such field.
    fn push_value(
        &self,
        index: usize,
        name: &str,
        summary: Option<&Summary>,
        out: &mut Vec<u8>,
    ) -> bool {
        let choice = &self.choices[index];
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = choice.usage;
        let push = |out: &mut Vec<u8>, value: &dyn std::fmt::Display| {
            write!(out, "{value}").expect("memory");
        };
        match name {
            "index" => push(out, &index),
            "content" => push_string(out, &choice.content),
            "tokens" => serde_json::to_writer(out, &choice.tokens).expect("memory"),
            "stop" => push(out, &choice.finish.is_some()),
            "id_slot" => push(out, &choice.slot.0),
            "tokens_predicted" => push(out, &completion_tokens),
            "tokens_evaluated" => push(out, &prompt_tokens),
            "model" => push_string(out, &self.model),
            "generation_settings" => self.repeated.push_settings(index, out),
            "prompt" => self.repeated.push_prompt(index, out),
            "has_new_line" => push(out, &choice.has_new_line),
            "truncated" => push(out, &self.repeated.truncated),
            "stop_type" => push_string(out, choice.stop_type()),
            "stopping_word" => push_string(out, &choice.stop_word),
            "tokens_cached" => push(out, &cached_tokens),
            "completion_probabilities" if self.options.logprobs => choice.logprobs.push(out),
            "timings" => match summary {
                Some(summary) => push_timings_object(out, summary),
                None => return false,
            },
            _ => return self.push_inner_value(index, name, summary, out),
        }
        true
    }

    /// Writes the value of `object/field`: one field of the settings or of the timings.
    fn push_inner_value(
        &self,
        index: usize,
        name: &str,
        summary: Option<&Summary>,
        out: &mut Vec<u8>,
    ) -> bool {
        match name.split_once('/') {
            Some(("generation_settings", name)) => self.repeated.push_setting(index, name, out),
            Some(("timings", name)) => summary.is_some_and(|summary| {
                let mut timings = Vec::new();
                push_timings_object(&mut timings, summary);
                let timings: serde_json::Value =
                    serde_json::from_slice(&timings).expect("it is our own, and flat");
                let value = timings.get(name);
                value.inspect(|value| serde_json::to_writer(out, value).expect("memory")).is_some()
            }),
            _ => false,
        }
    }

    /// Writes an object with those of these fields that there are.
    fn push_object<'a>(
        &self,
        index: usize,
        names: impl Iterator<Item = &'a str>,
        summary: Option<&Summary>,
        out: &mut Vec<u8>,
    ) {
        out.push(b'{');
        let mut separator = "";
        for name in names {
            let start = out.len();
            out.extend_from_slice(separator.as_bytes());
            push_string(out, name);
            out.push(b':');
            if self.push_value(index, name, summary, out) {
                separator = ",";
            } else {
                out.truncate(start);
            }
        }
        out.push(b'}');
    }

    /// Writes the last object of a choice: all fields, or those that the request asked for.
    fn push_last(&self, index: usize, summary: Option<&Summary>, out: &mut Vec<u8>) {
        match self.repeated.response_fields.as_slice() {
            [] => {
                let names = FIELDS.into_iter().chain(LAST_FIELDS).chain(EXTRA_FIELDS);
                self.push_object(index, names, summary, out);
            }
            names => self.push_object(index, names.iter().map(String::as_str), summary, out),
        }
    }
}

impl Choice {
    fn stop_type(&self) -> &'static str {
        match self.finish {
            None => "none",
            Some(FinishReason::Length) => "limit",
            Some(FinishReason::Timeout) => "timeout",
            Some(FinishReason::Stop) if self.stop_word.is_empty() => "eos",
            Some(FinishReason::Stop) => "word",
        }
    }
}

impl Reply for LlamaReply {
    fn options(&self) -> &ReplyOptions {
        &self.options
    }

    fn push_delta(&mut self, index: usize, delta: Delta<'_>, out: &mut Vec<u8>) {
        let choice = &mut self.choices[index];
        choice.content.push_str(delta.text);
        choice.tokens.extend_from_slice(delta.tokens);
        choice.logprobs.extend(delta.logprobs, true);
        choice.finish = delta.finish;
        choice.usage = delta.usage;
        choice.slot = delta.slot;
        choice.has_new_line |= delta.text.contains('\n');
        choice.stop_word = delta.stop_word.unwrap_or_default().to_owned();
        if !self.options.stream || (choice.content.is_empty() && choice.finish.is_none()) {
            return;
        }
        out.extend_from_slice(b"data: ");
        let summary = delta.summary.as_ref();
        match delta.finish {
            Some(_) => self.push_last(index, summary, out),
            None => {
                self.push_object(index, FIELDS.into_iter().chain(EXTRA_FIELDS), summary, out);
            }
        }
        out.extend_from_slice(b"\n\n");
        let choice = &mut self.choices[index];
        choice.content.clear();
        choice.tokens.clear();
        choice.logprobs.clear();
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        let choice = &mut self.choices[index];
        choice.slot = progress.slot;
        choice.usage.prompt_tokens = progress.total;
        out.extend_from_slice(b"data: ");
        self.push_object(index, FIELDS.into_iter().chain(EXTRA_FIELDS), None, out);
        out.pop(); // the brace, for one field more
        push_progress(out, progress);
        out.extend_from_slice(b"}\n\n");
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        if self.options.stream {
            return;
        }
        let several = self.choices.len() > 1;
        out.extend_from_slice(if several { b"[" } else { b"" });
        for index in 0..self.choices.len() {
            if index > 0 {
                out.push(b',');
            }
            self.push_last(index, Some(&summary), out);
        }
        out.extend_from_slice(if several { b"]" } else { b"" });
    }
}
