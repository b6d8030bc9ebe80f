//! Tools for models whose chat template does not support them.
//!
//! In: a conversation with tools, calls and results. Out: a conversation that has them as text, in
//! roles that every template knows. The system turn describes the tools, the assistant's text has
//! its calls, and the user's text has the results. The form is that of Hermes, which most models
//! have seen in training.

use super::conversation::{Content, Message, Role, Tool, ToolCall};
use super::output::ToolSyntax;
use crate::types::digits::spelled;

/// The syntax of the calls.
pub const SYNTAX: ToolSyntax = ToolSyntax::Hermes;

/// Writes calls and results as text. The client's texts must already be guarded.
pub fn write_calls(messages: Vec<Message>) -> Vec<Message> {
    let mut written: Vec<Message> = Vec::with_capacity(messages.len());
    let mut after_result = false;
    for mut message in messages {
        let is_result = message.role == Role::Tool;
        for call in std::mem::take(&mut message.tool_calls) {
            append(&mut message.content, &call_text(&call), "\n");
        }
        if is_result {
            let result = message.content.text();
            message = Message {
                role: Role::User,
                content: Content::Text(format!("<tool_response>\n{result}\n</tool_response>")),
                ..Message::default()
            };
        }
        // Many templates require that user and assistant take turns, so a user's text joins the
        // result before it.
        match written.last_mut() {
            Some(last) if after_result && message.role == Role::User => {
                append(&mut last.content, &message.content.text(), "\n");
            }
            _ => {
                after_result = is_result;
                written.push(message);
            }
        }
    }
    written
}

/// Describes tools in the system turn. If the template shows no system turn (`has_system` is
/// false), describes them in the user's first turn.
pub fn describe_tools(messages: &mut Vec<Message>, tools: &[Tool], has_system: bool) {
    let definitions: String =
        tools.iter().map(|tool| format!("{}\n", spelled(tool.definition.to_string()))).collect();
    let description = format!(
        "# Tools\n\nYou can call functions. Here is a description of each, as JSON:\n<tools>\n\
         {definitions}</tools>\n\nTo call one, write its name and its arguments as JSON between two \
         tags, and nothing after that:\n<tool_call>\n{{\"name\": \"name of the function\", \
         \"arguments\": {{\"name of the argument\": \"value\"}}}}\n</tool_call>\nYou then get the \
         result between <tool_response> and </tool_response>."
    );
    let first = messages.first_mut();
    match first.filter(|first| matches!(first.role, Role::System | Role::Developer)) {
        Some(system) if has_system => append(&mut system.content, &description, "\n\n"),
        _ if has_system => messages.insert(0, said(Role::System, description)),
        _ => match messages.iter_mut().find(|message| message.role == Role::User) {
            Some(user) => {
                let text = format!("{description}\n\n{}", user.content.text());
                user.content = Content::Text(text);
            }
            None => messages.insert(0, said(Role::User, description)),
        },
    }
}

fn said(role: Role, text: String) -> Message {
    Message { role, content: Content::Text(text), ..Message::default() }
}

fn call_text(call: &ToolCall) -> String {
    let name = serde_json::Value::from(call.name.as_str());
    let arguments = spelled(call.arguments.to_string());
    format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
}

/// Appends a text, after a separator unless the content is empty.
fn append(content: &mut Content, text: &str, separator: &str) {
    let before = content.text();
    let separator = if before.is_empty() { "" } else { separator };
    *content = Content::Text(format!("{before}{separator}{text}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str) -> Message {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: json!({"a": 1}) };
        Message { role: Role::Assistant, tool_calls: vec![call], ..Message::default() }
    }

    fn texts(messages: &[Message]) -> Vec<(&'static str, String)> {
        messages.iter().map(|m| (m.role.as_str(), m.content.text())).collect()
    }

    #[test]
    fn calls_and_results_are_text_and_turns_alternate() {
        let asked = said(Role::User, "Hi".into());
        let result = |text: &str| said(Role::Tool, text.into());
        let more = said(Role::User, "And?".into());
        let written = write_calls(vec![asked, call("f"), result("3"), result("4"), more]);
        assert!(written.iter().all(|message| message.tool_calls.is_empty()));
        let called = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>";
        let answered = "<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n\
             </tool_response>\nAnd?";
        let expected = [("user", "Hi"), ("assistant", called), ("user", answered)];
        assert_eq!(texts(&written), expected.map(|(role, text)| (role, text.to_owned())));
    }

    #[test]
    fn a_number_of_thirty_digits_is_written_as_it_came() {
        let long = r#"{"n":123456789012345678901234567890}"#;
        let arguments = crate::types::digits::parse(long).unwrap();
        let call = ToolCall { id: String::new(), name: "f".into(), arguments };
        assert!(
            call_text(&call).contains(&format!("\"arguments\": {long}}}")),
            "{}",
            call_text(&call)
        );
    }

    #[test]
    fn turns_without_tools_stay_as_they_are() {
        let before = vec![said(Role::User, "a".into()), said(Role::User, "b".into())];
        assert_eq!(write_calls(before.clone()), before);
    }

    #[test]
    fn tools_are_described_where_the_template_shows_it() {
        let definition = json!({"type": "function", "function": {"name": "f"}});
        let tool = Tool { name: "f".into(), parameters: json!({}), is_strict: false, definition };
        let tools = [tool];
        let user = || said(Role::User, "Hi".into());
        let described = |mut messages: Vec<Message>, has_system| {
            describe_tools(&mut messages, &tools, has_system);
            texts(&messages)
        };
        let with = described(vec![said(Role::System, "Be brief.".into()), user()], true);
        assert!(with[0].1.starts_with("Be brief.\n\n# Tools") && with[1].1 == "Hi", "{with:?}");
        assert!(with[0].1.contains("\"name\":\"f\""), "{with:?}");
        let without = described(vec![user()], true);
        assert_eq!((without[0].0, without[1].1.as_str()), ("system", "Hi"));
        let nowhere = described(vec![user()], false);
        assert!(nowhere.len() == 1 && nowhere[0].1.ends_with("\n\nHi"), "{nowhere:?}");
    }
}
