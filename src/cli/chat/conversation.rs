//! The messages of a conversation, and their file.

use serde::{Deserialize, Serialize};

/// A message, as in the body of `/v1/chat/completions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
}

impl Message {
    fn new(role: &str, content: String) -> Self {
        Self { role: role.to_owned(), content }
    }
}

/// A conversation: questions and answers in turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The system prompt.
    pub system: Option<String>,
    /// All other messages.
    pub messages: Vec<Message>,
}

/// A conversation's file. It is a valid body of `/v1/chat/completions`.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(default)]
    model: String,
    messages: Vec<Message>,
}

impl Conversation {
    /// An empty conversation.
    pub fn new(system: Option<String>) -> Self {
        Self { system, messages: Vec::new() }
    }

    /// Adds a question.
    pub fn ask(&mut self, text: String) {
        self.messages.push(Message::new("user", text));
    }

    /// Adds the answer.
    pub fn answered(&mut self, text: String) {
        self.messages.push(Message::new("assistant", text));
    }

    /// Drops the last answer, so that its question can be asked again.
    ///
    /// # Errors
    /// If there is none.
    pub fn drop_answer(&mut self) -> Result<(), String> {
        match self.messages.last() {
            Some(last) if last.role == "assistant" => {
                self.messages.pop();
                Ok(())
            }
            _ => Err("there is no answer yet".into()),
        }
    }

    /// All messages, the system prompt first.
    pub fn all(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text.clone()));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// The text of the file.
    pub fn to_json(&self, model: &str) -> String {
        let saved = Saved { model: model.to_owned(), messages: self.all() };
        serde_json::to_string_pretty(&saved).expect("strings can be written") + "\n"
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A phrase that says what is wrong.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let saved: Saved = serde_json::from_str(text)
            .map_err(|error| format!("is no conversation: {error}; /save writes one"))?;
        let mut conversation = Self::default();
        let mut messages = saved.messages.into_iter().peekable();
        conversation.system =
            messages.next_if(|message| message.role == "system").map(|message| message.content);
        for (at, message) in messages.enumerate() {
            let expected = if at % 2 == 0 { "user" } else { "assistant" };
            if message.role != expected {
                return Err(format!(
                    "message {} is of {:?}, where one of {expected:?} belongs",
                    at + 1,
                    message.role
                ));
            }
            conversation.messages.push(message);
        }
        if conversation.messages.len() % 2 == 1 {
            return Err("the last question has no answer".into());
        }
        Ok(conversation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talked() -> Conversation {
        let mut conversation = Conversation::new(Some("Be brief.".into()));
        conversation.ask("a \"b\"\n".into());
        conversation.answered("c".into());
        conversation
    }

    #[test]
    fn a_file_gives_the_conversation_back() {
        let json = talked().to_json("m");
        assert_eq!(Conversation::from_json(&json).unwrap(), talked());
        let body: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(body["messages"][0]["role"], "system");
        assert_eq!(
            Conversation::from_json(r#"{"messages": []}"#).unwrap(),
            Conversation::default()
        );
    }

    #[test]
    fn files_with_messages_out_of_turn_are_refused() {
        for (json, wrong) in [
            ("{", "is no conversation"),
            (r#"{"messages": [{"role": "assistant", "content": "a"}]}"#, "message 1"),
            (r#"{"messages": [{"role": "user", "content": "a"}]}"#, "no answer"),
        ] {
            let error = Conversation::from_json(json).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn an_answer_is_dropped_once() {
        let mut conversation = talked();
        conversation.drop_answer().unwrap();
        assert!(conversation.drop_answer().is_err());
        assert_eq!(conversation.all().len(), 2);
    }
}
