//! Recognises a call that a model writes as a bare JSON object, or as one in a code fence.
//!
//! Qwen2.5-Coder does so, although its template shows `<tool_call>`. It also doubles the outer braces,
//! because the example in its template does. Such an object could also be an
//! answer in JSON. It is held back and becomes a call only if it has the name of an offered tool and
//! arguments that the tool can have. Otherwise it is content, exactly as written.

use super::call::object;
use super::called::{Arguments, Call};
use super::cursor::{Cursor, Unread};
use super::json::ValueScanner;
use super::marker::{Start, leading_space, start};
use crate::limits::MARKER_SPACE_BYTES_MAX;

/// Bytes of an object that are held back. A longer one is content.
pub(super) const OBJECT_BYTES_MAX: usize = 64 * 1024;

/// The code fence around an object.
pub(super) const FENCE: &str = "```";
const FENCES: &[&str] = &["```json", FENCE];

/// Whether a text starts, or may start, with a fence or an object.
pub(super) fn begins(text: &str) -> Start {
    start(text, [FENCE, "{"].into_iter())
}

/// Finds the first line of `text`, except the first, that may start with a fence or an object.
pub(super) fn find_line(text: &str) -> Option<usize> {
    text.match_indices('\n').find_map(|(line, _)| {
        let at = line + 1 + leading_space(&text[line + 1..]);
        // The space before it is held back only up to this bound.
        let is_near = at - line <= MARKER_SPACE_BYTES_MAX;
        (is_near && at < text.len() && begins(&text[at..]) != Start::Other).then_some(at)
    })
}

/// Reads an object up to its arguments, with the fence before it. Returns whether there is a fence.
pub(super) fn head(text: &str) -> Result<(Call, bool), Unread> {
    let mut cursor = Cursor::new(text);
    cursor.skip_space();
    let is_fenced = cursor.marker(FENCES)?.is_some();
    cursor.skip_space();
    if !cursor.eat(b'{')? {
        return Err(Unread::Not);
    }
    if cursor.peek()? == b'{' {
        cursor.eat(b'{')?;
    }
    let call = object(cursor, false, true)?;
    let has_arguments = call.arguments == Arguments::InObject;
    if has_arguments { Ok((call, is_fenced)) } else { Err(Unread::Not) }
}

/// An object that is held back.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The text so far, as written.
    pub text: String,
    /// The name of the tool.
    pub name: String,
    /// Whether it is in a fence.
    pub is_fenced: bool,
    /// The offset of the arguments.
    begin: usize,
    scanner: ValueScanner,
    /// Whether the arguments are complete.
    is_whole: bool,
}

impl Candidate {
    /// A candidate whose text so far is `text`, up to its arguments.
    pub fn new(text: &str, name: String, is_fenced: bool) -> Self {
        let (begin, scanner) = (text.len(), ValueScanner::default());
        Self { text: text.to_owned(), name, is_fenced, begin, scanner, is_whole: false }
    }

    /// The arguments, as written.
    pub fn arguments(&self) -> &str {
        &self.text[self.begin..]
    }

    /// Takes more of the arguments and returns the number of bytes taken. After the arguments,
    /// reads the closing brace, which ends the object.
    pub fn push(&mut self, text: &str) -> Result<Pushed, Unread> {
        if self.is_whole {
            let mut cursor = Cursor::new(text);
            cursor.skip_space();
            return if cursor.eat(b'}')? { Ok(Pushed::End(cursor.at)) } else { Err(Unread::Not) };
        }
        if text.is_empty() {
            return Err(Unread::More);
        }
        let end = self.scanner.advance(text);
        let taken = end.unwrap_or(text.len());
        self.text.push_str(&text[..taken]);
        self.is_whole = end.is_some();
        if self.text.len() > OBJECT_BYTES_MAX {
            return Ok(Pushed::TooLong(taken));
        }
        Ok(Pushed::Taken(taken))
    }
}

/// The result of taking more of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// This number of bytes was taken.
    Taken(usize),
    /// This number of bytes was taken, and the object has more than `OBJECT_BYTES_MAX`.
    TooLong(usize),
    /// The object ends after this number of bytes.
    End(usize),
}
