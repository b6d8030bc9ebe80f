//! Ranks documents by a query: `/v1/rerank` in Jina's and Cohere's form, with that of Hugging Face's
//! text-embeddings-inference (TEI) for requests with `texts`, and vLLM's `/v1/score`.

use std::time::Duration;

use crate::api::value::Value;
use serde::Serialize;

use super::embeddings::{Tokens, ready_bytes};
use super::error::ApiError;
use super::json::{Fields, read_object, refuse, wrong};
use super::request::read_timeout;
use super::write::{List, push_json};
use crate::limits::{EMBEDDING_INPUTS_MAX, SEQUENCE_TOKENS_MAX};
use crate::types::TokenId;

/// A request to rank documents.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRequest {
    /// The query of each document, or one for all.
    pub queries: Vec<String>,
    /// The documents, at least one.
    pub documents: Vec<String>,
    /// The field that the documents came in, for errors.
    pub field: &'static str,
    /// The field that the queries came in.
    pub query_field: &'static str,
    /// Tokens to which a document is cut.
    pub document_tokens_max: Option<usize>,
    /// Whether a document is cut if the pair would be too long. If not, it is refused.
    pub truncate: bool,
    /// The time limit; `None` uses the server's.
    pub timeout: Option<Duration>,
    /// The first texts, as tokens.
    pub ready: Vec<Box<[TokenId]>>,
    /// How to answer.
    pub answer: RankAnswer,
}

impl RankRequest {
    /// Bytes of the pairs that are not tokenised yet. A query counts for each of its documents.
    pub fn text_bytes(&self) -> usize {
        (self.ready.len()..self.documents.len()).map(|index| self.pair_bytes(index)).sum()
    }

    /// Bytes of a document and its query.
    pub fn pair_bytes(&self, index: usize) -> usize {
        self.query_of(index).len() + self.documents[index].len()
    }

    /// The query of a document.
    pub fn query_of(&self, index: usize) -> &str {
        &self.queries[if self.queries.len() == 1 { 0 } else { index }]
    }

    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let texts = self.queries.iter().chain(&self.documents);
        let texts = texts.map(|text| size_of::<String>() + text.len());
        size_of::<Self>() + texts.sum::<usize>() + ready_bytes(&self.ready)
    }
}

/// How the answer is written.
#[derive(Clone, Debug, PartialEq)]
pub struct RankAnswer {
    /// The dialect.
    pub form: RankForm,
    /// Show only this many of the best documents.
    pub top_n: usize,
    /// Show the documents.
    pub with_documents: bool,
    /// The scores are the numbers of the model's head. Otherwise they are from 0 to 1.
    pub is_raw: bool,
}

/// The dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankForm {
    /// Jina's and Cohere's.
    Rerank,
    /// text-embeddings-inference's.
    Tei,
    /// vLLM's score, in the order of the documents.
    Score,
}

/// Facts about an answer.
#[derive(Clone, Copy, Debug)]
pub struct RankContext<'a> {
    /// The id.
    pub id: &'a str,
    /// The model's name.
    pub model: &'a str,
    /// Seconds since 1970.
    pub created: u64,
    /// Tokens of all pairs.
    pub tokens: usize,
}

/// Fields of these APIs that corelane does not support. Each has the JSON value that asks for nothing.
const UNSUPPORTED: &[(&str, &str)] =
    &[("priority", "0"), ("truncate_prompt_tokens", "null"), ("truncation_direction", "\"Right\"")];

