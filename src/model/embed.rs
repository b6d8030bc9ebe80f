//! Computes embeddings with llama.cpp, in a context of its own. The context keeps nothing between
//! two calls.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;

use super::llama::{ContextConfig, corelane_decode, new_context, new_threads, raw};
use super::rows::RowArrays;
use super::threads::ComputeThreads;
use super::{DecodeRow, StepError};
use crate::kernels::{InstructionSet, ggml};
use crate::types::{Logits, Pooling, Position, SlotId, TokenId};

/// A model's context for embeddings.
pub struct Embedder {
    context: *mut sys::llama_context,
    threads: ComputeThreads,
    pooling: Pooling,
    /// Numbers in a vector: the length of an embedding, or the number of a ranking head's scores.
    numbers: usize,
    rows: RowArrays,
    /// Most tokens of one call.
    rows_max: usize,
    /// Most texts of one call.
    texts_max: usize,
    attention: Option<InstructionSet>,
    /// The context points into the model.
    _model: Arc<LlamaModel>,
}

impl Embedder {
    /// Makes the context and its thread pool, and pins the calling thread, which must be the one
    /// that computes. A call has at most `config.ubatch_rows` tokens, because a text is computed in
    /// one pass (in some models a token also depends on later ones), and at most `config.slots`
    /// texts.
    ///
    /// # Errors
    /// A sentence that names the missing resource.
    pub fn new(
        model: Arc<LlamaModel>,
        pooling: Pooling,
        config: &ContextConfig,
    ) -> Result<Self, String> {
        let context = new_context(&model, config, |params| {
            params.embeddings = true;
            params.pooling_type = match pooling {
                Pooling::Mean => sys::LLAMA_POOLING_TYPE_MEAN,
                Pooling::Cls => sys::LLAMA_POOLING_TYPE_CLS,
                Pooling::Last => sys::LLAMA_POOLING_TYPE_LAST,
                Pooling::None => sys::LLAMA_POOLING_TYPE_NONE,
                Pooling::Rank => sys::LLAMA_POOLING_TYPE_RANK,
            };
            params.n_outputs_max = config.step_rows;
            params.kv_unified = true;
        })?;
        let threads = new_threads(config)?;
        // SAFETY: both pointers were checked; the threads are freed after the context.
        unsafe {
            sys::llama_attach_threadpool(context, threads.described(), threads.described());
        }
        let numbers = if pooling == Pooling::Rank { n_cls_out(&model) } else { n_embd_out(&model) };
        Ok(Self {
            context,
            threads,
            pooling,
            numbers,
            rows: RowArrays::new(config.step_rows as usize),
            attention: config.attention,
            rows_max: config.step_rows as usize,
            texts_max: config.slots as usize,
            _model: model,
        })
    }

    /// Computes the next calls with one thread, or with all of them.
    pub fn use_one_thread(&mut self, one: bool) {
        let threads = if one { 1 } else { self.threads.count() };
        // SAFETY: the context is live, and its pool has at least this many threads.
        unsafe { sys::llama_set_n_threads(self.context, threads, threads) };
    }

    /// Computes the vectors of as many of the first `texts` as one call of the model takes, and
    /// appends them to `vectors`, not normalised. The texts of a call have at most `tokens_max`
    /// tokens together, unless the first text alone has more. Without pooling, a text's vector is
    /// the vectors of its tokens, one after another. Calls `is_wanted` between two operations, and
    /// stops if it returns false.
    ///
    /// # Errors
    /// [`StepError::Aborted`] if it stopped; another error if the model could not run the texts.
    pub fn embed(
        &mut self,
        texts: &[Box<[TokenId]>],
        tokens_max: usize,
        is_wanted: &dyn Fn() -> bool,
        vectors: &mut Vec<Vec<f32>>,
    ) -> Result<(), StepError> {
        let first = texts.first().map_or(0, |text| text.len());
        assert!(first <= self.rows_max, "no text is longer than a call may be");
        let (mut tokens, tokens_max) = (0, tokens_max.clamp(first, self.rows_max));
        let mut fits = |text: &[TokenId]| {
            tokens += text.len();
            tokens <= tokens_max
        };
        let count = texts.iter().take(self.texts_max).take_while(|text| fits(text)).count();
        assert!(texts.iter().all(|text| !text.is_empty()), "each text has a token");
        self.run(&texts[..count], is_wanted, vectors)
    }

