//! llama.cpp as a [`Backend`]: one context, its pinned thread pool, and the arrays of its batch,
//! allocated once.
//!
//! It makes the context through `llama-cpp-sys-2`: `llama-cpp-2` has neither the thread pool nor
//! the bound on outputs.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use llama_cpp_2::model::LlamaModel;
use llama_cpp_sys_2 as sys;

use super::rollback::Rollback;
use super::rows::RowArrays;
use super::threads::ComputeThreads;
use super::window::Window;
use super::{Backend, DecodeRow, StepError, library};
use crate::abort::StepAbort;
use crate::kernels::{InstructionSet, ggml};
use crate::limits::{GUESSED_ROWS_MAX, POLL_LEVEL, SCORED_ROWS_MAX};
use crate::types::{CacheLayout, CacheType, FlashAttention, Logits, Position, SlotId, Threads};

/// llama.cpp's `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`: of a sequence's state only the part that cannot
/// go back: that of recurrent layers, or of those with a sliding window.
pub(super) const STATE_ONLY: u32 = 1;

/// Of a sequence's state everything.
pub(super) const ALL: u32 = 0;

/// The parameters of a context.
#[derive(Clone, Debug, Default)]
pub struct ContextConfig {
    /// KV cells of all slots together.
    pub context_tokens: u32,
    /// Sequences that run at once.
    pub slots: u32,
    /// Most rows of one step.
    pub step_rows: u32,
    /// Most rows that llama.cpp computes at once (`n_ubatch`).
    pub ubatch_rows: u32,
    /// The cores of the compute threads, one thread each. The thread that makes the context is
    /// pinned to the last one.
    pub decode_cores: Vec<usize>,
    /// Whether each thread stays on its core.
    pub pinned: bool,
    /// How long idle compute threads poll for work, 0 (not at all) to 100.
    pub poll: u32,
    /// The bytes of a state; 0 if none is saved.
    pub state_bytes: usize,
    /// The tokens of the sliding window, if only its cells are kept; 0 otherwise. The context needs at
    /// least as many tokens as [`cells`](super::window::cells).
    pub window: u32,
    /// Most tokens by which a recurrent state can go back (`n_rs_seq`).
    pub rollback: u32,
    /// Whether cells are copied to pages of the prefix store.
    pub stores_pages: bool,
    /// The layout of the KV cache.
    pub cache: CacheLayout,
    /// The instruction set of our attention; `None` uses llama.cpp's.
    pub attention: Option<InstructionSet>,
    /// The flag with which another thread aborts steps.
    pub abort: Arc<StepAbort>,
}

/// A llama.cpp context.
pub struct LlamaDecoder {
    context: *mut sys::llama_context,
    memory: sys::llama_memory_t,
    threads: Rc<ComputeThreads>,
    /// Whether one thread leads the products.
    led: bool,
    n_vocab: usize,
    /// Whether all sequences share one KV cache.
    unified: bool,
    /// Whether sequences with different numbers of rows run together at full speed.
    ragged: bool,
    rows: RowArrays,
    rollback: Option<Rollback>,
    window: Option<Window>,
    moves: Option<Moves>,
    attention: Option<InstructionSet>,
    /// llama.cpp checks this flag between two operations.
    abort: Arc<StepAbort>,
    /// The context points into the model.
    _model: Arc<LlamaModel>,
}

/// How cells are copied to pages and back.
struct Moves {
    /// A sequence that has the cells of a page meanwhile.
    sequence: sys::llama_seq_id,
    /// The smallest state, which takes the place of another one; empty without states. It is that of
    /// an empty sequence, or with a sliding window that of one token: llama.cpp removes no cells for
    /// a state without any.
    least_state: Box<[u8]>,
}

impl LlamaDecoder {
    /// Makes the context and its thread pool, and pins the calling thread, which must be the one
    /// that decodes.
    ///
    /// # Errors
    /// A sentence that names the missing resource.
    pub fn new(model: Arc<LlamaModel>, config: &ContextConfig) -> Result<Self, String> {
        Self::on(Rc::new(new_threads(config)?), model, config)
    }

    /// Makes the context of another model on the same threads. Only one of the two may compute at a
    /// time.
    ///
    /// # Errors
    /// As for [`LlamaDecoder::new`].
    pub fn beside(&self, model: Arc<LlamaModel>, config: &ContextConfig) -> Result<Self, String> {
        Self::on(self.threads.clone(), model, config)
    }

