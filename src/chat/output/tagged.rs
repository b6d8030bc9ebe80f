//! Reads calls whose arguments stand between tags, one pair of tags for each parameter.
//!
//! Qwen3-Coder writes `<function=add>\n<parameter=a>\n3\n</parameter>\n</function>`; a table has the
//! tags of each family. The text of a value does not show whether `3` is a number or a string, so
//! the tool's schema decides.

use std::sync::Arc;

use super::called::{Arguments, Call};
use super::cursor::{Cursor, Unread};
use super::json::{push_escaped, push_string};
use super::literal::{Literal, as_json};
use super::marker::{Start, find, leading_space, start, window};
use super::offered::{OfferedTools, Types};
use super::step::Step;
use super::tags::{IS_JSON, IS_STRING, Tags};
use crate::limits::TOOL_HEAD_BYTES_MAX;

/// Bytes of a value that are held back until its type is known. The text of a longer one is a
/// string.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Reads a call up to its first parameter, from the tag before its name on. The caller may have
/// read that tag.
pub(super) fn head(mut cursor: Cursor<'_>, tags: &'static Tags) -> Result<Call, Unread> {
    cursor.marker(tags.name)?;
    let name = cursor.word()?.to_owned();
    if !tags.name_end.is_empty() && cursor.marker(tags.name_end)?.is_none() {
        return Err(Unread::Not);
    }
    cursor.skip_space();
    let end = cursor.at;
    // Some models write JSON between the tags.
    if cursor.peek()? == b'{' {
        return Ok(Call { name, arguments: Arguments::Alone, in_list: false, end });
    }
    match cursor.marker(&tags.members)? {
        Some(_) => Ok(Call { name, arguments: Arguments::Tagged(tags), in_list: false, end }),
        None => Err(Unread::Not),
    }
}

/// The place in a call after its name.
#[derive(Debug)]
pub(super) struct Tagged {
    tags: &'static Tags,
    offered: Option<Arc<OfferedTools>>,
    tool: String,
    state: State,
    is_first: bool,
}

#[derive(Debug)]
enum State {
    /// Before a parameter, or the end of the call.
    Member,
    /// Before a value that may have these types.
    Value(Types),
    /// In a string.
    Text,
    /// In a value of unknown type, so far.
    Held(Types, String),
    /// In a list or an object.
    Nested(Literal),
    /// After a list or an object.
    NestedEnd,
}

impl Tagged {
    /// A reader of the arguments of a call of `tool`. The caller writes the first brace.
    pub fn new(tags: &'static Tags, offered: Option<Arc<OfferedTools>>, tool: String) -> Self {
        Self { tags, offered, tool, state: State::Member, is_first: true }
    }

    /// Reads a part of `text` and appends its JSON.
    pub fn step(&mut self, text: &str, json: &mut String) -> Step {
        match &mut self.state {
            State::Member => self.member(text, json),
            State::Value(types) => {
                let types = *types;
                self.begin_value(text, types, json)
            }
            State::Text | State::Held(..) => self.piece(text, json),
            State::Nested(literal) => match literal.step(text, json) {
                Step::End(taken) => {
                    self.state = State::NestedEnd;
                    Step::Taken(taken)
                }
                step => step,
            },
            State::NestedEnd => self.end_nested(text),
        }
    }

    /// Appends the JSON of `held`. Returns whether it is a part of a value.
    pub fn finish(&mut self, held: &str, json: &mut String) -> bool {
        match &mut self.state {
            State::Member => return false,
            State::Value(_) | State::NestedEnd => {}
            State::Text => push_escaped(json, held),
            State::Held(types, value) => {
                value.push_str(held);
                match value_as_json(value, *types) {
                    Some(value) => json.push_str(value),
                    None => {
                        json.push('"');
                        push_escaped(json, value);
                    }
                }
            }
            State::Nested(literal) => literal.finish(held, json),
        }
        true
    }

