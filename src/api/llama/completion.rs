//! llama-server's `/completion`.

use serde::Serialize;

use super::super::error::ApiError;
use super::super::hints::refuse_unsupported;
use super::super::json::{Fields, read_object, refuse};
use super::super::logprobs::push_tokens;
use super::super::openai::{Progress, Times};
use super::super::prompts::read_prompts;
use super::super::reply::{
    Delta, FinishReason, MakeReply, PromptFacts, PromptProgress, Reply, ReplyContext, ReplyOptions,
    Summary, Usage,
};
use super::super::request::{GenerationRequest, read_generation};
use super::super::write::{List, Object, Written, WrittenList, push_event, push_json};
use super::settings::{Repeated, Setting};
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
    let repeated = Repeated::read(fields)?;
    let with_prompts = repeated.shows_prompts();
    let mut request = read_generation(fields, sampling(), None, repeated)?;
    // Events of a stream always have the tokens of their text.
    request.reply.return_tokens |= request.reply.stream;
    request.reply.with_prompts = with_prompts;
    Ok(request)
}

/// The reply of `/completion`: one object for each choice, in an array if there are several.
#[derive(Debug)]
pub struct LlamaReply {
    options: ReplyOptions,
    repeated: Repeated,
    facts: PromptFacts,
    id: String,
    model: String,
    choices: Vec<Choice>,
}

#[derive(Debug, Default)]
struct Choice {
    content: String,
    tokens: Vec<TokenId>,
    logprobs: WrittenList,
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
const LAST_FIELDS: [&str; 9] = [
    "id",
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

/// The fields of an event before the last.
fn fields() -> impl Iterator<Item = &'static str> + Clone {
    FIELDS.into_iter().chain(EXTRA_FIELDS)
}

impl LlamaReply {
    /// A reply without any text yet.
    pub fn new(
        mut repeated: Repeated,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Self {
        repeated.complete(&facts.defaults);
        let choices = (0..facts.choices).map(|_| Choice::default()).collect();
        let ReplyContext { id, model, .. } = context.clone();
        Self { options, repeated, facts, id, model, choices }
    }

    /// The seed of a choice.
    fn seed_of(&self, choice: usize) -> u64 {
        self.facts.seed.wrapping_add((choice % self.facts.n.max(1)) as u64)
    }

    /// The prompt of a choice.
    fn prompt_of(&self, choice: usize) -> Written<'_> {
        let prompt = self.facts.prompts.get(choice / self.facts.n.max(1));
        Written(prompt.map_or(b"\"\"", |prompt| prompt))
    }

    /// The value of a field, if there is one.
    fn value<'a>(
        &'a self,
        index: usize,
        name: &str,
        summary: Option<&Summary>,
    ) -> Option<impl Serialize + use<'a>> {
        let choice = &self.choices[index];
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = choice.usage;
        Some(match name {
            "index" => Value::Number(index as u64),
            "content" => Value::Text(&choice.content),
            "tokens" => Value::Tokens(&choice.tokens),
            "stop" => Value::Flag(choice.finish.is_some()),
            "id_slot" => Value::Number(choice.slot.0.into()),
            "tokens_predicted" => Value::Number(completion_tokens),
            "tokens_evaluated" => Value::Number(prompt_tokens),
            "id" => Value::Text(&self.id),
            "model" => Value::Text(&self.model),
            "generation_settings" => Value::Settings(self.repeated.settings(self.seed_of(index))),
            "prompt" => Value::Written(self.prompt_of(index)),
            "has_new_line" => Value::Flag(choice.has_new_line),
            "truncated" => Value::Flag(self.facts.is_cut),
            "stop_type" => Value::Text(choice.stop_type()),
            "stopping_word" => Value::Text(&choice.stop_word),
            "tokens_cached" => Value::Number(cached_tokens),
            "completion_probabilities" if self.options.logprobs => {
                Value::Logprobs(&choice.logprobs)
            }
            "timings" => Value::Times(summary?.into()),
            // `object/field`: one field of the settings or of the timings.
            _ => match name.split_once('/')? {
                ("generation_settings", name) => {
                    Value::Setting(self.repeated.setting(self.seed_of(index), name)?)
                }
                ("timings", name) => {
                    let times =
                        serde_json::to_value(Times::from(summary?)).expect("names are texts");
                    Value::Time(times.get(name)?.clone())
                }
                _ => return None,
            },
        })
    }

    /// An object with those of these fields that there are.
    fn object<'a>(
        &'a self,
        index: usize,
        names: impl Iterator<Item: AsRef<str> + Serialize> + Clone,
        summary: Option<&'a Summary>,
    ) -> impl Serialize {
        Object(names.filter_map(move |name| {
            let value = self.value(index, name.as_ref(), summary)?;
            Some((name, value))
        }))
    }

    /// Writes the last object of a choice: all fields, or those that the request asked for.
    fn last<'a>(&'a self, index: usize, summary: Option<&'a Summary>) -> impl Serialize {
        let fields = self.repeated.response_fields.as_slice();
        let all = FIELDS.into_iter().chain(LAST_FIELDS).chain(EXTRA_FIELDS);
        let names = all.filter(|_| fields.is_empty()).chain(fields.iter().map(String::as_str));
        self.object(index, names, summary)
    }
}

/// The value of a field.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a, S> {
    Number(u64),
    Flag(bool),
    Text(&'a str),
    Tokens(&'a [TokenId]),
    Logprobs(&'a WrittenList),
    Settings(S),
    Setting(Setting<'a>),
    Written(Written<'a>),
    Times(Times),
    Time(serde_json::Value),
}

impl MakeReply for Repeated {
    fn make(
        self: Box<Self>,
        options: ReplyOptions,
        facts: PromptFacts,
        context: &ReplyContext,
    ) -> Box<dyn Reply> {
        Box::new(LlamaReply::new(*self, options, facts, context))
    }

    fn bytes(&self, choices: usize) -> usize {
        self.size(choices)
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
        push_tokens(&mut choice.logprobs, delta.logprobs, true);
        choice.finish = delta.finish;
        choice.usage = delta.usage;
        choice.slot = delta.slot;
        choice.has_new_line |= delta.text.contains('\n');
        choice.stop_word = delta.stop_word.unwrap_or_default().to_owned();
        if !self.options.stream || (choice.content.is_empty() && choice.finish.is_none()) {
            return;
        }
        let summary = delta.summary.as_ref();
        match delta.finish {
            Some(_) => push_event(out, &self.last(index, summary)),
            None => push_event(out, &self.object(index, fields(), summary)),
        }
        let choice = &mut self.choices[index];
        choice.content.clear();
        choice.tokens.clear();
        choice.logprobs.clear();
    }

    fn push_progress(&mut self, index: usize, progress: &PromptProgress, out: &mut Vec<u8>) {
        let choice = &mut self.choices[index];
        choice.slot = progress.slot;
        choice.usage.prompt_tokens = progress.total;
        #[derive(Serialize)]
        struct Event<T> {
            #[serde(flatten)]
            fields: T,
            prompt_progress: Progress,
        }
        let fields = self.object(index, fields(), None);
        push_event(out, &Event { fields, prompt_progress: progress.into() });
    }

    fn push_end(&mut self, summary: Summary, _: Micros, out: &mut Vec<u8>) {
        if self.options.stream {
            return;
        }
        match self.choices.len() {
            1 => push_json(out, &self.last(0, Some(&summary))),
            n => push_json(out, &List((0..n).map(|index| self.last(index, Some(&summary))))),
        }
    }
}