    pub(super) fn on(
        threads: Rc<ComputeThreads>,
        model: Arc<LlamaModel>,
        config: &ContextConfig,
    ) -> Result<Self, String> {
        let context = new_context(&model, config, |params| {
            // Logits are needed for one row of each sequence, for guesses, and for scored rows of
            // prompts. Without this bound, llama.cpp reserves logits for every row: 300 MB for 512
            // rows and 151,936 tokens.
            let more = (SCORED_ROWS_MAX + GUESSED_ROWS_MAX) as u32; // some dozens
            params.n_outputs_max = (config.slots + more).min(config.step_rows);
            // With one cache per sequence, llama.cpp splits a step where its sequences' ids have a
            // gap or their row counts differ. With one cache for all, each row searches the cells
            // of all sequences, which costs more (`perf/study cache` measures it).
            params.kv_unified = config.cache.unified;
            params.n_rs_seq = config.rollback;
            params.swa_full = config.window == 0;
            if config.stores_pages {
                params.n_seq_max += 1; // for copies of pages
                params.n_outputs_max = params.n_outputs_max.max(params.n_seq_max);
            }
        })?;
        // SAFETY: both pointers were checked; the pool is freed after the context.
        let memory = unsafe {
            sys::llama_attach_threadpool(context, threads.described(), threads.described());
            sys::llama_get_memory(context)
        };
        let n_vocab = model.n_vocab() as usize; // never negative
        let rows = RowArrays::new(config.step_rows as usize);
        let unified = config.cache.unified;
        // With one cache for all, llama.cpp splits a step only for models with recurrent states.
        let ragged = unified && !is_recurrent(&model);
        if config.attention.is_some() {
            ggml::reserve_attention(config.ubatch_rows as usize, config.context_tokens as usize);
        }
        let abort = config.abort.clone();
        // SAFETY: what it points to lives as long as the context: `abort` holds it.
        unsafe {
            let orders = Arc::as_ptr(&abort).cast_mut().cast();
            sys::llama_set_abort_callback(context, Some(is_aborted), orders);
        }
        let mut decoder = Self {
            context,
            memory,
            threads,
            led: false,
            n_vocab,
            unified,
            ragged,
            rows,
            rollback: None,
            window: None,
            moves: None,
            attention: config.attention,
            abort,
            _model: model,
        };
        // SAFETY: the context is live.
        let most = unsafe { sys::llama_n_rs_seq(context) };
        if most > 0 {
            let slots = config.slots as usize;
            decoder.rollback = Some(Rollback::new(most, slots, config.state_bytes));
        }
        // SAFETY: the model is live.
        let window = unsafe { sys::llama_model_n_swa(raw(&decoder._model)) };
        // llama.cpp reuses cells that no later token sees, even if all are kept.
        if window > 0 && !is_recurrent(&decoder._model) {
            let is_alone = config.window > 0;
            let (tokens, slots) = (window as u32, config.slots as usize); // the first is positive
            decoder.window = Some(Window::new(tokens, is_alone, slots, config.state_bytes));
        }
        if config.stores_pages {
            let sequence = SlotId(config.slots as u16); // at most SLOTS_MAX
            let least_state = decoder.least_state(sequence)?;
            decoder.moves = Some(Moves { sequence: sequence.0.into(), least_state });
        }
        Ok(decoder)
    }

    /// The smallest state that a sequence can have; empty without states. The sequence is unused.
    fn least_state(&mut self, sequence: SlotId) -> Result<Box<[u8]>, String> {
        let has_window = self.window.as_ref().is_some_and(|window| window.is_alone);
        if !has_window && !is_recurrent(&self._model) {
            return Ok(Box::default());
        }
        let id = sequence.0.into();
        if has_window {
            let logits = Logits::Sample;
            let row = DecodeRow { token: 0, position: Position(0), slot: sequence, logits };
            let step = self.decode(&[row]);
            step.map_err(|error| format!("the model cannot compute a token: {error}"))?;
        }
        let mut state = vec![0; self.state_bytes(id, STATE_ONLY)];
        self.read_state(id, STATE_ONLY, &mut state);
        self.clear_sequence(id);
        Ok(state.into())
    }

    /// The bytes of a sequence's state.
    pub(super) fn state_bytes(&self, sequence: sys::llama_seq_id, flags: u32) -> usize {
        // SAFETY: the context is live, and the sequence is below n_seq_max.
        unsafe { sys::llama_state_seq_get_size_ext(self.context, sequence, flags) }
    }

