//! A request's body to tokens: read, checked, tokenised, and what its text must be
//! like compiled.
//!
//! Pure work, without I/O. What takes microseconds is done on the front lane
//! itself; all else on the prepare lane.

use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::prompt::{check_known, check_length, check_prompt_text, check_text, text_of, tokens_of};
use super::resolve::resolve;
use super::work::Work;
use crate::api::chat::ChatRequest;
use crate::api::constrain::RequestedConstraint;
use crate::api::embeddings::{EmbeddingsRequest, Format};
use crate::api::error::ApiError;
use crate::api::llama::{completion, tokens};
use crate::api::request::AS_MANY_AS_FIT;
use crate::api::{
    GenerationRequest, Prompt, ReplyOptions, Route, anthropic, chat, cllm, embeddings, openai,
};
use crate::chat::conversation::ToolChoice;
use crate::chat::output::{ParserOptions, ToolSyntax, reasoning};
use crate::chat::prompt::{ChatError, ChatModel, ChatPrompt};
use crate::clock::utc_now;
use crate::constraint::{Compiled, Compiler, Constraint};
use crate::limits::{EMBEDDING_REQUEST_TOKENS_MAX, PROMPTS_MAX, TEXT_BYTES_MAX};
use crate::model::vocab::Vocab;
use crate::types::{Extras, ModelInfo, TokenId};

/// What is served, as the front lane and the prepare lane see it.
pub struct Serving {
    /// The vocabulary.
    pub vocab: Arc<Vocab>,
    /// The facts of the model.
    pub info: ModelInfo,
    /// The name that clients see.
    pub name: String,
    /// How it is told of a conversation, if it can be.
    pub chat: Option<ChatModel>,
    /// Tokens that one sequence may have, prompt and generated.
    pub sequence_tokens: u32,
    /// Requests that run at once.
    pub slots: usize,
    /// Tokens of one text whose vector is wanted; none where there are no vectors.
    pub embedding_tokens: Option<usize>,
    /// The server's own default for `max_tokens`.
    pub n_predict: Option<u32>,
}

/// A body, read.
pub enum Parsed {
    /// `/encode`
    Encode(String),
    /// `/tokenize`
    Tokenize(tokens::Tokenize),
    /// `/detokenize`
    Detokenize(Vec<TokenId>),
    /// Text is to be generated; so many tokens, where the request does not say.
    Generation(Box<GenerationRequest>, u32),
    /// The same, of a conversation.
    Chat(Box<ChatRequest>),
    /// Its length is asked for.
    Count(Box<ChatRequest>),
    /// Its prompt is asked for.
    Template(Box<ChatRequest>),
    /// Vectors are asked for.
    Embeddings(Box<EmbeddingsRequest>),
}

impl Parsed {
    /// Something has to be compiled for it, or looked for in the whole vocabulary, which
    /// may take long.
    pub fn compiles(&self) -> bool {
        match self {
            Parsed::Generation(request, _) => request.compiles(),
            Parsed::Chat(chat) => chat.generation.compiles() || !chat.conversation.tools.is_empty(),
            _ => false,
        }
    }
}

/// A body, understood.
pub enum Prepared {
    /// Text is to be generated.
    Generation(Box<PreparedGeneration>),
    /// Vectors are to be made.
    Embeddings(Box<PreparedEmbeddings>),
    /// The whole answer, in bytes.
    Answer(Vec<u8>),
}

/// Texts whose vectors are wanted, as tokens.
pub struct PreparedEmbeddings {
    /// Each has at least one token, and no more than the embed lane takes.
    pub texts: Vec<Box<[TokenId]>>,
    /// How the vectors are written.
    pub format: Format,
}

impl PreparedEmbeddings {
    /// Tokens of all texts.
    pub fn tokens(&self) -> usize {
        self.texts.iter().map(|text| text.len()).sum()
    }
}

/// A generation request with its prompts as tokens.
pub struct PreparedGeneration {
    /// The request.
    pub request: GenerationRequest,
    /// Its prompts, none of them empty, each short enough to be served; one for each
    /// choice.
    pub prompts: Vec<Box<[TokenId]>>,
    /// Tokens to generate for each, at least 1.
    pub max_tokens: Vec<u32>,
    /// What few ask of the sampler, in tokens of the vocabulary.
    pub extras: Option<Arc<Extras>>,
    /// How it is answered.
    pub reply: ReplyOptions,
    /// Control tokens that these read are a part of the text.
    pub markers: Option<ParserOptions>,
    /// No text is asked for: the prompt is computed, and kept in the KV cache. (A
    /// token is generated all the same, and thrown away.)
    pub prompt_alone: bool,
}

