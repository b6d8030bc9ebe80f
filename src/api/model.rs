//! Facts about the model, for every dialect that lists models.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::types::ModelInfo;

/// The served model.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    /// Its name for clients.
    pub name: &'a str,
    /// All its names that the operator gave.
    pub aliases: &'a [String],
    /// The operator's tags for it.
    pub tags: &'a [String],
    /// Its properties.
    pub info: &'a ModelInfo,
    /// The source of its chat template.
    pub template: Option<&'a str>,
    /// Whether it fills in the middle of a text.
    pub fills_in: bool,
    /// Whether it makes embeddings.
    pub embeds: bool,
    /// Most tokens of one request.
    pub context_tokens: u32,
}

/// The answer to `GET /v1/models`: OpenAI's list, and beside it llama-server's list of the same
/// model in Ollama's form. `created` is in seconds since 1970.
pub fn list(model: &Model<'_>, created: u64) -> Value {
    let mut listed = listed(model);
    listed["modified_at"] = time(model.info.modified).into();
    listed["type"] = "model".into();
    listed["description"] = "".into();
    listed["tags"] = model.tags.into();
    listed["capabilities"] = capabilities(model).into();
    listed["parameters"] = "".into();
    json!({"object": "list", "data": [object(model, created)], "models": [listed]})
}

/// The answer to `GET /v1/models/{model}`.
pub fn object(model: &Model<'_>, created: u64) -> Value {
    let info = model.info;
    let output = if info.sees_ahead { "embeddings" } else { "text" };
    json!({
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "corelane",
        "aliases": model.aliases,
        "tags": model.tags,
        "max_model_len": model.context_tokens,
        "architecture": {"input_modalities": ["text"], "output_modalities": [output]},
        "meta": {
            "vocab_type": info.vocab_type,
            "n_vocab": info.n_vocab,
            "n_ctx": model.context_tokens,
            "n_ctx_train": info.context_trained,
            "n_embd": info.n_embd,
            "n_params": info.n_params,
            "size": info.size_bytes,
            "ftype": info.quantization,
        },
    })
}

/// The model in a list of Ollama's form.
pub fn listed(model: &Model<'_>) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "size": model.info.size_bytes,
        "digest": digest(model),
        "details": details(model.info),
    })
}

/// What the model can do, in Ollama's words.
pub fn capabilities(model: &Model<'_>) -> Vec<&'static str> {
    let source = model.template.unwrap_or_default();
    let thinks = source.contains("<think>") || source.contains("enable_thinking");
    let can = [
        ("completion", !model.info.sees_ahead),
        ("tools", model.template.is_some()),
        ("insert", model.fills_in),
        ("embedding", model.embeds),
        ("thinking", thinks),
    ];
    can.iter().filter(|(_, can)| *can).map(|(name, _)| *name).collect()
}

/// A time, in seconds since 1970, in the form of RFC 3339.
pub fn time(seconds: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap_or(0));
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).expect("a year of four digits")
}

/// The model's format and size.
pub fn details(info: &ModelInfo) -> Value {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": info.architecture,
        "families": [info.architecture],
        "parameter_size": parameters(info.n_params),
        "quantization_level": info.quantization,
    })
}

/// A number of parameters as people write it: 7.6B, 2.6M.
fn parameters(n: u64) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.1}B", n / 1e9),
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}K", n / 1e3),
    }
}

/// 64 hexadecimal digits that tell one model from another. Clients show the first twelve. It is no
/// checksum of the file, which would take seconds to read again.
fn digest(model: &Model<'_>) -> String {
    let part = |number: u8| {
        let mut hasher = DefaultHasher::new();
        let ModelInfo { n_params, size_bytes, modified, .. } = model.info;
        (number, model.name, n_params, size_bytes, modified).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}