    /// Copies a sequence's state into `bytes`. Returns how many it has, or 0 if there is no room.
    fn read_state(&self, sequence: sys::llama_seq_id, flags: u32, bytes: &mut [u8]) -> usize {
        let (to, room) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the context is live, the sequence is below n_seq_max, and `to` has `room` bytes.
        unsafe { sys::llama_state_seq_get_data_ext(self.context, to, room, sequence, flags) }
    }

    /// Gives a sequence a state. Returns whether all bytes were read.
    fn write_state(&self, sequence: sys::llama_seq_id, flags: u32, bytes: &[u8]) -> bool {
        let (from, count) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the context is live, the sequence is below n_seq_max, and `read_state` wrote the
        // bytes for a context of this model.
        let read = unsafe {
            sys::llama_state_seq_set_data_ext(self.context, from, count, sequence, flags)
        };
        read == count
    }

    /// Gives a slot copies of the window's cells that it shares with another one.
    fn own_window(&mut self, slot: SlotId) -> bool {
        let Some(mut window) = self.window.take_if(|window| window.is_alone) else { return true };
        let state = window.room_for_state(self.state_bytes(slot.0.into(), STATE_ONLY));
        let is_copied = self.read_state(slot.0.into(), STATE_ONLY, state) == state.len()
            && self.write_state(slot.0.into(), STATE_ONLY, state);
        self.window = Some(window);
        is_copied
    }

    /// The fewest tokens above 0 to which the window of a slot can be cut.
    fn least_left_of(&self, window: &Window, slot: SlotId) -> Position {
        // SAFETY: the memory belongs to the live context, and the slot is below n_seq_max.
        let first = unsafe { sys::llama_memory_seq_pos_min(self.memory, slot.0.into()) };
        window.least_left(slot, first)
    }

    /// Whether the cells of a slot that the token at position `from` sees are still there.
    fn window_reaches(&self, slot: SlotId, from: Position) -> bool {
        let of = |window| self.least_left_of(window, slot);
        from == Position(0) || self.window.as_ref().is_none_or(|window| of(window) <= from)
    }

    /// Notes whether the cells of a slot's window belong to other tokens than its own.
    fn set_window_lost(&mut self, slot: SlotId, is_lost: bool) {
        if let Some(window) = self.window.as_mut().filter(|window| window.is_alone) {
            window.set_lost(slot, is_lost);
        }
    }

    /// Most tokens by which a recurrent state can go back; 0 if it cannot.
    pub(super) fn rollback(&self) -> u32 {
        self.rollback.as_ref().map_or(0, Rollback::most)
    }

    /// Notes that a slot has another recurrent state, which stands behind `behind` tokens.
    fn replace_state(&mut self, slot: SlotId, behind: Option<u32>) {
        if let Some(rollback) = &mut self.rollback {
            rollback.replace(slot, behind);
        }
    }

    /// Lets llama.cpp go back at once where it has only noted that it will.
    fn settle(&mut self, slot: SlotId) {
        let Some(mut rollback) = self.rollback.take() else { return };
        if rollback.settle(slot) {
            let state = rollback.room_for_state(self.state_bytes(slot.0.into(), STATE_ONLY));
            self.read_state(slot.0.into(), STATE_ONLY, state);
            if !self.write_state(slot.0.into(), STATE_ONLY, state) {
                rollback.replace(slot, None);
            }
        }
        self.rollback = Some(rollback);
    }

    /// Adds cells of a sequence at these positions to another one. `to` of -1 is the end.
    fn share_cells(&self, from: sys::llama_seq_id, to: sys::llama_seq_id, positions: Range<i32>) {
        let Range { start, end } = positions;
        // SAFETY: the memory belongs to the live context, and both sequences are below n_seq_max.
        unsafe { sys::llama_memory_seq_cp(self.memory, from, to, start, end) };
    }

    /// Removes a sequence.
    fn clear_sequence(&self, sequence: sys::llama_seq_id) {
        // SAFETY: the memory belongs to the live context, and the sequence is below n_seq_max.
        unsafe { sys::llama_memory_seq_rm(self.memory, sequence, -1, -1) };
    }
}

