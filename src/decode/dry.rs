//! DRY ("Don't Repeat Yourself"): a token that would continue a repetition of `n` tokens loses
//! `multiplier * base^(n - allowed_length)` of its logit, as in llama.cpp.
//!
//! **Invariant:** nothing here allocates.

use crate::limits::SEQUENCE_TOKENS_MAX;
use crate::types::TokenId;
use crate::types::chain::{Breakers, DryOptions};

/// The largest penalty. Two of them can be subtracted, and the logit is still finite.
const PENALTY_MAX: f64 = 1e30;

/// The repetitions in a text.
pub(super) struct Dry {
    /// `lengths[i]`: the number of tokens at the text's end that also stand before its last `i`
    /// tokens. It has room for the longest sequence; memory is touched only as needed.
    lengths: Vec<u32>,
}

impl Dry {
    pub fn new() -> Self {
        Self { lengths: Vec::with_capacity(SEQUENCE_TOKENS_MAX) }
    }

    /// Lowers the logits of tokens that would continue a repetition in `history`. `counts` is all
    /// zeroes before and after the call, `[n_vocab]` like `logits`.
    ///
    /// Linear in the window's tokens, which is little beside the model's attention to them.
    pub fn apply(
        &mut self,
        counts: &mut [u32],
        logits: &mut [f32],
        history: &[TokenId],
        options: &DryOptions,
    ) {
        let window = &history[history.len().saturating_sub(options.last_n as usize)..];
        let allowed = options.allowed_length as usize;
        let longest = longest_repetition(window, &options.breakers);
        if window.len() <= allowed || longest < allowed {
            return;
        }
        self.find(window);
        // For each token: the length of the longest repetition that it continues, plus one.
        let followers = window.iter().rev();
        for (token, length) in followers.clone().zip(&self.lengths[1..]) {
            let length = (*length as usize).min(longest);
            if length >= allowed {
                let count = &mut counts[*token as usize];
                *count = (*count).max(length as u32 + 1); // below SEQUENCE_TOKENS_MAX
            }
        }
        for token in followers {
            let count = std::mem::take(&mut counts[*token as usize]);
            if count > 0 && !options.breakers.is_sequence(*token) {
                let power = f64::from(count - 1 - options.allowed_length);
                let penalty = f64::from(options.multiplier) * f64::from(options.base).powf(power);
                logits[*token as usize] -= penalty.min(PENALTY_MAX) as f32;
            }
        }
    }

    /// Fills `lengths` with the Z function of the reversed text, in linear time (Gusfield,
    /// "Algorithms on Strings, Trees and Sequences", 1997).
    fn find(&mut self, text: &[TokenId]) {
        let n = text.len();
        let at = |index: usize| text[n - 1 - index];
        let lengths = &mut self.lengths;
        lengths.clear();
        lengths.push(n as u32); // below SEQUENCE_TOKENS_MAX, as all that follow
        // The match that reaches farthest: `left..right` equals `0..right - left`.
        let (mut left, mut right) = (0, 0);
        for start in 1..n {
            let known = if start < right { lengths[start - left] as usize } else { 0 };
            let mut length = known.min(right.saturating_sub(start));
            while start + length < n && at(length) == at(start + length) {
                length += 1;
            }
            if start + length > right {
                (left, right) = (start, start + length);
            }
            lengths.push(length as u32);
        }
    }
}

