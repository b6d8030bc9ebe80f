//! Prepares requests that generate text.

use std::sync::{Arc, Once};

use memchr::memmem;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::branches::tokens_before;
use super::envelope::Envelope;
use super::gap::tokens_around;
use super::ignored;
use super::model::ServedModel;
use super::prompt::{check_length, check_prompt_text, check_wanted, text_of, tokens_of};
use super::resolve::resolve;
use crate::api::chain::unless_fast;
use crate::api::chat::ChatRequest;
use crate::api::constrain::RequestedConstraint;
use crate::api::error::ApiError;
use crate::api::logprobs::Echo;
use crate::api::prompts::Prompt;
use crate::api::reply::{PromptFacts, ReplyContext};
use crate::api::request::GenerationRequest;
use crate::api::route::Action;
use crate::api::tools::no_parameters;
use crate::api::write::{bytes_inside, push_json};
use crate::chat::conversation::{Content, Message, Role, Tool, ToolChoice};
use crate::chat::output::{ParserOptions, ReasoningEnd, ToolSyntax};
use crate::chat::prompt::{ChatError, ChatPrompt, Tokens};
use crate::constraint::{
    CompileError, Compiler, Constraint, ConstraintError, SchemaBudget, check_schema, close_objects,
    loosened,
};
use crate::engine::job::Job;
use crate::limits::PROMPTS_MAX;
use crate::model::vocab::Vocab;
use crate::sampling::AdvancedSampling;
use crate::scheduler::NewSequence;
use crate::types::reasoning::{MARKER_BYTES_MAX, ReasoningLimit};
use crate::types::{KeyId, Sampling, TokenId, digits};

/// The end of a prompt of gpt-oss, and the start of an answer without reasoning. The start becomes
/// a part of the prompt if the answer is constrained: a constraint must not apply to the names of
/// channels.
const HARMONY_BEGIN: &str = "<|start|>assistant";
const HARMONY_ANSWER: &str = "<|channel|>final<|message|>";

/// The field for the grammar of tool calls.
const TOOLS: &str = "tools";

/// Whether the log has said that conversations are mended.
static MENDED: Once = Once::new();

/// Renders the prompt of a chat request. Returns a request with this one prompt.
pub(super) fn render(
    mut chat: ChatRequest,
    model: &ServedModel,
    now: OffsetDateTime,
) -> Result<Box<GenerationRequest>, ApiError> {
    complete(&mut chat, model);
    let budget = SchemaBudget::of_tools();
    chat.conversation.tools.iter_mut().try_for_each(|tool| prepare_schema(tool, &budget))?;
    let mut form_field = None;
    if chat.conversation.tool_choice != ToolChoice::None
        && let Some(form) = chat.generation.constraint.take()
    {
        form_field = Some(form.field);
        chat.conversation.form = Some(form_beside_calls(&form)?);
        chat.generation.form = Some(form);
    }
    let prompt = chat_prompt(&chat, model, now, form_field)?;
    let ChatPrompt { mut text, mut parser, grammars, is_free, reasoning_budget, branches, refused } =
        prompt;
    if let Some(error) = refused {
        MENDED.call_once(|| {
            tracing::warn!(%error, "the chat template refused a conversation; its turns are merged");
        });
    }
    let vocab = &model.vocab;
    let places = branches.iter().map(|place| vocab.unguarded(&text[..*place]).len()).collect();
    let begins = !chat.conversation.continue_final_message;
    let ChatRequest { mut generation, turns, .. } = chat;
    let open = parser.reasoning_syntax.filter(|_| parser.reasoning_is_open);
    if let Some(syntax) = open.filter(|_| generation.constraint.is_some()) {
        // Only the answer is constrained, so close the block of reasoning first.
        text.push_str(&format!("\n{}\n\n", syntax.closer()));
        parser.reasoning_is_open = false;
    }
    let is_harmony = parser.tools == Some(ToolSyntax::Harmony);
    if generation.constraint.is_some() && is_harmony && begins && text.ends_with(HARMONY_BEGIN) {
        text.push_str(HARMONY_ANSWER);
    }
    // In a text with a constraint of its own, nothing is reasoning.
    if let Some(tokens) = reasoning_budget.filter(|_| generation.constraint.is_none()) {
        generation.reasoning = reasoning_limit(tokens, &parser, &model.vocab)?;
    }
    let mut constraints = grammars
        .into_iter()
        .map(|grammar| RequestedConstraint { field: TOOLS, constraint: Constraint::Lark(grammar) });
    if let Some(constraint) = constraints.next() {
        generation.constraint = Some(constraint);
        generation.fallbacks = is_free.then_some(None).into_iter().collect();
        generation.fallbacks.extend(constraints.map(Some));
    }
    generation.branches = places;
    check_prompt_text(&text, "messages", model)?;
    generation.prompts = vec![Prompt::Chat(text)];
    generation.facts.parser = parser;
    generation.facts.turn = turns.map(|turns| turns.own).unwrap_or_default();
    Ok(Box::new(generation))
}

