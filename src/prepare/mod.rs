//! Prepares requests: a body becomes a [`Job`] for the engine, texts for the embed lane, or the
//! whole answer.
//!
//! The route reads the JSON. [`advance`] does the rest, one piece at a time: it renders and
//! tokenises the prompts, checks that they fit and compiles constraints. Short requests are
//! prepared on the front lane itself, all others on the worker lanes ([`worker`], [`lane`]).
//!
//! A request that cannot be served gets a 400 that says what is wrong and what would be right.
//! After its deadline it gets a 504.
//!
//! **Invariant:** pure, except for [`worker`] and [`lane`]. Nothing else here does I/O or reads a
//! clock.

mod branches;
mod envelope;
mod gap;
mod generate;
mod ignored;
pub mod lane;
mod model;
mod prompt;
mod resolve;
mod texts;
mod transfer;
pub mod worker;

use time::OffsetDateTime;

use crate::api::asked::Request;
use crate::api::cllm;
use crate::api::error::ApiError;
use crate::api::llama::tokens;
use crate::api::ollama::models as ollama;
use crate::constraint::Compiler;
use crate::engine::job::Job;
use crate::limits::TEXT_BYTES_MAX;
pub use envelope::Envelope;
pub use model::{Embeds, ServedModel};
use prompt::{check_known, check_text, check_wanted, tokenize, tokenize_chat};
pub use texts::Texts;
pub use transfer::{Lane, Transfer};

/// A prepared request.
pub enum Prepared {
    /// A job for the engine.
    Job(Box<Job>),
    /// The whole answer, in bytes.
    Answer(Vec<u8>),
}

/// The result of one piece of the preparation. `R` is a request that needs more pieces.
pub enum Step<R> {
    /// The request is prepared.
    Done(Prepared),
    /// The texts are tokenised, and go to the embed lane.
    Embed(Box<Texts>),
    /// The next piece is for the lane [`Lane::of`] the request.
    More(R),
}

