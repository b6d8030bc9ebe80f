//! Ollama's paths about models: `/api/tags`, `/api/ps`, `/api/show` and `/api/version`.

use serde_json::{Map, json};

use crate::api::error::ApiError;
use crate::api::json::{Fields, read_object};
use crate::api::model::{Model, capabilities, details, listed, time};
use crate::api::write::push_json;

/// The version of Ollama that has the fields of this dialect. Clients compare it, and refuse to
/// talk to an older one.
const OLLAMA_VERSION: &str = "0.9.6";

/// A request that only loads or unloads the model, which do nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading {
    /// It came to `/api/chat`.
    pub chat: bool,
    /// It asks to unload.
    pub unload: bool,
}

/// Reads `model`. Any name is accepted, for only one model is served.
pub fn read_model(fields: &Fields<'_, '_>) -> Result<(), ApiError> {
    match fields.string("model")? {
        Some(_) => Ok(()),
        None => Err(ApiError::field("model", "model is missing; it must be a string")),
    }
}

/// Reads a `/api/show` request.
pub fn read_show(body: &mut [u8]) -> Result<(), ApiError> {
    read_object(body, |fields| {
        // Older clients call it `name`.
        if fields.string("name")?.is_none() {
            read_model(fields)?;
        }
        fields.boolean("verbose")?;
        Ok(())
    })
}

/// Writes the answer to [`Loading`].
pub fn push_loading(out: &mut Vec<u8>, loading: Loading, model: &Model<'_>, created: u64) {
    let mut answer = json!({
        "model": model.name,
        "created_at": time(created),
        "done": true,
        "done_reason": if loading.unload { "unload" } else { "load" },
    });
    if loading.chat {
        answer["message"] = json!({"role": "assistant", "content": ""});
    } else {
        answer["response"] = "".into();
    }
    push_json(out, &answer);
}

/// Writes the answer to `GET /api/tags`: the models of the server.
pub fn push_tags(out: &mut Vec<u8>, model: &Model<'_>) {
    let mut listed = listed(model);
    listed["modified_at"] = time(model.info.modified).into();
    push_json(out, &json!({"models": [listed]}));
}

/// Writes the answer to `GET /api/ps`: the models in memory.
pub fn push_running(out: &mut Vec<u8>, model: &Model<'_>) {
    let mut listed = listed(model);
    listed["expires_at"] = "2999-12-31T23:59:59Z".into(); // it stays until the server ends
    listed["size_vram"] = 0.into();
    listed["context_length"] = model.context_tokens.into();
    push_json(out, &json!({"models": [listed]}));
}

/// Writes the answer to `/api/show`: a model's properties.
pub fn push_show(out: &mut Vec<u8>, model: &Model<'_>) {
    let Model { info, template, .. } = *model;
    let mut facts = Map::from_iter([
        ("general.architecture".to_owned(), info.architecture.as_str().into()),
        ("general.basename".to_owned(), info.name.as_str().into()),
        ("general.parameter_count".to_owned(), info.n_params.into()),
    ]);
    for (name, number) in [
        ("context_length", u64::from(info.context_trained)),
        ("embedding_length", info.n_embd as u64),
        ("attention.head_count", u64::from(info.n_head)),
        ("vocab_size", info.n_vocab as u64),
    ] {
        facts.insert(format!("{}.{name}", info.architecture), number.into());
    }
    let source = template.unwrap_or_default();
    let answer = json!({
        "modelfile": format!("FROM {}\n", model.name),
        "parameters": format!("num_ctx {}", model.context_tokens),
        "template": source,
        "details": details(info),
        "model_info": facts,
        "capabilities": capabilities(model),
        "modified_at": time(info.modified),
    });
    push_json(out, &answer);
}

/// Writes the answer to `GET /api/version`.
pub fn push_version(out: &mut Vec<u8>) {
    let own = format!("corelane {}", env!("CARGO_PKG_VERSION"));
    push_json(out, &json!({"version": OLLAMA_VERSION, "server": own}));
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::types::ModelInfo;

    #[test]
    fn a_model_is_listed_as_ollama_lists_it() {
        let info = ModelInfo {
            architecture: "llama".into(),
            quantization: "Q8_0".into(),
            n_params: 2_600_000,
            size_bytes: 7,
            ..ModelInfo::default()
        };
        let model = Model {
            name: "m",
            aliases: &[],
            tags: &[],
            info: &info,
            template: Some("<think>"),
            fills_in: false,
            embeds: true,
            context_tokens: 9,
        };
        let answer = |push: fn(&mut Vec<u8>, &Model<'_>)| {
            let mut out = Vec::new();
            push(&mut out, &model);
            serde_json::from_slice::<Value>(&out).unwrap()
        };
        let tags = &answer(push_tags)["models"][0];
        assert_eq!(
            (&tags["model"], &tags["modified_at"]),
            (&"m".into(), &"1970-01-01T00:00:00Z".into())
        );
        assert_eq!(tags["digest"].as_str().unwrap().len(), 64);
        assert_eq!(tags["details"]["parameter_size"], "2.6M");
        let running = &answer(push_running)["models"][0];
        assert_eq!((&running["context_length"], &running["size"]), (&9.into(), &7.into()));
        let show = answer(push_show);
        assert_eq!(show["capabilities"], json!(["completion", "tools", "embedding", "thinking"]));
        assert_eq!(show["model_info"]["llama.context_length"], 0);
    }
}
