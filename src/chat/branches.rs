//! The places in a prompt where later prompts will probably part from it.
//!
//! A model with states goes on only from states that were saved, so the places must be known
//! beforehand. They are found by rendering other conversations: templates treat messages by their
//! place, and only the text in common counts.

use super::conversation::{Content, Message, Role};
use super::probe::NEEDLE;

/// The conversations whose prompts part from that of `messages`: with another first turn after the
/// system's, as of another agent with the same tools; and with another last question.
pub(super) fn others(messages: &[Message]) -> impl Iterator<Item = Vec<Message>> {
    let is_system = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let first = messages.iter().position(|message| !is_system(message));
    let last = messages.iter().rposition(|message| message.role == Role::User);
    let other = |index: usize| {
        let text = Content::Text(NEEDLE.to_owned());
        let question = Message { role: Role::User, content: text, ..Message::default() };
        messages[..index].iter().cloned().chain([question]).collect()
    };
    first.into_iter().chain(last.filter(|last| Some(*last) != first)).map(other)
}

/// The bytes at the start that two texts have in common.
pub(super) fn common(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.floor_char_boundary(same)
}