/// How the reasoning of an answer ends at `tokens`, if the model reasons.
fn reasoning_limit(
    tokens: u32,
    parser: &ParserOptions,
    vocab: &Vocab,
) -> Result<Option<ReasoningLimit>, ApiError> {
    let Some(ReasoningEnd { opener, closer, anywhere, text, next }) = parser.reasoning_end() else {
        return Ok(None);
    };
    assert!(opener.len().max(closer.len()) <= MARKER_BYTES_MAX, "{opener} {closer}");
    let tokens_of = |text: &str| {
        vocab.tokenize(text, false, true).map(Box::from).map_err(|error| {
            ApiError::field("reasoning_budget", format!("the end of the reasoning: {error}"))
        })
    };
    let is_part = |part: &[u8]| {
        !part.is_empty()
            && [opener, closer].iter().any(|text| memmem::find(text.as_bytes(), part).is_some())
    };
    Ok(Some(ReasoningLimit {
        tokens,
        is_open: parser.reasoning_is_open,
        opener,
        closer,
        anywhere,
        end: tokens_of(text)?,
        next_end: tokens_of(next)?,
        texts: vocab.texts().clone(),
        control: vocab.control().iter().filter(|(_, text)| is_part(text)).cloned().collect(),
    }))
}

/// Makes the schema of a tool's arguments one that can be obeyed. The model still sees the client's
/// own schema.
fn prepare_schema(tool: &mut Tool, budget: &SchemaBudget) -> Result<(), ApiError> {
    if tool.is_strict {
        check_schema(&tool.parameters, budget).map_err(|error| {
            let message = format!(
                "the tool {:?} is strict, and its schema cannot be obeyed: {error}; without \
                 \"strict\": true the keyword is left out",
                tool.name
            );
            ApiError::field("tools", message)
        })?;
    } else {
        tool.parameters = loosened(&tool.parameters, budget);
        // A type such as ["object", "null"]: a call has arguments.
        if let Some(kind) = tool.parameters.get_mut("type") {
            *kind = "object".into();
        }
    }
    close_objects(&mut tool.parameters);
    if tool.parameters == no_parameters() {
        tool.parameters["additionalProperties"] = false.into();
    }
    Ok(())
}

/// Tokenises the next prompt. Returns the bytes of its text.
pub(super) fn tokenize_next(
    request: &mut GenerationRequest,
    model: &ServedModel,
) -> Result<usize, ApiError> {
    let before = request.text_bytes();
    let prompt = &request.prompts[request.ready.len()];
    let ids = match &request.gap {
        None => tokens_of("prompt", prompt, model)?,
        Some(gap) => {
            let (ids, is_cut) = tokens_around(gap, prompt, request.length, model)?;
            request.facts.is_cut |= is_cut;
            ids
        }
    };
    let max_tokens = check_length(ids.len(), request.length, model)?;
    request.ready.push((ids.into(), max_tokens));
    Ok(before - request.text_bytes())
}

/// Compiles one constraint of a request. A constraint that is not known to be cheap is only marked
/// as costly by the first call, so that the request goes to the trial lane. The next call compiles
/// it.
pub(super) fn compile_next(
    request: &mut GenerationRequest,
    key: KeyId,
    compiler: &mut Compiler,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(), ApiError> {
    let is_form = request.form.is_some();
    let Some(requested) = request.form.as_ref().or(request.constraint.as_ref()) else {
        return Ok(());
    };
    let RequestedConstraint { field, constraint } = requested;
    if !request.is_costly && !compiler.has(key, constraint) && !constraint.is_cheap() {
        request.is_costly = true;
        return Ok(());
    }
    let compiled = compiler.compile_for(key, constraint, is_wanted);
    if let Err(CompileError::Constraint(_)) = &compiled
        && *field == TOOLS
        && let Some(fallback) = request.fallbacks.pop()
    {
        check_wanted(is_wanted)?;
        request.ignored.push("schemas of tools that cannot be obeyed together".into());
        request.constraint = fallback;
        request.is_costly = false;
        return Ok(());
    }
    let compiled = compiled.map_err(|error| {
        // If nobody waits any longer, the trial was only ended early.
        check_wanted(is_wanted).err().unwrap_or_else(|| match error {
            // The lines of the error are those of a grammar that the client has never seen.
            CompileError::Constraint(error) if *field == TOOLS => ApiError::field(
                TOOLS,
                format!("the schemas of the tools cannot be obeyed together: {}", unlined(&error)),
            ),
            CompileError::Constraint(error) => ApiError::field(field, error.to_string()),
            CompileError::Unavailable(_) => ApiError::unavailable(error.to_string(), 1),
        })
    })?;
    request.is_costly = false;
    if is_form {
        request.form = None
    } else {
        request.constraint = None
    }
    if !is_form {
        request.compiled = Some(compiled);
    }
    Ok(())
}

/// An error without the line of the grammar that it names.
fn unlined(error: &ConstraintError) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, rest)) => rest.trim_start_matches("in %json: ").to_owned(),
        None => first.to_owned(),
    }
}

