//! Conversations in the form that strict templates accept.
//!
//! The APIs allow conversations that many templates refuse: a system message in the middle, two
//! turns of one role in a row, an answer without text. Agents send such conversations all the time.
//! After a template's own error, the conversation is changed here and rendered once more. No text
//! is lost, and the order of the texts stays.

use super::conversation::{Content, Message, Role};

/// Changes a conversation so that user and assistant take turns after one system message:
///
/// - System messages at the start become one. A later one joins the user's turn next to it.
/// - Neighbours of one role become one message, except results of tools.
/// - A message without text gets an empty text.
/// - A conversation that starts with an answer gets an empty question before it.
///
/// Without `has_system`, the template has no system message, so that the user's first turn starts
/// with its text.
pub fn mended(messages: Vec<Message>, has_system: bool) -> Vec<Message> {
    let mut mended: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        if message.content == Content::None {
            message.content = Content::Text(String::new());
        }
        if matches!(message.role, Role::System | Role::Developer) {
            let is_first = mended.iter().all(|before| before.role == Role::System);
            message.role = if has_system && is_first { Role::System } else { Role::User };
        }
        match mended.last_mut() {
            Some(last) if last.role == message.role && message.role != Role::Tool => {
                join(last, message);
            }
            _ => mended.push(message),
        }
    }
    let first = mended.iter().position(|message| message.role != Role::System);
    if let Some(first) = first.filter(|first| mended[*first].role == Role::Assistant) {
        let content = Content::Text(String::new());
        mended.insert(first, Message { content, ..Message::default() });
    }
    mended
}

/// Changes a mended conversation further, for the strictest templates:
///
/// - A user's text right behind a tool's result joins the result. Mistral's templates want an
///   answer there.
/// - The text of an answer that also has reasoning and calls joins the reasoning. gpt-oss writes
///   only one text before a call, and its template refuses two.
pub fn strictly(messages: Vec<Message>) -> Vec<Message> {
    let mut strict: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        if let Some(reasoning) = &mut message.reasoning
            && !message.tool_calls.is_empty()
        {
            append(reasoning, &message.content.text());
            message.content = Content::Text(String::new());
        }
        match strict.last_mut() {
            Some(last) if last.role == Role::Tool && message.role == Role::User => {
                join(last, message);
            }
            _ => strict.push(message),
        }
    }
    strict
}

/// Joins a message with the one after it, which has the same role.
fn join(message: &mut Message, next: Message) {
    match &mut message.content {
        Content::Parts(parts) => match next.content {
            Content::Parts(more) => parts.extend(more),
            one => parts.push(one.text()),
        },
        content => {
            let mut text = content.text();
            append(&mut text, &next.content.text());
            *content = Content::Text(text);
        }
    }
    if let Some(more) = next.reasoning {
        append(message.reasoning.get_or_insert_default(), &more);
    }
    message.tool_calls.extend(next.tool_calls);
}

/// Appends a paragraph, unless it is empty.
fn append(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::conversation::ToolCall;

    fn talk(messages: &[(Role, &str)]) -> Vec<Message> {
        let message = |(role, text): &(Role, &str)| Message {
            role: *role,
            content: Content::Text((*text).into()),
            ..Message::default()
        };
        messages.iter().map(message).collect()
    }

    fn turns(messages: &[Message]) -> Vec<(Role, String)> {
        messages.iter().map(|message| (message.role, message.content.text())).collect()
    }

    fn check(before: &[(Role, &str)], has_system: bool, after: &[(Role, &str)]) {
        let after: Vec<_> = after.iter().map(|(role, text)| (*role, (*text).to_owned())).collect();
        assert_eq!(turns(&mended(talk(before), has_system)), after);
    }

    #[test]
    fn there_is_one_system_message_and_turns_alternate() {
        use Role::*;
        let first = [(System, "a"), (Developer, "b"), (User, "c"), (User, "d")];
        check(&first, true, &[(System, "a\n\nb"), (User, "c\n\nd")]);
        check(&first, false, &[(User, "a\n\nb\n\nc\n\nd")]);
        let late = [(User, "a"), (Assistant, "b"), (System, "c"), (User, "d"), (System, "e")];
        check(&late, true, &[(User, "a"), (Assistant, "b"), (User, "c\n\nd\n\ne")]);
        check(&[(Assistant, "a")], true, &[(User, ""), (Assistant, "a")]);
        check(&[(User, ""), (User, "a")], true, &[(User, "a")]);
        check(&[(Tool, "1"), (Tool, "2")], true, &[(Tool, "1"), (Tool, "2")]);
    }

    #[test]
    fn neighbours_keep_their_parts_their_calls_and_their_reasoning() {
        let call = |name: &str| ToolCall { id: "".into(), name: name.into(), arguments: json!({}) };
        let said = |calls: &[&str], reasoning: Option<&str>| Message {
            role: Role::Assistant,
            reasoning: reasoning.map(Into::into),
            tool_calls: calls.iter().map(|name| call(name)).collect(),
            ..Message::default()
        };
        let asked = Message { content: Content::Parts(vec!["a".into()]), ..Message::default() };
        let messages = vec![asked.clone(), asked, said(&["f"], None), said(&["g"], Some("Hm."))];
        let joined = mended(messages, true);
        assert_eq!(joined[0].content, Content::Parts(vec!["a".into(), "a".into()]));
        assert_eq!(joined[1].tool_calls, [call("f"), call("g")]);
        assert_eq!(joined[1].reasoning.as_deref(), Some("Hm."));
        assert_eq!(joined[1].content, Content::Text(String::new()));
    }

    #[test]
    fn strict_templates_get_one_text_before_a_call_and_an_answer_after_a_result() {
        let call = ToolCall { id: "".into(), name: "f".into(), arguments: json!({}) };
        let mut messages = talk(&[
            (Role::Assistant, "I look."),
            (Role::Tool, "1"),
            (Role::User, "And?"),
            (Role::Assistant, "Done."),
        ]);
        messages[0].reasoning = Some("Hm.".into());
        messages[3].reasoning = Some("So.".into());
        messages[0].tool_calls = vec![call];
        let strict = strictly(messages);
        let texts: Vec<String> = strict.iter().map(|message| message.content.text()).collect();
        assert_eq!(texts, ["", "1\n\nAnd?", "Done."]);
        assert_eq!(strict[0].reasoning.as_deref(), Some("Hm.\n\nI look."));
    }
}
