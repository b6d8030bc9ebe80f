//! Measures the memory that a sequence of a model takes.

use std::rc::Rc;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;

use super::llama::{ALL, ContextConfig, LlamaDecoder, STATE_ONLY, is_recurrent, new_threads, raw};
use super::{Backend, DecodeRow};
use crate::types::{CacheLayout, Logits, Position, SlotId};

/// Architectures that are left out: a window of Llama 4 begins at a multiple of its length, and llama.cpp
/// has another kind of cache for the other one.
const OTHER_WINDOWS: [&str; 2] = ["llama4", "dots3note"];

/// What llama.cpp writes for a sequence, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Its largest state; 0 without one.
    pub state: usize,
    /// The cells of one token, without those of layers with a sliding window.
    pub cell: usize,
    /// The tokens of the sliding window, if only its cells are kept; 0 for other models.
    pub window: usize,
    /// The cells of one token in these layers.
    pub window_cell: usize,
    /// What stands before the cells in a page of the prefix store, with what takes the place of a state.
    pub header: usize,
    /// Whether its recurrent state can go back by some tokens.
    pub goes_back: bool,
}

/// Measures what llama.cpp writes for a sequence of a model. Computes two tokens.
///
/// # Errors
/// A sentence that names the missing resource.
pub fn footprint(model: &Arc<LlamaModel>, cache: CacheLayout) -> Result<Footprint, String> {
    let window = window_of(model, cache);
    let config = ContextConfig {
        context_tokens: 256, // the least that llama.cpp allocates
        slots: 2,
        step_rows: 4,
        ubatch_rows: 4, // more than it can go back, and one
        rollback: 1,
        window,
        decode_cores: vec![0],
        cache,
        ..ContextConfig::default()
    };
    let mut decoder = LlamaDecoder::on(Rc::new(new_threads(&config)?), model.clone(), &config)?;
    let mut bytes_after = |position| {
        let row = DecodeRow { token: 0, position, slot: SlotId(0), logits: Logits::Sample };
        let step = decoder.decode(&[row]);
        step.map_err(|error| format!("the model cannot compute a token: {error}"))?;
        Ok::<_, String>((decoder.state_bytes(0, ALL), decoder.state_bytes(0, STATE_ONLY)))
    };
    let (one, state) = bytes_after(Position(0))?;
    let (two, later_state) = bytes_after(Position(1))?;
    if window > 0 {
        let window_cell = later_state.saturating_sub(state);
        let cell = (two - one).saturating_sub(window_cell);
        if window_cell == 0 || cell == 0 {
            return Ok(Footprint::default()); // no such layers, or no others
        }
        let window = window as usize;
        let state = state - window_cell + window * window_cell;
        let header = one - cell;
        return Ok(Footprint { state, cell, window, window_cell, header, goes_back: false });
    }
    // With a full cache, llama.cpp leaves out cells that the end of a text does not see.
    // SAFETY: the model is live.
    let has_window = unsafe { sys::llama_model_n_swa(raw(model)) } > 0;
    let cell = if has_window { 0 } else { two - one };
    if !is_recurrent(model) {
        return Ok(Footprint { cell, header: one.saturating_sub(cell), ..Footprint::default() });
    }
    if later_state != state {
        return Ok(Footprint::default()); // more than a state, which grows with the text
    }
    let no_state = decoder.state_bytes(1, STATE_ONLY);
    let header = (one - state + no_state).saturating_sub(cell);
    let goes_back = decoder.rollback() > 0;
    Ok(Footprint { state, cell, header, goes_back, ..Footprint::default() })
}

/// The tokens of a model's sliding window, if a cache of this layout keeps only its cells. 0 for
/// others.
fn window_of(model: &Arc<LlamaModel>, cache: CacheLayout) -> u32 {
    let architecture = model.meta_val_str("general.architecture").unwrap_or_default();
    let is_other = OTHER_WINDOWS.contains(&&*architecture) || is_recurrent(model);
    if is_other || cache.swa_full || !cache.unified {
        return 0;
    }
    // SAFETY: the model is live.
    let tokens = unsafe { sys::llama_model_n_swa(raw(model)) };
    u32::try_from(tokens).ok().filter(|tokens| *tokens < model.n_ctx_train()).unwrap_or(0)
}
