//! Whether a rung ran what it names: its tokens, its texts and its events are held
//! against those of the lowest rung that ran.

use super::workload::Texts;
use crate::types::TokenId;

/// Requests that must begin with the same token as on the rung below.
const TOKENS_AGREE_MIN: f64 = 0.9;

/// Texts that must begin with the token of the rungs below. Over the network requests
/// arrive one by one, so other rows are computed together and round differently, and a
/// model with random weights has close seconds. A text that is somebody else's agrees by
/// chance alone.
const TEXTS_AGREE_MIN: f64 = 0.5;

/// Events of a stream for each token: some tokens end no character, and have no event of
/// their own.
const EVENTS_PER_TOKEN_MIN: f64 = 0.8;

/// All tokens where both ran the recorded batches, and the first ones where batches are
/// planned as time goes.
///
/// # Errors
/// A sentence, when they differ.
pub fn tokens(reference: &Texts, found: &Texts, recorded: bool) -> Result<(), String> {
    let agreement = reference.agreement(found);
    if agreement < TOKENS_AGREE_MIN || (recorded && reference != found) {
        return Err(format!(
            "its tokens are not those of the rung below: {:.0} % of the requests begin alike",
            agreement * 100.0
        ));
    }
    Ok(())
}

/// Texts, in the order of the requests, against the first tokens.
///
/// # Errors
/// A sentence, when they differ.
pub fn texts<'t, 'b>(
    reference: &Texts,
    bytes_of: impl Fn(TokenId) -> &'b [u8],
    found: impl Iterator<Item = &'t str>,
) -> Result<(), String> {
    let alike = found.zip(&reference.0).filter(|(text, tokens)| {
        let first = String::from_utf8_lossy(bytes_of(tokens[0]));
        // Half a character is no text yet.
        text.starts_with(first.trim_end_matches(char::REPLACEMENT_CHARACTER))
    });
    let share = alike.count() as f64 / reference.0.len() as f64;
    if share < TEXTS_AGREE_MIN {
        return Err(format!(
            "its texts are not those of the rungs below: {:.0} % of them begin alike",
            share * 100.0
        ));
    }
    Ok(())
}

/// A request whose tokens came in so many events.
///
/// # Errors
/// A sentence, when that is no stream.
pub fn streamed(events: usize, tokens: u64) -> Result<(), String> {
    if (events as f64) < tokens as f64 * EVENTS_PER_TOKEN_MIN {
        return Err(format!("{tokens} tokens came in {events} events"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> Texts {
        Texts((0..10).map(|request| vec![request, 7]).collect())
    }

    #[test]
    fn other_tokens_are_refused() {
        assert_eq!(tokens(&reference(), &reference(), true), Ok(()));
        let mut last = reference();
        last.0[3][1] = 8;
        assert_eq!(tokens(&reference(), &last, false), Ok(()));
        assert!(tokens(&reference(), &last, true).unwrap_err().contains("100 %"));
        let mut shifted = reference();
        shifted.0.rotate_left(1);
        assert!(tokens(&reference(), &shifted, false).unwrap_err().contains("0 %"));
    }

    #[test]
    fn other_texts_are_refused() {
        const BYTES: &[u8] = b"abcdefghij";
        let bytes_of = |token: TokenId| &BYTES[token as usize..=token as usize];
        let of = |found: &[&str]| texts(&reference(), bytes_of, found.iter().copied());
        assert_eq!(of(&["a!", "b", "c", "d", "e", "x", "x", "x", "x", "x"]), Ok(()));
        assert!(of(&["b", "c", "d", "e", "f", "g", "h", "i", "j", "a"]).is_err(), "another's");
        assert!(of(&["a", "b", "c", "d"]).is_err(), "not all of them");
        assert!(of(&[""; 10]).is_err(), "nothing");
    }

    #[test]
    fn what_came_at_once_is_no_stream() {
        assert_eq!(streamed(45, 50), Ok(()));
        assert_eq!(streamed(1, 50), Err("50 tokens came in 1 events".into()));
    }
}
