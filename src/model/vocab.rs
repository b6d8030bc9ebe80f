//! The vocabulary of a model for the front lane: text to tokens, tokens to bytes.
//!
//! At start-up the bytes of every token are copied into one table. So turning a token into text
//! needs no call of llama.cpp and no allocation.

use std::borrow::Cow;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;

use super::fake;
use super::specials::unguarded;
use super::tokenizer::LlamaTokenizer;
pub use super::tokenizer::TokenizeError;
use crate::limits::DRY_BREAKER_BYTES_MAX;
use crate::types::TokenId;
use crate::types::chain::{Breakers, DRY_BREAKERS, Spellings};

/// The vocabulary of a model. Immutable, shared by the lanes.
pub struct Vocab {
    tokenizer: Tokenizer,
    /// The text of every token; control tokens have none.
    texts: Arc<Spellings>,
    end_tokens: Box<[TokenId]>,
    longest_token_bytes: usize,
    /// The spelling of control tokens in a prompt, sorted by token.
    spellings: Box<[(TokenId, Box<[u8]>)]>,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    fill_in: Option<FillIn>,
    pair: PairMarks,
    default_breakers: Arc<Breakers>,
}

/// The special tokens of infill (fill in the middle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillIn {
    /// Precedes the text before the gap.
    pub prefix: TokenId,
    /// Precedes the text after the gap.
    pub suffix: TokenId,
    /// Precedes the text that fills the gap.
    pub middle: TokenId,
    /// Precedes the name of a repository, if the model has such a token.
    pub repository: Option<TokenId>,
    /// Precedes the name of a file, if the model has such a token.
    pub file: Option<TokenId>,
}

/// The special tokens around a query and a document that are ranked together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairMarks {
    /// Before the query.
    pub first: Option<TokenId>,
    /// After the query, and after the document.
    pub end: Option<TokenId>,
    /// Before the document.
    pub separator: Option<TokenId>,
}

enum Tokenizer {
    Llama(LlamaTokenizer),
    /// One token for each byte.
    Bytes,
}

impl Vocab {
    /// The vocabulary of a loaded model.
    pub(super) fn of_llama(model: Arc<LlamaModel>) -> Self {
        let vocab = model.vocab();
        let n_tokens = vocab.n_tokens();
        let mut texts = Spellings::default();
        let mut piece = Vec::with_capacity(256);
        let mut end_tokens = Vec::new();
        let mut spellings = Vec::new();
        let mut longest_token_bytes = 1;
        for id in 0..n_tokens {
            let token = LlamaToken::new(id);
            piece.clear();
            // Control tokens (`<|im_end|>`) have no text of their own.
            vocab.token_to_piece_into(token, &mut piece, false, None);
            texts.push(&piece);
            // A control token's spelling in a prompt is longer than its text.
            let spelling = vocab.text(token).map_or(0, |text| text.to_bytes().len());
            longest_token_bytes = longest_token_bytes.max(spelling).max(piece.len());
            if vocab.is_control(token) {
                piece.clear();
                vocab.token_to_piece_into(token, &mut piece, true, None);
                spellings.push((id, piece.as_slice().into()));
            }
            if vocab.is_eog(token) {
                end_tokens.push(id);
            }
        }
        let known = |token: LlamaToken| (token.0 >= 0).then_some(token.0);
        // If the file names none, llama.cpp returns an ordinary token.
        let control = |token| known(token).filter(|_| vocab.is_control(token));
        let (bos, eos) = (control(vocab.bos()), control(vocab.eos()));
        let gap = (known(vocab.fim_pre()), known(vocab.fim_suf()), known(vocab.fim_mid()));
        let fill_in = match gap {
            (Some(prefix), Some(suffix), Some(middle)) => {
                let (repository, file) = (known(vocab.fim_rep()), known(vocab.fim_sep()));
                Some(FillIn { prefix, suffix, middle, repository, file })
            }
            _ => None,
        };
        let pair = PairMarks {
            first: known(vocab.bos()).filter(|_| vocab.should_add_bos()),
            end: known(vocab.eos()).or(known(vocab.sep())).filter(|_| vocab.should_add_eos()),
            separator: known(vocab.sep()).filter(|_| vocab.should_add_sep()),
        };
        Self {
            spellings: spellings.into(),
            pair,
            bos,
            eos,
            fill_in,
            texts: Arc::new(texts),
            end_tokens: end_tokens.into(),
            longest_token_bytes,
            default_breakers: Arc::default(),
            tokenizer: Tokenizer::Llama(LlamaTokenizer::new(model)),
        }
        .with_default_breakers()
    }

