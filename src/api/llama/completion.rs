//! llama-server's `/completion`.

use std::io::Write;

use super::super::error::ApiError;
use super::super::json::read_object;
use super::super::logprobs::TokenList;
use super::super::openai::push_timings;
use super::super::reply::{Delta, FinishReason, Reply, ReplyContext, ReplyOptions, Summary, Usage};
use super::super::request::{
    GenerationRequest, read_generation, read_prompts, refuse, refuse_unsupported,
};
use super::super::write::{push_string, push_string_inside};
use crate::clock::Micros;
use crate::types::{Sampling, TokenId};

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
        Ok(GenerationRequest { prompts: read_prompts(fields)?, ..request })
    })
}

/// The reply of `/completion`: one object for each prompt, in an array if there are several.
#[derive(Debug)]
pub struct LlamaReply {
    options: ReplyOptions,
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
    usage: Usage,
}

fn push_counts(out: &mut Vec<u8>, usage: Usage) {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    write!(
        out,
        ",\"tokens_predicted\":{completion_tokens},\"tokens_evaluated\":{prompt_tokens},\
         \"tokens_cached\":{cached_tokens}"
    )
    .expect("memory");
}

impl LlamaReply {
    /// A reply without any text yet.
    pub fn new(options: ReplyOptions, context: &ReplyContext) -> Self {
        let choices = (0..options.choices).map(|_| Choice::default()).collect();
        Self { options, model: context.model.clone(), choices }
    }

    /// Writes an object up to its last field; the caller closes it.
    fn push_choice(&self, index: usize, out: &mut Vec<u8>) {
        let choice = &self.choices[index];
        write!(out, "{{\"index\":{index},\"content\":\"").expect("memory");
        push_string_inside(out, &choice.content);
        out.extend_from_slice(b"\",\"tokens\":");
        serde_json::to_writer(&mut *out, &choice.tokens).expect("memory");
        write!(out, ",\"stop\":{},\"model\":", choice.finish.is_some()).expect("memory");
        push_string(out, &self.model);
        if let Some(finish) = choice.finish {
            let kind = match finish {
                FinishReason::Length => "limit",
                FinishReason::Timeout => "timeout",
                FinishReason::Stop if choice.stop_word.is_empty() => "eos",
                FinishReason::Stop => "word",
            };
            write!(out, ",\"stop_type\":\"{kind}\",\"truncated\":false,\"stopping_word\":")
                .expect("memory");
            push_string(out, &choice.stop_word);
        }
        if self.options.logprobs {
            out.extend_from_slice(b",\"completion_probabilities\":");
            choice.logprobs.push(out);
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
        choice.stop_word = delta.stop_word.unwrap_or_default().to_owned();
        if !self.options.stream || (choice.content.is_empty() && choice.finish.is_none()) {
            return;
        }
        out.extend_from_slice(b"data: ");
        self.push_choice(index, out);
        if let Some(summary) = &delta.summary {
            if delta.finish.is_some() {
                push_counts(out, delta.usage);
            }
            push_timings(out, summary);
        }
        out.extend_from_slice(b"}\n\n");
        let choice = &mut self.choices[index];
        choice.content.clear();
        choice.tokens.clear();
        choice.logprobs.clear();
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
            self.push_choice(index, out);
            push_counts(out, self.choices[index].usage);
            push_timings(out, &summary);
            out.push(b'}');
        }
        out.extend_from_slice(if several { b"]" } else { b"" });
    }
}