/// Does one piece of the preparation of a request whose body was read. The piece ends after about
/// `piece_bytes` of text, and before a longer prompt that a template rendered. `compiler` is `None`
/// on lanes that do not compile. `now` is for templates that show the date. Before each text,
/// `is_wanted` is called: if it returns false, the result is an error.
pub fn advance(
    request: Request,
    envelope: &Envelope,
    model: &ServedModel,
    compiler: Option<&mut Compiler>,
    piece_bytes: usize,
    is_wanted: &dyn Fn() -> bool,
    now: OffsetDateTime,
) -> Result<Step<Request>, ApiError> {
    let vocab = &model.vocab;
    let mut answer = Vec::new();
    let mut done = 0;
    match request {
        Request::Chat(chat) => {
            let request = Request::Generate(generate::render(*chat, model, now)?);
            if request.text_bytes() > piece_bytes {
                return Ok(Step::More(request));
            }
            return advance(request, envelope, model, compiler, piece_bytes, is_wanted, now);
        }
        Request::Generate(mut request) => {
            generate::check(&request, model)?;
            while request.ready.len() < request.prompts.len() {
                check_wanted(is_wanted)?;
                if done >= piece_bytes {
                    return Ok(Step::More(Request::Generate(request)));
                }
                done += generate::tokenize_next(&mut request, model)?;
            }
            if request.compiles() {
                let Some(compiler) = compiler else {
                    return Ok(Step::More(Request::Generate(request)));
                };
                generate::compile_next(&mut request, envelope.cache.key, compiler, is_wanted)?;
                if request.is_costly || request.constraint.is_some() {
                    return Ok(Step::More(Request::Generate(request)));
                }
            }
            return generate::job(*request, envelope, model)
                .map(|job| Step::Done(Prepared::Job(job)));
        }
        Request::Embed(mut request) => {
            while request.ready.len() < request.inputs.len() {
                check_wanted(is_wanted)?;
                if done >= piece_bytes {
                    return Ok(Step::More(Request::Embed(request)));
                }
                done += texts::embed_next(&mut request, model)?;
            }
            let texts = texts::to_embed(*request, model)?;
            return Ok(Step::Embed(texts));
        }
        Request::Rank(mut request) => {
            while request.ready.len() < request.documents.len() {
                check_wanted(is_wanted)?;
                if done >= piece_bytes {
                    return Ok(Step::More(Request::Rank(request)));
                }
                done += texts::rank_next(&mut request, model)?;
            }
            let texts = texts::to_rank(*request, envelope, model);
            return Ok(Step::Embed(texts));
        }
        Request::Encode(text) => {
            check_text("text", &text)?;
            cllm::push_encoded(&mut answer, &tokenize(vocab, "text", &text, false, false)?);
        }
        Request::Tokenize(asked) => {
            check_text("content", &asked.content)?;
            let (special, control) = (asked.add_special, asked.parse_special);
            let ids = tokenize(vocab, "content", &asked.content, special, control)?;
            let pieces = asked.with_pieces.then_some(|token| vocab.spelling_of(token));
            tokens::push_tokens(&mut answer, &ids, pieces);
        }
        Request::Detokenize(ids) => {
            check_known("tokens", &ids, model)?;
            let length: usize = ids.iter().map(|id| vocab.spelling_of(*id).len()).sum();
            if length > TEXT_BYTES_MAX {
                let message = format!("the text has {length} bytes; it may have {TEXT_BYTES_MAX}");
                return Err(ApiError::field("tokens", message));
            }
            let bytes: Vec<u8> =
                ids.iter().flat_map(|id| vocab.spelling_of(*id)).copied().collect();
            tokens::push_content(&mut answer, &String::from_utf8_lossy(&bytes));
        }
        Request::CountTokens(mut chat, push) => {
            generate::complete(&mut chat, model);
            let text = generate::chat_prompt(&chat, model, now, None)?.text;
            if text.len() > piece_bytes {
                return Ok(Step::More(Request::CountPrompt(text, push)));
            }
            push(&mut answer, tokenize_chat(vocab, &text)?.len());
        }
        Request::CountPrompt(text, push) => {
            check_text("messages", &text)?;
            push(&mut answer, tokenize_chat(vocab, &text)?.len());
        }
        Request::Loading(loading) => {
            let model = model.facts();
            ollama::push_loading(&mut answer, loading, &model, envelope.created);
        }
        Request::ShowModel => ollama::push_show(&mut answer, &model.facts()),
        Request::ApplyTemplate(mut chat) => {
            generate::complete(&mut chat, model);
            let prompt = generate::chat_prompt(&chat, model, now, None)?;
            // As in llama-server: `/completion` adds that token again.
            let first = vocab.first_text().filter(|first| !first.is_empty());
            let text = first.and_then(|first| prompt.text.strip_prefix(&*first));
            let text = text.unwrap_or(&prompt.text);
            tokens::push_prompt(&mut answer, &vocab.unguarded(text));
        }
    }
    Ok(Step::Done(Prepared::Answer(answer)))
}

