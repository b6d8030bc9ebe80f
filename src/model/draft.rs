//! Loads a draft model, if it has the vocabulary of the served model.

use std::path::Path;

use super::load::{LoadError, Loaded, Source, load};
use super::vocab::Vocab;
use crate::kernels::KernelChoice;
use crate::types::TokenId;

/// Tokens by which a draft model's vocabulary may be larger or smaller. Models of one family may
/// have different numbers of unused tokens.
const DRAFT_VOCAB_DIFFERENCE_MAX: usize = 128;

/// Why a model cannot be the draft model.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// It cannot be loaded.
    #[error("--model-draft: {0}")]
    Load(#[from] LoadError),
    /// One of the two models cannot forget wrong guesses.
    #[error(
        "--model-draft: {0} is a recurrent model that cannot forget a wrong guess; \
         choose a transformer"
    )]
    Recurrent(String),
    /// Its vocabulary has too many tokens, or too few.
    #[error(
        "--model-draft: its vocabulary has {found} tokens and that of the served model {wanted}; \
         a draft model must have the same vocabulary"
    )]
    Size {
        /// Tokens of the draft model.
        found: usize,
        /// Tokens of the served model.
        wanted: usize,
    },
    /// One of its tokens is another text.
    #[error(
        "--model-draft: its token {token} is {found:?} and that of the served model {wanted:?}; \
         a draft model must have the same vocabulary"
    )]
    Token {
        /// The first such token.
        token: TokenId,
        /// Its text in the draft model.
        found: String,
        /// Its text in the served model.
        wanted: String,
    },
}

/// Loads the draft model of a served model. `goes_back` is whether that model's recurrent state can go
/// back. Calls `progress` as [`load`] does.
///
/// # Errors
/// See [`DraftError`]; each is one sentence for a user.
pub fn load_draft(
    path: &Path,
    kernels: KernelChoice,
    served: &Loaded,
    goes_back: bool,
    progress: impl FnMut(f32) -> bool + 'static,
) -> Result<Loaded, DraftError> {
    let draft = load(&Source::File(path.to_owned()), kernels, progress)?;
    let models = [(&draft, false), (served, goes_back)];
    let cannot = |(model, goes_back): &(&Loaded, bool)| model.info.is_recurrent && !goes_back;
    if let Some((model, _)) = models.into_iter().find(cannot) {
        return Err(DraftError::Recurrent(model.info.name.clone()));
    }
    check_vocabulary(&draft.vocab, &served.vocab)?;
    Ok(draft)
}

/// Checks that both vocabularies have equal tokens, up to the end of the smaller one.
fn check_vocabulary(draft: &Vocab, served: &Vocab) -> Result<(), DraftError> {
    let (found, wanted) = (draft.n_tokens(), served.n_tokens());
    if found.abs_diff(wanted) > DRAFT_VOCAB_DIFFERENCE_MAX {
        return Err(DraftError::Size { found, wanted });
    }
    let text = |vocab: &Vocab, token| String::from_utf8_lossy(vocab.spelling_of(token)).into();
    let both = found.min(wanted) as TokenId; // an i32 in llama.cpp
    match (0..both).find(|token| draft.spelling_of(*token) != served.spelling_of(*token)) {
        Some(token) => {
            Err(DraftError::Token { token, found: text(draft, token), wanted: text(served, token) })
        }
        None => Ok(()),
    }
}