/// The longest possible repetition at the end of `text`: it does not reach over the last breaker.
fn longest_repetition(text: &[TokenId], breakers: &Breakers) -> usize {
    for (behind, token) in text.iter().rev().enumerate() {
        let rest = &text[text.len() - behind..];
        let tails = breakers.tails(*token).filter(|tail| rest.starts_with(tail));
        if let Some(tail) = tails.map(<[TokenId]>::len).max() {
            return behind - tail;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Breakers of one token each.
    fn single(tokens: &[TokenId]) -> Arc<Breakers> {
        let heads = tokens.iter().map(|token| (*token, 0)).collect();
        Arc::new(Breakers::new(heads, vec![Box::default()]))
    }

    fn options() -> DryOptions {
        DryOptions { multiplier: 1.0, base: 2.0, ..DryOptions::default() }
    }

    /// The penalty of each of ten tokens.
    fn penalties(history: &[TokenId], options: &DryOptions) -> Vec<f32> {
        let (mut counts, mut logits) = ([0; 10], vec![0.0; 10]);
        Dry::new().apply(&mut counts, &mut logits, history, options);
        assert_eq!(counts, [0; 10], "the table is clean again");
        logits.iter().map(|logit| 0.0 - logit).collect()
    }

    #[test]
    fn what_would_go_on_with_a_repetition_loses() {
        // "1 2 3" was followed by 4: three tokens are one more than allowed.
        let found = penalties(&[1, 2, 3, 4, 5, 1, 2, 3], &options());
        assert_eq!(found, [0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        // Each of two continuations is penalised for its own repetition: 2 3 -> 4, 6 2 3 -> 7.
        let found = penalties(&[2, 3, 4, 6, 2, 3, 7, 6, 2, 3], &options());
        assert_eq!((found[4], found[7]), (1.0, 2.0));
        assert_eq!(penalties(&[1, 2, 3], &options()), [0.0; 10]);
        // multiplier * base^(3 - 2)
        let strict = DryOptions { multiplier: 0.5, base: 1.5, ..options() };
        assert_eq!(penalties(&[1, 2, 3, 4, 5, 1, 2, 3], &strict)[4], 0.75);
        let lenient = DryOptions { allowed_length: 4, ..options() };
        assert_eq!(penalties(&[1, 2, 3, 4, 5, 1, 2, 3], &lenient), [0.0; 10]);
    }

    #[test]
    fn only_the_last_tokens_are_looked_at() {
        let history = [1, 2, 3, 4, 5, 1, 2, 3];
        let near = |last_n| penalties(&history, &DryOptions { last_n, ..options() })[4];
        assert_eq!((near(0), near(5)), (0.0, 0.0));
        assert_eq!((near(7), near(8)), (1.0, 2.0));
    }

    #[test]
    fn with_nothing_allowed_every_token_behind_another_loses() {
        let free = DryOptions { allowed_length: 0, ..options() };
        // 2 and 3 continue a repetition of no tokens, 1 * 2^0. 1 is the first token.
        assert_eq!(penalties(&[1, 2, 3], &free)[..4], [0.0, 0.0, 1.0, 1.0]);
        // 3 has followed 2, and the text ends with 2: 1 * 2^1.
        assert_eq!(penalties(&[2, 3, 2], &free)[..4], [0.0, 0.0, 1.0, 2.0]);
    }

    #[test]
    fn no_repetition_reaches_over_a_breaker() {
        let history = [1, 2, 3, 4, 5, 1, 2, 3];
        let with = |breakers| penalties(&history, &DryOptions { breakers, ..options() });
        assert_eq!(with(single(&[9]))[4], 2.0);
        assert_eq!(with(single(&[1]))[4], 1.0, "two tokens are behind it");
        assert_eq!(with(single(&[2]))[4], 0.0, "one token is too few");
        assert_eq!(with(single(&[4]))[4], 0.0, "a breaker itself loses nothing");
        // A breaker of two tokens, 5 and 1, and one that does not occur.
        let tails: Vec<Box<[TokenId]>> = vec![Box::from([1]), Box::from([7])];
        assert_eq!(with(Arc::new(Breakers::new(vec![(5, 0)], tails.clone())))[4], 1.0);
        assert_eq!(with(Arc::new(Breakers::new(vec![(5, 1)], tails)))[4], 2.0);
    }

    #[test]
    fn a_long_repetition_costs_much_and_stays_a_number() {
        let history = vec![1; 5000];
        let options = DryOptions { multiplier: 100.0, base: 100.0, last_n: 5000, ..options() };
        let found = penalties(&history, &options);
        assert!(found[1].is_finite() && found[1] > 1e29);
    }

    /// The definition: compares every suffix with every position.
    #[test]
    fn repetitions_are_those_of_the_definition() {
        let mut dry = Dry::new();
        for seed in 0..300u32 {
            let n = 2 + seed as usize % 30;
            let token = |i: usize| ((i as u32 * 2_654_435) ^ (seed * 40_503)) >> 7;
            let text: Vec<TokenId> = (0..n).map(|i| (token(i) % 3) as TokenId).collect();
            dry.find(&text);
            let same = |start: usize| {
                (0..n - start).take_while(|k| text[n - 1 - k] == text[n - 1 - start - k]).count()
            };
            let expected: Vec<u32> = (0..n).map(|start| same(start) as u32).collect();
            assert_eq!(dry.lengths, expected, "{text:?}");
        }
    }
}