/// Makes a context of a model; `adjust` may change any parameter.
pub(super) fn new_context(
    model: &Arc<LlamaModel>,
    config: &ContextConfig,
    adjust: impl FnOnce(&mut sys::llama_context_params),
) -> Result<*mut sys::llama_context, String> {
    let n_threads = config.decode_cores.len();
    // SAFETY: returns plain data; no preconditions.
    let mut params = unsafe { sys::llama_context_default_params() };
    params.n_ctx = config.context_tokens;
    params.n_batch = config.step_rows;
    params.n_ubatch = config.ubatch_rows;
    params.n_seq_max = config.slots;
    params.n_threads = n_threads as i32; // at most 512, `placement::CORES_MAX`
    params.n_threads_batch = n_threads as i32;
    params.type_k = ggml_type(config.cache.keys);
    params.type_v = ggml_type(config.cache.values);
    params.flash_attn_type = match config.cache.flash_attention {
        FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
        FlashAttention::On | FlashAttention::Llama => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        FlashAttention::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
    };
    params.no_perf = true;
    adjust(&mut params);
    // SAFETY: the caller keeps the model as long as the context. Contexts of one model are not made
    // in parallel: each lane is waited for before the next one starts.
    let context = library::guarded(|| unsafe { sys::llama_init_from_model(raw(model), params) });
    if context.is_null() {
        return Err(format!(
            "llama.cpp could not make a context of {} tokens for {} sequences{}",
            config.context_tokens,
            config.slots,
            library::error(),
        ));
    }
    Ok(context)
}

pub(super) fn is_recurrent(model: &LlamaModel) -> bool {
    model.is_recurrent() || model.is_hybrid()
}

/// llama.cpp's pointer to a model.
pub(super) fn raw(model: &LlamaModel) -> *mut sys::llama_model {
    const _: () = assert!(size_of::<LlamaModel>() == size_of::<*mut sys::llama_model>());
    // SAFETY: LlamaModel is a transparent wrapper around the pointer: both types are
    // `repr(transparent)`, and the size is asserted above.
    unsafe { *ptr::from_ref::<LlamaModel>(model).cast::<*mut sys::llama_model>() }
}

unsafe extern "C" {
    /// `llama_decode`, with `i32::MIN` for an exception.
    pub(super) fn corelane_decode(context: *mut sys::llama_context, batch: sys::llama_batch)
    -> i32;
}

/// llama.cpp calls this between two operations of a step.
unsafe extern "C" fn is_aborted(orders: *mut c_void) -> bool {
    // SAFETY: `LlamaDecoder::on` set this pointer; what it points to outlives the context.
    unsafe { (*orders.cast::<StepAbort>()).is_given_up() }
}

fn ggml_type(cache: CacheType) -> sys::ggml_type {
    match cache {
        CacheType::F32 => sys::GGML_TYPE_F32,
        CacheType::F16 => sys::GGML_TYPE_F16,
        CacheType::Q8_0 => sys::GGML_TYPE_Q8_0,
        CacheType::Q4_0 => sys::GGML_TYPE_Q4_0,
    }
}

/// Starts the compute threads of a context.
pub(super) fn new_threads(config: &ContextConfig) -> Result<ComputeThreads, String> {
    let cores = config.pinned.then_some(config.decode_cores.as_slice());
    ComputeThreads::new(config.decode_cores.len(), cores, config.poll * POLL_LEVEL)
}

impl Backend for LlamaDecoder {
    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn runs_ragged(&self) -> bool {
        self.ragged
    }

    fn begin_step(&mut self, step: u64) {
        self.abort.begin(step);
    }

    fn threads(&self) -> usize {
        self.threads.count() as usize // never negative
    }

    fn use_threads(&mut self, threads: Threads) {
        self.led = threads.led;
        let count = if threads.led { 1 } else { usize::from(threads.count) };
        let count = count.clamp(1, self.threads()) as i32; // at most THREADS_MAX
        // SAFETY: the context is live.
        unsafe { sys::llama_set_n_threads(self.context, count, count) };
    }

    fn change_places(&mut self, other: usize) -> bool {
        self.threads.change_places(other)
    }

    fn decode(&mut self, rows: &[DecodeRow]) -> Result<(), StepError> {
        let batch = self.rows.fill(rows);
        ggml::use_attention(self.attention);
        // SAFETY: the context is live and only this thread uses it. The batch points into arrays of
        // `self`, of which the first `n_tokens` entries are filled.
        let decode = || unsafe { corelane_decode(self.context, batch) };
        let code = self.threads.run(|| match self.threads.led().filter(|_| self.led) {
            Some(led) => led.lead(decode),
            None => decode(),
        });
        if let Some(rollback) = &mut self.rollback {
            const NO_ROOM: i32 = 1; // nothing was computed
            if code != NO_ROOM {
                rollback.note(rows, code == 0);
            }
        }
        match code {
            0 => Ok(()),
            1 => Err(StepError::NoRoom),
            2 => Err(StepError::Aborted),
            code => Err(StepError::Failed(code)),
        }
    }

