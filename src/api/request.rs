//! A generation request of any dialect, and the fields that the dialects share.

use std::sync::Arc;
use std::time::Duration;

use super::advanced::{RequestedAdvanced, read_advanced};
use super::constrain::{RequestedConstraint, read_constraint};
use super::error::ApiError;
use super::hints::read_hints;
use super::json::{Fields, wrong};
use super::prompts::Prompt;
use super::reply::{MakeReply, Ping, PromptFacts, ReplyOptions};
use crate::constraint::Compiled;
use crate::limits::{
    CACHE_SALT_BYTES_MAX, CHOICES_MAX, INDENT_MAX, LENGTH_MAX, LLAMA_SAMPLING_MAX, PENALTY_MAX,
    PRIORITY_MAX, REQUEST_TIMEOUT_MAX, SEQUENCE_TOKENS_MAX, STOP_BYTES_MAX, STOPS_MAX,
    TEMPERATURE_MAX,
};
use crate::types::defaults::{Given, SAMPLING_FIELDS};
use crate::types::reasoning::ReasoningLimit;
use crate::types::{Guessing, LineLimits, Sampling, SlotId, TokenId};

/// A request to generate text.
#[derive(Debug)]
pub struct GenerationRequest {
    /// One or more once the request is served.
    pub prompts: Vec<Prompt>,
    /// Choices for each prompt, 1 or more. The choices of one prompt are consecutive.
    pub n: usize,
    /// How many tokens to generate for each choice.
    pub length: Length,
    /// How to choose tokens. Its seed comes from `seed`.
    pub sampling: Sampling,
    /// Which fields of the sampling the request gives.
    pub given: Given,
    /// Sampling with the less common options.
    pub advanced: Option<Box<RequestedAdvanced>>,
    /// The seed; `None` draws one.
    pub seed: Option<u64>,
    /// Texts that end a choice. The choice does not include them.
    pub stops: Vec<String>,
    /// The form that the text must have, until it is compiled.
    pub constraint: Option<RequestedConstraint>,
    /// What takes the place of `constraint` if it cannot be compiled, the last one first.
    pub fallbacks: Vec<Option<RequestedConstraint>>,
    /// The form of an answer that may be tool calls instead. It is compiled alone, so that an error
    /// in it is not blamed on the tools.
    pub form: Option<RequestedConstraint>,
    /// The constraint that is compiled next is not known to be cheap.
    pub is_costly: bool,
    /// The most tokens of reasoning, and how it ends there.
    pub reasoning: Option<ReasoningLimit>,
    /// The compiled form that the text must have.
    pub compiled: Option<Arc<Compiled>>,
    /// Whether the text starts with the prompt. If the request asks for log-probabilities, too, the
    /// prompt's tokens have theirs.
    pub echo: bool,
    /// The gap after the prompt that the text shall fill.
    pub gap: Option<Box<Gap>>,
    /// Lines at which the text ends.
    pub lines: LineLimits,
    /// Priority and timeout.
    pub urgency: Urgency,
    /// Whether the prompt may start from a prefix in the KV cache.
    pub cache_prompt: bool,
    /// How many tokens may be guessed.
    pub guessing: RequestedGuessing,
    /// Only requests with an equal salt share prefixes in the KV cache.
    pub cache_salt: Option<String>,
    /// The slot that the first text takes if it is free.
    pub slot: Option<SlotId>,
    /// Parts of the request that have no effect, for the log.
    pub ignored: Vec<String>,
    /// How to write the reply.
    pub reply: ReplyOptions,
    /// Makes the reply.
    pub make_reply: Box<dyn MakeReply>,
    /// Facts that the reply needs.
    pub facts: PromptFacts,
    /// The places in the prompt of a chat where later prompts will probably part from it, in bytes.
    pub branches: Vec<usize>,
    /// The first prompts, as tokens, and the most tokens to generate after each.
    pub ready: Vec<(Arc<[TokenId]>, u32)>,
}

/// A gap in a text, after the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The text after the gap.
    pub suffix: String,
    /// llama-server's form, which may say more. `None` for OpenAI's `suffix`.
    pub infill: Option<Infill>,
}