    /// The vocabulary of the fake model: all bytes, and an end token without text.
    pub fn of_fake() -> Self {
        let mut texts = Spellings::default();
        (0..=255u8).for_each(|byte| texts.push(&[byte]));
        texts.push(&[]); // END
        Self {
            texts: Arc::new(texts),
            end_tokens: Box::new([fake::END]),
            longest_token_bytes: 1,
            spellings: Box::default(),
            bos: None,
            eos: Some(fake::END),
            // ASCII's start of heading, start and end of text.
            fill_in: Some(FillIn { prefix: 1, suffix: 2, middle: 3, repository: None, file: None }),
            pair: PairMarks::default(),
            default_breakers: Arc::default(),
            tokenizer: Tokenizer::Bytes,
        }
        .with_default_breakers()
    }

    fn with_default_breakers(self) -> Self {
        let default_breakers = Arc::new(self.breakers(&DRY_BREAKERS));
        Self { default_breakers, ..self }
    }

    /// The number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is a token with this id.
    pub fn has(&self, token: TokenId) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.n_tokens())
    }

    /// The tokens that end a generation.
    pub fn end_tokens(&self) -> &[TokenId] {
        &self.end_tokens
    }

    /// The bytes of a token, which are not always whole characters. Empty for control tokens and
    /// for ids outside the vocabulary.
    pub fn bytes_of(&self, token: TokenId) -> &[u8] {
        self.texts.of(token)
    }

    /// The bytes of a token. For a control token, its spelling in a prompt.
    pub fn spelling_of(&self, token: TokenId) -> &[u8] {
        match self.spellings.binary_search_by_key(&token, |(id, _)| *id) {
            Ok(index) => &self.spellings[index].1,
            Err(_) => self.bytes_of(token),
        }
    }

    /// The control tokens, with their spellings in a prompt.
    pub fn control(&self) -> &[(TokenId, Box<[u8]>)] {
        &self.spellings
    }

    /// The text of the token that begins every whole text and every chat; `None` if the vocabulary asks for none.
    pub fn first_text(&self) -> Option<Cow<'_, str>> {
        self.pair.first.filter(|token| self.bos == Some(*token)).map(|_| self.bos_text())
    }

    /// The spelling of the token at the start of a text; empty if there is none.
    pub fn bos_text(&self) -> Cow<'_, str> {
        self.bos.map_or(Cow::default(), |token| String::from_utf8_lossy(self.spelling_of(token)))
    }

    /// The spelling of the token at the end of a text; empty if there is none.
    pub fn eos_text(&self) -> Cow<'_, str> {
        self.eos.map_or(Cow::default(), |token| String::from_utf8_lossy(self.spelling_of(token)))
    }

    /// The tokens of infill, if the model has them.
    pub fn fill_in(&self) -> Option<FillIn> {
        self.fill_in
    }

    /// The special tokens around a pair to rank.
    pub fn pair(&self) -> PairMarks {
        self.pair
    }

    /// The token whose text is exactly `text`, if there is one.
    pub fn only_token(&self, text: &str) -> Option<u32> {
        match self.tokenize(text, false, true).ok()?.as_slice() {
            [token] => u32::try_from(*token).ok(),
            _ => None,
        }
    }

    /// The length of the longest token's bytes or spelling.
    pub fn longest_token_bytes(&self) -> usize {
        self.longest_token_bytes
    }

    /// The text of every token; control tokens have none.
    pub fn texts(&self) -> &Arc<Spellings> {
        &self.texts
    }

    /// llama.cpp's own sequence breakers for DRY.
    pub fn default_breakers(&self) -> &Arc<Breakers> {
        &self.default_breakers
    }

    /// The token sequences that contain one of `texts`: a token that contains the whole text, or a
    /// token that ends with the text's start, followed by the tokens of the rest. Each text has 1
    /// to [`DRY_BREAKER_BYTES_MAX`] bytes.
    ///
    /// Checks every place in the vocabulary that has the text's first byte. This takes 0.1 ms for a
    /// text, and up to a millisecond if it starts with a frequent letter.
    pub fn breakers(&self, texts: &[impl AsRef<str>]) -> Breakers {
        let mut heads = Vec::new();
        let mut tails: Vec<Box<[TokenId]>> = vec![Box::default()]; // for whole texts
        for text in texts {
            let text = text.as_ref();
            let mut tail_from = [None; DRY_BREAKER_BYTES_MAX]; // by the number of bytes before it
            for (token, found) in self.texts.ends_from(text.as_bytes()[0]) {
                let same = found.iter().zip(text.as_bytes()).take_while(|(a, b)| a == b).count();
                let tail = if same == text.len() {
                    Some(0)
                } else if same == found.len() && text.is_char_boundary(same) {
                    Some(*tail_from[same].get_or_insert_with(|| {
                        // A rest that cannot be tokenised never occurs in generated text.
                        let tail = self.tokenize(&text[same..], false, false);
                        tails.push(tail.unwrap_or_default().into());
                        tails.len() as u16 - 1 // one per byte of a few texts; see limits.rs
                    }))
                } else {
                    None
                };
                heads.extend(tail.map(|tail| (token, tail)));
            }
        }
        Breakers::new(heads, tails)
    }

    /// Tokenises a text. `add_special` adds the model's special tokens around a prompt, often a
    /// begin-of-text token. `parse_special` reads `<|im_end|>` and similar as the control tokens
    /// that they name.
    ///
    /// # Errors
    /// If llama.cpp fails, for a text that this vocabulary cannot express or for want of memory.
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>, TokenizeError> {
        match &self.tokenizer {
            Tokenizer::Bytes => Ok(text.bytes().map(TokenId::from).collect()),
            Tokenizer::Llama(llama) => llama.tokenize(text, add_special, parse_special),
        }
    }

    /// Inserts marks into a client's text, so that [`Vocab::tokenize_prompt`] reads no control
    /// token from it.
    pub fn guarded<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.tokenizer {
            Tokenizer::Bytes => Cow::Borrowed(text),
            Tokenizer::Llama(llama) => llama.specials.guarded(text),
        }
    }

    /// A text without the marks of [`Vocab::guarded`].
    pub fn unguarded<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.tokenizer {
            Tokenizer::Bytes => Cow::Borrowed(text),
            Tokenizer::Llama(_) => unguarded(text),
        }
    }

    /// Tokenises a chat's prompt: control tokens are those of the template, and [guarded]
    /// texts of the client stay text. With `begins`, the token that the vocabulary asks for before a text
    /// stands before it exactly once.
    ///
    /// [guarded]: Vocab::guarded
    ///
    /// # Errors
    /// As [`Vocab::tokenize`].
    pub fn tokenize_prompt(&self, text: &str, begins: bool) -> Result<Vec<TokenId>, TokenizeError> {
        match &self.tokenizer {
            Tokenizer::Bytes => self.tokenize(text, false, true),
            Tokenizer::Llama(llama) => llama.tokenize_guarded(text, begins),
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
            .unwrap()
            .iter()
            .flat_map(|token| vocab.bytes_of(*token).to_vec())
            .collect();
        assert_eq!(bytes, text.as_bytes());
        assert_eq!(vocab.bytes_of(fake::END), b"");
        assert_eq!(vocab.bytes_of(-1), b"");
        assert_eq!(vocab.bytes_of(i32::MAX), b"");
        assert_eq!(vocab.n_tokens(), fake::N_VOCAB);
    }

    #[test]
    fn breakers_are_found_inside_of_tokens_and_over_their_ends() {
        let words: [&[u8]; 7] = [b"xaab", b"a", b"b", b"aa", b"", b"ab", b"\xC3"];
        let mut texts = Spellings::default();
        words.iter().for_each(|word| texts.push(word));
        // The fake vocabulary tokenises by byte.
        let vocab = Vocab { texts: Arc::new(texts), ..Vocab::of_fake() };
        let breakers = vocab.breakers(&["ab"]);
        let tails = |token| breakers.tails(token).map(<[TokenId]>::to_vec).collect::<Vec<_>>();
        let (none, rest) = (Vec::<TokenId>::new(), vec![TokenId::from(b'b')]);
        assert_eq!(tails(0), std::slice::from_ref(&none), "all of it is inside");
        assert_eq!(tails(1), std::slice::from_ref(&rest), "its beginning is the token");
        assert_eq!(tails(3), [rest], "its beginning is the token's end");
        assert_eq!(tails(5), [none]);
        for other in [2, 4, 6] {
            assert!(tails(other).is_empty(), "{other}");
        }
        // A rest that starts in the middle of a character is not text.
        assert!(vocab.breakers(&["é"]).tails(6).next().is_none());
        let fake = Vocab::of_fake();
        let defaults = fake.default_breakers();
        for byte in 0..=255u8 {
            let breaks = defaults.is_sequence(byte.into());
            assert_eq!(breaks, b"\n:\"*".contains(&byte), "{byte}");
        }
    }
}