    fn logits(&mut self, row: usize) -> &mut [f32] {
        // SAFETY: the context is live. A row that asked for logits in the last successful step has
        // `n_vocab` of them. They stay in place until the next step, which needs `&mut self`.
        unsafe {
            let logits = sys::llama_get_logits_ith(self.context, row as i32); // below STEP_ROWS_MAX
            assert!(!logits.is_null(), "row {row} asked for logits");
            std::slice::from_raw_parts_mut(logits, self.n_vocab)
        }
    }

    fn copy(&mut self, from: SlotId, to: SlotId, tokens: Position, with_state: bool) -> bool {
        self.settle(from);
        if let Some(rollback) = &mut self.rollback {
            rollback.copy(from, to);
        }
        // From one cache to another, only whole sequences can be copied.
        let end = if self.unified { tokens.0 as i32 } else { -1 }; // below SEQUENCE_TOKENS_MAX
        self.share_cells(from.0.into(), to.0.into(), -1..end);
        // A state that is restored removes the shared cells of the window, too.
        !with_state || (self.window_reaches(from, tokens) && self.own_window(to))
    }

    fn truncate(&mut self, slot: SlotId, from: Position) -> bool {
        let goes = self.rollback.as_mut().is_none_or(|rollback| rollback.may_go_back(slot, from));
        // SAFETY: the memory belongs to the live context. The end of a sequence may be removed for
        // every slot below n_seq_max. If a recurrent state stands in it and cannot go back, nothing
        // is removed.
        let is_cut = goes
            && self.window_reaches(slot, from)
            && unsafe { sys::llama_memory_seq_rm(self.memory, slot.0.into(), from.0 as i32, -1) };
        if from == Position(0) {
            self.set_window_lost(slot, false);
        }
        is_cut
    }

    fn least_left(&self, slot: SlotId) -> Option<Position> {
        let window = self.window.as_ref().filter(|window| window.is_alone)?;
        Some(self.least_left_of(window, slot))
    }

    fn save(&mut self, slot: SlotId, state: &mut [u8]) -> usize {
        self.read_state(slot.0.into(), STATE_ONLY, state)
    }

    fn restore(&mut self, slot: SlotId, state: &[u8], tokens: Position) -> bool {
        let is_written = self.write_state(slot.0.into(), STATE_ONLY, state);
        self.replace_state(slot, is_written.then_some(tokens.0));
        self.set_window_lost(slot, !is_written);
        is_written && self.truncate(slot, tokens)
    }

    fn store_page(&mut self, slot: SlotId, positions: Range<Position>, page: &mut [u8]) -> usize {
        let Some(moves) = &self.moves else { return 0 };
        let Range { start, end } = positions;
        let positions = start.0 as i32..end.0 as i32; // below SEQUENCE_TOKENS_MAX
        self.share_cells(slot.0.into(), moves.sequence, positions);
        // The state is saved apart.
        if !moves.least_state.is_empty() {
            self.write_state(moves.sequence, STATE_ONLY, &moves.least_state);
        }
        let written = self.read_state(moves.sequence, ALL, page);
        self.clear_sequence(moves.sequence);
        written
    }

    fn load_page(&mut self, slot: SlotId, page: &[u8]) -> bool {
        self.replace_state(slot, Some(0)); // of no tokens
        self.set_window_lost(slot, true); // until it is restored
        let Some(moves) = &self.moves else { return false };
        let mut is_read = self.write_state(moves.sequence, ALL, page);
        if is_read {
            self.share_cells(moves.sequence, slot.0.into(), -1..-1);
            if self.window.as_ref().is_some_and(|window| window.is_alone) {
                is_read = self.write_state(slot.0.into(), STATE_ONLY, &moves.least_state);
            }
        }
        self.clear_sequence(moves.sequence);
        is_read
    }
}

impl Drop for LlamaDecoder {
    fn drop(&mut self) {
        if let Some(led) = self.threads.led() {
            led.settle(); // helpers may still read the model's weights, which may be freed next
        }
        // SAFETY: it was made in `on` and is freed once, before the threads and the model.
        unsafe { sys::llama_free(self.context) };
    }
}
