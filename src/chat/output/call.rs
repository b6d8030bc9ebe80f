//! Reads the text around a tool call's arguments.

use super::called::{Arguments, Call};
use super::cursor::{Cursor, Unread};
use super::form::{Form, Syntax};
use super::json::begins_value;
use super::literal::Bracket;
use super::tagged;

/// In `[TOOL_CALLS]name[CALL_ID]id[ARGS]{..}`, the text before the call's id.
const CALL_ID: &str = "[CALL_ID]";

/// Reads the start of a call: markers, an array's bracket and the name.
pub(super) fn head(text: &str, syntax: &Syntax) -> Result<Call, Unread> {
    let mut cursor = Cursor::new(text);
    loop {
        cursor.skip_space();
        if cursor.marker(syntax.open)?.is_none() {
            break;
        }
    }
    cursor.marker(syntax.prefix)?;
    cursor.skip_space();
    let in_list = cursor.eat(b'[')?;
    cursor.skip_space();
    if cursor.eat(b'{')? {
        return object(cursor, in_list, syntax.bare);
    }
    match syntax.form {
        Form::Json if in_list || syntax.separators.is_empty() => Err(Unread::Not),
        Form::Json => named(cursor, syntax),
        Form::Python => bracketed(cursor, in_list, b'(', Bracket::Call),
        _ if in_list => Err(Unread::Not),
        Form::Gemma => bracketed(cursor, in_list, b'{', Bracket::Object),
        Form::Tagged(tags) => tagged::head(cursor, tags),
    }
}

/// Reads a name and the bracket after it.
fn bracketed(
    mut cursor: Cursor<'_>,
    in_list: bool,
    byte: u8,
    bracket: Bracket,
) -> Result<Call, Unread> {
    let name = cursor.word()?.to_owned();
    if !cursor.eat(byte)? {
        return Err(Unread::Not);
    }
    Ok(Call { name, arguments: Arguments::Literal(bracket), in_list, end: cursor.at })
}

/// Reads an object from after its brace up to its arguments. A strict object must have arguments,
/// and few other fields.
pub(super) fn object(mut cursor: Cursor<'_>, in_list: bool, strict: bool) -> Result<Call, Unread> {
    let mut name: Option<String> = None;
    let mut arguments = Arguments::Absent;
    loop {
        let key = cursor.key()?;
        match key.as_str() {
            "name" | "tool_name" if name.is_none() => {
                name = Some(cursor.string()?).filter(|name| !name.is_empty());
            }
            "arguments" | "parameters" if arguments == Arguments::Absent => {
                if !begins_value(cursor.peek()?) {
                    return Err(Unread::Not);
                }
                let begin = cursor.at;
                if let Some(name) = name.take() {
                    let arguments = Arguments::InObject;
                    return Ok(Call { name, arguments, in_list, end: begin });
                }
                cursor.value()?;
                arguments = Arguments::Before(begin..cursor.at);
            }
            "name" | "tool_name" | "arguments" | "parameters" => return Err(Unread::Not),
            key if strict && !matches!(key, "id" | "type") => return Err(Unread::Not),
            _ => {
                cursor.value()?;
            }
        }
        cursor.skip_space();
        if cursor.eat(b'}')? {
            break;
        }
        if !cursor.eat(b',')? {
            return Err(Unread::Not);
        }
    }
    if strict && arguments == Arguments::Absent {
        return Err(Unread::Not);
    }
    let name = name.ok_or(Unread::Not)?;
    Ok(Call { name, arguments, in_list, end: cursor.at })
}

/// Reads a name outside JSON, up to the arguments, which are an object.
fn named(mut cursor: Cursor<'_>, syntax: &Syntax) -> Result<Call, Unread> {
    let name = cursor.word()?.to_owned();
    if syntax.has_index && cursor.eat(b':')? && !cursor.word()?.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(Unread::Not);
    }
    loop {
        cursor.skip_space();
        if cursor.peek()? == b'{' {
            let arguments = Arguments::Alone;
            return Ok(Call { name, arguments, in_list: false, end: cursor.at });
        }
        match cursor.marker(syntax.separators)? {
            Some(CALL_ID) => {
                cursor.word()?;
            }
            Some(_) => {}
            None => return Err(Unread::Not),
        }
    }
}

/// Reads the rest of a call's object after the arguments, and returns its length in bytes.
pub(super) fn tail(text: &str) -> Result<usize, Unread> {
    let mut cursor = Cursor::new(text);
    loop {
        cursor.skip_space();
        if cursor.eat(b'}')? {
            return Ok(cursor.at);
        }
        if !cursor.eat(b',')? {
            return Err(Unread::Not);
        }
        cursor.key()?;
        cursor.value()?;
    }
}
