//! A cursor in a text that may be incomplete, and the items it can read.

use serde::de::IgnoredAny;

use super::json::{ValueScanner, begins_value};
use super::marker::{Start, find, leading_space, start};

/// Why an item was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The text ends before the item is known.
    More,
    /// The item is not there, and no further text can change that.
    Not,
}

/// A position in a text. An item that was read does not change when text is appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    /// Bytes before the cursor.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor before the first character.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips white space.
    pub fn skip_space(&mut self) {
        self.at += leading_space(self.rest());
    }

    /// The next byte.
    pub fn peek(&self) -> Result<u8, Unread> {
        self.rest().bytes().next().ok_or(Unread::More)
    }

    /// Reads `byte`, an ASCII byte, if it is next.
    pub fn eat(&mut self, byte: u8) -> Result<bool, Unread> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        Ok(found)
    }

    /// Reads one of `markers`, if one is next.
    pub fn marker(
        &mut self,
        markers: &'static [&'static str],
    ) -> Result<Option<&'static str>, Unread> {
        match start(self.rest(), markers.iter().copied()) {
            Start::Marker(marker) => {
                self.at += marker.len();
                Ok(Some(marker))
            }
            Start::Begun => Err(Unread::More),
            Start::Other => Ok(None),
        }
    }

    /// Reads the text up to one of `markers`, and that marker.
    pub fn until(
        &mut self,
        markers: &'static [&'static str],
    ) -> Result<(&'a str, &'static str), Unread> {
        let (at, marker) = find(self.rest(), markers.iter().copied());
        let marker = marker.ok_or(Unread::More)?;
        let text = &self.rest()[..at];
        self.at += at + marker.len();
        Ok((text, marker))
    }

    /// Reads a function's name.
    pub fn word(&mut self) -> Result<&'a str, Unread> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let length = self.rest().find(|c: char| !is_part(c)).ok_or(Unread::More)?;
        if length == 0 {
            return Err(Unread::Not);
        }
        let word = &self.rest()[..length];
        self.at += length;
        Ok(word)
    }

    /// Reads a valid JSON value.
    pub fn value(&mut self) -> Result<&'a str, Unread> {
        if !begins_value(self.peek()?) {
            return Err(Unread::Not);
        }
        let length = ValueScanner::default().advance(self.rest()).ok_or(Unread::More)?;
        let value = &self.rest()[..length];
        serde_json::from_str::<IgnoredAny>(value).map_err(|_| Unread::Not)?;
        self.at += length;
        Ok(value)
    }

    /// Reads a JSON string and returns its text.
    pub fn string(&mut self) -> Result<String, Unread> {
        if self.peek()? != b'"' {
            return Err(Unread::Not);
        }
        serde_json::from_str(self.value()?).map_err(|_| Unread::Not)
    }

    /// Reads the key of an object's member, up to the start of the value.
    pub fn key(&mut self) -> Result<String, Unread> {
        self.skip_space();
        let key = self.string()?;
        self.skip_space();
        if !self.eat(b':')? {
            return Err(Unread::Not);
        }
        self.skip_space();
        Ok(key)
    }
}
