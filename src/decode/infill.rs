//! llama.cpp's infill sampler, for editors: ends the text where the model is not sure how it goes
//! on. A long wrong suggestion costs its reader more time than a short right one saves.
//!
//! **Invariant:** nothing here allocates.

use super::largest::Candidate;
use super::pool::Pool;
use crate::types::TokenId;
use crate::types::chain::Spellings;

/// The number of tokens, the most probable ones, that the infill sampler compares with each other.
const INFILL_TOKENS_MAX: usize = 128;

/// The least probability of a token that stays, including tokens merged into it.
const PROBABLE: f64 = 0.2;

/// A token that may be kept.
#[derive(Clone, Copy, Debug)]
struct Entry {
    candidate: Candidate,
    probability: f64,
    is_end: bool,
}

/// Keeps the end tokens, or the tokens that are probable enough:
///
/// 1. Only the end tokens stay if three times their probability, times the number of tokens, is
///    more than the probability of the others.
/// 2. If the text of one token begins with the text of another, the less probable one is merged
///    into the more probable one.
/// 3. Tokens below a probability of 0.2 are removed. Of the rest, tokens below the total
///    probability divided by their number plus one are removed. End tokens always stay. If no other
///    token is left, the text ends.
///
/// Only the [`INFILL_TOKENS_MAX`] most probable tokens are looked at.
pub(super) fn infill(pool: &mut Pool, spellings: &Spellings, end_tokens: &[TokenId]) {
    let mut entries = entries(pool, end_tokens);
    let ends: f64 = entries.iter().filter(|e| e.is_end).map(|e| e.probability).sum();
    if 3.0 * ends * entries.len() as f64 > 1.0 - ends {
        entries.retain(|entry| entry.is_end);
        return keep(pool, &entries);
    }
    merge(&mut entries, spellings);
    entries.retain(|entry| entry.is_end || entry.probability >= PROBABLE);
    let others = entries.iter().filter(|entry| !entry.is_end).count();
    if others == 0 {
        if let Some(end) = end_tokens.first() {
            entries.clear();
            let candidate = Candidate { logit: 1.0, token: end.cast_unsigned() };
            let end = Entry { candidate, probability: 1.0, is_end: true };
            entries.push(end).expect("it is empty");
            keep(pool, &entries);
        }
        return;
    }
    let total: f64 = entries.iter().map(|entry| entry.probability).sum();
    let floor = total / (others + 1) as f64;
    entries.retain(|entry| entry.is_end || entry.probability >= floor);
    keep(pool, &entries);
}

/// The most probable tokens of the pool, the most probable first.
fn entries(pool: &mut Pool, end_tokens: &[TokenId]) -> heapless::Vec<Entry, INFILL_TOKENS_MAX> {
    let entry = |candidate: &Candidate| Entry {
        candidate: *candidate,
        probability: f64::from(candidate.logit),
        is_end: false,
    };
    let mut entries: heapless::Vec<Entry, INFILL_TOKENS_MAX> =
        pool.largest(INFILL_TOKENS_MAX).iter().map(entry).collect();
    let largest = entries.first().map_or(0.0, |first| first.probability);
    for Entry { candidate, probability, is_end } in &mut entries {
        candidate.token = pool.tokens[candidate.token as usize]; // it was a place in the pool
        *probability = (*probability - largest).exp();
        *is_end = end_tokens.iter().any(|end| end.cast_unsigned() == candidate.token);
    }
    let total: f64 = entries.iter().map(|entry| entry.probability).sum();
    entries.iter_mut().for_each(|entry| entry.probability /= total);
    entries
}

/// In each pair of tokens where one text begins with the other, moves the probability of the less
/// probable token to the more probable one. A token with probability 0 takes no further part.
fn merge(entries: &mut [Entry], spellings: &Spellings) {
    let text = |entry: &Entry| spellings.of(entry.candidate.token.cast_signed());
    for short in 0..entries.len() {
        for long in 0..entries.len() {
            if entries[short].probability == 0.0 {
                break;
            }
            let begins = !text(&entries[short]).is_empty()
                && text(&entries[long]).starts_with(text(&entries[short]));
            if short == long || entries[long].probability == 0.0 || !begins {
                continue;
            }
            let to_long = entries[long].probability > entries[short].probability;
            let (to, from) = if to_long { (long, short) } else { (short, long) };
            entries[to].probability += std::mem::take(&mut entries[from].probability);
        }
    }
}

/// Leaves these tokens in the pool, with their own logits.
fn keep(pool: &mut Pool, entries: &[Entry]) {
    pool.logits.clear();
    pool.logits.extend(entries.iter().map(|entry| entry.candidate.logit));
    pool.tokens.clear();
    pool.tokens.extend(entries.iter().map(|entry| entry.candidate.token));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 6] = ["", "re", "return", "let", "l", "x"];
    const END: TokenId = 0;

    /// The tokens that are left of tokens with these probabilities.
    fn left(probabilities: [f32; 6]) -> Vec<&'static str> {
        let mut spellings = Spellings::default();
        TEXTS.iter().for_each(|text| spellings.push(text.as_bytes()));
        let mut pool = Pool::new(TEXTS.len());
        pool.fill(&probabilities.map(f32::ln));
        infill(&mut pool, &spellings, &[END]);
        let mut tokens = pool.tokens;
        tokens.sort_unstable();
        tokens.iter().map(|token| TEXTS[*token as usize]).collect()
    }

    #[test]
    fn the_text_ends_where_that_is_probable() {
        // 3 * 0.1 * 6 is more than 0.9.
        assert_eq!(left([0.1, 0.9, 1e-9, 1e-9, 1e-9, 1e-9]), [""]);
        // 3 * 0.02 * 6 is less than 0.98.
        assert_eq!(left([0.02, 0.98, 1e-9, 1e-9, 1e-9, 1e-9]), ["", "re"]);
    }

    #[test]
    fn tokens_that_begin_alike_count_for_the_more_probable_one() {
        // "let" and "l" are 0.5 together, "re" and "return" 0.4.
        assert_eq!(left([0.0, 0.15, 0.25, 0.19, 0.31, 0.1]), ["return", "l"]);
        // All of the others are below 0.2.
        assert_eq!(left([0.0, 0.0, 0.7, 0.0, 0.0, 0.15]), ["return"]);
    }

    #[test]
    fn the_text_ends_where_nothing_is_probable() {
        let mut spellings = Spellings::default();
        (0..=100).for_each(|n: u8| spellings.push(&[n]));
        let mut pool = Pool::new(101);
        pool.fill(&[0.0; 101]);
        infill(&mut pool, &spellings, &[7]);
        assert_eq!(pool.tokens, [7], "3 * 0.01 * 101 is more than 1");
        let mut pool = Pool::new(101);
        let logits: Vec<f32> = (0..101).map(|n| if n == 7 { -20.0 } else { 0.0 }).collect();
        pool.fill(&logits);
        infill(&mut pool, &spellings, &[7]);
        assert_eq!(pool.tokens, [7], "the end token alone is left");
    }
}
