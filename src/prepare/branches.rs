//! From places in a text to places in its tokens.

use crate::limits::BRANCHES_MAX;
use crate::model::vocab::Vocab;
use crate::types::TokenId;

/// For each place in a text, in bytes, the number of tokens that stand before it whatever comes
/// behind it: a tokeniser may join the last of them with what follows, so that one does not count.
/// Empty if the tokens spell another text than one of `text_bytes`.
pub(super) fn tokens_before(
    places: &[usize],
    ids: &[TokenId],
    text_bytes: usize,
    vocab: &Vocab,
) -> heapless::Vec<u32, BRANCHES_MAX> {
    let bytes = |id: &TokenId| vocab.spelling_of(*id).len();
    let all: usize = ids.iter().map(bytes).sum();
    // Some tokenisers put a space before the text, and the vocabulary may ask for a token before it.
    let first = vocab.first_text().map_or(0, |text| text.len());
    let is_known =
        |more: &usize| *more <= 1 || more.checked_sub(first).is_some_and(|space| space <= 1);
    let Some(more) = all.checked_sub(text_bytes).filter(is_known) else {
        return heapless::Vec::new();
    };
    let before = |place: &usize| {
        let mut end = 0;
        let is_before = |id: &&TokenId| {
            end += bytes(id);
            end <= place + more
        };
        let tokens = ids.iter().take_while(is_before).count();
        tokens.checked_sub(1).map(|tokens| tokens as u32) // at most SEQUENCE_TOKENS_MAX
    };
    places.iter().filter_map(before).take(BRANCHES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_before_a_place_may_change_with_what_follows() {
        let vocab = Vocab::of_fake();
        let ids: Vec<TokenId> = "abcdef".bytes().map(TokenId::from).collect();
        assert_eq!(tokens_before(&[3, 6, 0], &ids, 6, &vocab), [2, 5]);
        assert_eq!(tokens_before(&[3], &ids, 5, &vocab), [3], "a space before the text");
        assert!(tokens_before(&[3], &ids, 8, &vocab).is_empty());
    }
}
