//! Ends a text at a line: editors that fill in code ask for that.

use std::time::Duration;

use crate::types::LineLimits;

/// The lines of a growing text.
#[derive(Debug)]
pub struct Lines {
    limits: LineLimits,
    /// The spaces and tabs at the start of the line, while it has nothing else. `None` in the first
    /// line.
    indent: Option<u32>,
}

impl Lines {
    /// The lines of a text without any yet.
    pub fn new(limits: LineLimits) -> Self {
        Self { limits, indent: None }
    }

    /// Takes more of the text, `elapsed` after its first token. Returns the place in `text` where
    /// the text ends, if it does.
    pub fn push(&mut self, text: &str, elapsed: Duration) -> Option<usize> {
        let Self { limits, indent } = self;
        for (at, character) in text.char_indices().filter(|_| limits.indent > 0) {
            match (*indent, character) {
                (Some(count), ' ' | '\t') => *indent = Some(count + 1),
                (Some(count), _) if count < limits.indent => return Some(at),
                (_, '\n') => *indent = Some(0),
                _ => *indent = None,
            }
        }
        let is_late = limits.time.is_some_and(|time| elapsed > time);
        (is_late && text.contains('\n')).then_some(text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that is left of these pieces.
    fn left(indent: u32, pieces: &[&str]) -> String {
        let mut lines = Lines::new(LineLimits { indent, time: None });
        let mut text = String::new();
        for piece in pieces {
            match lines.push(piece, Duration::ZERO) {
                Some(at) => return text + &piece[..at],
                None => text.push_str(piece),
            }
        }
        text
    }

    #[test]
    fn a_text_ends_at_a_line_with_too_little_indentation() {
        let whole = "a(b);\n    c();\n}\n";
        assert_eq!(left(0, &[whole]), whole);
        assert_eq!(left(4, &[whole]), "a(b);\n    c();\n");
        assert_eq!(left(5, &["a\n", "  ", "  c"]), "a\n    ");
        assert_eq!(left(2, &["a\n", "\t", " c\n\n"]), "a\n\t c\n", "an empty line has none");
        assert_eq!(left(2, &["a", "b"]), "ab", "the first line needs none");
    }

    #[test]
    fn a_late_text_ends_with_its_line() {
        let second = Duration::from_secs(1);
        let mut lines = Lines::new(LineLimits { indent: 0, time: Some(second) });
        assert_eq!(lines.push("a\n", second), None);
        assert_eq!(lines.push("b", 2 * second), None);
        assert_eq!(lines.push("c\nd", 2 * second), Some(3));
    }
}