#[cfg(test)]
mod described;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::prompts::Prompt;
    use crate::api::reply::Summary;
    use crate::api::route::{self, Route};
    use crate::chat::prompt::ChatModel;
    use crate::clock::Micros;
    use crate::http::head::Method;
    use crate::model::vocab::Vocab;
    use crate::types::{CacheScope, Calibration, Guessing, KeyId, ModelInfo, Pooling, TokenId};

    fn served() -> ServedModel {
        ServedModel {
            vocab: Arc::new(Vocab::of_fake()),
            info: ModelInfo::default(),
            name: "fake".into(),
            aliases: Vec::new(),
            tags: Vec::new(),
            path: None,
            chat: None,
            slots: 1,
            calibration: Calibration::default(),
            embeds: None,
            context_tokens: 10,
            sequence_tokens: 10,
            spm_infill: false,
            guessing: Guessing::default(),
            store_bytes: 0,
            n_predict: None,
            sampling: crate::types::defaults::SamplingDefaults::default(),
            system_prompt: None,
        }
    }

    fn read(route: &Route, body: &str) -> Result<Request, ApiError> {
        route.action.read_body().unwrap()(&mut body.as_bytes().to_vec())
    }

    fn prepare(
        path: &str,
        body: &str,
        model: &ServedModel,
        compiler: Option<&mut Compiler>,
    ) -> Result<Box<Job>, ApiError> {
        let envelope = Envelope {
            route: route::find(Method::Post, path).unwrap(),
            number: 1,
            seed: 1,
            key: KeyId::at(0),
            cache: CacheScope::default(),
            priority_min: 0,
            timeout: None,
            received: Micros(0),
            created: 0,
        };
        let mut request = read(envelope.route, body)?;
        let now = OffsetDateTime::UNIX_EPOCH;
        // This one loop stands for all lanes, so it always has a compiler.
        let mut own = Compiler::new(&model.vocab).unwrap();
        let compiler = compiler.unwrap_or(&mut own);
        loop {
            let compiler = Some(&mut *compiler);
            match advance(request, &envelope, model, compiler, 1, &|| true, now)? {
                Step::Done(Prepared::Job(job)) => return Ok(job),
                Step::More(rest) => request = rest,
                _ => panic!("not a request for text"),
            }
        }
    }

    fn job(path: &str, body: &str) -> Result<Box<Job>, ApiError> {
        prepare(path, body, &served(), None)
    }

    fn prompts(job: &Job) -> Vec<Vec<TokenId>> {
        job.sequences.iter().map(|sequence| sequence.prompt.to_vec()).collect()
    }

    fn max_tokens(job: &Job) -> Vec<u32> {
        job.sequences.iter().map(|sequence| sequence.max_tokens).collect()
    }

    /// The text of each choice before any token is generated: the echo of its prompt.
    fn texts(mut job: Job) -> Vec<String> {
        let mut body = Vec::new();
        job.reply.push_end(Summary::default(), Micros(0), &mut body);
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let choices = body["choices"].as_array().unwrap().iter();
        choices.map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn n_choices_of_each_prompt_stand_behind_each_other() {
        let body = r#"{"prompt":["a","bc"],"n":2,"echo":true}"#;
        let prepared = job("/v1/completions", body).unwrap();
        assert_eq!(prompts(&prepared).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2, 2]);
        assert_eq!(prepared.prompt_tokens, 3);
        let seeds: Vec<u64> = prepared.sequences.iter().map(|one| one.sampling.seed).collect();
        assert_eq!(seeds, [1, 2, 1, 2], "as in llama-server");
        assert_eq!(texts(*prepared), ["a", "a", "bc", "bc"]);
        let error = job("/v1/completions", r#"{"prompt":["a","b"],"n":100}"#).err();
        let message = "2 prompts with 100 choices each are 200 texts; a request may have 128";
        assert_eq!(error.unwrap().message, message);
    }

    #[test]
    fn texts_and_tokens_of_one_prompt_stand_behind_each_other() {
        let prompts = |body| prompts(&job("/v1/completions", body).unwrap());
        let [a, b, c] = [b'a', b'b', b'c'].map(i32::from);
        assert_eq!(prompts(r#"{"prompt":[97,"bc",97]}"#), [[a, b, c, a]]);
        let nested = prompts(r#"{"prompt":["b",["a",98],[99,97]]}"#);
        assert_eq!(nested, [vec![b], vec![a, b], vec![c, a]]);
        let prepared = job("/v1/completions", r#"{"prompt":["a",98],"echo":true}"#);
        assert_eq!(texts(*prepared.unwrap()), ["ab"]);
        let many = format!(r#"{{"prompt":[[1{0}],[1{0}]]}}"#, r#","a""#.repeat(65));
        for (body, message) in [
            (r#"{"prompt":[97,"b",{}]}"#, "an array of token ids and of strings"),
            (r#"{"prompt":[["a","b"]]}"#, "it must have token ids"),
            (&many, "130 texts in one request; at most 128"),
        ] {
            let error = job("/v1/completions", body).err().unwrap();
            assert!(error.message.contains(message), "{}", error.message);
        }
        let embeddings = route::find(Method::Post, "/v1/embeddings").unwrap();
        let error = read(embeddings, r#"{"input":["a",98]}"#).err().unwrap();
        assert!(error.message.contains("not of both"), "{}", error.message);
    }

    #[test]
    fn what_is_wrong_with_a_constraint_is_said_of_its_own_field() {
        let mut compiler = Compiler::new(&served().vocab).unwrap();
        for (field, value) in [
            ("json_schema", r#"{"uniqueItems":true}"#),
            ("guided_json", r#"{"uniqueItems":true}"#),
            ("guided_regex", r#""(""#),
            ("grammar", r#""a""#),
        ] {
            let body = format!(r#"{{"prompt":"a","{field}":{value}}}"#);
            let error = prepare("/v1/completions", &body, &served(), Some(&mut compiler));
            let error = error.err().unwrap();
            assert_eq!((error.status, error.param), (400, Some(field)), "{}", error.message);
        }
    }

    #[test]
    fn a_constrained_answer_of_gpt_oss_has_its_channel_before_it() {
        let template = include_str!("../../tests/templates/gpt-oss.jinja");
        let chat = Some(ChatModel::new(template, "", "").unwrap());
        let model = ServedModel { chat, sequence_tokens: 10_000, ..served() };
        let mut compiler = Compiler::new(&model.vocab).unwrap();
        let mut prompt = |more: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}]{more}}}"#);
            let job = prepare("/v1/chat/completions", &body, &model, Some(&mut compiler)).unwrap();
            prompt::text_of(&Prompt::Tokens(prompts(&job).remove(0)), &model)
        };
        assert!(prompt("").ends_with("<|start|>assistant"));
        let constrained = prompt(r#","response_format":{"type":"json_object"}"#);
        assert!(constrained.ends_with("<|start|>assistant<|channel|>final<|message|>"));
        assert!(prompt(r#","add_generation_prompt":false"#).ends_with("Hi<|end|>"));
    }

    #[test]
    fn the_sequence_breakers_of_dry_are_part_of_the_jobs_memory() {
        let words: Vec<String> = (0..16).map(|n| format!("breaker{n:02}")).collect();
        let bytes = |breakers: &[String]| {
            let body = serde_json::json!({
                "prompt": "a",
                "dry_multiplier": 1.0,
                "dry_sequence_breakers": breakers,
            });
            job("/completion", &body.to_string()).unwrap().bytes
        };
        let (few, many) = (bytes(&words[..1]), bytes(&words));
        let others = 15 * "breaker00".len() * size_of::<TokenId>(); // a token for each byte
        assert!(many > few + others / 2, "{few}, {many}");
    }

    #[test]
    fn vectors_are_part_of_the_memory_of_embeddings() {
        let info = ModelInfo { n_embd_out: 1000, ..ModelInfo::default() };
        let embeds = Embeds::new(Pooling::Mean, 10);
        let model = ServedModel { embeds: Some(embeds), info, ..served() };
        let body = r#"{"input":["a","b"]}"#;
        let route = route::find(Method::Post, "/v1/embeddings").unwrap();
        let Request::Embed(request) = read(route, body).unwrap() else {
            panic!("not a request for embeddings")
        };
        let mut request = *request;
        for _ in 0..2 {
            texts::embed_next(&mut request, &model).unwrap();
        }
        let texts = texts::to_embed(request, &model).unwrap();
        assert!(texts.bytes >= 2 * 1000 * size_of::<f32>(), "{}", texts.bytes);
    }

    #[test]
    fn as_many_as_fit_and_none_at_all() {
        let prepared = job("/v1/completions", r#"{"prompt":"ab","n_predict":-1}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [8]);
        let prepared = job("/completion", r#"{"prompt":"ab","n_predict":0}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [0]);
    }

    #[test]
    fn what_the_model_cannot_is_refused() {
        let body = r#"{"messages":[{"role":"user","content":"Hi"}]}"#;
        let error = job("/v1/chat/completions", body).err().unwrap();
        let message = "this model has no chat template; start the server with --chat-template";
        assert_eq!(error.message, message);
    }

    #[test]
    fn a_prompt_beyond_the_context_is_refused_with_both_numbers() {
        let prepared = job("/v1/completions", r#"{"prompt":"abcdef","max_tokens":5}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [4], "a length is a bound");
        let prepared = job("/v1/completions", r#"{"prompt":"ab","max_tokens":-1}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [8]);
        // A prompt is never cut to fit, with or without max_tokens.
        let error = job("/generate", r#"{"prompt":"abcdefghijkl"}"#).err();
        assert!(error.expect("12 tokens do not fit").message.contains("12 tokens"));
    }

    #[test]
    fn a_length_is_cut_to_what_fits() {
        let prepared = job("/generate", r#"{"prompt":"abcdef"}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [4]);
        let prepared = job("/v1/completions", r#"{"prompt":["a","bcd"]}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [9, 7]);
        let prepared = job("/v1/completions", r#"{"prompt":"a","max_tokens":3}"#).unwrap();
        assert_eq!(max_tokens(&prepared), [3]);
    }

    #[test]
    fn token_ids_outside_the_vocabulary_are_refused() {
        for token in ["-1", "257", "2147483647"] {
            let body = format!(r#"{{"prompt":[65,{token}]}}"#);
            let error = job("/v1/completions", &body).err().expect("out of range");
            assert!(error.message.ends_with("this model's are 0 to 256"), "{}", error.message);
        }
    }
}
