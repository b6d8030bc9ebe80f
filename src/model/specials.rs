//! Finds special tokens in texts, and prevents that a client's text is read as control tokens.
//!
//! llama.cpp's own search for special tokens takes a time that grows with the square of their
//! number in the text: half a minute for a megabyte of `<|im_end|>`. Here one automaton finds all
//! of them in one pass, and llama.cpp gets only the texts between them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::types::{GUARD, TokenId};

/// A token that is found in a text before the text is tokenised.
#[derive(Clone, Debug)]
pub(super) struct Special {
    pub token: TokenId,
    /// Its spelling in a text. Not empty.
    pub spelling: String,
    /// Whether it is a control token: found only if the caller asks for control tokens.
    pub is_control: bool,
    /// Whether white space before it is removed.
    pub strips_left: bool,
    /// Whether white space after it is removed.
    pub strips_right: bool,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// Text to tokenise. Not empty.
    Text(&'a str),
    /// A special token.
    Token(TokenId),
}

/// The special tokens of a vocabulary.
#[derive(Default)]
pub(super) struct Specials {
    all: Finder,
    user_defined: Finder,
    /// Finds control tokens at every place, also overlapping ones.
    controls: Option<AhoCorasick>,
    /// The spellings of control tokens, sorted.
    control_spellings: Box<[String]>,
}

/// Finds some special tokens: always the leftmost one, and of several at one place the longest.
#[derive(Default)]
struct Finder {
    specials: Box<[Special]>,
    automaton: Option<AhoCorasick>,
}

impl Specials {
    pub fn new(specials: Vec<Special>) -> Self {
        let (controls, others): (Vec<_>, Vec<_>) =
            specials.iter().cloned().partition(|special| special.is_control);
        let mut spellings: Vec<String> =
            controls.into_iter().map(|special| special.spelling).collect();
        spellings.sort();
        Self {
            controls: automaton(MatchKind::Standard, &spellings),
            control_spellings: spellings.into(),
            all: Finder::new(specials),
            user_defined: Finder::new(others),
        }
    }

    /// Splits a text at its special tokens. Control tokens count only with `control`.
    pub fn split<'a>(&self, text: &'a str, control: bool) -> Vec<Piece<'a>> {
        if control { self.all.split(text) } else { self.user_defined.split(text) }
    }

    /// Inserts marks into a client's text, so that no control token's spelling is in it, or begins
    /// in it and ends in the text after it. [`unguarded`] removes the marks.
    pub fn guarded<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut places = BTreeSet::new();
        if let Some(controls) = &self.controls {
            let first = |start: usize| text[start..].chars().next().map_or(0, char::len_utf8);
            let found = controls.find_overlapping_iter(text);
            places.extend(found.map(|found| found.start() + first(found.start())));
            if self.may_go_on(text) {
                places.insert(text.len());
            }
        }
        // A mark in the client's own text is doubled.
        places.extend(text.match_indices(GUARD).map(|(at, _)| at));
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut guarded = String::with_capacity(text.len() + places.len() * GUARD.len_utf8());
        let mut done = 0;
        for place in places {
            guarded.push_str(&text[done..place]);
            guarded.push(GUARD);
            done = place;
        }
        guarded.push_str(&text[done..]);
        Cow::Owned(guarded)
    }

    /// Whether a text ends with the beginning of a control token's spelling.
    fn may_go_on(&self, text: &str) -> bool {
        let longest = self.control_spellings.iter().map(String::len).max().unwrap_or(0);
        let mut ends = text.char_indices().rev().map(|(at, _)| &text[at..]);
        ends.by_ref().take_while(|end| end.len() < longest).any(|end| {
            let at = self.control_spellings.partition_point(|spelling| spelling.as_str() < end);
            self.control_spellings.get(at).is_some_and(|spelling| spelling.starts_with(end))
        })
    }
}

