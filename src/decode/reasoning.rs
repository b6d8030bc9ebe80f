//! Ends a model's reasoning at its limit ([`ReasoningLimit`]): the tokens of its end are forced, as
//! if the model had sampled them.
//!
//! The markers are found in the text, because a model may write one in other tokens than a tokeniser
//! would. The end waits for a whole character. A token of the end that a grammar forbids is not
//! forced.

use crate::types::TokenId;
use crate::types::reasoning::ReasoningLimit;

/// The last bytes of a text that are kept to find a marker in them, longer than any marker.
const TAIL_BYTES: usize = 64;

/// Where a text is in its reasoning. The default is its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Reasoning {
    /// Generated tokens that have been read.
    seen: usize,
    /// Tokens inside blocks of reasoning.
    spent: u32,
    is_open: bool,
    /// The next token of the end, while it is being forced.
    ending: Option<usize>,
    /// The last bytes since the block was opened or closed.
    tail: heapless::Vec<u8, TAIL_BYTES>,
}

impl Reasoning {
    /// The token that must come behind `generated`, if the reasoning has reached its limit.
    pub fn forced_after(
        &mut self,
        limit: &ReasoningLimit,
        generated: &[TokenId],
    ) -> Option<TokenId> {
        if self.seen == 0 {
            self.is_open = limit.is_open;
            self.end_if_spent(limit);
        }
        for token in &generated[self.seen..] {
            self.read(limit, *token);
            self.end_if_spent(limit);
        }
        self.seen = generated.len();
        self.ending.map(|index| limit.end[index])
    }

    fn read(&mut self, limit: &ReasoningLimit, token: TokenId) {
        self.spent += u32::from(self.is_open);
        for byte in limit.spelling_of(token) {
            if self.tail.is_full() {
                self.tail.remove(0);
            }
            self.tail.push(*byte).expect("it is not full");
            let marker = if self.is_open { limit.closer } else { limit.opener };
            if self.tail.ends_with(marker.as_bytes()) {
                self.is_open = !self.is_open;
                self.tail.clear();
            }
        }
        let next = self.ending.map(|index| index + 1);
        self.ending = next.filter(|index| *index < limit.end.len());
    }

    fn end_if_spent(&mut self, limit: &ReasoningLimit) {
        let is_spent = self.is_open && self.spent >= limit.tokens;
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
            end: Box::new([LINE, CLOSE]),
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
        assert_eq!(text(&limit(2, true), &[HM, HM, SO]), [HM, HM, LINE, CLOSE, SO]);
        assert_eq!(text(&limit(2, false), &[OPEN, HM, HM, SO]), [OPEN, HM, HM, LINE, CLOSE, SO]);
        assert_eq!(text(&limit(0, true), &[SO]), [LINE, CLOSE, SO]);
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
        let expected = [HM, CLOSE, SO, OPEN, HM, LINE, CLOSE, SO, OPEN, LINE, CLOSE, SO];
        assert_eq!(text(&limit(3, true), &[HM, CLOSE, SO, OPEN, HM, SO, OPEN, SO]), expected);
    }

    #[test]
    fn a_character_is_not_cut() {
        assert_eq!(text(&limit(1, true), &[HALF, HALF, HM, SO]).len(), 6);
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
        assert_eq!(text(&limit, &[CONTROL, HM, SO]), [CONTROL, HM, LINE, CLOSE, SO]);
    }

    #[test]
    fn a_forbidden_end_is_tried_again() {
        let limit = limit(1, true);
        let mut reasoning = Reasoning::default();
        assert_eq!(reasoning.forced_after(&limit, &[HM]), Some(LINE));
        assert_eq!(reasoning.forced_after(&limit, &[HM, SO]), Some(CLOSE));
        assert_eq!(reasoning.forced_after(&limit, &[HM, SO, SO]), Some(LINE));
        assert_eq!(reasoning.forced_after(&limit, &[HM, SO, SO, SO]), Some(CLOSE));
        assert_eq!(reasoning.forced_after(&limit, &[HM, SO, SO, SO, CLOSE]), None);
    }
}
