//! Guesses the next tokens of a text from the text itself: finds an earlier place where the same
//! tokens stand as at the text's end, and copies the tokens behind it (prompt lookup decoding).
//!
//! An index finds earlier places by the hash of [`NGRAM`] tokens, like the hash chains of LZ77
//! compressors. Among the newest [`LOOKUP_CANDIDATES`] places with the same hash, the one with the
//! longest match to the end of the text wins.
//!
//! **Invariant:** no step allocates here, and a step looks at a bounded number of tokens.

use crate::limits::{LOOKUP_MATCH_MAX, NGRAM};
use crate::random::mix;
use crate::types::TokenId;

/// Equal tokens after which nearly all guesses are right.
const LOOKUP_LONG: usize = 6;

/// The number of earlier places among which the best one is chosen.
const LOOKUP_CANDIDATES: usize = 16;

/// Tokens that the index of a text takes in one step, so that no step waits for a long prompt.
const LOOKUP_TOKENS: usize = 2048;

/// The index of one slot's tokens.
pub struct Lookup {
    /// By hash: the newest place with that hash.
    newest: Box<[Place]>, // [power of two]
    /// By place: the previous place with the same hash.
    before: Box<[Place]>, // [sequence_tokens]
    /// The number of tokens in the index.
    indexed: usize,
}

/// The index of the last token of an n-gram, plus one. 0 is none.
type Place = u32;

impl Lookup {
    /// An empty index for a text of at most `tokens` tokens.
    pub fn new(tokens: usize) -> Self {
        Self {
            newest: vec![0; tokens.next_power_of_two()].into_boxed_slice(),
            before: vec![0; tokens].into_boxed_slice(),
            indexed: 0,
        }
    }

    /// Forgets all places.
    fn clear(&mut self) {
        if self.indexed > 0 {
            self.newest.fill(0);
            self.indexed = 0;
        }
    }

    /// Forgets the places from token `keep` on. `tokens` is the text so far.
    pub fn truncate(&mut self, tokens: &[TokenId], keep: usize) {
        let removed = self.indexed.saturating_sub(keep);
        if removed > self.newest.len() / 8 {
            return self.clear();
        }
        // Newest first, the reverse of `follow`: so each removed place is the newest of its hash.
        for _ in 0..removed {
            self.indexed -= 1;
            if let Some(bucket) = self.bucket(&tokens[..=self.indexed]) {
                self.newest[bucket] = self.before[self.indexed];
            }
        }
    }

    /// Adds new tokens to the index, at most [`LOOKUP_TOKENS`] of them.
    fn follow(&mut self, tokens: &[TokenId]) {
        let end = tokens.len().min(self.indexed + LOOKUP_TOKENS);
        while self.indexed < end {
            if let Some(bucket) = self.bucket(&tokens[..=self.indexed]) {
                self.before[self.indexed] = self.newest[bucket];
                self.newest[bucket] = self.indexed as Place + 1; // at most sequence_tokens
            }
            self.indexed += 1;
        }
    }

    /// The bucket of the last [`NGRAM`] tokens' hash. `None` if there are fewer.
    fn bucket(&self, tokens: &[TokenId]) -> Option<usize> {
        let (_, ngram) = tokens.split_last_chunk::<NGRAM>()?;
        let hash = ngram.iter().fold(0, |hash, token| mix(hash ^ u64::from(token.cast_unsigned())));
        Some(hash as usize & (self.newest.len() - 1)) // a power of two
    }

    /// Guesses the tokens that follow the first `len` tokens of `text`, and writes them there.
    /// Returns the number of guesses, at most `most`. After [`Lookup::truncate`], `len` must be
    /// greater than its `keep`, so that the index lacks the last token.
    pub fn guess(&mut self, text: &mut [TokenId], len: usize, most: usize) -> usize {
        let most = most.min(text.len() - len);
        let tokens = &text[..len];
        // The last n-gram is left out of the index, because nothing follows it yet.
        self.follow(&tokens[..len.saturating_sub(1)]);
        let found = self.find(tokens);
        let count = most.min(found.worth());
        // Token by token, because the source may reach into the tokens that are being written.
        for index in 0..count {
            text[len + index] = text[found.place + index];
        }
        count
    }

    /// The best earlier place to copy from.
    fn find(&self, tokens: &[TokenId]) -> Found {
        let mut found = Found::default();
        let mut nexts = heapless::Vec::<TokenId, LOOKUP_CANDIDATES>::new();
        let mut place = self.bucket(tokens).map_or(0, |bucket| self.newest[bucket] as usize);
        for _ in 0..LOOKUP_CANDIDATES {
            if place == 0 {
                break;
            }
            // Other n-grams may have the same hash.
            let same = common_end(&tokens[..place], tokens);
            if same >= NGRAM {
                nexts.push(tokens[place]).expect("one for each candidate");
            }
            if same > found.same {
                found = Found { place, same, ..found };
            }
            place = self.before[place - 1] as usize;
        }
        let agrees = |next: &&TokenId| **next == tokens[found.place];
        found.agree = 2 * nexts.iter().filter(agrees).count() > nexts.len();
        found
    }
}

/// An earlier place to copy from.
#[derive(Default)]
struct Found {
    place: usize,
    /// The number of tokens before it that equal the end of the text.
    same: usize,
    /// More than half of the places found go on with the same token as this one.
    agree: bool,
}

