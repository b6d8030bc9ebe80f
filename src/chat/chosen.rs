//! Chooses the chat template of a server.

use std::borrow::Cow;

use super::named;
use super::prompt::ChatModel;

/// The template that the user gave (`--chat-template`), or else the model's own. `bos` and `eos`
/// are the texts of the model's tokens. If the model's own cannot be read, that is only a warning,
/// because everything but chats works.
///
/// # Errors
/// A sentence about the user's template.
pub fn template(
    given: Option<&str>,
    own: Option<&str>,
    bos: &str,
    eos: &str,
) -> Result<Option<ChatModel>, String> {
    if let Some(given) = given {
        let model = ChatModel::new(&template_source(given)?, bos, eos);
        return model.map(Some).map_err(|error| format!("--chat-template: {error}"));
    }
    let model = own.map(|own| ChatModel::new(own, bos, eos)).transpose();
    Ok(model.unwrap_or_else(|error| {
        tracing::warn!(%error, "the model's chat template cannot be used");
        None
    }))
}

/// The source of a template that the user gave: by its name, or whole.
fn template_source(given: &str) -> Result<Cow<'_, str>, String> {
    if let Some(source) = named::source(given) {
        return Ok(source.into());
    }
    // Without an expression, every prompt would be this text.
    if given.contains("{{") || given.contains("{%") {
        return Ok(given.into());
    }
    let names: Vec<&str> = named::names().collect();
    Err(format!(
        "--chat-template {given:?} is neither a template in Jinja, which has {{{{ }}}} or {{% %}}, \
         nor one of these names: {}",
        names.join(", ")
    ))
}