/// The further parts of llama-server's request to fill in a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Infill {
    /// The text with which the gap begins.
    pub begun: String,
    /// Parts of other files, for context.
    pub extra: Vec<Excerpt>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The name of the file.
    pub filename: String,
    /// The text.
    pub text: String,
}

/// How many tokens to generate for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The request does not say: the server's `--n-predict` or else the dialect's own default,
    /// cut to what fits. `None` is as many as fit.
    Default(Option<u32>),
    /// At most this many, at least 1, cut to what fits behind the prompt: clients ask for as many
    /// as their largest model can write.
    AtMost(u32),
    /// As many as fit behind the prompt.
    Fit,
    /// None: the prompt is computed and kept in the KV cache.
    PromptOnly,
}

impl Length {
    /// The length for a number in a request: 0 computes the prompt only, and a negative number
    /// generates as many tokens as fit.
    pub fn of(tokens: i64) -> Self {
        match tokens {
            0 => Length::PromptOnly,
            ..0 => Length::Fit,
            tokens => Length::AtMost(u32::try_from(tokens).unwrap_or(u32::MAX)),
        }
    }
}

impl GenerationRequest {
    /// OpenAI's defaults, without a prompt.
    pub fn new(make_reply: impl MakeReply + 'static) -> Self {
        Self {
            prompts: Vec::new(),
            n: 1,
            length: Length::Default(None),
            sampling: Sampling::default(),
            given: Given::default(),
            advanced: None,
            seed: None,
            stops: Vec::new(),
            constraint: None,
            fallbacks: Vec::new(),
            form: None,
            is_costly: false,
            compiled: None,
            reasoning: None,
            echo: false,
            gap: None,
            lines: LineLimits::default(),
            urgency: Urgency::default(),
            cache_prompt: true,
            guessing: RequestedGuessing::default(),
            cache_salt: None,
            slot: None,
            ignored: Vec::new(),
            reply: ReplyOptions::default(),
            make_reply: Box::new(make_reply),
            facts: PromptFacts::default(),
            branches: Vec::new(),
            ready: Vec::new(),
        }
    }
}

/// Reads the fields that all dialects share, on top of the dialect's own defaults: its sampling,
/// and `default_length` for a request without `max_tokens`. The caller reads the prompts.
pub fn read_generation(
    fields: &Fields<'_, '_>,
    defaults: Sampling,
    default_length: Option<u32>,
    make_reply: impl MakeReply + 'static,
) -> Result<GenerationRequest, ApiError> {
    let n = read_n(fields)?;
    let include_usage = match fields.object("stream_options")? {
        Some(options) => options.boolean("include_usage")?.unwrap_or(false),
        None => false,
    };
    let flag = |name, default| Ok(fields.boolean(name)?.unwrap_or(default));
    let sampling = read_sampling(fields, defaults)?;
    let advanced = read_advanced(fields)?;
    let length = read_max_tokens(fields)?;
    Ok(GenerationRequest {
        prompts: Vec::new(),
        n,
        reply: ReplyOptions {
            stream: flag("stream", false)?,
            include_usage,
            timings_per_token: flag("timings_per_token", false)?,
            logprobs: advanced
                .as_ref()
                .is_some_and(|advanced| advanced.advanced.logprobs.is_some()),
            return_tokens: flag("return_tokens", false)?,
            return_progress: flag("return_progress", false)?,
            ping: read_ping(fields)?,
            ..ReplyOptions::default()
        },
        advanced,
        sampling,
        given: read_given(fields)?,
        length: length.unwrap_or(Length::Default(default_length)),
        seed: read_seed(fields)?,
        stops: read_stop_list("stop", fields)?,
        constraint: read_constraint(fields)?,
        echo: flag("echo", false)?,
        gap: read_suffix(fields)?,
        lines: read_lines(fields)?,
        urgency: read_urgency(fields)?,
        cache_prompt: flag("cache_prompt", true)?,
        guessing: read_guessing(fields)?,
        cache_salt: read_cache_salt(fields)?,
        slot: read_id_slot(fields)?,
        ignored: read_hints(fields, &[])?,
        ..GenerationRequest::new(make_reply)
    })
}

