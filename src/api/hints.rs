//! Fields that corelane does not have: those that ask for something are refused, and hints are
//! ignored.

use super::error::ApiError;
use super::json::{Fields, refuse};

/// Fields of OpenAI's, llama-server's or vLLM's API that corelane does not support. Each has the
/// JSON value that asks for nothing.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("lora", "[]"),
    ("functions", "[]"),
    ("function_call", "\"none\""),
    ("modalities", "[\"text\"]"),
    ("audio", "null"),
    ("structured_outputs", "null"),
    ("allowed_token_ids", "[]"),
    ("include_stop_str_in_output", "false"),
    ("chat_template", "null"),
    ("documents", "[]"),
    ("skip_special_tokens", "true"),
    ("spaces_between_special_tokens", "true"),
    ("container", "null"),
    ("parse_tool_calls", "true"),
    ("prompt_logprobs", "0"),
    ("post_sampling_probs", "false"),
    ("stop_token_ids", "[]"),
    ("bad_words", "[]"),
    ("length_penalty", "1"),
    ("use_beam_search", "false"),
];

/// Refuses a known but unsupported field that asks for something, rather than ignoring it.
pub fn refuse_unsupported(fields: &Fields<'_, '_>) -> Result<(), ApiError> {
    refuse(fields, UNSUPPORTED)
}

/// Hints: fields that change neither the form nor the meaning of an answer, and fields about tools
/// and lists that only the API's owner has. A request with them is served as if it had none.
const HINTS: &[&str] = &[
    "context_management",
    "mcp_servers",
    "n_cache_reuse",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "verbosity",
    "web_search_options",
];

/// The hints in a request, for the log, without those that have an effect in its dialect.
pub fn read_hints(fields: &Fields<'_, '_>, effective: &[&str]) -> Result<Vec<String>, ApiError> {
    let mut found = Vec::new();
    for name in HINTS {
        if !effective.contains(name) && fields.find(name)?.is_some() {
            found.push((*name).to_owned());
        }
    }
    Ok(found)
}
