//! Prepares texts for the embed lane: texts to embed, and pairs of a query and a document to rank.

use std::borrow::Cow;
use std::time::Duration;

use super::envelope::Envelope;
use super::model::{Embeds, ServedModel};
use super::prompt::{check_text, tokenize, tokens_of};
use crate::api::embeddings::{EmbeddingsRequest, InputType, Vectors};
use crate::api::error::ApiError;
use crate::api::prompts::Prompt;
use crate::api::rank::{RankContext, RankForm, RankRequest};
use crate::api::write::bytes_inside;
use crate::model::vocab::Vocab;
use crate::types::{Pooling, TokenId};

/// The approximate bytes of one number of a vector, in memory and in the answer together.
const EMBEDDING_NUMBER_BYTES: usize = 16;

/// The approximate bytes of one document's score, and of its entry in the answer without the text.
const RANK_BYTES: usize = 96;

/// Most tokens of all texts of one request: OpenAI's bound.
const EMBEDDING_REQUEST_TOKENS_MAX: usize = 300_000;

/// Tokenised texts for the embed lane.
pub struct Texts {
    /// The texts. Each has at least one token, and at most as many as the embed lane takes.
    pub texts: Vec<Box<[TokenId]>>,
    /// The vectors that are computed so far, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// The approximate bytes of the texts, their vectors and the answer.
    pub bytes: usize,
    /// The time limit of the request.
    pub timeout: Option<Duration>,
    /// Writes the answer.
    pub answer: WriteAnswer,
}

/// Writes an answer from a model's vectors.
pub type WriteAnswer = Box<dyn FnOnce(Vec<Vec<f32>>, &mut Vec<u8>) + Send>;

impl Texts {
    /// The tokens of all texts.
    pub fn tokens(&self) -> usize {
        tokens_in(&self.texts)
    }

    /// The tokens of the texts without a vector.
    pub fn tokens_left(&self) -> usize {
        tokens_in(&self.texts[self.vectors.len()..])
    }
}

/// Tokenises the next text to embed. Returns its bytes.
///
/// # Errors
/// 400 for a model that makes no such vectors, and for texts that are too long.
pub(super) fn embed_next(
    request: &mut EmbeddingsRequest,
    model: &ServedModel,
) -> Result<usize, ApiError> {
    let embeds = embeds_for(request, model)?;
    check_dimensions(request.dimensions, model.info.n_embd_out, embeds)?;
    let input = &request.inputs[request.ready.len()];
    let bytes = input.bytes();
    let ids = text_of(input, request, model, embeds)?;
    push(&mut request.ready, ids, request.field, embeds.tokens)?;
    Ok(bytes)
}

/// The task for the embed lane. All texts of the request are tokenised.
///
/// # Errors
/// 400 for a model that makes no such vectors.
pub(super) fn to_embed(
    request: EmbeddingsRequest,
    model: &ServedModel,
) -> Result<Box<Texts>, ApiError> {
    let embeds = embeds_for(&request, model)?;
    let n_embd = model.info.n_embd_out;
    let dimensions = check_dimensions(request.dimensions, n_embd, embeds)?;
    let EmbeddingsRequest { push, norm, ready: texts, .. } = request;
    let (tokens, name) = (tokens_in(&texts), model.name.clone());
    let is_pooled = embeds.pooling != Pooling::None;
    let answer = move |mut vectors: Vec<Vec<f32>>, out: &mut Vec<u8>| {
        for vector in vectors.iter_mut().filter(|_| is_pooled) {
            vector.truncate(dimensions);
            norm.scale(vector);
        }
        push(out, &Vectors { model: &name, vectors: &vectors, n_embd: dimensions, tokens });
    };
    let vectors = if is_pooled { texts.len() } else { tokens };
    Ok(Box::new(Texts {
        texts,
        vectors: Vec::new(),
        bytes: tokens * size_of::<TokenId>() + vectors * n_embd * EMBEDDING_NUMBER_BYTES,
        timeout: request.timeout,
        answer: Box::new(answer),
    }))
}

/// The facts of the embed lane, if it makes the vectors that a request asks for.
fn embeds_for<'a>(
    request: &EmbeddingsRequest,
    model: &'a ServedModel,
) -> Result<&'a Embeds, ApiError> {
    let refused = |message| Err(ApiError::unsupported("model", message));
    match &model.embeds {
        None => refused(
            "this model makes no embeddings; start the server with --pooling mean, cls or last, or \
             with a model made for them",
        ),
        Some(Embeds { pooling: Pooling::Rank, .. }) => {
            refused("this server ranks documents and makes no embeddings; see /v1/rerank")
        }
        Some(Embeds { pooling: Pooling::None, .. }) if !request.by_token => refused(
            "this server makes a vector for each token (--pooling none), which only /embedding \
             shows; start it with --pooling mean, cls or last",
        ),
        Some(embeds) => Ok(embeds),
    }
}