/// Reads a body.
///
/// # Errors
/// 400 with what is wrong and what would be right.
pub fn read(route: Route, mut body: Vec<u8>) -> Result<Parsed, ApiError> {
    let body = body.as_mut_slice();
    let boxed = |request, default| Parsed::Generation(Box::new(request), default);
    Ok(match route {
        Route::Encode => Parsed::Encode(cllm::read_encode(body)?),
        Route::Tokenize => Parsed::Tokenize(tokens::read_tokenize(body)?),
        Route::Detokenize => Parsed::Detokenize(tokens::read_detokenize(body)?),
        Route::Generate => boxed(cllm::read_generate(body, false)?, cllm::MAX_TOKENS),
        Route::GenerateStream => boxed(cllm::read_generate(body, true)?, cllm::MAX_TOKENS),
        Route::LlamaCompletion => boxed(completion::read_completion(body)?, AS_MANY_AS_FIT),
        Route::ChatCompletions => Parsed::Chat(Box::new(chat::openai::read_chat(body)?)),
        Route::ApplyTemplate => Parsed::Template(Box::new(chat::openai::read_chat(body)?)),
        Route::Messages => Parsed::Chat(Box::new(anthropic::read_messages(body, false)?)),
        Route::CountTokens => Parsed::Count(Box::new(anthropic::read_messages(body, true)?)),
        Route::Embeddings => Parsed::Embeddings(Box::new(embeddings::read(body)?)),
        _ => boxed(openai::read_completion(body)?, openai::COMPLETION_MAX_TOKENS),
    })
}

/// What the prepare lane does. It makes the compiler when the first request needs it:
/// it has the whole vocabulary in a tree.
///
/// # Errors
/// 400 with what is wrong and what would be right.
pub fn do_work(
    work: Work,
    serving: &Serving,
    compiler: &mut Option<Compiler>,
) -> Result<Prepared, ApiError> {
    let parsed = match work {
        Work::Body(route, body) => read(route, body)?,
        Work::Parsed(parsed) => parsed,
        Work::Embed(_) => unreachable!("this is for the embed lane"),
    };
    if parsed.compiles() && compiler.is_none() {
        let made = Compiler::new(&serving.vocab);
        let made = made.map_err(|reason| {
            ApiError::invalid(format!("this model's text cannot be constrained: {reason}"))
        });
        *compiler = Some(made?);
    }
    finish(parsed, serving, compiler.as_mut(), utc_now())
}

/// Does what was read. `now` is for templates that show the date.
///
/// # Errors
/// 400 with what is wrong and what would be right.
pub fn finish(
    parsed: Parsed,
    serving: &Serving,
    compiler: Option<&mut Compiler>,
    now: OffsetDateTime,
) -> Result<Prepared, ApiError> {
    let vocab = &serving.vocab;
    let mut answer = Vec::new();
    match parsed {
        Parsed::Generation(request, default) => {
            return generation(*request, default, serving, compiler).map(Prepared::Generation);
        }
        Parsed::Chat(chat) => {
            return conversation(*chat, serving, compiler, now).map(Prepared::Generation);
        }
        Parsed::Embeddings(request) => {
            return prepare_embeddings(*request, serving).map(Prepared::Embeddings);
        }
        Parsed::Encode(text) => {
            check_text("text", &text)?;
            cllm::push_encoded(&mut answer, &vocab.tokenize(&text, false, false));
        }
        Parsed::Tokenize(asked) => {
            check_text("content", &asked.content)?;
            let ids = vocab.tokenize(&asked.content, asked.add_special, asked.parse_special);
            let pieces = asked.with_pieces.then_some(|token| vocab.spelling_of(token));
            tokens::push_tokens(&mut answer, &ids, pieces);
        }
        Parsed::Detokenize(ids) => {
            check_known("tokens", &ids, serving)?;
            let length: usize = ids.iter().map(|id| vocab.spelling_of(*id).len()).sum();
            if length > TEXT_BYTES_MAX {
                let message = format!("the text has {length} bytes; it may have {TEXT_BYTES_MAX}");
                return Err(ApiError::field("tokens", message));
            }
            let bytes: Vec<u8> =
                ids.iter().flat_map(|id| vocab.spelling_of(*id)).copied().collect();
            tokens::push_content(&mut answer, &String::from_utf8_lossy(&bytes));
        }
        Parsed::Count(chat) => {
            let prompt = chat_prompt(&chat, serving, now, None)?;
            let ids = vocab.tokenize(&prompt.text, false, true);
            anthropic::push_count(&mut answer, ids.len());
        }
        Parsed::Template(chat) => {
            tokens::push_prompt(&mut answer, &chat_prompt(&chat, serving, now, None)?.text);
        }
    }
    Ok(Prepared::Answer(answer))
}

