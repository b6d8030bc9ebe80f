//! Makes the decode lane's models and starts the lane.

use std::thread::JoinHandle;

use super::draft::NewDraft;
use super::thread::start_pinned;
use crate::decode::draft::Drafter;
use crate::decode::{self, DecodeLane, calibrate};
use crate::model::Backend;
use crate::model::llama::{ContextConfig, LlamaDecoder};
use crate::model::load::Weights;
use crate::ring::LaneLink;
use crate::ring::message::Batch;
use crate::types::Calibration;

/// The models of a decode lane.
pub(super) struct Models<B> {
    pub served: B,
    /// The draft model, if there is one.
    pub drafter: Option<Box<dyn Drafter>>,
    /// The measured steps of the served model.
    pub calibration: Calibration,
}

/// Makes the models on the decode lane's thread, and measures steps of at most `sequence_tokens`. `generates` says
/// that the served model is made for texts: one for embeddings may have no logits.
///
/// # Errors
/// A sentence that names the missing resource.
pub(super) fn make_models(
    model: Weights,
    context: &ContextConfig,
    draft: Option<NewDraft>,
    sequence_tokens: usize,
    fixed_threads: bool,
    generates: bool,
) -> Result<Models<LlamaDecoder>, String> {
    let mut served = LlamaDecoder::new(model, context)?;
    let most = served.threads();
    // A number that the user gave is an order.
    let threads = if fixed_threads { calibrate::all(most) } else { calibrate::candidates(most) };
    // More rows than llama.cpp computes at once would be several passes.
    let (slots, rows) = (context.slots as usize, context.ubatch_rows as usize);
    let calibration = calibrate::calibrate(&mut served, slots, rows, sequence_tokens, &threads)
        .unwrap_or_else(|error| {
            // A model for embeddings alone may have no such step.
            tracing::warn!(%error, "the model's steps cannot be measured");
            Calibration::default()
        });
    if generates {
        calibrate::check_logits(&mut served, rows.min(sequence_tokens))?;
    }
    let drafter = draft.map(|draft| draft.make(&served, |draft| draft)).transpose()?;
    Ok(Models { served, drafter, calibration })
}

/// Starts the decode lane, pinned to the last of `cores` if there are any.
///
/// # Errors
/// That of `make_lane`, which runs on the lane's thread, or a sentence about the thread.
pub fn start_decode<B: Backend>(
    link: LaneLink<Batch>,
    cores: Vec<usize>,
    make_lane: impl FnOnce() -> Result<DecodeLane<B>, String> + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    start_pinned("decode", cores, make_lane, move |lane| decode::run(lane, link))
}
