//! Parses the JSON of an OpenAI-style server, from one event or from a whole response.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Characters of a measured server's error message that are kept.
const MESSAGE_CHARS_MAX: usize = 300;

/// The parsed JSON of one event or of one whole response.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Whether a choice carries more than the message's role: one or more tokens.
    pub has_choices: bool,
    /// Whether a choice has a finish reason.
    pub is_finished: bool,
    /// Token counts from the server.
    pub usage: Option<Usage>,
    /// The message of an error that the server sent instead of an answer.
    pub error: Option<String>,
}

/// Token counts of a request; `None` where the server omits one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    /// The text of a completion.
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    /// The new part of a chat message, in a stream.
    #[serde(borrow)]
    delta: Option<Said<'a>>,
    /// The whole chat message, without streaming.
    #[serde(borrow)]
    message: Option<Said<'a>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Said<'a> {
    role: Option<IgnoredAny>,
    tool_calls: Option<IgnoredAny>,
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    /// The reasoning text, under the name that most servers use.
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    /// The reasoning text, under vllm's name.
    #[serde(borrow)]
    reasoning: Option<Cow<'a, str>>,
}

impl Choice<'_> {
    /// Returns whether the choice only announces the message's role. The first event of a chat may
    /// do that before any token is computed, so it does not count as a token.
    fn is_heading(&self) -> bool {
        self.delta.as_ref().is_some_and(|delta| {
            let said = [&delta.content, &delta.reasoning_content, &delta.reasoning];
            let is_silent = said.iter().all(|text| text.as_deref().unwrap_or_default().is_empty());
            let is_call = delta.tool_calls.is_some();
            delta.role.is_some() && is_silent && !is_call && self.finish_reason.is_none()
        })
    }
}

/// Parses an event's data or a response's body, and appends its text to `text`.
pub fn read(json: &[u8], text: &mut String) -> Result<Reply, String> {
    let wire: Wire<'_> = serde_json::from_slice(json)
        .map_err(|error| format!("{error}: {}", shown(&String::from_utf8_lossy(json))))?;
    let choices = wire.choices.unwrap_or_default();
    for choice in &choices {
        let said = [&choice.delta, &choice.message].into_iter().flatten();
        let content = said.filter_map(|said| said.content.as_deref());
        text.extend(choice.text.as_deref().into_iter().chain(content));
    }
    Ok(Reply {
        has_choices: !choices.iter().all(Choice::is_heading),
        is_finished: choices.iter().any(|choice| choice.finish_reason.is_some()),
        usage: wire.usage,
        error: wire.error.map(|error| message_of(&error)),
    })
}

/// The message in the body of an error response, or the body itself.
pub fn error_message(body: &[u8]) -> String {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => message_of(value.get("error").unwrap_or(&value)),
        Err(_) => shown(&String::from_utf8_lossy(body)),
    }
}

/// The message of `{"message": "…"}` or `"…"`; any other value as JSON text.
fn message_of(error: &Value) -> String {
    match error.get("message").unwrap_or(error) {
        Value::String(message) => shown(message),
        other => shown(&other.to_string()),
    }
}

/// Makes a server's text safe to print: bounded in length, on one line, without control characters.
pub fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MESSAGE_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(MESSAGE_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_events_are_read() {
        let mut text = String::new();
        let reply =
            read(br#"{"id":"x","choices":[{"text":"a\n","index":0}],"usage":null}"#, &mut text);
        assert_eq!(reply, Ok(Reply { has_choices: true, ..Reply::default() }));
        let last = br#"{"choices":[{"text":"","finish_reason":"length"}]}"#;
        assert!(read(last, &mut text).unwrap().is_finished);
        let usage = br#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
        let reply = read(usage, &mut text).unwrap();
        assert!(!reply.has_choices);
        let expected = Usage { prompt_tokens: Some(3), completion_tokens: Some(2) };
        assert_eq!(reply.usage, Some(expected));
        assert_eq!(text, "a\n");
    }

    #[test]
    fn a_chats_events_are_read_and_its_heading_is_no_token() {
        let mut text = String::new();
        let mut is_token = |event: &str| read(event.as_bytes(), &mut text).unwrap().has_choices;
        for heading in [
            r#"{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
        ] {
            assert!(!is_token(heading), "{heading}");
        }
        for token in [
            r#"{"choices":[{"delta":{"role":"assistant","content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"reasoning":"x"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"x"}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":""}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"role":"assistant","content":"c\n"}}]}"#,
        ] {
            assert!(is_token(token), "{token}");
        }
        assert_eq!(text, "abc\n");
    }

    #[test]
    fn what_is_not_of_the_form_is_refused() {
        for json in [
            "",
            "{",
            "[1]",
            "7",
            r#"{"choices":7}"#,
            r#"{"choices":[7]}"#,
            r#"{"choices":[{"delta":7}]}"#,
            r#"{"usage":{"completion_tokens":-1}}"#,
            r#"{"usage":{"completion_tokens":1e99}}"#,
            "{\"choices\":[{\"text\":\"\x01\"}]}",
        ] {
            assert!(read(json.as_bytes(), &mut String::new()).is_err(), "{json}");
        }
        assert!(read(b"\xFF\xFE", &mut String::new()).is_err());
    }

    #[test]
    fn errors_are_found_in_every_common_form() {
        for (body, message) in [
            (r#"{"error":{"message":"no room","code":500}}"#, "no room"),
            (r#"{"error":"no room"}"#, "no room"),
            (r#"{"message":"no room"}"#, "no room"),
            (r#"{"error":{"code":5}}"#, r#"{"code":5}"#),
            ("plain\r\n\x1b[31mtext\n", "plain   [31mtext"),
            ("", ""),
        ] {
            assert_eq!(error_message(body.as_bytes()), message);
        }
        let event = br#"{"error":{"message":"broken"}}"#;
        let reply = read(event, &mut String::new()).unwrap();
        assert_eq!(reply.error.as_deref(), Some("broken"));
        let long = "x".repeat(MESSAGE_CHARS_MAX + 1);
        assert_eq!(shown(&long).chars().count(), MESSAGE_CHARS_MAX + 1);
        assert!(shown(&long).ends_with('…'));
    }
}