fn check_dimensions(
    asked: Option<usize>,
    n_embd: usize,
    embeds: &Embeds,
) -> Result<usize, ApiError> {
    match asked {
        Some(asked) if asked > n_embd || asked < n_embd && !embeds.matryoshka => {
            let most = if embeds.matryoshka {
                format!("have at most {n_embd}")
            } else {
                format!("have {n_embd}; if they may be cut, start the server with --matryoshka")
            };
            let message = format!("dimensions is {asked}; this model's vectors {most}");
            Err(ApiError::field("dimensions", message))
        }
        asked => Ok(asked.unwrap_or(n_embd)),
    }
}

/// The tokens of a text to embed, with the prefix for its type. A text that is too long is cut if
/// the request allows it.
fn text_of(
    input: &Prompt,
    request: &EmbeddingsRequest,
    model: &ServedModel,
    embeds: &Embeds,
) -> Result<Vec<TokenId>, ApiError> {
    let limit = embeds.tokens;
    let prefix = match request.input_type {
        InputType::Any => "",
        InputType::Query => &embeds.query_prefix,
        InputType::Document => &embeds.document_prefix,
    };
    // A longer text certainly has too many tokens. It is cut or refused before it is tokenised.
    let bytes_max = limit * model.vocab.longest_token_bytes();
    let input = match input {
        Prompt::Text(text) if text.len() > bytes_max && request.truncate => {
            &Prompt::Text(format!("{prefix}{}", &text[..text.floor_char_boundary(bytes_max)]))
        }
        Prompt::Text(text) if text.len() > bytes_max => {
            let least = text.len() / model.vocab.longest_token_bytes();
            return Err(too_long(request.field, &format!("at least {least}"), limit));
        }
        Prompt::Text(text) if !prefix.is_empty() => &Prompt::Text(format!("{prefix}{text}")),
        input => input,
    };
    let mut ids = tokens_of(request.field, input, model)?;
    if ids.len() > limit && request.truncate {
        // The last token stays: it may be the one that the model expects at the end.
        ids.drain(limit - 1..ids.len() - 1);
    }
    Ok(ids)
}

/// Tokenises the next pair to rank. Returns its bytes.
///
/// # Errors
/// 400 for a model that does not rank, and for pairs that are too long.
pub(super) fn rank_next(request: &mut RankRequest, model: &ServedModel) -> Result<usize, ApiError> {
    let embeds = model.embeds.as_ref().filter(|embeds| embeds.pooling == Pooling::Rank);
    let Some(embeds) = embeds else {
        let message = "this server does not rank; start it with --pooling rank and a model that \
                       has a ranking head";
        return Err(ApiError::unsupported("model", message));
    };
    let index = request.ready.len();
    let ids = pair_that_fits(request, index, embeds.tokens, model)?;
    push(&mut request.ready, ids, request.field, embeds.tokens)?;
    Ok(request.pair_bytes(index))
}

/// The task for the embed lane. All pairs of the request are tokenised.
pub(super) fn to_rank(
    request: RankRequest,
    envelope: &Envelope,
    model: &ServedModel,
) -> Box<Texts> {
    let RankRequest { documents, timeout, answer, ready: texts, .. } = request;
    let tokens = tokens_in(&texts);
    let prefix = if answer.form == RankForm::Score { "score" } else { "rerank" };
    let (id, name) = (format!("{prefix}-{:016x}", envelope.number), model.name.clone());
    let (created, count) = (envelope.created, documents.len());
    // The graphs of these models end in a softmax, so their scores are probabilities.
    let is_probability = ["qwen3", "qwen3vl"].contains(&&*model.info.architecture);
    let document_bytes = |document: &String| {
        document.len() + if answer.with_documents { bytes_inside(document) } else { 0 }
    };
    let document_bytes: usize = documents.iter().map(document_bytes).sum();
    let answer = move |vectors: Vec<Vec<f32>>, out: &mut Vec<u8>| {
        let logistic = |x: f32| 1.0 / (1.0 + (-x).exp());
        let score = |vector: &Vec<f32>| match vector[0] {
            score if answer.is_raw || is_probability => score,
            logit => logistic(logit),
        };
        let scores: Vec<f32> = vectors.iter().map(score).collect();
        let context = RankContext { id: &id, model: &name, created, tokens };
        answer.push(&scores, &documents, &context, out);
    };
    Box::new(Texts {
        texts,
        vectors: Vec::new(),
        bytes: tokens * size_of::<TokenId>() + count * RANK_BYTES + document_bytes,
        timeout,
        answer: Box::new(answer),
    })
}