/// Reads a `/v1/rerank` request.
pub fn read_rerank(body: &mut [u8]) -> Result<RankRequest, ApiError> {
    read_object(body, |fields| {
        fields.string("model")?; // any name is accepted, for only one model is served
        refuse(fields, UNSUPPORTED)?;
        refuse(fields, &[("rank_fields", "[]"), ("max_chunks_per_doc", "null")])?;
        let query = fields.string("query")?;
        let query = query.filter(|query| !query.is_empty()).ok_or_else(|| {
            ApiError::field("query", "query is missing or empty; it must be a string")
        })?;
        let form = if fields.get("texts")?.is_some() { RankForm::Tei } else { RankForm::Rerank };
        let (field, shows, is_raw) = match form {
            RankForm::Tei => ("texts", "return_text", fields.boolean("raw_scores")?),
            _ => ("documents", "return_documents", read_activation(fields)?.map(|on| !on)),
        };
        let documents = read_texts(field, fields)?;
        let top_n = fields.integer("top_n", 1..=i64::from(i32::MAX))?;
        let document_tokens_max =
            fields.integer("max_tokens_per_doc", 1..=SEQUENCE_TOKENS_MAX as i64)?;
        Ok(RankRequest {
            queries: vec![query],
            field,
            query_field: "query",
            document_tokens_max: document_tokens_max.map(|n| n as usize), // in range
            truncate: fields.boolean("truncate")?.unwrap_or(false),
            timeout: read_timeout(fields)?,
            ready: Vec::new(),
            answer: RankAnswer {
                form,
                top_n: top_n.map_or(documents.len(), |n| n as usize), // in range
                with_documents: fields.boolean(shows)?.unwrap_or(false),
                is_raw: is_raw.unwrap_or(false),
            },
            documents,
        })
    })
}

/// Reads a `/v1/score` request.
pub fn read_score(body: &mut [u8]) -> Result<RankRequest, ApiError> {
    read_object(body, |fields| {
        fields.string("model")?; // as above
        refuse(fields, UNSUPPORTED)?;
        let queries = read_text_or_texts("text_1", fields)?;
        let documents = read_text_or_texts("text_2", fields)?;
        if queries.len() != 1 && queries.len() != documents.len() {
            let message = format!(
                "text_1 has {} texts and text_2 has {}; there must be one in text_1, or as many",
                queries.len(),
                documents.len()
            );
            return Err(ApiError::field("text_1", message));
        }
        Ok(RankRequest {
            queries,
            field: "text_2",
            query_field: "text_1",
            document_tokens_max: None,
            truncate: false,
            timeout: read_timeout(fields)?,
            ready: Vec::new(),
            answer: RankAnswer {
                form: RankForm::Score,
                top_n: documents.len(),
                with_documents: false,
                is_raw: read_activation(fields)? == Some(false),
            },
            documents,
        })
    })
}

/// Reads vLLM's `use_activation`: whether the scores are from 0 to 1.
fn read_activation(fields: &Fields<'_, '_>) -> Result<Option<bool>, ApiError> {
    fields.boolean("use_activation")
}

/// Reads a text, or an array of texts.
fn read_text_or_texts(
    name: &'static str,
    fields: &Fields<'_, '_>,
) -> Result<Vec<String>, ApiError> {
    match fields.get(name)?.as_ref().and_then(|value| value.as_str()) {
        Some(text) => Ok(vec![text.to_owned()]),
        None => read_texts(name, fields),
    }
}

/// Reads an array of texts and of objects with one.
fn read_texts(name: &'static str, fields: &Fields<'_, '_>) -> Result<Vec<String>, ApiError> {
    const FORM: &str = "an array of strings and of objects with a text";
    let missing = || ApiError::field(name, format!("{name} is missing; it must be {FORM}"));
    let value = fields.get(name)?.ok_or_else(missing)?;
    let array = value.as_array().ok_or_else(|| wrong(name, FORM, &value))?;
    if !(1..=EMBEDDING_INPUTS_MAX).contains(&array.len()) {
        let count = array.len();
        let message = format!("{name} has {count} texts; it must have 1 to {EMBEDDING_INPUTS_MAX}");
        return Err(ApiError::field(name, message));
    }
    let text = |value: &Value<'_, '_>| match (value.as_str(), value.as_object()) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(object)) => {
            Fields::new(object)?.string("text")?.ok_or_else(|| wrong(name, FORM, value))
        }
        (None, None) => Err(wrong(name, FORM, value)),
    };
    let place = |(index, value): (usize, Value<'_, '_>)| {
        text(&value).map_err(|error| error.within(name, format_args!("{name}[{index}]")))
    };
    array.iter().enumerate().map(place).collect()
}

