//! Where a JSON value ends, in a text that comes in pieces.

/// Follows one value from its first character to its last. It counts brackets and heeds
/// strings; it does not check that what is between them is JSON.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueScanner {
    within: Within,
    /// Brackets that are open.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Within {
    /// Between the elements of arrays and objects, or before the first character.
    #[default]
    Brackets,
    String,
    /// After a backslash in a string.
    Escape,
    /// A number or a word that is the whole value.
    Scalar,
}

impl ValueScanner {
    /// Goes on with `text`. Where the value ends in it, or `None` when all of it belongs
    /// to the value. The first text of all begins as [`begins_value`] says.
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

/// True when a JSON value may begin with this byte.
pub(super) fn begins_value(byte: u8) -> bool {
    matches!(byte, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')
}

#[cfg(test)]
mod tests {
    use super::*;

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
