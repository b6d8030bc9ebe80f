//! llama.cpp's tokeniser, called with the texts between special tokens.

use std::ffi::c_char;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_sys_2 as sys;

use super::llama::raw;
use super::specials::{Piece, Special, Specials, unguarded};
use crate::types::TokenId;

/// Most white-space characters in a row that the model's tokenizer gets in one piece.
const SPACES_MAX: usize = 4096;

/// Most digits in a row in one piece, for tokenizers whose time grows with the square of that
/// number.
const DIGITS_MAX: usize = 96;

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
    /// The token before a whole text, if it is a control token: a text begins with it exactly once. An ordinary
    /// token, such as a line break, may also be the text's own.
    begin: Option<TokenId>,
    /// Where texts are cut before llama.cpp splits them into words.
    cuts: Cuts,
}

impl LlamaTokenizer {
    pub fn new(model: Arc<LlamaModel>) -> Self {
        let specials = specials(&model);
        let around = around(&model);
        let vocab = model.vocab();
        let begin = around[0].filter(|token| vocab.is_control(LlamaToken(*token)));
        let cuts = Cuts::of(&model);
        Self { model, specials, around, begin, cuts }
    }

    /// Tokenises a text. `around` adds the tokens around a whole text; the one before it, if it is a control
    /// token, stands there exactly once, whether the text is written with it or not. `control` reads the spelling of control tokens as these
    /// tokens.
    pub fn tokenize(
        &self,
        text: &str,
        around: bool,
        control: bool,
    ) -> Result<Vec<TokenId>, TokenizeError> {
        let [before, after] = if around { self.around } else { [None; 2] };
        let mut tokens = self.pieces(text, before, control, false)?;
        tokens.extend(after);
        Ok(tokens)
    }

    /// Tokenises a chat's prompt: removes the marks of [`Specials::guarded`], and reads control tokens. With
    /// `begins`, the token before a whole text stands there exactly once.
    pub fn tokenize_guarded(
        &self,
        text: &str,
        begins: bool,
    ) -> Result<Vec<TokenId>, TokenizeError> {
        self.pieces(text, self.begin.filter(|_| begins), true, true)
    }

    fn pieces(
        &self,
        text: &str,
        before: Option<TokenId>,
        control: bool,
        guarded: bool,
    ) -> Result<Vec<TokenId>, TokenizeError> {
        // Each token has a byte or more, except those around the text and a space that some
        // tokenisers add. With this room llama.cpp need not run twice.
        let mut tokens = Vec::with_capacity(text.len() + 4);
        tokens.extend(before);
        for piece in self.specials.split(text, control) {
            match piece {
                Piece::Token(token) => tokens.push(token),
                Piece::Text(text) => {
                    let text = if guarded { unguarded(text) } else { text.into() };
                    for part in self.cuts.parts(&text) {
                        self.push_text(part, &mut tokens)?;
                    }
                }
            }
        }
        if let Some(begin) = self.begin.filter(|_| before.is_some()) {
            keep_one(begin, &mut tokens);
        }
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

/// Keeps one of the first tokens that are all `token`.
fn keep_one(token: TokenId, tokens: &mut Vec<TokenId>) {
    let count = tokens.iter().take_while(|other| **other == token).count();
    tokens.drain(..count.saturating_sub(1));
}

/// Cuts in runs of characters for which the regular expressions of some vocabularies take a time
/// that grows with the square of a run's length.
#[derive(Clone, Copy, Debug, Default)]
struct Cuts {
    /// Most white-space characters in a row: 256 KiB of spaces took 10 s with jais-2's expression.
    /// A cut may change the tokens next to it. Llama 3's own tokeniser cuts such runs, too, at
    /// 25,000.
    spaces: Option<usize>,
    /// Most ASCII digits in a row: 16 KiB of them took a minute with superbpe's expression. It
    /// splits digits into groups of three, counted from the end. A cut is between two groups, so it
    /// changes no token.
    digits: Option<usize>,
}

impl Cuts {
    fn of(model: &LlamaModel) -> Self {
        // No cuts for other kinds of vocabularies: they add a space to the beginning of each piece.
        if kind_of(model) != sys::LLAMA_VOCAB_TYPE_BPE {
            return Self::default();
        }
        let expression = model.meta_val_str("tokenizer.ggml.pre").unwrap_or_default();
        let digits = (expression == "superbpe").then_some(DIGITS_MAX);
        Self { spaces: Some(SPACES_MAX), digits }
    }

    /// The parts of a text; an empty text is one part.
    fn parts<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut parts = Vec::with_capacity(1);
        let mut done = 0;
        let mut cut = |at: usize| {
            parts.push(&text[done..at]);
            done = at;
        };
        // A shorter text has no such run.
        if let Some(most) = self.spaces.filter(|most| text.len() > *most) {
            let mut run = 0;
            for (at, c) in text.char_indices() {
                run = if c.is_whitespace() { run + 1 } else { 0 };
                if run > most {
                    cut(at);
                    run = 1;
                }
            }
        }
        parts.push(&text[done..]);
        let Some(most) = self.digits else { return parts };
        parts.into_iter().flat_map(|part| cut_in_digits(part, most)).collect()
    }
}

/// Cuts runs of more than `most` digits between two groups of three.
fn cut_in_digits(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::with_capacity(1);
    let (mut done, mut at) = (0, 0);
    for run in text.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        if run[0].is_ascii_digit() && run.len() > most {
            // The first group may be shorter.
            let first = at + run.len() % 3;
            for place in (first..at + run.len()).step_by((most - most % 3).max(3)).skip(1) {
                parts.push(&text[done..place]);
                done = place;
            }
        }
        at += run.len();
    }
    parts.push(&text[done..]);
    parts
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