/// The job of a request whose prompts are tokenised and whose constraint is compiled.
pub(super) fn job(
    mut request: GenerationRequest,
    envelope: &Envelope,
    model: &ServedModel,
) -> Result<Box<Job>, ApiError> {
    ignored::log(&request.ignored);
    let n = request.n;
    let prompts = std::mem::take(&mut request.ready);
    let (mut echo, mut bytes) = (Vec::new(), 0);
    for (prompt, (ids, _)) in request.prompts.iter().zip(&prompts) {
        bytes += size_of_val(&**ids);
        if request.echo {
            let text: Arc<str> = text_of(prompt, model).into();
            bytes += text.len() + n * bytes_inside(&text);
            let first_token = model.vocab.spelling_of(ids[0]).into();
            echo.extend(std::iter::repeat_n(Echo { text, first_token }, n));
        }
    }
    let seed = request.seed.unwrap_or(envelope.seed);
    let choices = n * prompts.len();
    let shown = prompts.iter().filter(|_| request.reply.with_prompts);
    let shown = shown.map(|(ids, _)| json_of(ids, &model.vocab)).collect();
    let defaults = model.sampling.without(request.given);
    let mut sampling = request.sampling;
    sampling.set(defaults);
    let facts = PromptFacts { choices, n, seed, defaults, echo, prompts: shown, ..request.facts };
    bytes += request.make_reply.bytes(choices) + facts.bytes();
    let prompt_tokens = prompts.iter().map(|(ids, _)| ids.len() as u64).sum();
    let requested = request.advanced.as_deref();
    let mut advanced = requested.map(|advanced| resolve(advanced, &model.vocab)).transpose()?;
    if let Some(advanced) = &mut advanced {
        let chain = advanced.chain.take();
        advanced.chain = chain.and_then(|chain| unless_fast(chain, &mut sampling));
    }
    let mut advanced = advanced.filter(|advanced| *advanced != AdvancedSampling::default());
    if let Some(compiled) = request.compiled {
        advanced.get_or_insert_default().constraint = Some(compiled);
    }
    if request.reasoning.is_some() {
        advanced.get_or_insert_default().reasoning = request.reasoning;
    }
    bytes += advanced.as_ref().map_or(0, AdvancedSampling::bytes);
    let advanced = advanced.map(Arc::new);
    let scores_prompt = request.echo && request.reply.logprobs;
    let cache = envelope.scope(request.cache_salt.as_deref());
    let branches = match (&*request.branches, request.prompts.first(), prompts.first()) {
        ([], ..) | (_, None, _) | (.., None) => heapless::Vec::new(),
        (places, Some(prompt), Some((ids, _))) => {
            tokens_before(places, ids, text_of(prompt, model).len(), &model.vocab)
        }
    };
    let choices = prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, n));
    let sequences = choices.enumerate().map(|(choice, (prompt, max_tokens))| NewSequence {
        prompt,
        max_tokens,
        // As in llama-server: the choices of a prompt have different seeds, and each prompt has the
        // same ones.
        sampling: Sampling { seed: seed.wrapping_add((choice % n) as u64), ..sampling },
        advanced: advanced.clone(),
        priority: request.urgency.priority.max(envelope.priority_min),
        key: envelope.key,
        scores_prompt,
        cache: request.cache_prompt.then_some(cache),
        guessing: request.guessing.within(model.guessing),
        slot: request.slot.filter(|_| choice == 0),
        branches: branches.clone(),
    });
    let sequences: Vec<NewSequence> = sequences.collect();
    let constraint = advanced.as_ref().and_then(|advanced| advanced.constraint.as_ref());
    bytes += sequences.len() * constraint.map_or(0, |constraint| constraint.bytes());
    let parser = facts.parser.clone();
    let Action::Generate { id_prefix, .. } = envelope.route.action else {
        unreachable!("only a route that generates text reads such a request");
    };
    let context = ReplyContext {
        id: format!("{id_prefix}{:016x}", envelope.number),
        model: model.name.clone(),
        created: envelope.created,
        received: envelope.received,
        prompt_tokens,
    };
    Ok(Box::new(Job {
        reply: request.make_reply.make(request.reply, facts, &context),
        id: context.id,
        sequences,
        choices: n,
        stops: request.stops,
        lines: request.lines,
        bytes,
        markers: (parser != ParserOptions::default()).then_some(parser),
        prompt_tokens,
        received: envelope.received,
        deadline: envelope.deadline(request.urgency.timeout),
    }))
}