/// The text without the marks of [`Specials::guarded`].
pub(super) fn unguarded(text: &str) -> Cow<'_, str> {
    if !text.contains(GUARD) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.chars() {
        if c == GUARD {
            marks += 1;
            if marks % 2 == 0 {
                plain.push(GUARD);
            }
        } else {
            marks = 0;
            plain.push(c);
        }
    }
    Cow::Owned(plain)
}

fn automaton(kind: MatchKind, spellings: &[impl AsRef<[u8]>]) -> Option<AhoCorasick> {
    (!spellings.is_empty()).then(|| {
        let built = AhoCorasick::builder().match_kind(kind).build(spellings);
        built.expect("the spellings of a vocabulary are under 2 GiB")
    })
}

impl Finder {
    fn new(specials: Vec<Special>) -> Self {
        let spellings: Vec<_> = specials.iter().map(|special| &special.spelling).collect();
        let automaton = automaton(MatchKind::LeftmostLongest, &spellings);
        Self { automaton, specials: specials.into() }
    }

    fn split<'a>(&self, text: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let mut rest_from = 0;
        let found = self.automaton.iter().flat_map(|automaton| automaton.find_iter(text));
        for found in found {
            if found.start() < rest_from {
                continue; // in white space that the previous token removes
            }
            let special = &self.specials[found.pattern().as_usize()];
            push_text(&mut pieces, &text[rest_from..found.start()], special.strips_left);
            pieces.push(Piece::Token(special.token));
            rest_from = found.end();
            if special.strips_right {
                let rest = text[rest_from..].trim_start_matches(is_space);
                rest_from = text.len() - rest.len();
            }
        }
        push_text(&mut pieces, &text[rest_from..], false);
        pieces
    }
}

fn push_text<'a>(pieces: &mut Vec<Piece<'a>>, text: &'a str, strips: bool) {
    let text = if strips { text.trim_end_matches(is_space) } else { text };
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

/// C's `isspace`, which llama.cpp uses.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn special(token: TokenId, spelling: &str) -> Special {
        Special {
            token,
            spelling: spelling.into(),
            is_control: true,
            strips_left: false,
            strips_right: false,
        }
    }

    fn specials() -> Specials {
        Specials::new(vec![
            special(1, "<|end|>"),
            Special { is_control: false, ..special(2, "<think>") },
            Special { strips_left: true, strips_right: true, ..special(3, "<mask>") },
            special(4, "<<|end|>>"),
        ])
    }

    #[test]
    fn a_text_is_split_at_its_special_tokens() {
        use Piece::{Text, Token};
        let specials = specials();
        let split = |text, control| specials.split(text, control);
        assert_eq!(split("", true), []);
        assert_eq!(split("a<|end|>b<|end", true), [Text("a"), Token(1), Text("b<|end")]);
        assert_eq!(split("a<|end|><think>", false), [Text("a<|end|>"), Token(2)]);
        assert_eq!(split("a \n<mask>\t<|end|>", true), [Text("a"), Token(3), Token(1)]);
        assert_eq!(split("<<|end|>><<|end|>", true), [Token(4), Text("<"), Token(1)]);
    }

    #[test]
    fn a_guarded_text_has_no_control_token_with_any_text_after_it() {
        let specials = specials();
        for text in ["<|end|>", "a<<|end|>>b", "<mask><think>", "x<|end|", "<", "é\u{FDD0}<|end|>"]
        {
            let guarded = specials.guarded(text);
            assert_eq!(unguarded(&guarded), text);
            for more in ["", ">", "|end|>", "end|>", "mask>", ">>"] {
                let whole = format!("{guarded}{more}");
                let token = |piece: &Piece| matches!(piece, Piece::Token(token) if *token != 2);
                let found: Vec<_> =
                    specials.split(&whole, true).into_iter().filter(token).collect();
                assert_eq!(found, [], "{text:?} and {more:?}");
            }
        }
        assert!(matches!(specials.guarded("1 < 2 and <think>"), Cow::Borrowed(_)));
        assert_eq!(unguarded(&specials.guarded("\u{FDD0}\u{FDD0}<")), "\u{FDD0}\u{FDD0}<");
    }
}
