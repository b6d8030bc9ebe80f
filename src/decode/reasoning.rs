//! Ends a model's reasoning at its limit ([`ReasoningLimit`]): the tokens of its end are forced, as
//! if the model had sampled them.
//!
//! The markers are found in the text, because a model may write one in other tokens than a tokeniser
//! would. As for the parser of the answer, reasoning begins only at the start of the text and behind
//! another block of it. The end waits for a whole character. If a grammar forbids it, the reasoning
//! goes on.

use crate::types::TokenId;
use crate::types::reasoning::{MARKER_BYTES_MAX, ReasoningLimit};

/// Bytes of a text that are kept to find a marker in them. If they are full, only as many as a
/// marker may have stay.
const TAIL_BYTES: usize = 4 * MARKER_BYTES_MAX;

/// Where a text is in its reasoning. The default is its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Reasoning {
    /// Generated tokens that have been read.
    seen: usize,
    /// Tokens inside blocks of reasoning.
    spent: u32,
    place: Place,
    /// The next token of the end, while it is being forced.
    ending: Option<usize>,
    /// Ends that have been forced.
    ended: usize,
    /// The last bytes since the block was opened or closed.
    tail: heapless::Vec<u8, TAIL_BYTES>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Where reasoning may begin.
    #[default]
    Before,
    Inside,
    /// Behind the reasoning, or in a text without any.
    Behind,
}

impl Reasoning {
    /// The token that must come behind `generated`, if the reasoning has reached its limit.
    pub fn forced_after(
        &mut self,
        limit: &ReasoningLimit,
        generated: &[TokenId],
    ) -> Option<TokenId> {
        if self.seen == 0 {
            if limit.is_open {
                self.place = Place::Inside;
            }
            self.end_if_spent(limit);
        }
        for token in &generated[self.seen..] {
            self.read(limit, *token);
            self.end_if_spent(limit);
        }
        self.seen = generated.len();
        self.ending.map(|index| self.end(limit)[index])
    }

    /// The tokens of the end that is forced.
    fn end<'a>(&self, limit: &'a ReasoningLimit) -> &'a [TokenId] {
        if self.ended == 0 { &limit.end } else { &limit.next_end }
    }

    fn read(&mut self, limit: &ReasoningLimit, token: TokenId) {
        self.spent += u32::from(self.place == Place::Inside);
        for byte in limit.spelling_of(token) {
            self.read_byte(limit, *byte);
        }
        let Some(index) = self.ending else { return };
        self.ending = Some(index + 1).filter(|next| *next < self.end(limit).len());
        if self.ending.is_none() {
            self.ended += 1;
            // The end was forbidden.
            if self.place == Place::Inside {
                self.place = Place::Behind;
            }
        }
    }

    fn read_byte(&mut self, limit: &ReasoningLimit, byte: u8) {
        if self.place == Place::Behind && !limit.anywhere {
            return;
        }
        let is_inside = self.place == Place::Inside;
        let is_first = !is_inside && self.tail.is_empty();
        if is_first && byte.is_ascii_whitespace() {
            return;
        }
        if self.tail.is_full() {
            let least = self.tail.len() - MARKER_BYTES_MAX;
            self.tail.copy_within(least.., 0);
            self.tail.truncate(MARKER_BYTES_MAX);
        }
        self.tail.push(byte).expect("there is room");
        let marker = if is_inside { limit.closer } else { limit.opener }.as_bytes();
        if marker.last() == Some(&byte) && self.tail.ends_with(marker) {
            self.place = if is_inside { Place::Before } else { Place::Inside };
            self.tail.clear();
        } else if !is_inside && !marker.starts_with(&self.tail) {
            self.place = Place::Behind;
        }
    }

    fn end_if_spent(&mut self, limit: &ReasoningLimit) {
        let is_spent = self.place == Place::Inside && self.spent >= limit.tokens;
        if self.ending.is_none() && is_spent && ends_in_character(&self.tail) {
            self.ending = Some(0);
        }
    }
}

