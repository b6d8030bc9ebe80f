//! Ends a text at a line, by its indentation or after a time. Editors ask for this in infill
//! requests.

use std::time::Duration;

use crate::clock::Micros;
use crate::types::LineLimits;

/// The lines of a growing text.
#[derive(Debug)]
pub struct Lines {
    limits: LineLimits,
    /// The number of spaces and tabs at the start of the line, while it has nothing else. `None` in
    /// the first line.
    indent: Option<u32>,
    /// The time of the first token.
    began: Option<Micros>,
}

impl Lines {
    /// The state of an empty text.
    pub fn new(limits: LineLimits) -> Self {
        Self { limits, indent: None, began: None }
    }

    /// Takes the text of the next token. Returns the place in `text` where the whole text ends, if
    /// it does.
    pub fn push(&mut self, text: &str, now: Micros) -> Option<usize> {
        let Self { limits, indent, began } = self;
        let elapsed = Duration::from_micros(now.since(*began.get_or_insert(now)));
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

    /// The text that these pieces give, up to its end.
    fn left(indent: u32, pieces: &[&str]) -> String {
        let mut lines = Lines::new(LineLimits { indent, time: None });
        let mut text = String::new();
        for piece in pieces {
            match lines.push(piece, Micros(0)) {
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
        let time = Some(Duration::from_micros(10));
        let mut lines = Lines::new(LineLimits { indent: 0, time });
        assert_eq!(lines.push("a\n", Micros(100)), None);
        assert_eq!(lines.push("b\n", Micros(110)), None);
        assert_eq!(lines.push("c", Micros(111)), None);
        assert_eq!(lines.push("d\ne", Micros(112)), Some(3));
    }
}