    /// Bytes of a value that are held back.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        if let State::Held(_, value) = &self.state { value.len() } else { 0 }
    }

    fn member(&mut self, text: &str, json: &mut String) -> Step {
        let space = leading_space(text);
        if space > 0 {
            return Step::Taken(space);
        }
        match read_member(window(text), self.tags) {
            Ok((Some((key, key_end)), end)) => {
                json.push_str(if std::mem::take(&mut self.is_first) { "" } else { ", " });
                push_string(json, key);
                json.push_str(": ");
                self.state = State::Value(match key_end {
                    IS_STRING => Types::STRING,
                    IS_JSON => Types::NOT_STRING,
                    _ => {
                        let offered = self.offered.as_ref();
                        offered.map_or(Types::ANY, |offered| offered.types(&self.tool, key))
                    }
                });
                Step::Taken(end)
            }
            Ok((None, end)) => {
                json.push('}');
                Step::End(end)
            }
            Err(Unread::More) if text.len() < TOOL_HEAD_BYTES_MAX => Step::More,
            // The closing tag is missing.
            Err(_) => {
                json.push('}');
                Step::End(0)
            }
        }
    }

    fn begin_value(&mut self, text: &str, types: Types, json: &mut String) -> Step {
        let Some(first) = text.chars().next() else { return Step::More };
        let line = usize::from(self.tags.value_on_lines && first == '\n');
        if types == Types::STRING {
            json.push('"');
            self.state = State::Text;
            return Step::Taken(line);
        }
        if types.has(Types::STRING) {
            self.state = State::Held(types, String::new());
            return Step::Taken(line);
        }
        let space = leading_space(text);
        self.state = match text[space..].chars().next() {
            None => return Step::Taken(space),
            Some('{' | '[') => State::Nested(Literal::value()),
            Some(_) => State::Held(types, String::new()),
        };
        Step::Taken(space)
    }

    /// Reads more of a string, or of a value of unknown type.
    fn piece(&mut self, text: &str, json: &mut String) -> Step {
        let (at, end) = find(text, [self.tags.value_end].into_iter());
        let is_line = self.tags.value_on_lines && text[..at].ends_with('\n');
        let shown = &text[..at - usize::from(is_line)];
        if let State::Held(types, value) = &mut self.state {
            value.push_str(shown);
            if end.is_some() {
                push_value(json, value, *types);
            } else if value.len() > VALUE_BYTES_MAX {
                json.push('"');
                push_escaped(json, value);
                self.state = State::Text;
            }
        } else {
            push_escaped(json, shown);
            json.push_str(if end.is_some() { "\"" } else { "" });
        }
        match end {
            Some(end) => {
                self.state = State::Member;
                Step::Taken(at + end.len())
            }
            None if shown.is_empty() => Step::More,
            None => Step::Taken(shown.len()),
        }
    }

    fn end_nested(&mut self, text: &str) -> Step {
        let space = leading_space(text);
        if space > 0 {
            return Step::Taken(space);
        }
        match start(text, [self.tags.value_end].into_iter()) {
            Start::Marker(end) => {
                self.state = State::Member;
                Step::Taken(end.len())
            }
            Start::Begun => Step::More,
            Start::Other => Step::Broken,
        }
    }
}

/// A parameter's name and the tag after it, or `None` at the end of the call.
type Member<'a> = Option<(&'a str, &'static str)>;

/// Reads the tags around a parameter's name, or the closing tag. Returns the length read, too.
fn read_member<'a>(text: &'a str, tags: &'static Tags) -> Result<(Member<'a>, usize), Unread> {
    let mut cursor = Cursor::new(text);
    match cursor.marker(&tags.members)? {
        None => return Err(Unread::Not),
        Some(end) if end == tags.members[1] => return Ok((None, cursor.at)),
        Some(_) => {}
    }
    let (key, key_end) = cursor.until(tags.key_end)?;
    if key.is_empty() || key.contains(['<', '\n']) {
        return Err(Unread::Not);
    }
    if !tags.value.is_empty() {
        cursor.skip_space();
        if cursor.marker(tags.value)?.is_none() {
            return Err(Unread::Not);
        }
    }
    Ok((Some((key, key_end)), cursor.at))
}

/// Appends a value of which only the text is known.
fn push_value(json: &mut String, text: &str, types: Types) {
    match value_as_json(text, types) {
        Some(value) => json.push_str(value),
        None => push_string(json, text),
    }
}

/// The text of a value as JSON, or `None` if it is a string. Where a string is possible, JSON of
/// another type counts only if the schema allows that type, and Python's words do not count.
fn value_as_json(text: &str, types: Types) -> Option<&str> {
    let text = text.trim();
    let value = as_json(text)?;
    let may_be_string = types.has(Types::STRING);
    let is_allowed = !may_be_string || types.has(Types::of_json(value)) && value == text;
    is_allowed.then_some(value)
}
