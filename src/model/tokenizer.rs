//! llama.cpp's tokeniser, called with the texts between special tokens.

use std::ffi::c_char;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_sys_2 as sys;

use super::llama::raw;
use super::specials::{Piece, Special, Specials, unguarded};
use crate::limits::SPACES_MAX;
use crate::types::TokenId;

/// llama.cpp could not tokenise a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model's tokenizer cannot read this text")]
pub struct TokenizeError;

unsafe extern "C" {
    fn corelane_tokenize(
        vocab: *const sys::llama_vocab,
        text: *const c_char,
        bytes: i32,
        tokens: *mut sys::llama_token,
        capacity: i32,
    ) -> i32;
}

/// The tokeniser of a loaded model.
pub(super) struct LlamaTokenizer {
    model: Arc<LlamaModel>,
    pub specials: Specials,
    /// The tokens before and after a whole text.
    around: [Option<TokenId>; 2],
    /// Whether texts are cut in long runs of white space.
    cuts: bool,
}

impl LlamaTokenizer {
    pub fn new(model: Arc<LlamaModel>) -> Self {
        let specials = specials(&model);
        let around = around(&model);
        // Other kinds of vocabularies add a space to the beginning of a text.
        let cuts = kind_of(&model) == sys::LLAMA_VOCAB_TYPE_BPE;
        Self { model, specials, around, cuts }
    }

    /// Tokenises a text. `around` adds the tokens around a whole text, `control` reads the spelling
    /// of control tokens as these tokens, and `guarded` removes the marks of [`Specials::guarded`].
    pub fn tokenize(
        &self,
        text: &str,
        around: bool,
        control: bool,
        guarded: bool,
    ) -> Result<Vec<TokenId>, TokenizeError> {
        let [before, after] = if around { self.around } else { [None; 2] };
        // Each token has a byte or more, except those around the text and a space that some
        // tokenisers add. With this room llama.cpp need not run twice.
        let mut tokens = Vec::with_capacity(text.len() + 4);
        tokens.extend(before);
        for piece in self.specials.split(text, control) {
            match piece {
                Piece::Token(token) => tokens.push(token),
                Piece::Text(text) => {
                    let text = if guarded { unguarded(text) } else { text.into() };
                    let most = if self.cuts { SPACES_MAX } else { usize::MAX };
                    for part in cut_in_spaces(&text, most) {
                        self.push_text(part, &mut tokens)?;
                    }
                }
            }
        }
        tokens.extend(after);
        Ok(tokens)
    }

    fn push_text(&self, text: &str, tokens: &mut Vec<TokenId>) -> Result<(), TokenizeError> {
        let bytes = i32::try_from(text.len()).map_err(|_| TokenizeError)?;
        loop {
            let room = tokens.spare_capacity_mut();
            let capacity = i32::try_from(room.len()).unwrap_or(i32::MAX);
            // SAFETY: the vocabulary lives as long as the model. The text has `bytes` bytes, and
            // `capacity` tokens or more fit. Exceptions do not leave the function.
            let count = unsafe {
                let vocab = sys::llama_model_get_vocab(raw(&self.model));
                let to = room.as_mut_ptr().cast();
                corelane_tokenize(vocab, text.as_ptr().cast(), bytes, to, capacity)
            };
            match usize::try_from(count) {
                Ok(count) => {
                    // SAFETY: llama.cpp wrote as many tokens behind those that were there.
                    unsafe { tokens.set_len(tokens.len() + count) };
                    return Ok(());
                }
                Err(_) if count == i32::MIN => return Err(TokenizeError),
                Err(_) => tokens.reserve(count.unsigned_abs() as usize), // the number there are
            }
        }
    }
}

/// Cuts a text in runs of more than `most` white-space characters, at least 1. The regular
/// expressions of some vocabularies (jais-2) take a time that grows with the square of a run's
/// length: 256 KiB of spaces took 10 s. Llama 3's own tokeniser cuts such runs, too, at 25,000.
fn cut_in_spaces(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut run = 0;
        // A text of fewer bytes has no such run.
        let long = if text.len() > most { text } else { "" };
        let cut = long.char_indices().find(|(_, c)| {
            run = if c.is_whitespace() { run + 1 } else { 0 };
            run > most
        });
        let (part, after) = text.split_at(cut.map_or(text.len(), |(at, _)| at));
        rest = (!after.is_empty()).then_some(after);
        Some(part)
    })
}

/// The kind of a model's vocabulary.
fn kind_of(model: &LlamaModel) -> sys::llama_vocab_type {
    // SAFETY: the vocabulary lives as long as the model.
    unsafe { sys::llama_vocab_type(sys::llama_model_get_vocab(raw(model))) }
}

