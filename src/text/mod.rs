//! Turns tokens back into text for a client.
//!
//! In: the bytes of each token. Out: text that never splits a UTF-8 character and never contains a
//! part of a stop string that matches later. Text that cannot be released yet is held back, within
//! bounds.

pub mod lines;
pub mod stop;
pub mod utf8;

use stop::StopStrings;
use utf8::Utf8Holder;

/// The growing text of one sequence.
#[derive(Debug)]
pub struct TextStream {
    utf8: Utf8Holder,
    stops: StopStrings,
    /// Decoded text held back because a stop string may start in it.
    held: String,
    /// The index of the stop string that ended the text.
    stopped_by: Option<usize>,
}

/// The effect of a token's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The text goes on.
    Open,
    /// A stop string matched. The text before it has been released, and the text is over.
    Stopped,
}

impl TextStream {
    /// A text that ends at any of `stops`.
    pub fn new(stops: StopStrings) -> Self {
        Self { utf8: Utf8Holder::default(), stops, held: String::new(), stopped_by: None }
    }

    /// Adds a token's bytes, and appends the text released by them to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) -> Pushed {
        if self.stops.is_empty() {
            self.utf8.push(bytes, out);
            return Pushed::Open;
        }
        let searched = self.held.len();
        self.utf8.push(bytes, &mut self.held);
        if let Some((at, stop)) = self.stops.find(&self.held, searched) {
            self.stopped_by = Some(stop);
            out.push_str(&self.held[..at]);
            self.held.clear();
            return Pushed::Stopped;
        }
        let keep = self.stops.longest_partial(&self.held);
        let shown = self.held.len() - keep;
        out.push_str(&self.held[..shown]);
        self.held.drain(..shown);
        Pushed::Open
    }

    /// The stop string that ended the text, if any.
    pub fn stop_word(&self) -> Option<&str> {
        self.stopped_by.map(|stop| self.stops.get(stop))
    }

    /// Ends the text: appends all text held back to `out`.
    pub fn finish(&mut self, out: &mut String) {
        // An incomplete character becomes U+FFFD. It cannot complete a stop string: the text before
        // it was already searched.
        out.push_str(&self.held);
        self.held.clear();
        self.utf8.finish(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(stops: &[&str]) -> TextStream {
        TextStream::new(StopStrings::new(stops.iter().map(|s| s.to_string()).collect()))
    }

    #[test]
    fn a_stop_string_across_tokens_is_never_shown() {
        let mut stream = stream(&["END", "ENOUGH"]);
        let mut out = String::new();
        assert_eq!(stream.push(b"the E", &mut out), Pushed::Open);
        assert_eq!(out, "the ");
        assert_eq!(stream.push(b"N", &mut out), Pushed::Open);
        assert_eq!(out, "the ");
        assert_eq!(stream.push(b"T EN", &mut out), Pushed::Open);
        assert_eq!(out, "the ENT ");
        assert_eq!(stream.push(b"Dless", &mut out), Pushed::Stopped);
        assert_eq!(out, "the ENT ");
    }

    #[test]
    fn what_was_held_back_is_shown_at_the_end() {
        let mut stream = stream(&["END"]);
        let mut out = String::new();
        stream.push(b"the EN", &mut out);
        stream.finish(&mut out);
        assert_eq!(out, "the EN");
    }

    #[test]
    fn the_earliest_of_several_stops_ends_the_text() {
        let mut stream = stream(&["bc", "abcd"]);
        let mut out = String::new();
        assert_eq!(stream.push(b"xxabcd", &mut out), Pushed::Stopped);
        assert_eq!(out, "xx");
    }

    proptest! {
        /// For any bytes in any pieces, the released text is the whole text up to the first stop
        /// string.
        #[test]
        fn cutting_changes_nothing(
            bytes in proptest::collection::vec(prop_oneof![
                Just(b'a'), Just(b'b'), Just(0xC3), Just(0xA9), Just(0xF0), Just(0x9F),
                Just(0xA6), Just(0x80), any::<u8>(),
            ], 0..60),
            cuts in proptest::collection::vec(1usize..5, 60),
            stops in proptest::collection::vec("[abé]{1,4}", 0..3),
        ) {
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            let end = stops.iter().filter_map(|s| whole.find(s.as_str())).min();
            let expected = &whole[..end.unwrap_or(whole.len())];

            let mut stream = TextStream::new(StopStrings::new(stops.clone()));
            let mut out = String::new();
            let mut rest = &bytes[..];
            let mut stopped = false;
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                rest = after;
                if stream.push(piece, &mut out) == Pushed::Stopped {
                    stopped = true;
                    break;
                }
                prop_assert!(expected.starts_with(&out), "{out:?} is not a start of {expected:?}");
            }
            if !stopped && stream.push(rest, &mut out) == Pushed::Open {
                stream.finish(&mut out);
            }
            prop_assert_eq!(out, expected);
        }
    }
}