    use super::super::builtin;
    use super::*;
    use crate::kernels::KernelChoice;
    use crate::model::load::{Source, load};
    use crate::random::SplitMix64;

    fn builtin() -> LlamaTokenizer {
        let loaded = load(&Source::BuiltIn, KernelChoice::Llama, |_| true).expect("it is built in");
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
                    let ours = tokenizer.tokenize(&text, around, control).unwrap();
                    let vocab = tokenizer.model.vocab();
                    let theirs = vocab.tokenize(text.as_bytes(), around, control);
                    let theirs: Vec<_> = theirs.into_iter().map(|token| token.0).collect();
                    assert_eq!(ours, theirs, "{text:?} {around} {control}");
                }
            }
            // A guarded text gives no control token, and its bytes stay as they are.
            let guarded = tokenizer.specials.guarded(&text);
            let plain = tokenizer.tokenize(&text, false, false).unwrap();
            assert_eq!(tokenizer.tokenize_guarded(&guarded, false).unwrap(), plain, "{text:?}");
            assert_eq!(unguarded(&guarded), Cow::Borrowed(text.as_str()));
        }
    }

    #[test]
    fn long_runs_of_spaces_are_cut() {
        let text = " \n\u{3000}".repeat(3) + "a" + &"\t".repeat(12) + "b";
        let cuts = |spaces| Cuts { spaces: Some(spaces), digits: None };
        let parts = cuts(5).parts(&text);
        assert_eq!(parts.concat(), text);
        assert_eq!(parts.len(), 1 + 1 + 2);
        assert_eq!(cuts(12).parts(&text).len(), 1);
        assert_eq!(cuts(5).parts(""), [""]);
        assert_eq!(Cuts::default().parts(&text).len(), 1);
    }

    /// The built-in model with another expression for words. The model's name is lengthened or
    /// shortened by the difference, so that the bytes behind it do not move.
    fn with_expression(expression: &str) -> LlamaTokenizer {
        let mut model = builtin::GGUF.to_vec();
        let mut replace = |key: &str, value: &dyn Fn(&str) -> String| {
            let at = model.windows(key.len()).position(|bytes| bytes == key.as_bytes()).unwrap();
            let length = at + key.len() + 4; // behind the type of the value
            let bytes = length + 8;
            let old = u64::from_le_bytes(model[length..bytes].try_into().unwrap()) as usize;
            let new = value(std::str::from_utf8(&model[bytes..bytes + old]).unwrap());
            let number = (new.len() as u64).to_le_bytes();
            model.splice(length..bytes + old, number.into_iter().chain(new.bytes()));
            new.len() as isize - old as isize
        };
        let longer = replace("tokenizer.ggml.pre", &|_| expression.to_owned());
        replace("general.name", &|name| {
            let length = name.len().checked_add_signed(-longer).unwrap();
            format!("{name:.length$}{:1$}", "", length.saturating_sub(name.len()))
        });
        let path =
            std::env::temp_dir().join(format!("corelane-{expression}-{}.gguf", std::process::id()));
        std::fs::write(&path, &model).unwrap();
        let loaded = load(&Source::File(path.clone()), KernelChoice::Llama, |_| true);
        std::fs::remove_file(&path).unwrap();
        LlamaTokenizer::new(loaded.unwrap().model)
    }

    #[test]
    fn a_cut_in_digits_changes_no_token() {
        let mut tokenizer = with_expression("superbpe");
        assert_eq!(tokenizer.cuts.digits, Some(DIGITS_MAX));
        for length in 0..40 {
            let text = format!("x{} 12", "1234567890".repeat(4).split_at(length).0);
            let mut tokens = |digits| {
                tokenizer.cuts.digits = digits;
                tokenizer.tokenize(&text, false, false).unwrap()
            };
            let whole = tokens(None);
            for most in [3, 4, 7, 12] {
                let cuts = Cuts { spaces: None, digits: Some(most) };
                let is_cut = cuts.parts(&text).len() > 1;
                assert!(if is_cut { length > most } else { length < most + 3 }, "{length}, {most}");
                assert_eq!(tokens(Some(most)), whole, "{length} digits, {most}");
            }
        }
    }

    /// llama.cpp's own search for special tokens takes a time that grows with the square of their
    /// number. It never gets a text with special tokens.
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