    fn run(
        &mut self,
        texts: &[Box<[TokenId]>],
        is_wanted: &dyn Fn() -> bool,
        vectors: &mut Vec<Vec<f32>>,
    ) -> Result<(), StepError> {
        let row = |(slot, position, token): (usize, usize, TokenId)| DecodeRow {
            token,
            position: Position(position as u32), // below rows_max
            slot: SlotId(slot as u16),           // below texts_max
            logits: Logits::Sample,
        };
        let tokens = texts.iter().enumerate().flat_map(|(slot, text)| {
            text.iter().enumerate().map(move |(position, token)| (slot, position, *token))
        });
        let rows: Vec<DecodeRow> = tokens.map(row).collect();
        let batch = self.rows.fill(&rows);
        ggml::use_attention(self.attention);
        // SAFETY: the context is live and only this thread uses it; the batch points into arrays of
        // `self`. `is_wanted` is called only during the call. A model without a cache has no memory
        // to clear.
        let code = unsafe {
            let asked = (&raw const is_wanted).cast_mut().cast();
            sys::llama_set_abort_callback(self.context, Some(is_unwanted), asked);
            let memory = sys::llama_get_memory(self.context);
            if !memory.is_null() {
                sys::llama_memory_clear(memory, true);
            }
            let code = self.threads.run(|| corelane_decode(self.context, batch));
            sys::llama_set_abort_callback(self.context, None, ptr::null_mut());
            code
        };
        match code {
            0 => {}
            2 => return Err(StepError::Aborted),
            code => return Err(StepError::Failed(code)),
        }
        let mut row = 0;
        for (slot, text) in texts.iter().enumerate() {
            let rows = row..row + text.len();
            row = rows.end;
            vectors.push(match self.pooling {
                Pooling::None => rows.flat_map(|row| self.vector_of_row(row)).copied().collect(),
                _ => self.vector_of(SlotId(slot as u16)).to_vec(), // below texts_max
            });
        }
        Ok(())
    }

    /// The vector of a text of the last call. The call must have pooled.
    fn vector_of(&self, slot: SlotId) -> &[f32] {
        // SAFETY: the context is live, and the slot is below the number of sequences that it was
        // made for. A pooled sequence has `numbers` numbers. They stay in place until the next
        // call, which needs `&mut self`.
        unsafe {
            let vector = sys::llama_get_embeddings_seq(self.context, slot.0.into());
            assert!(!vector.is_null(), "a pooled sequence has a vector");
            std::slice::from_raw_parts(vector, self.numbers)
        }
    }

    /// The vector of a row of the last call, which must not have pooled.
    fn vector_of_row(&self, row: usize) -> &[f32] {
        // SAFETY: as above, for a row of the last call.
        unsafe {
            let vector = sys::llama_get_embeddings_ith(self.context, row as i32); // below rows_max
            assert!(!vector.is_null(), "each row has a vector");
            std::slice::from_raw_parts(vector, self.numbers)
        }
    }
}

/// llama.cpp calls this between two operations.
unsafe extern "C" fn is_unwanted(asked: *mut c_void) -> bool {
    // SAFETY: `Embedder::run` set this pointer for the time of the call.
    let is_wanted = unsafe { *asked.cast::<&dyn Fn() -> bool>() };
    !is_wanted()
}

/// The length of a model's vectors. For a few models it differs from the width of a layer.
pub(super) fn n_embd_out(model: &LlamaModel) -> usize {
    // SAFETY: the model is loaded.
    usize::try_from(unsafe { sys::llama_model_n_embd_out(raw(model)) }).unwrap_or(0)
}

/// The number of scores of a model's ranking head.
fn n_cls_out(model: &LlamaModel) -> usize {
    // SAFETY: the model is loaded.
    unsafe { sys::llama_model_n_cls_out(raw(model)) as usize }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        // SAFETY: it was made in `new` and is freed once, before the threads.
        unsafe { sys::llama_free(self.context) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kernels::KernelChoice;
    use crate::model::load::{Source, load};
    use crate::types::CacheLayout;

    /// A call asks between two operations whether its result is still wanted.
    #[test]
    fn a_call_ends_in_the_middle_when_nobody_waits() {
        let loaded = load(&Source::BuiltIn, KernelChoice::Llama, |_| true).expect("it is built in");
        let config = ContextConfig {
            context_tokens: 64,
            slots: 1,
            step_rows: 64,
            ubatch_rows: 64,
            decode_cores: vec![0],
            pinned: false,
            poll: 0,
            state_bytes: 0,
            rollback: 0,
            window: 0,
            stores_pages: false,
            cache: CacheLayout::default(),
            attention: None,
            abort: Arc::default(),
        };
        let mut embedder = Embedder::new(loaded.model, Pooling::Mean, &config).unwrap();
        let texts = [Box::from([1; 64])];
        let asked = Cell::new(0);
        let mut embed = |most| {
            asked.set(0);
            let is_wanted = || {
                asked.set(asked.get() + 1);
                asked.get() <= most
            };
            let mut vectors = Vec::new();
            embedder.embed(&texts, 64, &is_wanted, &mut vectors).map(|()| vectors)
        };
        let whole = embed(u32::MAX).unwrap();
        let operations = asked.get();
        assert!(operations > 20, "it asked {operations} times");
        assert_eq!(embed(operations / 2), Err(StepError::Aborted));
        assert!(asked.get() < operations, "it stopped at once");
        assert_eq!(embed(u32::MAX).unwrap(), whole, "the next call is a whole one");
    }
}
