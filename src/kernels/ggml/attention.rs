//! Connects our attention to ggml's: the functions that `ggml.cpp` calls.
//!
//! Before ggml computes a graph, it asks each operation for the size of its work memory, on the
//! thread that will lead the computation. At that point the operation gets a pointer to a [`Step`],
//! which all layers with the same mask share. The first of these layers reads the mask for all of
//! them.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;

use super::super::attention::visible::{Mask, Partition, Shape};
use super::super::attention::{Attention, AttentionKernel, Sizes, Tensor, slots_max, work_bytes};
use super::super::delta::TokenRows;
use super::super::formats::LINE;
use super::super::kernel::InstructionSet;
use super::super::team::Team;

/// Most attention masks in one computation of a model that use corelane's kernels. Models have one
/// or two: for all cells, and for a sliding window.
const ATTENTION_MASKS_MAX: usize = 16;

/// The attention of a step, for all layers with one mask.
struct Step {
    /// ggml's tensor; null after the step.
    mask: *const c_void,
    set: Option<InstructionSet>,
    heads: usize,
    kv_heads: usize,
    /// Whether the mask was read in this step.
    is_read: Cell<bool>,
    plan: UnsafeCell<Partition>,
}

impl Step {
    /// An unused step.
    fn new(plan: Partition) -> Self {
        Self {
            mask: ptr::null(),
            set: None,
            heads: 0,
            kv_heads: 0,
            is_read: Cell::new(false),
            plan: UnsafeCell::new(plan),
        }
    }
}

thread_local! {
    /// The instruction set of our attention in graphs that this thread computes; `None` uses ggml's
    /// attention.
    static OURS: Cell<Option<InstructionSet>> = const { Cell::new(None) };

    /// The steps of graphs that this thread computes. Boxed, because operations point to them.
    #[expect(clippy::vec_box, reason = "operations point to the steps")]
    static STEPS: RefCell<Vec<Box<Step>>> = const { RefCell::new(Vec::new()) };
}

/// Uses our attention and gated delta nets, where they have a kernel, in graphs that this thread
/// computes; with `None`, ggml's. Called before each use of a context.
pub fn use_attention(set: Option<InstructionSet>) {
    OURS.set(set);
    // This thread computes no graph now, and the next graph's masks may lie elsewhere.
    STEPS.with_borrow_mut(|steps| steps.iter_mut().for_each(|step| step.mask = ptr::null()));
}

/// The instruction set of our kernels in graphs that this thread computes.
pub(super) fn ours() -> Option<InstructionSet> {
    OURS.get()
}

/// Reserves room for steps of `rows` rows that see `cells` cells in total, so that no step of this
/// thread allocates.
pub fn reserve_attention(rows: usize, cells: usize) {
    STEPS.with_borrow_mut(|steps| {
        *steps = (0..MASKS_USUAL)
            .map(|_| Box::new(Step::new(Partition::with_capacity(rows, cells))))
            .collect();
    });
}

/// Masks of a model in which only some layers attend to a sliding window.
const MASKS_USUAL: usize = 2;

/// `corelane_tensor` in ggml.cpp.
#[repr(C)]
pub(super) struct GgmlTensor {
    ggml_type: i32,
    sizes: [i64; 4],
    strides: [usize; 4],
    data: *const u8,
}

/// `corelane_attention` in ggml.cpp.
#[repr(C)]
pub(super) struct GgmlAttention {
    queries: GgmlTensor,
    keys: GgmlTensor,
    values: GgmlTensor,
    mask: GgmlTensor,
    mask_tensor: *const c_void,
    sinks: *const f32,
    scale: f32,
    max_bias: f32,
    softcap: f32,
    output: *mut f32,
    step: *const c_void,
    work: *mut u8,
    work_bytes: usize,
    thread: i32,
    threads: i32,
    pool: *mut c_void,
}

impl GgmlTensor {
    pub(super) fn size(&self, dimension: usize) -> usize {
        self.sizes[dimension] as usize // ggml counts with signs and is never below 0
    }

    /// The tokens of a head of `[sequences, tokens, heads, numbers]`. Heads and sequences beyond the
    /// tensor's begin again from its first, as ggml repeats them.
    pub(super) fn rows_of(&self, head: usize, sequence: usize) -> TokenRows {
        let [_, head_stride, stride, sequence_stride] = self.strides;
        let (head, sequence) = (head % self.size(1), sequence % self.size(3));
        let bytes = head * head_stride + sequence * sequence_stride;
        TokenRows { first: self.data.wrapping_add(bytes).cast(), stride }
    }

    /// The tensor as `[streams, heads, rows, numbers]`; ggml counts dimensions from the last.
    fn tensor(&self) -> Tensor {
        let [_, row_stride, head_stride, stream_stride] = self.strides;
        Tensor { data: self.data, row_stride, head_stride, stream_stride }
    }
}