/// The prompt of a conversation, as text. `form_field` asked for a form of the answer.
fn chat_prompt(
    chat: &ChatRequest,
    serving: &Serving,
    now: OffsetDateTime,
    form_field: Option<&'static str>,
) -> Result<ChatPrompt, ApiError> {
    let Some(model) = &serving.chat else {
        let message = "this model has no chat template; start the server with --chat-template";
        return Err(ApiError::unsupported("messages", message));
    };
    let token = |text: &str| serving.vocab.only_token(text);
    let prompt = model.prompt(&chat.conversation, chat.split_reasoning, now, &token);
    prompt.map_err(|error| {
        let form_field = form_field.filter(|_| error == ChatError::FormLikeCalls);
        ApiError::field(form_field.unwrap_or("messages"), error.to_string())
    })
}

fn conversation(
    mut chat: ChatRequest,
    serving: &Serving,
    mut compiler: Option<&mut Compiler>,
    now: OffsetDateTime,
) -> Result<Box<PreparedGeneration>, ApiError> {
    let mut form_field = None;
    if chat.conversation.tool_choice != ToolChoice::None
        && let Some(form) = chat.generation.constraint.take()
    {
        form_field = Some(form.field);
        chat.conversation.form = Some(form_beside_calls(&form, compiler.as_deref_mut())?);
    }
    let prompt = chat_prompt(&chat, serving, now, form_field)?;
    let ChatPrompt { mut text, mut parser, grammar } = prompt;
    let begins = !chat.conversation.continue_final_message;
    let ChatRequest { mut generation, .. } = chat;
    if let Some(closer) = reasoning::closer(&text).filter(|_| generation.constraint.is_some()) {
        // What is constrained is the answer, and nothing before it.
        text.push_str(&format!("\n{closer}\n\n"));
        parser.reasoning_is_open = false;
    }
    let is_harmony = parser.tools == Some(ToolSyntax::Harmony);
    if generation.constraint.is_some() && is_harmony && begins && text.ends_with(HARMONY_BEGIN) {
        text.push_str(HARMONY_ANSWER);
    }
    if let Some(grammar) = grammar {
        let constraint = Constraint::Lark(grammar);
        generation.constraint = Some(RequestedConstraint { field: "tools", constraint });
    }
    check_prompt_text(&text, "messages", serving)?;
    generation.prompts = vec![Prompt::Tokens(serving.vocab.tokenize(&text, false, true))];
    let mut prepared = self::generation(generation, AS_MANY_AS_FIT, serving, compiler)?;
    prepared.markers = (parser != ParserOptions::default()).then_some(parser);
    prepared.reply.parser = parser;
    Ok(prepared)
}

/// The schema of an answer that may be calls instead. It is compiled alone first, so that
/// what is wrong with it is not said of the tools.
fn form_beside_calls(
    form: &RequestedConstraint,
    compiler: Option<&mut Compiler>,
) -> Result<Value, ApiError> {
    compile(form, compiler)?;
    match &form.constraint {
        Constraint::JsonObject => Ok(json!({"type": "object"})),
        Constraint::JsonSchema(source) => {
            Ok(serde_json::from_str(source).expect("it was compiled"))
        }
        _ => {
            let message = "beside tools the text can have a JSON schema, and no other form; \
                           set tool_choice to none";
            Err(ApiError::unsupported(form.field, message))
        }
    }
}