/// The tokens of a document and its query. If the request allows it, the document is cut to fit.
fn pair_that_fits(
    request: &RankRequest,
    index: usize,
    limit: usize,
    model: &ServedModel,
) -> Result<Vec<TokenId>, ApiError> {
    let RankRequest { field, query_field, .. } = *request;
    let query = request.query_of(index);
    check_text(query_field, query)?;
    check_text(field, &request.documents[index])?;
    let mut document = tokenize(&model.vocab, field, &request.documents[index], false, false)?;
    let most = request.document_tokens_max.unwrap_or(usize::MAX);
    let is_whole = document.len() <= most;
    document.truncate(most);
    let text = Some(&*request.documents[index]).filter(|_| is_whole);
    let ids = pair(query_field, query, &document, text, model)?;
    let excess = ids.len().saturating_sub(limit);
    if excess == 0 || !request.truncate {
        return Ok(ids);
    }
    // Tokenised again, the cut text may have one token more than it had as a part of the whole
    // text.
    document.truncate(document.len().saturating_sub(excess + 1));
    pair(query_field, query, &document, None, model)
}

/// The tokens of a query and a document. `text` is the document's text; `None` if the document was
/// cut.
fn pair(
    query_field: &'static str,
    query: &str,
    document: &[TokenId],
    text: Option<&str>,
    model: &ServedModel,
) -> Result<Vec<TokenId>, ApiError> {
    let vocab = &model.vocab;
    if let Some(template) = &model.info.rank_template {
        let bytes = || document.iter().flat_map(|id| vocab.bytes_of(*id)).copied();
        let document = match text {
            Some(text) => Cow::from(text),
            None => String::from_utf8_lossy(&bytes().collect::<Vec<u8>>()).into_owned().into(),
        };
        let ids = vocab.tokenize_prompt(&fill(template, query, &document, vocab), false);
        return ids.map_err(|error| ApiError::field(query_field, error.to_string()));
    }
    let marks = vocab.pair();
    let mut ids: Vec<TokenId> = marks.first.into_iter().collect();
    ids.extend(tokenize(vocab, query_field, query, false, false)?);
    ids.extend(marks.end.into_iter().chain(marks.separator));
    ids.extend_from_slice(document);
    ids.extend(marks.end);
    Ok(ids)
}

/// Fills a template with the query and the document. Spellings of control tokens and of
/// placeholders in these have no effect.
fn fill(template: &str, query: &str, document: &str, vocab: &Vocab) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let places = [("{query}", query), ("{document}", document)];
        match places.iter().find(|(place, _)| rest.starts_with(place)) {
            Some((place, value)) => {
                text.push_str(&vocab.guarded(value));
                rest = &rest[place.len()..];
            }
            None => {
                text.push('{');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

/// Adds a tokenised text, if it is within the bounds. `limit` is the most tokens of one text.
fn push(
    ready: &mut Vec<Box<[TokenId]>>,
    ids: Vec<TokenId>,
    field: &'static str,
    limit: usize,
) -> Result<(), ApiError> {
    if ids.is_empty() {
        return Err(ApiError::field(field, format!("{field} has a text without tokens")));
    }
    if ids.len() > limit {
        return Err(too_long(field, &ids.len().to_string(), limit));
    }
    ready.push(ids.into_boxed_slice());
    if tokens_in(ready) > EMBEDDING_REQUEST_TOKENS_MAX {
        let message = format!(
            "the inputs have more than {EMBEDDING_REQUEST_TOKENS_MAX} tokens together; send them in \
             several requests"
        );
        return Err(ApiError::field(field, message));
    }
    Ok(())
}

fn tokens_in(texts: &[Box<[TokenId]>]) -> usize {
    texts.iter().map(|text| text.len()).sum()
}

fn too_long(field: &'static str, tokens: &str, limit: usize) -> ApiError {
    ApiError::field(field, format!("an input has {tokens} tokens; it may have {limit}"))
}
