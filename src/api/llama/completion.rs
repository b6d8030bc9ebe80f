//! llama-server's `/completion`.

use std::io::Write;

use super::super::error::ApiError;
use super::super::json::read_object;
use super::super::logprobs::TokenList;
use super::super::openai::{push_progress, push_timings};
use super::super::reply::{
    Delta, FinishReason, PromptProgress, Reply, ReplyContext, ReplyOptions, Summary, Usage,
};
use super::super::request::{
    GenerationRequest, read_generation, read_prompts, refuse, refuse_unsupported,
};
use super::super::write::{push_string, push_string_inside};
use super::settings::{Repeated, push_selected};
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
        refuse_unsupported(fields)?;
        refuse(fields, &[("echo", "false"), ("add_generation_prompt", "true")])?;
        let mut request = read_generation(fields, sampling(), None)?;
        // Events of a stream always have the tokens of their text.
        request.reply.return_tokens |= request.reply.stream;
        request.reply.llama = Some(Box::new(Repeated::read(fields)?));
        Ok(GenerationRequest { prompts: read_prompts(fields)?, ..request })
    })
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

impl Choice {
    /// Writes the start of an object: what an event of a stream has, too.
    fn push_start(&self, index: usize, out: &mut Vec<u8>) {
        write!(out, "{{\"index\":{index},\"content\":\"").expect("memory");
        push_string_inside(out, &self.content);
        out.extend_from_slice(b"\",\"tokens\":");
        serde_json::to_writer(&mut *out, &self.tokens).expect("memory");
        let Usage { prompt_tokens, completion_tokens, .. } = self.usage;
        write!(
            out,
            ",\"stop\":{},\"id_slot\":{},\"tokens_predicted\":{completion_tokens},\
             \"tokens_evaluated\":{prompt_tokens}",
            self.finish.is_some(),
            self.slot.0
        )
        .expect("memory");
    }
}

impl LlamaReply {
    /// A reply without any text yet.
    pub fn new(mut options: ReplyOptions, context: &ReplyContext) -> Self {
        let repeated = options.llama.take().map(|repeated| *repeated).unwrap_or_default();
        let choices = (0..options.choices).map(|_| Choice::default()).collect();
        Self { options, repeated, model: context.model.clone(), choices }
    }

    fn push_logprobs(&self, choice: &Choice, out: &mut Vec<u8>) {
        if self.options.logprobs {
            out.extend_from_slice(b",\"completion_probabilities\":");
            choice.logprobs.push(out);
        }
    }

    /// Writes the last object of a choice, or the fields of it that were asked for.
    fn push_last(&self, index: usize, finish: FinishReason, summary: &Summary, out: &mut Vec<u8>) {
        let choice = &self.choices[index];
        let mut whole = Vec::new();
        let names = &self.repeated.response_fields;
        let to = if names.is_empty() { &mut *out } else { &mut whole };
        choice.push_start(index, to);
        to.extend_from_slice(b",\"model\":");
        push_string(to, &self.model);
        to.extend_from_slice(b",\"generation_settings\":");
        self.repeated.push_settings(index, to);
        to.extend_from_slice(b",\"prompt\":");
        self.repeated.push_prompt(index, to);
        let stop_type = match finish {
            FinishReason::Length => "limit",
            FinishReason::Timeout => "timeout",
            FinishReason::Stop if choice.stop_word.is_empty() => "eos",
            FinishReason::Stop => "word",
        };
        write!(
            to,
            ",\"has_new_line\":{},\"truncated\":false,\"stop_type\":\"{stop_type}\",\
             \"stopping_word\":",
            choice.has_new_line
        )
        .expect("memory");
        push_string(to, &choice.stop_word);
        write!(to, ",\"tokens_cached\":{}", choice.usage.cached_tokens).expect("memory");
        self.push_logprobs(choice, to);
        push_timings(to, summary);
        to.push(b'}');
        if !names.is_empty() {
            push_selected(names, &whole, out);
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
        match (delta.finish, &delta.summary) {
            (Some(finish), Some(summary)) => self.push_last(index, finish, summary, out),
            (_, summary) => {
                let choice = &self.choices[index];
                choice.push_start(index, out);
                self.push_logprobs(choice, out);
                if let Some(summary) = summary {
                    push_timings(out, summary);
                }
                out.push(b'}');
            }
        }
        out.extend_from_slice(b"\n\n");
        let choice = &mut self.choices[index];
        choice.content.clear();
        choice.tokens.clear();
        choice.logprobs.clear();
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        let usage = Usage { prompt_tokens: progress.total, ..Usage::default() };
        let start = Choice { slot: progress.slot, usage, ..Choice::default() };
        out.extend_from_slice(b"data: ");
        start.push_start(index, out);
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
            let finish = self.choices[index].finish.unwrap_or(FinishReason::Stop);
            self.push_last(index, finish, &summary, out);
        }
        out.extend_from_slice(if several { b"]" } else { b"" });
    }
}
