//! Measures the memory that a sequence of a model takes.

use std::rc::Rc;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;

use super::llama::{ALL, ContextConfig, LlamaDecoder, STATE_ONLY, is_recurrent, new_threads, raw};
use super::{Backend, DecodeRow};
use crate::types::{CacheLayout, Logits, Position, SlotId};

/// What llama.cpp writes for a sequence, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Its recurrent state; 0 without one.
    pub state: usize,
    /// The cells of one token.
    pub cell: usize,
    /// What stands before the cells.
    pub header: usize,
    /// Whether its recurrent state can go back by some tokens.
    pub goes_back: bool,
}

/// Measures what llama.cpp writes for a sequence of a model. Computes two tokens.
///
/// # Errors
/// A sentence that names the missing resource.
pub fn footprint(model: &Arc<LlamaModel>, cache: CacheLayout) -> Result<Footprint, String> {
    let config = ContextConfig {
        context_tokens: 256, // the least that llama.cpp allocates
        slots: 2,
        step_rows: 4,
        ubatch_rows: 4, // more than it can go back, and one
        rollback: 1,
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
    // With a sliding window, llama.cpp leaves out cells that the end of a text does not see.
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
    Ok(Footprint { state, cell, header, goes_back: decoder.rollback() > 0 })
}
