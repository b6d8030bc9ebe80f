//! A prompt's tokens, and whether they fit.

use super::prepare::Serving;
use crate::api::Prompt;
use crate::api::error::ApiError;
use crate::api::request::AS_MANY_AS_FIT;
use crate::limits::TEXT_BYTES_MAX;
use crate::types::TokenId;

/// The text of a prompt.
pub fn text_of(prompt: &Prompt, serving: &Serving) -> String {
    match prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(ids) => {
            let bytes = ids.iter().flat_map(|id| serving.vocab.bytes_of(*id)).copied();
            String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
        }
        Prompt::Parts(parts) => parts.iter().map(|part| text_of(part, serving)).collect(),
    }
}

/// What cannot fit is refused before it costs anything to tokenise.
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

/// The same of a prompt, which has to fit into a sequence, too.
///
/// # Errors
/// 400 with the size and the bound.
pub fn check_prompt_text(
    text: &str,
    param: &'static str,
    serving: &Serving,
) -> Result<(), ApiError> {
    check_text(param, text)?;
    let least_tokens = text.len() / serving.vocab.longest_token_bytes();
    if least_tokens > serving.sequence_tokens as usize {
        return Err(too_long(least_tokens, "at least ", None, 1, serving.sequence_tokens));
    }
    Ok(())
}

/// Token ids are those of the vocabulary.
///
/// # Errors
/// 400 with the first that is not, and the range.
pub fn check_known(
    param: &'static str,
    ids: &[TokenId],
    serving: &Serving,
) -> Result<(), ApiError> {
    let n_tokens = serving.vocab.n_tokens();
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

/// The tokens of a prompt, with those around `suffix` where text is to be filled in.
///
/// # Errors
/// 400 for a prompt without tokens, with unknown ones, or with more than a sequence takes.
pub fn tokens_of(
    param: &'static str,
    prompt: &Prompt,
    suffix: Option<&str>,
    serving: &Serving,
) -> Result<Vec<TokenId>, ApiError> {
    let vocab = &serving.vocab;
    let parts = match prompt {
        Prompt::Parts(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let begins_with_text = matches!(parts, [Prompt::Text(_), ..]);
    let mut ids = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match part {
            Prompt::Text(text) => {
                check_prompt_text(text, param, serving)?;
                ids.extend(vocab.tokenize(text, index == 0 && suffix.is_none(), true));
            }
            Prompt::Tokens(tokens) => {
                check_known(param, tokens, serving)?;
                ids.extend_from_slice(tokens);
            }
            Prompt::Parts(_) => unreachable!("parts have no parts"),
        }
    }
    if let Some(suffix) = suffix {
        check_prompt_text(suffix, "suffix", serving)?;
        let Some(gap) = vocab.fill_in() else {
            let message = "this model cannot fill in text; leave suffix out";
            return Err(ApiError::unsupported("suffix", message));
        };
        ids.insert(0, gap.prefix);
        if begins_with_text {
            ids.splice(0..0, vocab.tokenize("", true, false)); // what a text begins with
        }
        ids.push(gap.suffix);
        ids.extend(vocab.tokenize(suffix, false, false));
        ids.push(gap.middle);
    }
    if ids.is_empty() {
        let message = format!("{param} has no tokens; it must have at least one");
        return Err(ApiError::field(param, message));
    }
    Ok(ids)
}

/// The number of tokens to generate: what was asked for, which must fit, or
/// the default, cut to what fits. At least one: what has no text of its own is
/// [told apart](super::prepare::PreparedGeneration::prompt_alone).
///
/// # Errors
/// 400 with all the numbers.
pub fn check_length(
    prompt_tokens: usize,
    asked: Option<u32>,
    default: u32,
    limit: u32,
) -> Result<u32, ApiError> {
    let room = (limit as usize).saturating_sub(prompt_tokens);
    let (asked, default) = match asked {
        Some(AS_MANY_AS_FIT) => (None, AS_MANY_AS_FIT),
        Some(0) => (None, 1),
        asked => (asked, default),
    };
    let max_tokens = asked.unwrap_or(default.min(room as u32).max(1)); // room is below limit
    if max_tokens as usize > room {
        return Err(too_long(prompt_tokens, "", asked, max_tokens, limit));
    }
    Ok(max_tokens)
}

fn too_long(
    prompt_tokens: usize,
    qualifier: &str,
    asked: Option<u32>,
    max_tokens: u32,
    limit: u32,
) -> ApiError {
    ApiError {
        code: Some("context_length_exceeded"),
        ..ApiError::field(
            if asked.is_some() { "max_tokens" } else { "prompt" },
            format!(
                "the prompt has {qualifier}{prompt_tokens} tokens and {max_tokens} are to be \
                 generated, {} together; a request may have {limit}",
                prompt_tokens + max_tokens as usize
            ),
        )
    }
}