/// Whether a text does not stop inside a character. Bytes that are no UTF-8 count as characters.
fn ends_in_character(text: &[u8]) -> bool {
    let lead = text.iter().rev().take(4).position(|byte| byte & 0xc0 != 0x80);
    let Some(follow) = lead else { return true };
    let length = match text[text.len() - 1 - follow] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    follow + 1 >= length
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::chain::Spellings;

    const WORDS: [&[u8]; 9] =
        [b"Hm. ", b"<think>", b"</think>", b"\n", b"So ", b"</", b"think", b">\n\n", b"\xf0\x9f"];
    const HM: TokenId = 0;
    const OPEN: TokenId = 1;
    const CLOSE: TokenId = 2;
    const LINE: TokenId = 3;
    const SO: TokenId = 4;
    /// The closing marker in other tokens.
    const CLOSE_PARTS: [TokenId; 3] = [5, 6, 7];
    const HALF: TokenId = 8;
    const CONTROL: TokenId = 9;

    fn limit(tokens: u32, is_open: bool) -> ReasoningLimit {
        let mut texts = Spellings::default();
        WORDS.iter().for_each(|word| texts.push(word));
        texts.push(b""); // a control token
        ReasoningLimit {
            tokens,
            is_open,
            opener: "<think>",
            closer: "</think>",
            anywhere: false,
            end: Box::new([CLOSE]),
            next_end: Box::new([LINE, CLOSE]),
            texts: Arc::new(texts),
            control: Box::default(),
        }
    }

    /// What is generated, if the model would write `model`: forced tokens come between its tokens.
    fn text(limit: &ReasoningLimit, model: &[TokenId]) -> Vec<TokenId> {
        let mut reasoning = Reasoning::default();
        let (mut text, mut model) = (Vec::new(), model.iter());
        loop {
            let forced = reasoning.forced_after(limit, &text);
            // A sequence that has moved to another slot reads the whole text again.
            assert_eq!(Reasoning::default().forced_after(limit, &text), forced, "{text:?}");
            let Some(token) = forced.or_else(|| model.next().copied()) else { return text };
            text.push(token);
        }
    }

    #[test]
    fn reasoning_ends_at_its_limit() {
        assert_eq!(text(&limit(2, true), &[HM, HM, SO]), [HM, HM, CLOSE, SO]);
        let opened = [LINE, OPEN, HM, HM, SO];
        assert_eq!(text(&limit(2, false), &opened), [LINE, OPEN, HM, HM, CLOSE, SO]);
        assert_eq!(text(&limit(0, true), &[SO]), [CLOSE, SO]);
        assert_eq!(text(&limit(0, false), &[SO, SO]), [SO, SO], "there is none");
        assert_eq!(text(&limit(2, false), &[SO, SO, SO]), [SO, SO, SO]);
    }

    #[test]
    fn reasoning_that_ends_by_itself_is_left_alone() {
        assert_eq!(text(&limit(2, true), &[HM, CLOSE, SO, SO, SO]), [HM, CLOSE, SO, SO, SO]);
        let parts = [&[HM][..], &CLOSE_PARTS, &[SO, SO]].concat();
        assert_eq!(text(&limit(4, true), &parts), parts);
    }

    #[test]
    fn the_limit_holds_for_all_blocks_together() {
        let expected = [HM, CLOSE, LINE, OPEN, HM, CLOSE, OPEN, LINE, CLOSE, SO];
        assert_eq!(text(&limit(3, true), &[HM, CLOSE, LINE, OPEN, HM, OPEN, SO]), expected);
    }

    /// An answer about the markers is not changed.
    #[test]
    fn a_marker_in_the_answer_is_text() {
        let answer = [SO, OPEN, HM, HM, HM, HM];
        assert_eq!(text(&limit(1, false), &answer), answer);
        assert_eq!(text(&limit(0, true), &answer), [&[CLOSE][..], &answer].concat());
        let anywhere = ReasoningLimit { anywhere: true, ..limit(1, false) };
        assert_eq!(text(&anywhere, &[SO, OPEN, HM, SO]), [SO, OPEN, HM, CLOSE, SO]);
    }

    #[test]
    fn a_character_is_not_cut() {
        let whole = [HALF, HALF, HM, CLOSE, SO];
        assert_eq!(text(&limit(1, true), &[HALF, HALF, HM, SO]), whole);
        assert!(ends_in_character(b"") && ends_in_character(b"a\xf0\x9f\x98\x80"));
        assert!(ends_in_character("é".as_bytes()) && ends_in_character(b"\x80\x80\x80\x80"));
        for cut in [&b"a\xf0\x9f\x98"[..], b"\xe2\x82", b"\xc3"] {
            assert!(!ends_in_character(cut), "{cut:?}");
        }
    }

    #[test]
    fn markers_of_control_tokens_are_found() {
        let control = Box::new([(CONTROL, Box::from(&b"<think>"[..]))]);
        let limit = ReasoningLimit { control, ..limit(1, false) };
        assert_eq!(text(&limit, &[CONTROL, HM, SO]), [CONTROL, HM, CLOSE, SO]);
    }

    #[test]
    fn an_end_that_is_forbidden_is_tried_once() {
        let limit = limit(1, true);
        let mut reasoning = Reasoning::default();
        assert_eq!(reasoning.forced_after(&limit, &[HM]), Some(CLOSE));
        assert_eq!(reasoning.forced_after(&limit, &[HM, SO]), None);
        assert_eq!(reasoning.forced_after(&limit, &[HM, SO, SO, SO]), None);
    }

    #[test]
    fn a_marker_behind_a_long_thought_is_found() {
        let thought = [&[HM; 500][..], &CLOSE_PARTS, &[SO; 600]].concat();
        assert_eq!(text(&limit(600, true), &thought), thought);
    }
}
