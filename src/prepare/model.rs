//! The served model: everything that preparing a request needs to know.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::api::model::Model;
use crate::chat::prompt::ChatModel;
use crate::model::vocab::Vocab;
use crate::types::defaults::SamplingDefaults;
use crate::types::{Calibration, Guessing, ModelInfo, Pooling};

/// The facts of the embed lane.
#[derive(Clone, Debug)]
pub struct Embeds {
    /// The pooling.
    pub pooling: Pooling,
    /// Most tokens of a text.
    pub tokens: usize,
    /// Whether clients may ask for shorter vectors.
    pub matryoshka: bool,
    /// The text that is put before a query.
    pub query_prefix: String,
    /// The text that is put before a document.
    pub document_prefix: String,
}

impl Embeds {
    /// For texts of at most `tokens` tokens, without prefixes and without shorter vectors.
    pub fn new(pooling: Pooling, tokens: usize) -> Self {
        let (query_prefix, document_prefix) = (String::new(), String::new());
        Self { pooling, tokens, matryoshka: false, query_prefix, document_prefix }
    }
}

/// The served model.
pub struct ServedModel {
    /// The vocabulary.
    pub vocab: Arc<Vocab>,
    /// The properties of the model.
    pub info: ModelInfo,
    /// Its name for clients.
    pub name: String,
    /// All names that the operator gave the model. `name` is the first, if there are any.
    pub aliases: Vec<String>,
    /// The operator's tags for the model.
    pub tags: Vec<String>,
    /// Its file; `None` for the built-in model.
    pub path: Option<PathBuf>,
    /// Turns conversations into prompts. `None` without a chat template.
    pub chat: Option<ChatModel>,
    /// KV cells of all sequences.
    pub context_tokens: u32,
    /// Most bytes of the prefix store.
    pub store_bytes: u64,
    /// Most tokens of one sequence: prompt and generated text.
    pub sequence_tokens: u32,
    /// Most sequences that run at once.
    pub slots: usize,
    /// The times of this machine with the model, measured at the start.
    pub calibration: Calibration,
    /// The embed lane. `None` if the model computes no vectors.
    pub embeds: Option<Embeds>,
    /// Whether a prompt with a gap has the text after the gap first.
    pub spm_infill: bool,
    /// The operator's limits on guesses: a request's defaults. No request gets more guesses than
    /// `most`.
    pub guessing: Guessing,
    /// The server's default for `max_tokens`.
    pub n_predict: Option<u32>,
    /// The sampling of requests that do not say: that of the flags, or else of the model's file.
    pub sampling: SamplingDefaults,
    /// The system message of chats that begin with none.
    pub system_prompt: Option<String>,
}

impl ServedModel {
    /// Bytes of the system message of chats that begin with none.
    pub fn system_bytes(&self) -> usize {
        self.system_prompt.as_ref().map_or(0, String::len)
    }

    /// The path of the file, as clients see it.
    pub fn shown_path(&self) -> Cow<'_, str> {
        self.path.as_ref().map_or("built-in".into(), |path| path.to_string_lossy())
    }

    /// The facts that lists of models show.
    pub fn facts(&self) -> Model<'_> {
        Model {
            name: &self.name,
            aliases: &self.aliases,
            tags: &self.tags,
            info: &self.info,
            template: self.chat.as_ref().map(|chat| chat.source.as_str()),
            fills_in: self.vocab.fill_in().is_some(),
            embeds: self.embeds.as_ref().is_some_and(|embeds| embeds.pooling != Pooling::Rank),
            context_tokens: self.sequence_tokens,
        }
    }
}