fn compile(
    requested: &RequestedConstraint,
    compiler: Option<&mut Compiler>,
) -> Result<Arc<Compiled>, ApiError> {
    let compiler = compiler.expect("what has to be compiled goes to the prepare lane");
    let compiled = compiler.compile(&requested.constraint);
    compiled.map_err(|error| ApiError::field(requested.field, error.to_string()))
}

fn generation(
    mut request: GenerationRequest,
    default_max_tokens: u32,
    serving: &Serving,
    compiler: Option<&mut Compiler>,
) -> Result<Box<PreparedGeneration>, ApiError> {
    let default_max_tokens = serving.n_predict.unwrap_or(default_max_tokens);
    let choices = request.prompts.len() * request.n;
    if serving.info.sees_ahead {
        let message = "this model makes embeddings and no text; see /v1/embeddings";
        return Err(ApiError::unsupported("model", message));
    }
    if request.echo
        && request.extras.as_ref().is_some_and(|extras| extras.extras.logprobs.is_some())
    {
        let message = "echo and logprobs cannot be given together: this server scores the tokens \
                       that it generates, and not those of a prompt";
        return Err(ApiError::unsupported("echo", message));
    }
    if choices > PROMPTS_MAX {
        let message = format!(
            "{} prompts with {} choices each are {choices} texts; a request may have {PROMPTS_MAX}",
            request.prompts.len(),
            request.n
        );
        return Err(ApiError::field("n", message));
    }
    let mut prompts = Vec::with_capacity(choices);
    let mut max_tokens = Vec::with_capacity(choices);
    let mut echo = Vec::new();
    for prompt in std::mem::take(&mut request.prompts) {
        let ids = tokens_of("prompt", &prompt, request.suffix.as_deref(), serving)?;
        let limit = serving.sequence_tokens;
        let most = check_length(ids.len(), request.max_tokens, default_max_tokens, limit)?;
        if request.echo {
            echo.extend(std::iter::repeat_n(text_of(&prompt, serving), request.n));
        }
        prompts.extend(std::iter::repeat_n(ids.into_boxed_slice(), request.n));
        max_tokens.extend(std::iter::repeat_n(most, request.n));
    }
    let requested = request.extras.as_deref();
    let mut extras = requested.map(|extras| resolve(extras, &serving.vocab)).transpose()?;
    if let Some(constraint) = &request.constraint {
        extras.get_or_insert_default().constraint = Some(compile(constraint, compiler)?);
    }
    let reply = ReplyOptions {
        choices,
        stream: request.stream,
        include_usage: request.include_usage,
        timings_per_token: request.timings_per_token,
        logprobs: extras.as_ref().is_some_and(|extras| extras.logprobs.is_some()),
        return_tokens: request.return_tokens,
        echo,
        parser: ParserOptions::default(),
    };
    Ok(Box::new(PreparedGeneration {
        prompt_alone: request.max_tokens == Some(0),
        request,
        prompts,
        max_tokens,
        extras: extras.map(Arc::new),
        reply,
        markers: None,
    }))
}

fn prepare_embeddings(
    request: EmbeddingsRequest,
    serving: &Serving,
) -> Result<Box<PreparedEmbeddings>, ApiError> {
    let Some(limit) = serving.embedding_tokens else {
        let message = "this model makes no embeddings; start the server with --pooling mean, cls or last, or with a model made for them";
        return Err(ApiError::unsupported("model", message));
    };
    let n_embd = serving.info.n_embd;
    if let Some(asked) = request.dimensions.filter(|asked| *asked != n_embd) {
        let message = format!("dimensions is {asked}; this model's vectors have {n_embd}");
        return Err(ApiError::field("dimensions", message));
    }
    let (mut texts, mut tokens) = (Vec::with_capacity(request.inputs.len()), 0);
    for input in &request.inputs {
        let ids = tokens_of("input", input, None, serving)?;
        if ids.len() > limit {
            let message = format!("an input has {} tokens; it may have {limit}", ids.len());
            return Err(ApiError::field("input", message));
        }
        tokens += ids.len();
        if tokens > EMBEDDING_REQUEST_TOKENS_MAX {
            let message = format!(
                "the inputs have more than {EMBEDDING_REQUEST_TOKENS_MAX} tokens together; send \
                 them in several requests"
            );
            return Err(ApiError::field("input", message));
        }
        texts.push(ids.into_boxed_slice());
    }
    Ok(Box::new(PreparedEmbeddings { texts, format: request.format }))
}

