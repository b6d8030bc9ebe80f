//! Finds the end of a JSON value in a text that arrives in pieces, and writes JSON strings.

use std::fmt::Write;

/// Follows one value from its first character to its last. It counts brackets and skips strings; it
/// does not check that the text between them is valid JSON.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueScanner {
    within: Within,
    /// The number of open brackets.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Within {
    /// Between elements, or before the first character.
    #[default]
    Brackets,
    String,
    /// After a backslash in a string.
    Escape,
    /// In a number or a word that is the whole value.
    Scalar,
}

impl ValueScanner {
    /// Reads more text. Returns the offset of the value's end, or `None` if the value goes on. The
    /// first text must start as [`begins_value`] requires.
    pub fn advance(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            match (self.within, byte) {
                (Within::Escape, _) => self.within = Within::String,
                (Within::String, b'\\') => self.within = Within::Escape,
                (Within::String, b'"') => {
                    self.within = Within::Brackets;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                (Within::String, _) => {}
                (Within::Scalar, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') => {}
                (Within::Scalar, _) => return Some(at),
                (Within::Brackets, b'"') => self.within = Within::String,
                (Within::Brackets, b'{' | b'[') => self.depth += 1,
                (Within::Brackets, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                (Within::Brackets, _) if self.depth == 0 => self.within = Within::Scalar,
                (Within::Brackets, _) => {}
            }
        }
        None
    }
}

/// Appends a JSON string with this text.
pub(super) fn push_string(json: &mut String, text: &str) {
    json.push('"');
    push_escaped(json, text);
    json.push('"');
}

/// Appends the inside of a JSON string with this text.
pub(super) fn push_escaped(json: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\0'..='\x1f' => write!(json, "\\u{:04x}", c as u32).expect("a String takes all"),
            c => json.push(c),
        }
    }
}

/// Whether a JSON value may start with this byte.
pub(super) fn begins_value(byte: u8) -> bool {
    matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_the_text_that_it_was() {
        let text = "a\"b\\c\n\r\t\u{1}\u{7f}é</x>";
        let mut json = String::new();
        push_string(&mut json, text);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_value_ends_where_its_brackets_and_quotes_do() {
        let end = |text: &str| ValueScanner::default().advance(text);
        assert_eq!(end(r#"{"a":[1,{}]} x"#), Some(12));
        assert_eq!(end(r#"{"}\"]":"{"}}"#), Some(12));
        assert_eq!(end(r#""a\"b" "#), Some(6));
        assert_eq!(end("-1.5e3,"), Some(6));
        assert_eq!(end("null}"), Some(4));
        assert_eq!(end("12"), None);
        assert_eq!(end(r#"{"a":1"#), None);
    }
}
