//! Tokenises prompts, and checks that they fit.

use super::model::ServedModel;
use crate::api::error::ApiError;
use crate::api::prompts::{Part, Prompt};
use crate::api::request::Length;
use crate::limits::TEXT_BYTES_MAX;
use crate::model::vocab::Vocab;
use crate::types::TokenId;

/// The text of a prompt.
pub fn text_of(prompt: &Prompt, model: &ServedModel) -> String {
    let spelled = |ids: &[TokenId]| {
        let bytes = ids.iter().flat_map(|id| model.vocab.bytes_of(*id)).copied();
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    };
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(ids) => spelled(ids),
        Prompt::Parts(parts) => {
            let text = |part: &Part| match part {
                Part::Text(text) => text.clone(),
                Part::Tokens(ids) => spelled(ids),
            };
            parts.iter().map(text).collect()
        }
        Prompt::Chat(text) => model.vocab.unguarded(text).into_owned(),
    }
}

/// Tokenises a client's text; see [`Vocab::tokenize`].
///
/// # Errors
/// 400 for a text that the model's tokeniser cannot read.
pub fn tokenize(
    vocab: &Vocab,
    param: &'static str,
    text: &str,
    add_special: bool,
    parse_special: bool,
) -> Result<Vec<TokenId>, ApiError> {
    let ids = vocab.tokenize(text, add_special, parse_special);
    ids.map_err(|error| ApiError::field(param, error.to_string()))
}

/// Tokenises the prompt of a chat.
///
/// # Errors
/// 400 for a text that the model's tokeniser cannot read.
pub fn tokenize_chat(vocab: &Vocab, text: &str) -> Result<Vec<TokenId>, ApiError> {
    vocab
        .tokenize_prompt(text, true)
        .map_err(|error| ApiError::field("messages", error.to_string()))
}

/// Fails if nobody waits for the answer any longer.
///
/// # Errors
/// 504. If the client has left, nobody reads it.
pub fn check_wanted(is_wanted: &dyn Fn() -> bool) -> Result<(), ApiError> {
    if is_wanted() { Ok(()) } else { Err(ApiError::deadline()) }
}

/// Refuses a text of more than [`TEXT_BYTES_MAX`] bytes, so that it is not tokenised.
///
/// # Errors
/// 400 with the size and the bound.
pub fn check_text(param: &'static str, text: &str) -> Result<(), ApiError> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{param} has {} bytes; it may have {TEXT_BYTES_MAX}", text.len());
    Err(ApiError::field(param, message))
}

/// Refuses a prompt that [`check_text`] refuses, or that certainly has more tokens than a sequence.
///
/// # Errors
/// 400 with the size and the bound.
pub fn check_prompt_text(
    text: &str,
    param: &'static str,
    model: &ServedModel,
) -> Result<(), ApiError> {
    check_text(param, text)?;
    let least_tokens = text.len() / model.vocab.longest_token_bytes();
    if least_tokens > model.sequence_tokens as usize {
        return Err(ApiError::too_long(param, least_tokens, "at least ", model.sequence_tokens));
    }
    Ok(())
}

/// Refuses token ids that are not in the vocabulary.
///
/// # Errors
/// 400 with the first such id and the valid range.
pub fn check_known(
    param: &'static str,
    ids: &[TokenId],
    model: &ServedModel,
) -> Result<(), ApiError> {
    let n_tokens = model.vocab.n_tokens();
    let known = |token: &TokenId| usize::try_from(*token).is_ok_and(|token| token < n_tokens);
    match ids.iter().find(|token| !known(token)) {
        Some(unknown) => {
            let most = n_tokens - 1;
            let message =
                format!("{param} has the token id {unknown}; this model's are 0 to {most}");
            Err(ApiError::field(param, message))
        }
        None => Ok(()),
    }
}

/// The tokens of a prompt.
///
/// # Errors
/// 400 for a prompt without tokens, with unknown ids, or with a text that [`check_prompt_text`]
/// refuses. [`check_length`] checks the number of tokens.
pub fn tokens_of(
    param: &'static str,
    prompt: &Prompt,
    model: &ServedModel,
) -> Result<Vec<TokenId>, ApiError> {
    let ids = tokens_in(param, prompt, true, model)?;
    if ids.is_empty() {
        let message = format!("{param} has no tokens; it must have at least one");
        return Err(ApiError::field(param, message));
    }
    Ok(ids)
}

/// The tokens of a prompt or of a part of one. If `is_whole`, with the special tokens around a
/// text.
///
/// # Errors
/// As [`tokens_of`], but a prompt without tokens is no error.
pub fn tokens_in(
    param: &'static str,
    prompt: &Prompt,
    is_whole: bool,
    model: &ServedModel,
) -> Result<Vec<TokenId>, ApiError> {
    let vocab = &model.vocab;
    let text_ids = |text: &str, around: bool| {
        check_prompt_text(text, param, model)?;
        tokenize(vocab, param, text, around, true)
    };
    match prompt {
        Prompt::Text(text) => text_ids(text, is_whole),
        Prompt::Tokens(tokens) => check_known(param, tokens, model).map(|()| tokens.clone()),
        Prompt::Chat(text) => tokenize_chat(vocab, text),
        Prompt::Parts(parts) => {
            let mut ids = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                match part {
                    Part::Text(text) => ids.extend(text_ids(text, index == 0 && is_whole)?),
                    Part::Tokens(tokens) => {
                        check_known(param, tokens, model)?;
                        ids.extend_from_slice(tokens);
                    }
                }
            }
            Ok(ids)
        }
    }
}

/// The number of tokens to generate after a prompt of `prompt_tokens`: as many as were asked for and
/// fit behind it, but not below 1.
///
/// # Errors
/// 400 if the prompt leaves no room for a token, with the numbers.
pub fn check_length(
    prompt_tokens: usize,
    length: Length,
    model: &ServedModel,
) -> Result<u32, ApiError> {
    let limit = model.sequence_tokens;
    let room = (limit as usize).saturating_sub(prompt_tokens) as u32; // at most limit
    let max_tokens = match length {
        Length::PromptOnly => 0,
        Length::Fit => room.max(1),
        Length::AtMost(tokens) => tokens.min(room).max(1),
        Length::Default(default) => {
            model.n_predict.or(default).map_or(room, |default| default.min(room)).max(1)
        }
    };
    if prompt_tokens + max_tokens as usize > limit as usize {
        return Err(ApiError::too_long("prompt", prompt_tokens, "", limit));
    }
    Ok(max_tokens)
}
