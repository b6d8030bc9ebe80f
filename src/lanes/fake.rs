//! A server of the fake model, for tests.

use std::sync::Arc;

use super::Server;
use super::decode::Models;
use super::size::Sizes;
use crate::memory::KeptSizes;
use crate::model::fake::{FakeModel, FakeOptions, N_VOCAB};
use crate::model::vocab::Vocab;
use crate::prepare::ServedModel;
use crate::scheduler::{Pages, States};
use crate::types::{Calibration, ModelInfo};

impl Server {
    /// Serves the fake model, for tests.
    ///
    /// # Errors
    /// A sentence, as for a real model.
    pub fn load_fake(&mut self, options: FakeOptions) -> Result<Arc<ServedModel>, String> {
        let info = ModelInfo {
            name: "fake".into(),
            n_vocab: N_VOCAB,
            context_trained: 4096,
            is_recurrent: options.is_recurrent,
            ..ModelInfo::default()
        };
        let context_tokens = self.config.context_tokens.unwrap_or(64 * 1024);
        let sequence_tokens = context_tokens.min(info.context_trained);
        let FakeOptions { is_recurrent, rollback, .. } = options;
        let states = is_recurrent.then_some(States { checkpoints: 0, interval: 512, is_recurrent });
        let (pages, kept) = (Pages::default(), KeptSizes::default());
        let rollback = rollback as u32; // a few
        let sizes = Sizes { context_tokens, sequence_tokens, states, rollback, pages, kept };
        let (slots, rows) = (self.config.parallel, self.config.batch_rows);
        let abort = self.control.abort.clone();
        let make = move || {
            let fake = FakeModel::new(slots, context_tokens as usize, rows, options);
            Ok(Models {
                served: fake.with_abort(abort),
                drafter: None,
                calibration: Calibration::default(),
            })
        };
        let vocab = Arc::new(Vocab::of_fake());
        self.serve(vocab, info, sizes, None, make, None)
    }
}
