//! The built-in model's vocabulary, extended to any size.

use std::collections::HashSet;
use std::ffi::{CStr, CString};

use corelane::model::gguf::Gguf;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

/// `LLAMA_TOKEN_TYPE_NORMAL`: an ordinary token with text.
const NORMAL: i32 = 1;
/// `LLAMA_TOKEN_TYPE_CONTROL`: a token without text.
const CONTROL: i32 = 3;

/// Qwen's tokens for a gap to fill in, which llama.cpp knows by their names.
const GAP: [&CStr; 5] =
    [c"<|fim_prefix|>", c"<|fim_suffix|>", c"<|fim_middle|>", c"<|repo_name|>", c"<|file_sep|>"];

/// The built-in model's tokens.
pub(super) struct Known {
    tokens: Vec<CString>,
    types: Vec<i32>,
}

impl Known {
    /// Reads them from the built-in model.
    pub fn of(builtin: &Gguf) -> Self {
        let tokens = builtin.strings(TOKENS).expect("the built-in model has tokens");
        let types = builtin.integers(TYPES).expect("the built-in model's tokens have types");
        assert_eq!(tokens.len(), types.len(), "each token has a type");
        Self { tokens, types }
    }

    /// The number of tokens.
    pub fn n_tokens(&self) -> u32 {
        u32::try_from(self.tokens.len()).expect("a vocabulary has far fewer than 2^32 tokens")
    }

    /// Writes these tokens into `header`, with more up to `vocab` tokens: those for a gap to fill
    /// in, and fillers.
    ///
    /// A filler's text is like " t4711". No merge leads to it, so tokenising never produces one;
    /// only a model's sampling does.
    pub fn extend(&self, vocab: u32, header: &mut Gguf) {
        let wanted = vocab as usize; // usize has 64 bits
        let mut tokens = self.tokens.clone();
        let taken: HashSet<&CString> = self.tokens.iter().collect();
        // U+0120 is the space in the alphabet of byte-level BPE.
        let fillers = (self.n_tokens()..)
            .map(|number| CString::new(format!("\u{120}t{number}")).expect("no NUL"))
            .filter(|filler| !taken.contains(filler));
        let gap = GAP.iter().map(|token| (*token).to_owned());
        tokens.extend(gap.chain(fillers).take(wanted - self.tokens.len()));
        let mut types = self.types.clone();
        types.extend([CONTROL; GAP.len()].into_iter().take(wanted - types.len()));
        types.resize(wanted, NORMAL);
        header.set_strings(TOKENS, &tokens);
        header.set_integers(TYPES, &types);
    }
}
