//! Reads prompts, in all forms of OpenAI's API and of llama-server.

use crate::api::value::Value;

use super::error::ApiError;
use super::json::{Fields, refuse, wrong};
use crate::limits::PROMPTS_MAX;
use crate::types::TokenId;

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text to tokenise.
    Text(String),
    /// Token ids, used as they are.
    Tokens(Vec<TokenId>),
    /// Texts and token ids, joined in this order.
    Parts(Vec<Part>),
    /// A conversation that a template has rendered, with marks around the clients' texts.
    Chat(String),
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text to tokenise.
    Text(String),
    /// Token ids, used as they are.
    Tokens(Vec<TokenId>),
}

impl Prompt {
    /// Bytes of text and of token ids.
    pub fn bytes(&self) -> usize {
        match self {
            Prompt::Text(text) | Prompt::Chat(text) => text.len(),
            Prompt::Tokens(ids) => size_of_val(ids.as_slice()),
            Prompt::Parts(parts) => {
                let bytes = |part: &Part| match part {
                    Part::Text(text) => text.len(),
                    Part::Tokens(ids) => size_of_val(ids.as_slice()),
                };
                parts.iter().map(|part| size_of::<Part>() + bytes(part)).sum()
            }
        }
    }

    /// The number of texts. Each one is a call to the tokeniser.
    fn texts(&self) -> usize {
        match self {
            Prompt::Parts(parts) => {
                parts.iter().filter(|part| matches!(part, Part::Text(_))).count()
            }
            _ => 0,
        }
    }
}

/// Reads `prompt`: a string; an array of token ids and strings, which form one prompt; or an array
/// of such prompts.
///
/// # Errors
/// 400 if it is missing, empty or of another form.
pub fn read_prompts(fields: &Fields<'_, '_>) -> Result<Vec<Prompt>, ApiError> {
    read_prompt_list("prompt", PROMPTS_MAX, fields)
}

/// Reads prompts from the field `name`. Bounds their number, and the number of texts between token
/// ids.
///
/// # Errors
/// 400 if it is missing, empty or of another form.
pub fn read_prompt_list(
    name: &'static str,
    most: usize,
    fields: &Fields<'_, '_>,
) -> Result<Vec<Prompt>, ApiError> {
    let Some(value) = fields.get(name)? else {
        return Err(ApiError::field(name, format!("{name} is missing; it must be {FORMS}")));
    };
    if let Some(prompt) = read_whole_text(name, &value)? {
        return Ok(vec![prompt]);
    }
    let array = value.as_array().ok_or_else(|| wrong(name, FORMS, &value))?;
    let too_many = |count, what| {
        ApiError::field(name, format!("{count} {what} in one request; at most {most}"))
    };
    if array.iter().any(|element| element.is_number()) {
        let prompt = read_parts(name, &array)?;
        return match prompt.texts() {
            texts if texts > most => Err(too_many(texts, "texts")),
            _ => Ok(vec![prompt]),
        };
    }
    if array.is_empty() {
        return Err(empty(name));
    }
    if array.len() > most {
        return Err(too_many(array.len(), &format!("{name}s")));
    }
    let mut texts = 0;
    let prompts = array.iter().map(|element| {
        if let Some(prompt) = read_whole_text(name, &element)? {
            return Ok(prompt);
        }
        let parts = element.as_array().ok_or_else(|| wrong(name, FORMS, &element))?;
        let prompt = read_parts(name, &parts)?;
        texts += prompt.texts();
        if texts > most { Err(too_many(texts, "texts")) } else { Ok(prompt) }
    });
    prompts.collect()
}

/// A prompt of one text: a string, or llama-server's object with a `prompt_string`. `None` for
/// another form.
fn read_whole_text(name: &'static str, value: &Value<'_, '_>) -> Result<Option<Prompt>, ApiError> {
    if let Some(text) = value.as_str() {
        return read_text(name, text).map(Some);
    }
    let Some(object) = value.as_object() else { return Ok(None) };
    let object = Fields::new(object)?;
    refuse(&object, &[("multimodal_data", "[]")])?;
    match object.string("prompt_string")? {
        Some(text) => read_text(name, &text).map(Some),
        None => Err(wrong(name, FORMS, value)),
    }
}

const FORMS: &str = "a string, an object with a string prompt_string, an array of these, or an array \
     of token ids with or without strings among them";

/// Reads a text that is not empty.
///
/// # Errors
/// 400 for an empty text.
pub fn read_text(name: &'static str, text: &str) -> Result<Prompt, ApiError> {
    if text.is_empty() { Err(empty(name)) } else { Ok(Prompt::Text(text.to_owned())) }
}

fn empty(name: &'static str) -> ApiError {
    ApiError::field(name, format!("{name} is empty; it must have at least one token"))
}

/// Reads one prompt of token ids, texts or both.
fn read_parts(
    name: &'static str,
    array: &crate::api::value::Array<'_, '_>,
) -> Result<Prompt, ApiError> {
    let mut parts = Vec::new();
    let mut tokens = Vec::new();
    for element in array.iter() {
        match (element.as_i32(), element.as_str()) {
            (Some(token), _) => tokens.push(token),
            (None, Some(text)) => {
                parts.extend(non_empty(&mut tokens).map(Part::Tokens));
                parts.push(Part::Text(text.to_owned()));
            }
            (None, None) => {
                return Err(wrong(name, "an array of token ids and of strings", &element));
            }
        }
    }
    if parts.is_empty() {
        return non_empty(&mut tokens).map(Prompt::Tokens).ok_or_else(|| empty(name));
    }
    parts.extend(non_empty(&mut tokens).map(Part::Tokens));
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        let message = format!("an array within {name} has strings alone; it must have token ids");
        return Err(ApiError::field(name, message));
    }
    Ok(Prompt::Parts(parts))
}

/// Takes the tokens, if there are any.
fn non_empty(tokens: &mut Vec<TokenId>) -> Option<Vec<TokenId>> {
    (!tokens.is_empty()).then(|| std::mem::take(tokens))
}