/// llama-server's `speculative.*` fields. What is `None` is as the server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestedGuessing {
    /// The most guesses of a step.
    pub most: Option<u8>,
    /// The fewest guesses that are worth a row.
    pub least: Option<u8>,
    /// The least probability of a draft model's guess.
    pub p_min: Option<f32>,
}

impl RequestedGuessing {
    /// What a request gets of a server that guesses like `server`: no more guesses than that.
    pub fn within(self, server: Guessing) -> Guessing {
        Guessing {
            most: self.most.unwrap_or(server.most).min(server.most),
            least: self.least.unwrap_or(server.least),
            p_min: self.p_min.unwrap_or(server.p_min),
        }
    }
}

/// Reads `speculative.n_max`, `speculative.n_min` and `speculative.p_min`.
fn read_guessing(fields: &Fields<'_, '_>) -> Result<RequestedGuessing, ApiError> {
    let count = |name| -> Result<Option<u8>, ApiError> {
        let count = fields.integer(name, 0..=i64::from(i32::MAX))?;
        // No step has as many as 255.
        Ok(count.map(|count| u8::try_from(count).unwrap_or(u8::MAX)))
    };
    Ok(RequestedGuessing {
        most: count("speculative.n_max")?,
        least: count("speculative.n_min")?,
        p_min: fields.number("speculative.p_min", 0.0..=1.0)?.map(|p| p as f32),
    })
}

/// Reads OpenAI's `suffix`.
pub fn read_suffix(fields: &Fields<'_, '_>) -> Result<Option<Box<Gap>>, ApiError> {
    let suffix = fields.string("suffix")?.filter(|suffix| !suffix.is_empty());
    Ok(suffix.map(|suffix| Box::new(Gap { suffix, infill: None })))
}

/// Reads llama-server's `n_indent` and `t_max_predict_ms`.
fn read_lines(fields: &Fields<'_, '_>) -> Result<LineLimits, ApiError> {
    let longest = REQUEST_TIMEOUT_MAX.as_millis() as i64; // a day
    let time = fields.integer("t_max_predict_ms", -1..=longest)?.filter(|ms| *ms > 0);
    Ok(LineLimits {
        indent: fields.integer("n_indent", 0..=INDENT_MAX)?.unwrap_or(0) as u32, // in range
        time: time.map(|ms| Duration::from_millis(ms.cast_unsigned())),
    })
}

/// Reads llama-server's `sse_ping_interval`, in seconds; -1 switches the comments off.
fn read_ping(fields: &Fields<'_, '_>) -> Result<Ping, ApiError> {
    let longest = REQUEST_TIMEOUT_MAX.as_secs() as i64; // a day
    let Some(seconds) = fields.integer("sse_ping_interval", -1..=longest)? else {
        return Ok(Ping::AsConfigured);
    };
    match u64::try_from(seconds) {
        Ok(0) => {
            let message = "sse_ping_interval is 0; it must be at least 1, or -1 for none";
            Err(ApiError::field("sse_ping_interval", message))
        }
        Ok(seconds) => Ok(Ping::After(Duration::from_secs(seconds))),
        Err(_) => Ok(Ping::Never),
    }
}

/// Reads llama-server's `id_slot`; -1 leaves the choice to the server.
fn read_id_slot(fields: &Fields<'_, '_>) -> Result<Option<SlotId>, ApiError> {
    let id = fields.integer("id_slot", -1..=i64::from(i32::MAX))?;
    Ok(id.and_then(|id| u16::try_from(id).ok()).map(SlotId))
}

/// Reads `timeout_ms`.
pub fn read_timeout(fields: &Fields<'_, '_>) -> Result<Option<Duration>, ApiError> {
    let longest = REQUEST_TIMEOUT_MAX.as_millis() as i64; // a day
    let timeout = fields.integer("timeout_ms", 1..=longest)?;
    Ok(timeout.map(|ms| Duration::from_millis(ms.cast_unsigned())))
}

