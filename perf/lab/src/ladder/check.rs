//! Checks that a rung did its work. Compares its tokens, texts and events with the tokens of the
//! lowest rung that ran.

use super::workload::Texts;
use corelane::types::TokenId;

/// Fraction of requests that must begin with the same token as on the rung below.
const TOKENS_AGREE_MIN: f64 = 0.9;

/// Fraction of texts that must begin with the reference token.
///
/// Over the network, requests arrive one by one. Steps then have other rows and round differently,
/// and a model with random weights has many near ties. A text from another request would match only
/// by chance.
const TEXTS_AGREE_MIN: f64 = 0.5;

/// Fewest events of a stream per token. A token that does not complete a character has no event.
const EVENTS_PER_TOKEN_MIN: f64 = 0.8;

/// Compares tokens. All must be equal when both rungs ran the recorded batches (`recorded`).
/// Otherwise batches depend on timing, and only first tokens are compared.
pub fn tokens(reference: &Texts, found: &Texts, recorded: bool) -> Result<(), String> {
    let agreement = reference.agreement(found);
    if agreement < TOKENS_AGREE_MIN || (recorded && reference != found) {
        return Err(format!(
            "its tokens differ from those of the rung below: only {:.0} % of the requests start alike",
            agreement * 100.0
        ));
    }
    Ok(())
}

/// Compares texts, in the order of the requests, with the first tokens of the reference.
pub fn texts<'t, 'b>(
    reference: &Texts,
    bytes_of: impl Fn(TokenId) -> &'b [u8],
    found: impl Iterator<Item = &'t str>,
) -> Result<(), String> {
    let alike = found.zip(&reference.0).filter(|(text, tokens)| {
        let first = String::from_utf8_lossy(bytes_of(tokens[0]));
        // The first token may end within a character, which the text does not show yet.
        text.starts_with(first.trim_end_matches(char::REPLACEMENT_CHARACTER))
    });
    let share = alike.count() as f64 / reference.0.len() as f64;
    if share < TEXTS_AGREE_MIN {
        return Err(format!(
            "its texts differ from those of the rungs below: only {:.0} % start alike",
            share * 100.0
        ));
    }
    Ok(())
}

/// Checks the number of events of a request with `tokens` tokens.
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
