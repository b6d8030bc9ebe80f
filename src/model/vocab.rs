//! The vocabulary, as the front lane needs it: text to tokens, tokens to bytes.
//!
//! The bytes of every token are copied into one table at start-up, so turning
//! a token into text is a slice of it: no call, no allocation.

use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;

use super::fake;
use crate::types::TokenId;

/// The vocabulary of a model. Immutable, shared by the lanes.
pub struct Vocab {
    tokenizer: Tokenizer,
    bytes: Box<[u8]>,    // every token's bytes, one after another
    offsets: Box<[u32]>, // [n_tokens + 1] into `bytes`
    end_tokens: Box<[TokenId]>,
    longest_token_bytes: usize,
}

enum Tokenizer {
    Llama(Arc<LlamaModel>),
    /// One token for each byte.
    Bytes,
}

impl Vocab {
    /// The vocabulary of a loaded model.
    pub(super) fn of_llama(model: Arc<LlamaModel>) -> Self {
        let vocab = model.vocab();
        let n_tokens = vocab.n_tokens();
        let mut bytes = Vec::with_capacity(n_tokens as usize * 8);
        let mut offsets = Vec::with_capacity(n_tokens as usize + 1);
        let mut piece = Vec::with_capacity(256);
        let mut end_tokens = Vec::new();
        let mut longest_token_bytes = 1;
        offsets.push(0);
        for id in 0..n_tokens {
            let token = LlamaToken::new(id);
            piece.clear();
            // Control tokens (`<|im_end|>`) have no text of their own.
            vocab.token_to_piece_into(token, &mut piece, false, None);
            bytes.extend_from_slice(&piece);
            // A control token is read from a longer text than it shows.
            let spelling = vocab.text(token).map_or(0, |text| text.to_bytes().len());
            longest_token_bytes = longest_token_bytes.max(spelling).max(piece.len());
            offsets.push(u32::try_from(bytes.len()).expect("a vocabulary is under 4 GiB"));
            if vocab.is_eog(token) {
                end_tokens.push(id);
            }
        }
        Self {
            bytes: bytes.into(),
            offsets: offsets.into(),
            end_tokens: end_tokens.into(),
            longest_token_bytes,
            tokenizer: Tokenizer::Llama(model),
        }
    }

    /// The vocabulary of the fake model: bytes, and an end token without text.
    pub fn of_fake() -> Self {
        let bytes: Box<[u8]> = (0..=255).collect();
        let offsets = (0..=256).chain([256]).collect();
        Self {
            bytes,
            offsets,
            end_tokens: Box::new([fake::END]),
            longest_token_bytes: 1,
            tokenizer: Tokenizer::Bytes,
        }
    }

    /// Tokens in the vocabulary.
    pub fn n_tokens(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Tokens that end a generation.
    pub fn end_tokens(&self) -> &[TokenId] {
        &self.end_tokens
    }

    /// The bytes of a token: any bytes, not always whole characters. Empty for
    /// control tokens and for ids outside the vocabulary.
    pub fn bytes_of(&self, token: TokenId) -> &[u8] {
        match usize::try_from(token) {
            Ok(token) if token < self.n_tokens() => {
                &self.bytes[self.offsets[token] as usize..self.offsets[token + 1] as usize]
            }
            _ => &[],
        }
    }

    /// The bytes of the longest token, of its spelling where that is longer.
    pub fn longest_token_bytes(&self) -> usize {
        self.longest_token_bytes
    }

    /// Text to tokens. `add_special` adds what the model wants around a prompt
    /// (often a begin-of-text token); `parse_special` reads `<|im_end|>` and its
    /// like as the control tokens they name.
    pub fn tokenize(&self, text: &str, add_special: bool, parse_special: bool) -> Vec<TokenId> {
        match &self.tokenizer {
            Tokenizer::Bytes => text.bytes().map(TokenId::from).collect(),
            Tokenizer::Llama(model) => {
                // A token has a byte at least, but for those around the text:
                // with this room llama.cpp need not run twice.
                let mut tokens = Vec::with_capacity(text.len() + 4);
                let vocab = model.vocab();
                vocab.tokenize_into(text.as_bytes(), &mut tokens, add_special, parse_special);
                tokens.into_iter().map(|token| token.0).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fake_vocabulary_round_trips_any_text() {
        let vocab = Vocab::of_fake();
        let text = "a\0é漢🦀";
        let bytes: Vec<u8> = vocab
            .tokenize(text, true, true)
            .iter()
            .flat_map(|token| vocab.bytes_of(*token).to_vec())
            .collect();
        assert_eq!(bytes, text.as_bytes());
        assert_eq!(vocab.bytes_of(fake::END), b"");
        assert_eq!(vocab.bytes_of(-1), b"");
        assert_eq!(vocab.bytes_of(i32::MAX), b"");
        assert_eq!(vocab.n_tokens(), fake::N_VOCAB);
    }
}