impl RankAnswer {
    /// Writes the answer. There is a score for each document.
    pub fn push(
        &self,
        scores: &[f32],
        documents: &[String],
        context: &RankContext<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        if self.form != RankForm::Score {
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            order.truncate(self.top_n);
        }
        let entries = List(order[..].iter().map(|index| {
            let (score, text) = (scores[*index], documents[*index].as_str());
            let document = self.with_documents.then_some(text);
            let is_rerank = self.form == RankForm::Rerank;
            Entry {
                index: *index,
                object: (self.form == RankForm::Score).then_some("score"),
                relevance_score: is_rerank.then_some(score),
                score: (!is_rerank).then_some(score),
                text: document.filter(|_| self.form == RankForm::Tei),
                document: document.filter(|_| is_rerank).map(|text| Document { text }),
            }
        }));
        let RankContext { id, model, created, tokens } = *context;
        let (object, usage) = ("list", tokens.into());
        match self.form {
            RankForm::Tei => push_json(out, &entries),
            RankForm::Rerank => {
                push_json(out, &Reranked { id, object, model, usage, results: entries });
            }
            RankForm::Score => {
                push_json(out, &Scored { id, object, model, created, data: entries, usage });
            }
        }
    }
}

#[derive(Serialize)]
struct Reranked<'a, L> {
    id: &'a str,
    object: &'a str,
    model: &'a str,
    usage: Tokens,
    results: L,
}

#[derive(Serialize)]
struct Scored<'a, L> {
    id: &'a str,
    object: &'a str,
    model: &'a str,
    created: u64,
    data: L,
    usage: Tokens,
}

/// The entry of a document, with the names of all forms.
#[derive(Serialize)]
struct Entry<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    relevance_score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document<'a>>,
}

#[derive(Serialize)]
struct Document<'a> {
    text: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &RankRequest, scores: &[f32]) -> serde_json::Value {
        let mut out = Vec::new();
        let context = RankContext { id: "i", model: "m", created: 7, tokens: 9 };
        request.answer.push(scores, &request.documents, &context, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    fn rerank(body: &str) -> Result<RankRequest, ApiError> {
        read_rerank(&mut body.as_bytes().to_vec())
    }

    #[test]
    fn each_dialect_has_its_form() {
        let body = r#"{"query":"q","documents":["a",{"text":"b"},"c"],"top_n":2,
            "return_documents":true}"#;
        let found = answer(&rerank(body).unwrap(), &[0.25, 0.5, 0.125]);
        assert_eq!(
            found,
            serde_json::json!({"id": "i", "object": "list", "model": "m",
                "usage": {"prompt_tokens": 9, "total_tokens": 9},
                "results": [{"index": 1, "relevance_score": 0.5, "document": {"text": "b"}},
                    {"index": 0, "relevance_score": 0.25, "document": {"text": "a"}}]})
        );
        let tei = rerank(r#"{"query":"q","texts":["a","b"],"return_text":true,"raw_scores":true}"#);
        let tei = tei.unwrap();
        assert!(tei.answer.is_raw);
        assert_eq!(
            answer(&tei, &[0.25, 0.5]),
            serde_json::json!([{"index": 1, "score": 0.5, "text": "b"},
                {"index": 0, "score": 0.25, "text": "a"}])
        );
        let score = read_score(&mut br#"{"text_1":"q","text_2":["a","b"]}"#.to_vec()).unwrap();
        assert_eq!(
            answer(&score, &[0.25, 0.5])["data"],
            serde_json::json!([{"index": 0, "object": "score", "score": 0.25},
                {"index": 1, "object": "score", "score": 0.5}]),
            "in the order of the documents"
        );
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        for (body, field, says) in [
            (r#"{"documents":["a"]}"#, "query", "query is missing"),
            (r#"{"query":"","documents":["a"]}"#, "query", "query is missing or empty"),
            (r#"{"query":"q"}"#, "documents", "documents is missing"),
            (r#"{"query":"q","documents":[]}"#, "documents", "it must have 1 to 2048"),
            (r#"{"query":"q","documents":[1]}"#, "documents", "an array of strings"),
            (r#"{"query":"q","documents":["a"],"top_n":0}"#, "top_n", "from 1"),
        ] {
            let error = rerank(body).expect_err(body);
            assert_eq!((error.status, error.param), (400, Some(field)), "{body}");
            assert!(error.message.contains(says), "{}", error.message);
        }
        let body = br#"{"text_1":["q","r"],"text_2":["a","b","c"]}"#;
        let error = read_score(&mut body.to_vec()).unwrap_err();
        assert!(error.message.contains("text_1 has 2 texts and text_2 has 3"), "{}", error.message);
    }
}