/// The text of tokens, special ones included, as a JSON string.
fn json_of(ids: &[TokenId], vocab: &Vocab) -> Arc<[u8]> {
    let text: Vec<u8> = ids.iter().flat_map(|id| vocab.spelling_of(*id)).copied().collect();
    let mut json = Vec::with_capacity(text.len() + 2);
    push_json(&mut json, &String::from_utf8_lossy(&text));
    json.into()
}

/// Refuses requests that this model or this server cannot serve.
pub(super) fn check(request: &GenerationRequest, model: &ServedModel) -> Result<(), ApiError> {
    if model.info.sees_ahead {
        let message = "this model makes embeddings and no text; see /v1/embeddings";
        return Err(ApiError::unsupported("model", message));
    }
    if request.echo && request.reply.logprobs && request.gap.is_some() {
        let message = "echo with logprobs scores the tokens of a prompt, and those around a gap are \
                       not in the order of the text; leave suffix or logprobs out";
        return Err(ApiError::unsupported("suffix", message));
    }
    let (prompts, n) = (request.prompts.len(), request.n);
    let choices = prompts * n;
    if choices > PROMPTS_MAX {
        let message = format!(
            "{prompts} prompts with {n} choices each are {choices} texts; a request may have \
             {PROMPTS_MAX}"
        );
        return Err(ApiError::field("n", message));
    }
    Ok(())
}

/// Joins the turns of a conversation, and gives it the server's system message if it begins with none.
pub(super) fn complete(chat: &mut ChatRequest, model: &ServedModel) {
    chat.join_turns();
    let messages = &mut chat.conversation.messages;
    let begins = messages.first().is_some_and(|m| matches!(m.role, Role::System | Role::Developer));
    if let Some(text) = model.system_prompt.as_ref().filter(|_| !begins) {
        let content = Content::Text(text.clone());
        messages.insert(0, Message { role: Role::System, content, ..Message::default() });
    }
}

/// The prompt of a conversation, as text. `form_field` is the field that constrains the answer.
pub(super) fn chat_prompt(
    chat: &ChatRequest,
    model: &ServedModel,
    now: OffsetDateTime,
    form_field: Option<&'static str>,
) -> Result<ChatPrompt, ApiError> {
    let Some(chat_model) = &model.chat else {
        let message = "this model has no chat template; start the server with --chat-template";
        return Err(ApiError::unsupported("messages", message));
    };
    let vocab = &model.vocab;
    let guard = |text: &str| vocab.guarded(text).into_owned();
    let tokens = Tokens { guard: &guard, of_text: &|text| vocab.only_token(text) };
    let prompt = chat_model.prompt(&chat.conversation, chat.split_reasoning, now, &tokens);
    prompt.map_err(|error| {
        let form_field = form_field.filter(|_| error == ChatError::FormLikeCalls);
        ApiError::field(form_field.unwrap_or("messages"), error.to_string())
    })
}

/// The schema of the answer in a conversation with tools, in which the model may call tools
/// instead.
fn form_beside_calls(form: &RequestedConstraint) -> Result<Value, ApiError> {
    match &form.constraint {
        Constraint::JsonObject => Ok(json!({"type": "object"})),
        Constraint::JsonSchema(source) => {
            digits::parse(source).map(digits::rounded).map_err(|error| {
                let message = format!("{}: the JSON schema is not JSON: {error}", form.field);
                ApiError::field(form.field, message)
            })
        }
        _ => {
            let message = "in a chat with tools, only a JSON schema can constrain the text; use one, \
                           or set tool_choice to none";
            Err(ApiError::unsupported(form.field, message))
        }
    }
}