/// Reads `cache_salt`. As in vLLM, it must not be empty.
pub fn read_cache_salt(fields: &Fields<'_, '_>) -> Result<Option<String>, ApiError> {
    let salt = fields.string("cache_salt")?;
    match salt.as_ref().map(String::len) {
        Some(0) => Err(ApiError::field("cache_salt", "cache_salt is empty; leave it out instead")),
        Some(bytes) if bytes > CACHE_SALT_BYTES_MAX => {
            let message =
                format!("cache_salt has {bytes} bytes; it may have {CACHE_SALT_BYTES_MAX}");
            Err(ApiError::field("cache_salt", message))
        }
        _ => Ok(salt),
    }
}

/// Reads `n`, which llama-server calls `n_cmpl`. Refuses a `best_of` that differs from it: corelane
/// does not generate choices only to discard them.
fn read_n(fields: &Fields<'_, '_>) -> Result<usize, ApiError> {
    let choices = |name| fields.integer(name, 1..=CHOICES_MAX as i64);
    let n = choices("n_cmpl")?.or(choices("n")?).unwrap_or(1);
    match choices("best_of")? {
        Some(best_of) if best_of != n => {
            let message = format!("best_of is {best_of} and n is {n}; this server shows all");
            Err(ApiError::unsupported("best_of", message))
        }
        _ => Ok(n as usize), // in range
    }
}

impl GenerationRequest {
    /// Whether a constraint must be compiled, or the whole vocabulary searched.
    pub fn compiles(&self) -> bool {
        let breakers =
            self.advanced.as_ref().is_some_and(|advanced| advanced.dry_breakers.is_some());
        self.constraint.is_some() || self.form.is_some() || breakers
    }

    /// Bytes of the prompts that are not tokenised yet, and of the texts around a gap.
    pub fn text_bytes(&self) -> usize {
        let gap = self.gap.as_ref().map_or(0, |gap| gap.bytes());
        let prompts = self.prompts.get(self.ready.len()..).unwrap_or_default();
        prompts.iter().map(|prompt| prompt.bytes() + gap).sum()
    }

    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let stops = self.stops.iter().chain(&self.ignored);
        let stops = stops.map(|stop| size_of::<String>() + stop.len());
        let sources = self.constraint.iter().chain(&self.form);
        let sources = sources.chain(self.fallbacks.iter().flatten());
        let sources = sources.map(|requested| requested.constraint.source_bytes());
        let ready = self.ready.iter().map(|(ids, _)| size_of_val(&**ids));
        let prompts = self.prompts.iter().map(|prompt| size_of::<Prompt>() + prompt.bytes());
        let parts = stops.chain(sources).chain(ready).chain(prompts).sum::<usize>();
        let gap = self.gap.as_ref().map_or(0, |gap| gap.bytes());
        size_of::<Self>() + parts + gap + self.make_reply.bytes(0) + self.facts.bytes()
    }
}

impl Gap {
    fn bytes(&self) -> usize {
        let infill = self.infill.iter().flat_map(|infill| {
            let extra = infill.extra.iter();
            extra.map(|file| size_of::<Excerpt>() + file.filename.len() + file.text.len())
        });
        let begun = self.infill.as_ref().map_or(0, |infill| infill.begun.len());
        self.suffix.len() + begun + infill.sum::<usize>()
    }
}

/// A request's priority and time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Urgency {
    /// Lower numbers run first, as in vLLM.
    pub priority: i32,
    /// The time limit; `None` uses the server's.
    pub timeout: Option<Duration>,
}

/// Reads `priority` and `timeout_ms`.
pub fn read_urgency(fields: &Fields<'_, '_>) -> Result<Urgency, ApiError> {
    let priorities = -i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX);
    let priority = fields.integer("priority", priorities)?.unwrap_or(0) as i32; // in range
    Ok(Urgency { priority, timeout: read_timeout(fields)? })
}

