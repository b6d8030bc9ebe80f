//! The model that is served, as far as requests are concerned.

use std::sync::Arc;

use crate::chat::prompt::ChatModel;
use crate::model::vocab::Vocab;
use crate::types::ModelInfo;

/// The model that is served.
pub struct ServedModel {
    /// The vocabulary.
    pub vocab: Arc<Vocab>,
    /// The facts of the model.
    pub info: ModelInfo,
    /// The name that clients see.
    pub name: String,
    /// Makes prompts of conversations. `None` where there is no chat template.
    pub chat: Option<ChatModel>,
    /// KV cells.
    pub context_tokens: u32,
    /// Tokens that one sequence may have, prompt and generated.
    pub sequence_tokens: u32,
    /// Requests that run at once.
    pub slots: usize,
    /// Tokens that a text may have whose vector is wanted. `None` where the model makes no
    /// vectors.
    pub embedding_tokens: Option<usize>,
    /// The server's own default for `max_tokens`.
    pub n_predict: Option<u32>,
}