impl Found {
    /// The number of guesses to copy from it. After a short match, guesses are mostly wrong if the
    /// places disagree. After a match of [`LOOKUP_LONG`] tokens, nearly all are right.
    fn worth(&self) -> usize {
        match self.same {
            LOOKUP_LONG.. => 2 * self.same,
            NGRAM.. if self.agree => self.same,
            _ => 0,
        }
    }
}

/// The length of the common end of two texts, at most [`LOOKUP_MATCH_MAX`].
fn common_end(a: &[TokenId], b: &[TokenId]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take(LOOKUP_MATCH_MAX).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The guesses after a text.
    fn guesses(lookup: &mut Lookup, text: &[TokenId], most: usize) -> Vec<TokenId> {
        let mut room = text.to_vec();
        room.resize(text.len() + most, -1);
        let count = lookup.guess(&mut room, text.len(), most);
        room[text.len()..][..count].to_vec()
    }

    fn of(text: &str, most: usize) -> String {
        let tokens: Vec<TokenId> = text.bytes().map(TokenId::from).collect();
        let found = guesses(&mut Lookup::new(tokens.len() + most), &tokens, most);
        found.iter().map(|token| *token as u8 as char).collect()
    }

    #[test]
    fn it_continues_as_the_last_time() {
        assert_eq!(of("the cat sat. the cat", 99), " sat. the cat ");
        assert_eq!(of("the cat sat. the cat", 3), " sa");
        assert_eq!(of("one two six", 9), "");
        assert_eq!(of("", 9), "");
        assert_eq!(of("a", 9), "");
    }

    #[test]
    fn no_more_is_guessed_than_the_match_is_worth() {
        assert_eq!(of("abcdefgh_abc", 9), "def");
        assert_eq!(of("abcdefgh_abcdef", 99), "gh_abcdefgh_");
    }

    #[test]
    fn the_longest_match_wins_and_then_the_newest() {
        assert_eq!(of("wxabcd1 xabcd1 yabcd2 wxabcd", 1), "1");
        assert_eq!(of("wxabcd1 wxabcd2 wxabcd", 1), "2");
    }

    #[test]
    fn places_that_disagree_are_worth_nothing_but_behind_a_long_match() {
        assert_eq!(of("ab1 ab2 ab", 1), "");
        assert_eq!(of("ab1 ab2 ab2 ab", 1), "2");
        assert_eq!(of("abcdef1 abcdef2 abcdef", 1), "2");
    }

    #[test]
    fn a_loop_continues() {
        assert_eq!(of("abababab", 6), "ababab");
        assert_eq!(of("aaaa", 3), "aaa");
    }

    #[test]
    fn a_long_text_is_indexed_over_several_steps() {
        let mut text: Vec<TokenId> = (0..3 * LOOKUP_TOKENS as TokenId).collect();
        text.extend([5, 6, 7]);
        let mut lookup = Lookup::new(text.len() + 1);
        assert_eq!(guesses(&mut lookup, &text, 1), [8]);
        assert_eq!(lookup.indexed, LOOKUP_TOKENS);
        text.extend([8, 3 * LOOKUP_TOKENS as TokenId - 4, 3 * LOOKUP_TOKENS as TokenId - 3]);
        text.push(3 * LOOKUP_TOKENS as TokenId - 2);
        let mut lookup = Lookup::new(text.len() + 1);
        let found: Vec<_> = (0..4).map(|_| guesses(&mut lookup, &text, 1)).collect();
        assert_eq!(found[..2], [[], []] as [[TokenId; 0]; 2]);
        assert_eq!(found[3], [3 * LOOKUP_TOKENS as TokenId - 1]);
    }

    /// The definition, by trying all places.
    fn reference(text: &[TokenId], most: usize) -> Vec<TokenId> {
        let places = (1..text.len()).map(|at| (common_end(&text[..at], text), at));
        let places: Vec<_> = places.filter(|(same, _)| *same >= NGRAM).collect();
        let Some((same, place)) = places.iter().copied().max() else { return Vec::new() };
        let agree = places.iter().filter(|(_, at)| text[*at] == text[place]).count();
        let worth = match same {
            LOOKUP_LONG.. => 2 * same,
            _ if 2 * agree > places.len() => same,
            _ => 0,
        };
        let mut all = text.to_vec();
        (0..most.min(worth)).for_each(|index| all.push(all[place + index]));
        all.split_off(text.len())
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_finds_whatever_was_forgotten(
            text in prop::collection::vec(0..3i32, 1..120),
            cuts in prop::collection::vec((0..120usize, 0..120usize), 0..6),
            most in 0..9usize,
        ) {
            let mut lookup = Lookup::new(2000); // no two of these pairs share a bucket
            let (mut text, all) = (text.clone(), text);
            for (cut, grow) in cuts {
                guesses(&mut lookup, &text, most);
                lookup.truncate(&text, cut);
                text.truncate(cut.max(1));
                // Another text goes on from here.
                text.extend(all.iter().cycle().skip(grow).take(1 + grow % 40).map(|token| 2 - token));
                text.truncate(150);
            }
            let found = guesses(&mut lookup, &text, most);
            let expected = reference(&text, most);
            // A longer match that is older than the candidates may be missed.
            let few = (1..text.len()).filter(|at| common_end(&text[..*at], &text) >= NGRAM).count();
            if few <= LOOKUP_CANDIDATES {
                prop_assert_eq!(found, expected);
            }
        }
    }
}