/// Reads the sampling fields that OpenAI's API, llama-server and vLLM share. A field that is absent
/// keeps the dialect's default.
pub fn read_sampling(fields: &Fields<'_, '_>, defaults: Sampling) -> Result<Sampling, ApiError> {
    let number = |name, range, default: f32| {
        Ok(fields.number(name, range)?.map_or(default, |value| value as f32))
    };
    let (hottest, penalty) = if defaults.penalise_window {
        (LLAMA_SAMPLING_MAX, LLAMA_SAMPLING_MAX)
    } else {
        (TEMPERATURE_MAX, PENALTY_MAX)
    };
    // "All tokens" is -1 in vLLM and 0 in llama-server. No vocabulary is larger than the bound.
    let top_k = fields.integer("top_k", -1..=i64::from(i32::MAX))?;
    let repeat_last_n = fields.integer("repeat_last_n", -1..=i64::from(i32::MAX))?;
    Ok(Sampling {
        temperature: number("temperature", 0.0..=hottest, defaults.temperature)?,
        top_k: top_k.map_or(defaults.top_k, |k| k.max(0) as u32),
        top_p: number("top_p", 0.0..=1.0, defaults.top_p)?,
        min_p: number("min_p", 0.0..=1.0, defaults.min_p)?,
        repeat_penalty: match fields.get("repeat_penalty")? {
            Some(_) => number("repeat_penalty", 0.01..=10.0, 1.0)?,
            None => number("repetition_penalty", 0.01..=10.0, defaults.repeat_penalty)?,
        },
        repeat_last_n: repeat_last_n.map_or(defaults.repeat_last_n, |n| {
            if n < 0 { SEQUENCE_TOKENS_MAX as u32 } else { n as u32 } // checked above
        }),
        presence_penalty: number(
            "presence_penalty",
            -penalty..=penalty,
            defaults.presence_penalty,
        )?,
        frequency_penalty: number(
            "frequency_penalty",
            -penalty..=penalty,
            defaults.frequency_penalty,
        )?,
        seed: 0,
        ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(defaults.ignore_eos),
        penalise_window: defaults.penalise_window,
    })
}

/// Reads which fields of the sampling a request gives.
pub fn read_given(fields: &Fields<'_, '_>) -> Result<Given, ApiError> {
    let mut given = Given::default();
    for (number, name) in SAMPLING_FIELDS.into_iter().enumerate() {
        // vLLM's name.
        let other = (name == "repeat_penalty").then_some("repetition_penalty");
        if fields.get(name)?.is_some() || other.map_or(Ok(None), |name| fields.get(name))?.is_some()
        {
            given.add(number);
        }
    }
    Ok(given)
}

/// Reads the number of tokens to generate: llama-server's `n_predict`, `max_completion_tokens`
/// (OpenAI's newer name) or `max_tokens`.
pub fn read_max_tokens(fields: &Fields<'_, '_>) -> Result<Option<Length>, ApiError> {
    let read = |name| fields.integer(name, -1..=LENGTH_MAX);
    let (newer, older) = (read("max_completion_tokens")?, read("max_tokens")?);
    Ok(read("n_predict")?.or(newer).or(older).map(Length::of))
}

/// Reads `seed`, any whole number. A negative one (llama-server's -1) draws a seed.
pub fn read_seed(fields: &Fields<'_, '_>) -> Result<Option<u64>, ApiError> {
    Ok(fields.integer("seed", i64::MIN..=i64::MAX)?.and_then(|seed| u64::try_from(seed).ok()))
}

/// Reads stop strings: one string, or an array of them.
///
/// # Errors
/// 400 for another form, an empty string, or too many or too long strings.
pub fn read_stop_list(
    name: &'static str,
    fields: &Fields<'_, '_>,
) -> Result<Vec<String>, ApiError> {
    let Some(value) = fields.get(name)? else { return Ok(Vec::new()) };
    let stops: Vec<String> = match (value.as_str(), value.as_array()) {
        (Some(text), _) => vec![text.to_owned()],
        (None, Some(array)) if array.len() <= STOPS_MAX => {
            let texts = array.iter().map(|element| {
                let text = element.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong(name, "an array of strings", &element))
            });
            texts.collect::<Result<_, _>>()?
        }
        (None, Some(array)) => {
            let message = format!("{} stop strings; at most {STOPS_MAX}", array.len());
            return Err(ApiError::field(name, message));
        }
        _ => return Err(wrong(name, "a string or an array of strings", &value)),
    };
    for stop in &stops {
        if stop.is_empty() || stop.len() > STOP_BYTES_MAX {
            let message =
                format!("a stop string has 1 to {STOP_BYTES_MAX} bytes; one has {}", stop.len());
            return Err(ApiError::field(name, message));
        }
    }
    Ok(stops)
}
