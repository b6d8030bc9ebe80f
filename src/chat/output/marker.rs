//! Finds markers in a text that is still growing, with the white space around them.

use crate::limits::{MARKER_SPACE_BYTES_MAX, TOOL_HEAD_BYTES_MAX};

/// White space that belongs to a marker next to it.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The result of comparing the start of a text with markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is this marker.
    Marker(&'static str),
    /// It may become a marker, or the text is empty.
    Begun,
    /// It is not a marker.
    Other,
}

/// Compares the start of `text` with the markers. No marker may be a prefix of another.
pub(super) fn start(text: &str, markers: impl Iterator<Item = &'static str>) -> Start {
    for marker in markers {
        if text.starts_with(marker) {
            return Start::Marker(marker);
        }
        if marker.starts_with(text) {
            return Start::Begun;
        }
    }
    Start::Other
}

/// Finds the first marker and its offset. Without one, returns the offset at which a marker may
/// have started, or the text's length.
pub(super) fn find(
    text: &str,
    markers: impl Iterator<Item = &'static str> + Clone,
) -> (usize, Option<&'static str>) {
    for (at, _) in text.char_indices() {
        match start(&text[at..], markers.clone()) {
            Start::Marker(marker) => return (at, Some(marker)),
            Start::Begun => return (at, None),
            Start::Other => {}
        }
    }
    (text.len(), None)
}

/// The length of the white space at the start of `text`, in bytes.
pub(super) fn leading_space(text: &str) -> usize {
    text.len() - text.trim_start_matches(SPACE).len()
}

/// The length of `text` without the white space at its end. Leaves out at most
/// `MARKER_SPACE_BYTES_MAX` bytes.
pub(super) fn length_before_space(text: &str) -> usize {
    text.trim_end_matches(SPACE).len().max(text.len().saturating_sub(MARKER_SPACE_BYTES_MAX))
}

/// The part of `text` that may be held back.
pub(super) fn window(text: &str) -> &str {
    &text[..text.floor_char_boundary(TOOL_HEAD_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (usize, Option<&'static str>) {
        find(text, ["<call>", "[x]"].into_iter())
    }

    #[test]
    fn the_first_marker_is_found_and_a_beginning_is_kept() {
        assert_eq!(found("é [x] <call>"), (3, Some("[x]")));
        assert_eq!(found("a <cal"), (2, None));
        assert_eq!(found("a <calm"), (7, None));
        assert_eq!(found("a <<c"), (3, None));
        assert_eq!(found(""), (0, None));
    }

    #[test]
    fn space_before_a_marker_is_left_out_up_to_the_bound() {
        assert_eq!(length_before_space("a \n"), 1);
        let long = format!("é{}", " ".repeat(MARKER_SPACE_BYTES_MAX + 3));
        assert_eq!(length_before_space(&long), 5);
    }
}
