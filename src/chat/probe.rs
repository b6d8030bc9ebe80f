//! Finds out what a chat template can do, by rendering small conversations with it.

use minijinja::Value;
use minijinja::value::Serde;
use serde_json::json;
use time::OffsetDateTime;

use super::template::{Chat, ChatTemplate};

/// A text that no template contains.
pub(super) const NEEDLE: &str = "corelane-needle";

/// The prompt of these messages; empty if the template refuses them.
fn rendered(template: &ChatTemplate, messages: serde_json::Value) -> String {
    let chat = Chat {
        messages: Value::from(Serde(messages)),
        tools: Value::UNDEFINED,
        add_generation_prompt: true,
        kwargs: Default::default(),
        now: OffsetDateTime::UNIX_EPOCH,
    };
    template.render(&chat).unwrap_or_default()
}

/// Whether a template shows a system message, as a text or in parts.
pub(super) fn has_system(template: &ChatTemplate) -> bool {
    let shows = |content: fn(&str) -> serde_json::Value| {
        let system = json!({"role": "system", "content": content(NEEDLE)});
        let user = json!({"role": "user", "content": content("a")});
        rendered(template, json!([system, user])).contains(NEEDLE)
    };
    shows(|text| json!(text)) || shows(|text| json!([{"type": "text", "text": text}]))
}

/// Whether a template shows an answer without text as Python's word for nothing.
pub(super) fn shows_none(template: &ChatTemplate) -> bool {
    let shown = |content: serde_json::Value| {
        let call = json!({"id": "1", "type": "function",
            "function": {"name": "f", "arguments": {}}});
        let said = json!({"role": "assistant", "content": content, "tool_calls": [call]});
        rendered(template, json!([{"role": "user", "content": "a"}, said]))
    };
    shown(json!(null)).contains("None") && !shown(json!("")).contains("None")
}

/// Whether a template handles content in parts: rendered with one part, it shows only the part's
/// text. (llama.cpp tests templates in the same way.)
pub(super) fn wants_parts(template: &ChatTemplate) -> bool {
    let shown = |content: serde_json::Value| {
        rendered(template, json!([{"role": "user", "content": content}]))
    };
    let of_parts = shown(json!([{"type": "text", "text": NEEDLE}]));
    let of_text = shown(json!(NEEDLE));
    let is_whole = |text: &str| {
        text.contains(NEEDLE) && !text.contains("'type'") && !text.contains("\"type\"")
    };
    is_whole(&of_parts) && !is_whole(&of_text)
}
