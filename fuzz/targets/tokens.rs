//! Texts to tokens and back, with the built-in model's vocabulary.
#![no_main]
#![expect(clippy::disallowed_types, reason = "libFuzzer has no start-up to build things at")]

use std::sync::{Arc, LazyLock};

use corelane::kernels::KernelChoice;
use corelane::model::load::{Source, load};
use corelane::model::vocab::Vocab;

static VOCAB: LazyLock<Arc<Vocab>> = LazyLock::new(|| {
    let loaded = load(&Source::BuiltIn, KernelChoice::Llama, |_| true);
    loaded.expect("the built-in model loads").vocab
});

corelane_fuzz::target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A client's text has no control token, in a prompt or alone, and its bytes stay.
    let alone = VOCAB.tokenize(text, false, false).expect("a vocabulary with all bytes");
    let guarded = VOCAB.guarded(text);
    let in_prompt = VOCAB.tokenize_prompt(&guarded, false).expect("a vocabulary with all bytes");
    for tokens in [&alone, &in_prompt] {
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| VOCAB.bytes_of(*t)).copied().collect();
        assert_eq!(bytes, text.as_bytes(), "{tokens:?}");
    }
    assert_eq!(VOCAB.unguarded(&guarded), text);
    // With control tokens, their spelling is the text.
    let tokens = VOCAB.tokenize(text, false, true).expect("a vocabulary with all bytes");
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| VOCAB.spelling_of(*t)).copied().collect();
    assert_eq!(bytes, text.as_bytes(), "{tokens:?}");
});
