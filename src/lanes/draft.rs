//! Loads the draft model, and makes it on the decode lane.

use std::sync::Arc;

use crate::config::ServeConfig;
use crate::decode::draft::{DraftModel, Drafter};
use crate::model::llama::{ContextConfig, LlamaDecoder};
use crate::model::load::{Loaded, Weights};
use crate::model::{Backend, draft};
use crate::server::Control;

/// Loads the draft model of a configuration, if there is one. `goes_back` is whether the served model's
/// recurrent state can go back. A drain ends it.
///
/// # Errors
/// A sentence for the user.
pub(super) fn load_draft(
    config: &ServeConfig,
    served: &Loaded,
    goes_back: bool,
    control: Arc<Control>,
) -> Result<Option<Loaded>, String> {
    let Some(path) = &config.model_draft else { return Ok(None) };
    let progress = move |_| !control.is_draining();
    let draft = draft::load_draft(path, config.kernels, served, goes_back, progress);
    let draft = draft.map_err(|error| error.to_string())?;
    tracing::info!(name = draft.info.name, parameters = draft.info.n_params, "draft model");
    Ok(Some(draft))
}

/// A draft model that is loaded. The decode lane makes its context.
pub struct NewDraft {
    model: Weights,
    context: ContextConfig,
    n_vocab: usize,
    text_tokens: usize,
}

impl NewDraft {
    /// The draft model for a served model with this context.
    pub fn new(draft: &Loaded, served: &Loaded, context: &ContextConfig) -> Self {
        // One cache for all: it takes any number of tokens of each text.
        let mut context = context.clone();
        context.cache.unified = true;
        (context.state_bytes, context.rollback, context.stores_pages) = (0, 0, false);
        context.window = 0;
        Self {
            model: draft.model.clone(),
            n_vocab: served.info.n_vocab,
            text_tokens: draft.info.context_trained.min(context.context_tokens) as usize,
            context,
        }
    }

    /// Makes its context on the threads of the served model. `wrap` may put something around it.
    ///
    /// # Errors
    /// A sentence that names the missing resource.
    pub fn make<B: Backend + 'static>(
        self,
        served: &LlamaDecoder,
        wrap: impl FnOnce(LlamaDecoder) -> B,
    ) -> Result<Box<dyn Drafter>, String> {
        let Self { model, context, n_vocab, text_tokens } = self;
        let beside = served.beside(model, &context);
        let model = wrap(beside.map_err(|error| format!("--model-draft: {error}"))?);
        let slots = context.slots as usize;
        // llama.cpp takes no more rows at once than it has cells.
        let rows = context.step_rows.min(context.context_tokens) as usize;
        Ok(Box::new(DraftModel::new(model, n_vocab, slots, text_tokens, rows)))
    }
}