/// What a prompt of gpt-oss ends with, and what begins an answer without a thought: the
/// constraint holds for what follows, not for the names of channels.
const HARMONY_BEGIN: &str = "<|start|>assistant";
const HARMONY_ANSWER: &str = "<|channel|>final<|message|>";

#[cfg(test)]
mod described;

#[cfg(test)]
mod tests {
    use super::*;

    fn serving() -> Serving {
        Serving {
            vocab: Arc::new(Vocab::of_fake()),
            info: ModelInfo::default(),
            name: "fake".into(),
            chat: None,
            slots: 1,
            embedding_tokens: None,
            sequence_tokens: 10,
            n_predict: None,
        }
    }

    fn generation(route: Route, body: &str) -> Result<Box<PreparedGeneration>, ApiError> {
        let parsed = read(route, body.as_bytes().to_vec())?;
        match finish(parsed, &serving(), None, OffsetDateTime::UNIX_EPOCH)? {
            Prepared::Generation(generation) => Ok(generation),
            _ => panic!("not a generation"),
        }
    }

    #[test]
    fn n_choices_of_each_prompt_stand_behind_each_other() {
        let body = r#"{"prompt":["a","bc"],"n":2,"echo":true}"#;
        let prepared = generation(Route::Completions, body).unwrap();
        assert_eq!(prepared.prompts.iter().map(|p| p.len()).collect::<Vec<_>>(), [1, 1, 2, 2]);
        assert_eq!(prepared.reply.echo, ["a", "a", "bc", "bc"]);
        let error = generation(Route::Completions, r#"{"prompt":["a","b"],"n":100}"#).err();
        let message = "2 prompts with 100 choices each are 200 texts; a request may have 128";
        assert_eq!(error.unwrap().message, message);
    }

    #[test]
    fn texts_and_tokens_of_one_prompt_stand_behind_each_other() {
        let prompts = |body| {
            let prepared = generation(Route::Completions, body).unwrap();
            prepared.prompts.iter().map(|prompt| prompt.to_vec()).collect::<Vec<_>>()
        };
        let [a, b, c] = [b'a', b'b', b'c'].map(i32::from);
        assert_eq!(prompts(r#"{"prompt":[97,"bc",97]}"#), [[a, b, c, a]]);
        let nested = prompts(r#"{"prompt":["b",["a",98],[99,97]]}"#);
        assert_eq!(nested, [vec![b], vec![a, b], vec![c, a]]);
        let prepared = generation(Route::Completions, r#"{"prompt":["a",98],"echo":true}"#);
        assert_eq!(prepared.unwrap().reply.echo, ["ab"]);
        let many = format!(r#"{{"prompt":[[1{0}],[1{0}]]}}"#, r#","a""#.repeat(65));
        for (body, message) in [
            (r#"{"prompt":[97,"b",{}]}"#, "an array of token ids and of strings"),
            (r#"{"prompt":[["a","b"]]}"#, "it must have token ids"),
            (&many, "130 texts in one request; at most 128"),
        ] {
            let error = generation(Route::Completions, body).err().unwrap();
            assert!(error.message.contains(message), "{}", error.message);
        }
        let error = read(Route::Embeddings, br#"{"input":["a",98]}"#.to_vec()).err().unwrap();
        assert!(error.message.contains("not of both"), "{}", error.message);
    }

    #[test]
    fn what_is_wrong_with_a_constraint_is_said_of_its_own_field() {
        let mut compiler = Compiler::new(&serving().vocab).unwrap();
        for (field, value) in [
            ("json_schema", r#"{"uniqueItems":true}"#),
            ("guided_json", r#"{"uniqueItems":true}"#),
            ("guided_regex", r#""(""#),
            ("grammar", r#""a""#),
        ] {
            let body = format!(r#"{{"prompt":"a","{field}":{value}}}"#);
            let parsed = read(Route::Completions, body.into_bytes()).unwrap();
            let now = OffsetDateTime::UNIX_EPOCH;
            let error = finish(parsed, &serving(), Some(&mut compiler), now).err().unwrap();
            assert_eq!((error.status, error.param), (400, Some(field)), "{}", error.message);
        }
    }

    #[test]
    fn a_constrained_answer_of_gpt_oss_has_its_channel_before_it() {
        let template = include_str!("../../tests/templates/gpt-oss.jinja");
        let chat = Some(ChatModel::new(template, "", "").unwrap());
        let serving = Serving { chat, sequence_tokens: 10_000, ..serving() };
        let mut compiler = Compiler::new(&serving.vocab).unwrap();
        let mut prompt = |more: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}]{more}}}"#);
            let parsed = read(Route::ChatCompletions, body.into_bytes()).unwrap();
            let now = OffsetDateTime::UNIX_EPOCH;
            match finish(parsed, &serving, Some(&mut compiler), now).unwrap() {
                Prepared::Generation(prepared) => {
                    text_of(&Prompt::Tokens(prepared.prompts[0].to_vec()), &serving)
                }
                _ => panic!("not a generation"),
            }
        };
        assert!(prompt("").ends_with("<|start|>assistant"));
        let constrained = prompt(r#","response_format":{"type":"json_object"}"#);
        assert!(constrained.ends_with("<|start|>assistant<|channel|>final<|message|>"));
        assert!(prompt(r#","add_generation_prompt":false"#).ends_with("Hi<|end|>"));
    }

    #[test]
    fn as_many_as_fit_and_none_at_all() {
        let prepared = generation(Route::Completions, r#"{"prompt":"ab","n_predict":-1}"#).unwrap();
        assert_eq!((&prepared.max_tokens[..], prepared.prompt_alone), (&[8][..], false));
        let prepared =
            generation(Route::LlamaCompletion, r#"{"prompt":"ab","n_predict":0}"#).unwrap();
        assert_eq!((&prepared.max_tokens[..], prepared.prompt_alone), (&[1][..], true));
    }

    #[test]
    fn what_the_model_cannot_is_refused() {
        for (route, body, message) in [
            (
                Route::ChatCompletions,
                r#"{"messages":[{"role":"user","content":"Hi"}]}"#,
                "this model has no chat template; start the server with --chat-template",
            ),
            (
                Route::Completions,
                r#"{"prompt":"a","suffix":"b"}"#,
                "this model cannot fill in text; leave suffix out",
            ),
            (
                Route::Completions,
                r#"{"prompt":"a","echo":true,"logprobs":1}"#,
                "echo and logprobs cannot be given together: this server scores the tokens that \
                 it generates, and not those of a prompt",
            ),
        ] {
            assert_eq!(generation(route, body).err().unwrap().message, message);
        }
    }

    #[test]
    fn a_request_beyond_the_context_is_refused_with_both_numbers() {
        let error = generation(Route::Completions, r#"{"prompt":"abcdef","max_tokens":5}"#)
            .err()
            .expect("11 tokens do not fit into 10");
        assert_eq!(error.status, 400);
        assert_eq!(
            error.message,
            "the prompt has 6 tokens and 5 are to be generated, 11 together; \
             a request may have 10"
        );
        // A prompt is never cut to fit, with or without max_tokens.
        let error = generation(Route::Generate, r#"{"prompt":"abcdefghijkl"}"#).err();
        assert!(error.expect("12 tokens do not fit").message.contains("12 tokens"));
    }

    #[test]
    fn the_default_is_cut_to_what_fits_and_the_asked_for_is_not() {
        let prepared = generation(Route::Generate, r#"{"prompt":"abcdef"}"#).unwrap();
        assert_eq!(prepared.max_tokens, [4]);
        let prepared = generation(Route::Completions, r#"{"prompt":["a","bcd"]}"#).unwrap();
        assert_eq!(prepared.max_tokens, [9, 7]);
        let prepared = generation(Route::Completions, r#"{"prompt":"a","max_tokens":3}"#).unwrap();
        assert_eq!(prepared.max_tokens, [3]);
    }

    #[test]
    fn token_ids_outside_the_vocabulary_are_refused() {
        for token in ["-1", "257", "2147483647"] {
            let body = format!(r#"{{"prompt":[65,{token}]}}"#);
            let error = generation(Route::Completions, &body).err().expect("out of range");
            assert!(error.message.ends_with("this model's are 0 to 256"), "{}", error.message);
        }
    }
}