impl GgmlAttention {
    /// The kernel for it, if there is one.
    fn kernel(&self, set: InstructionSet) -> Option<AttentionKernel> {
        const F32: i32 = 0; // ggml's number
        const F16: i32 = 1;
        let Self { queries: q, keys: k, values: v, mask, .. } = self;
        let streams = q.size(3);
        let fits = q.ggml_type == F32
            && q.strides[0] == size_of::<f32>()
            && q.size(0) == k.size(0)
            && k.size(1) == v.size(1)
            && k.size(2) == v.size(2)
            && k.size(2) > 0
            && q.size(2).is_multiple_of(k.size(2))
            && [k.size(3), v.size(3)] == [streams; 2];
        let fits_mask = mask.ggml_type == F16
            && mask.strides[0] == size_of::<u16>()
            && mask.size(0) == k.size(1)
            && mask.size(1) >= q.size(1)
            && mask.size(2) == 1
            && (mask.size(3) == 1 || mask.size(3) == streams);
        if !fits || !fits_mask {
            return None;
        }
        let kernel = set.attention(k.ggml_type, v.ggml_type)?;
        kernel.has_heads(k.size(0), v.size(0)).then_some(kernel)
    }

    fn sizes(&self, threads: usize) -> Sizes {
        Sizes {
            shape: Shape { heads: self.queries.size(2), kv_heads: self.keys.size(2), threads },
            rows: self.queries.size(1),
            key_numbers: self.keys.size(0),
            value_numbers: self.values.size(0),
        }
    }

    fn mask(&self) -> Mask {
        let [_, row_stride, _, stream_stride] = self.mask.strides;
        Mask {
            data: self.mask.data,
            rows: self.queries.size(1),
            cells: self.keys.size(1),
            streams: self.queries.size(3),
            row_stride,
            stream_stride: if self.mask.size(3) == 1 { 0 } else { stream_stride },
        }
    }
}

/// Plans an attention before it is computed. Returns its step, and in `bytes` the size of its work
/// memory. Returns null if ggml should compute it.
pub(super) unsafe extern "C" fn plan(
    attention: *const GgmlAttention,
    threads: i32,
    bytes: *mut usize,
) -> *const c_void {
    // SAFETY: ggml.cpp passes a live attention.
    let a = unsafe { &*attention };
    let Some(set) = OURS.get().filter(|set| a.kernel(*set).is_some()) else { return ptr::null() };
    let sizes = a.sizes(threads as usize); // never negative
    let step: *const c_void = STEPS.with_borrow_mut(|steps| {
        let Shape { heads, kv_heads, .. } = sizes.shape;
        let is_its = |step: &Step| {
            (step.mask, step.set, step.heads, step.kv_heads)
                == (a.mask_tensor, Some(set), heads, kv_heads)
        };
        let index = steps
            .iter()
            .position(|step| is_its(step))
            .or_else(|| steps.iter().position(|step| step.mask.is_null()));
        let index = match index {
            Some(index) => index,
            None if steps.len() < ATTENTION_MASKS_MAX => {
                steps.push(Box::new(Step::new(Partition::default())));
                steps.len() - 1
            }
            None => return ptr::null(),
        };
        let step = &mut steps[index];
        (step.mask, step.set) = (a.mask_tensor, Some(set));
        (step.heads, step.kv_heads) = (heads, kv_heads);
        step.is_read.set(false);
        ptr::from_ref::<Step>(step).cast()
    });
    if !step.is_null() {
        // SAFETY: `bytes` points to a size.
        unsafe { bytes.write(work_bytes(&sizes) + LINE) }; // room to align
    }
    step
}

/// Computes a thread's part of an attention that has a step.
pub(super) unsafe extern "C" fn attend(attention: *const GgmlAttention) {
    // SAFETY: ggml.cpp passes the same attention to each of ggml's threads, which make the same
    // calls in the same order. Its step lives, because the thread that planned it takes part.
    // (Thread numbers are never negative.)
    let (a, step, team) = unsafe {
        let a = &*attention;
        let team = Team::new(a.thread as usize, a.threads as usize, a.pool);
        (a, &*a.step.cast::<Step>(), team)
    };
    let sizes = a.sizes(team.threads);
    let kernel = step.set.and_then(|set| a.kernel(set));
    let kernel = kernel.expect("the attention that was planned has a kernel");
    let offset = a.work.align_offset(LINE);
    let needed = offset + work_bytes(&sizes);
    assert!(needed <= a.work_bytes, "{needed} bytes of work memory, {} are there", a.work_bytes);
    if team.thread == 0 && !step.is_read.replace(true) {
        // SAFETY: before the barrier, no other thread reads the plan. The mask is alive.
        unsafe { (*step.plan.get()).update(&a.mask(), sizes.shape, slots_max(&sizes)) };
    }
    team.begin_pieces();
    let attention = Attention {
        kernel,
        sizes,
        queries: a.queries.tensor(),
        keys: a.keys.tensor(),
        values: a.values.tensor(),
        mask: a.mask(),
        // SAFETY: after the barrier, no thread changes the plan until ggml's threads have met
        // again.
        plan: unsafe { &*step.plan.get() },
        scale: a.scale,
        softcap: a.softcap,
        max_bias: a.max_bias,
        sinks: a.sinks,
        output: a.output,
        work: a.work.wrapping_add(offset),
    };
    // SAFETY: choosing the instruction set checked that the processor has it. ggml's tensors have
    // the sizes that they state, and `plan` has measured the work memory.
    unsafe { attention.run(&team) };
}