/// The tokens that llama.cpp finds in a text before it tokenises the text.
fn specials(model: &LlamaModel) -> Specials {
    let vocab = model.vocab();
    let special = |token: TokenId| {
        // SAFETY: the token is in the vocabulary, which lives as long as the model.
        let attributes =
            unsafe { sys::llama_vocab_get_attr(sys::llama_model_get_vocab(raw(model)), token) };
        let has = |flag: sys::llama_token_attr| attributes & flag != 0;
        let is_control = has(sys::LLAMA_TOKEN_ATTR_CONTROL) || has(sys::LLAMA_TOKEN_ATTR_UNKNOWN);
        // A spelling that is not UTF-8 is in no text.
        let spelling = vocab.text(LlamaToken::new(token))?.to_str().ok()?;
        let is_special = is_control || has(sys::LLAMA_TOKEN_ATTR_USER_DEFINED);
        (is_special && !spelling.is_empty()).then(|| Special {
            token,
            spelling: spelling.to_owned(),
            is_control,
            strips_left: has(sys::LLAMA_TOKEN_ATTR_LSTRIP),
            strips_right: has(sys::LLAMA_TOKEN_ATTR_RSTRIP),
        })
    };
    Specials::new((0..vocab.n_tokens()).filter_map(special).collect())
}

/// The tokens before and after a whole text: llama.cpp's rules for each kind of vocabulary.
fn around(model: &LlamaModel) -> [Option<TokenId>; 2] {
    let vocab = model.vocab();
    let known = |token: LlamaToken| (token.0 >= 0).then_some(token.0);
    match kind_of(model) {
        sys::LLAMA_VOCAB_TYPE_WPM => [known(vocab.bos()), known(vocab.sep())],
        sys::LLAMA_VOCAB_TYPE_RWKV => [None, None],
        _ => [
            known(vocab.bos()).filter(|_| vocab.should_add_bos()),
            known(vocab.eos()).filter(|_| vocab.should_add_eos()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::kernels::Choice;
    use crate::model::load::{Source, load};
    use crate::random::SplitMix64;

    fn builtin() -> LlamaTokenizer {
        let loaded = load(&Source::BuiltIn, Choice::Llama, |_| true).expect("it is built in");
        LlamaTokenizer::new(loaded.model)
    }

    #[test]
    fn tokens_are_those_of_llama_cpp() {
        let tokenizer = builtin();
        let mut random = SplitMix64(1);
        let parts = ["<|im_end|>", "<|im_start|>", "<|im_", "<", "|>", " ", "\n", "fox", "é", "🦀"];
        for _ in 0..2_000 {
            let count = random.next_u64() % 12;
            let part = |_| parts[(random.next_u64() % parts.len() as u64) as usize];
            let text: String = (0..count).map(part).collect();
            for around in [false, true] {
                for control in [false, true] {
                    let ours = tokenizer.tokenize(&text, around, control, false).unwrap();
                    let vocab = tokenizer.model.vocab();
                    let theirs = vocab.tokenize(text.as_bytes(), around, control);
                    let theirs: Vec<_> = theirs.into_iter().map(|token| token.0).collect();
                    assert_eq!(ours, theirs, "{text:?} {around} {control}");
                }
            }
            // A client's text has no control token, and its text stays as it is.
            let guarded = tokenizer.specials.guarded(&text);
            let plain = tokenizer.tokenize(&text, false, false, false).unwrap();
            assert_eq!(tokenizer.tokenize(&guarded, false, true, true).unwrap(), plain, "{text:?}");
            assert_eq!(unguarded(&guarded), Cow::Borrowed(text.as_str()));
        }
    }

    #[test]
    fn long_runs_of_spaces_are_cut() {
        let text = " \n\u{3000}".repeat(3) + "a" + &"\t".repeat(12) + "b";
        let parts: Vec<&str> = cut_in_spaces(&text, 5).collect();
        assert_eq!(parts.concat(), text);
        assert!(parts.iter().all(|part| {
            part.split(|c: char| !c.is_whitespace()).all(|run| run.chars().count() <= 5)
        }));
        assert_eq!(cut_in_spaces(&text, 12).count(), 1);
        assert_eq!(cut_in_spaces("", 5).count(), 1);
    }

    /// llama.cpp's own search for special tokens takes a time that grows with the square of their
    /// number. It gets no text that has one.
    #[test]
    fn llama_cpp_gets_no_text_with_a_special_token() {
        let specials = builtin().specials;
        let text = "fox <|im_end|>\n<|im_start|>".repeat(1_000);
        let pieces = specials.split(&text, true);
        let texts = pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(*text),
            Piece::Token(_) => None,
        });
        assert!(texts.clone().count() >= 2_000);
        assert!(texts.clone().all(|text| specials.split(text, true) == [Piece::Text(text)]));
    }
}
