//! One product through ggml, by our kernels or by its own: to check the former before they
//! are trusted, to test them and to measure them.

use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;

use llama_cpp_sys_2 as sys;

use super::attentions;
use crate::kernels::{Choice, InstructionSet, ggml};

/// A product of weights with rows of activations, ready to be computed any number of times:
/// once in each run, or with several copies of the weights one after the other, so that
/// they come from memory as in a step of a model.
pub struct ProductGraph {
    contexts: [*mut sys::ggml_context; 2],
    buffers: [sys::ggml_backend_buffer_t; 2],
    backend: sys::ggml_backend_t,
    /// The backend computes with its threads.
    _pool: Rc<Pool>,
    graph: *mut sys::ggml_cgraph,
    input: *mut sys::ggml_tensor,
    /// Of the last copy.
    output: *mut sys::ggml_tensor,
}

/// The sizes of a product, and who computes it.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// ggml's number of the weights' type.
    pub ggml_type: u32,
    /// Rows of the weights.
    pub rows: usize,
    /// Columns of the weights, and of the activations.
    pub columns: usize,
    /// Rows of activations.
    pub inputs: usize,
    /// Copies of the weights, at most [`COPIES_MAX`].
    pub copies: usize,
}

/// Threads that compute products. They poll between two products, so products that are
/// measured against each other share them.
pub struct Pool {
    threadpool: *mut sys::ggml_threadpool,
    threads: i32,
}

impl Pool {
    /// Starts `threads` threads, the calling one counted. With `pinned`, thread `i` is pinned
    /// to core `i`, and the calling one stays pinned to core 0.
    ///
    /// # Panics
    /// When the system gives no threads.
    pub fn new(threads: usize, pinned: bool) -> Rc<Self> {
        super::load::start_llama();
        let threads = i32::try_from(threads).expect("a few threads");
        // SAFETY: the parameters are initialised and read only during the call.
        let threadpool = unsafe {
            let mut params = sys::ggml_threadpool_params_default(threads);
            params.cpumask[..threads as usize].fill(pinned);
            params.strict_cpu = pinned;
            params.poll = 100;
            sys::ggml_threadpool_new(&raw mut params)
        };
        assert!(!threadpool.is_null(), "{threads} threads");
        Rc::new(Self { threadpool, threads })
    }
}

impl Pool {
    /// Lets a backend of ggml's compute with these threads. It keeps a pointer to the pool.
    pub(super) unsafe fn give_to(&self, backend: sys::ggml_backend_t) {
        // SAFETY: the caller's backend is alive, and is freed before the pool.
        unsafe {
            sys::ggml_backend_cpu_set_threadpool(backend, self.threadpool);
            sys::ggml_backend_cpu_set_n_threads(backend, self.threads);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made in `new`; whoever computed with it kept it alive.
        unsafe { sys::ggml_threadpool_free(self.threadpool) };
    }
}

/// Copies of the weights in one graph.
pub const COPIES_MAX: usize = 512;

impl ProductGraph {
    /// Makes the tensors: `weights` as a GGUF file has them. `ours` says whose kernels
    /// multiply; ggml's are those that llama.cpp would choose.
    ///
    /// # Panics
    /// When ggml has no memory, or, with `ours`, when there is no kernel for the type.
    pub fn new(sizes: Sizes, weights: &[u8], ours: bool, pool: &Rc<Pool>) -> Self {
        let Sizes { ggml_type, rows, columns, inputs, copies } = sizes;
        assert!((1..=COPIES_MAX).contains(&copies), "{copies} copies, at most {COPIES_MAX}");
        let (rows, columns, inputs) = (rows as i64, columns as i64, inputs as i64); // of memory
        // SAFETY: a sequence of calls as ggml documents it: tensors in contexts without
        // memory, then buffers for them. Every result that may be null is checked. The
        // tensors live as long as their contexts, the buffers as long as `self`.
        unsafe {
            let contexts = [new_context(copies), new_context(2 * copies)];
            let new_2d = sys::ggml_new_tensor_2d;
            let input = new_2d(contexts[1], sys::GGML_TYPE_F32, columns, inputs);
            let graph = sys::ggml_new_graph(contexts[1]);
            let mut matrices = Vec::with_capacity(copies);
            let mut output = ptr::null_mut();
            for _ in 0..copies {
                let matrix = new_2d(contexts[0], ggml_type, columns, rows);
                output = sys::ggml_mul_mat(contexts[1], matrix, input);
                sys::ggml_build_forward_expand(graph, output);
                matrices.push(matrix);
            }
            let buffer_type = if ours { ggml::buffer_type().cast() } else { llama_type(output) };
            let (weights_buffer, _) = ggml::packing(|| {
                assert!(is_supported(output, buffer_type), "no kernel for type {ggml_type}");
                sys::ggml_backend_alloc_ctx_tensors_from_buft(contexts[0], buffer_type)
            });
            let plain = sys::ggml_backend_cpu_buffer_type();
            let rest = sys::ggml_backend_alloc_ctx_tensors_from_buft(contexts[1], plain);
            let backend = sys::ggml_backend_cpu_init();
            assert!(!weights_buffer.is_null() && !rest.is_null(), "memory for a product");
            assert!(!backend.is_null(), "ggml's own backend");
            pool.give_to(backend);
            for matrix in &matrices {
                assert_eq!(weights.len(), sys::ggml_nbytes(*matrix), "bytes of the weights");
                let from = weights.as_ptr().cast();
                sys::ggml_backend_tensor_set(*matrix, from, 0, weights.len());
            }
            let buffers = [weights_buffer, rest];
            let _pool = pool.clone();
            Self { contexts, buffers, backend, _pool, graph, input, output }
        }
    }

    /// Sets the activations, row by row.
    pub fn set_input(&mut self, input: &[f32]) {
        // SAFETY: the tensor has memory, and as many bytes as are checked.
        unsafe {
            let bytes = size_of_val(input);
            assert_eq!(bytes, sys::ggml_nbytes(self.input), "bytes of the activations");
            sys::ggml_backend_tensor_set(self.input, input.as_ptr().cast(), 0, bytes);
        }
    }

    /// Computes the product.
    pub fn run(&mut self) {
        // SAFETY: the graph and its tensors have memory.
        let status = unsafe { sys::ggml_backend_graph_compute(self.backend, self.graph) };
        assert_eq!(status, sys::GGML_STATUS_SUCCESS, "nothing aborts it");
    }

    /// The products of the last run: for each row of activations, one for each of the
    /// weights.
    pub fn output(&self) -> Vec<f32> {
        // SAFETY: the tensor has memory, and as many bytes as are asked for.
        unsafe {
            let bytes = sys::ggml_nbytes(self.output);
            let mut output = vec![0.0; bytes / size_of::<f32>()];
            sys::ggml_backend_tensor_get(self.output, output.as_mut_ptr().cast(), 0, bytes);
            output
        }
    }
}

impl Drop for ProductGraph {
    fn drop(&mut self) {
        // SAFETY: made in `new` and freed once, users first.
        unsafe {
            sys::ggml_backend_free(self.backend);
            self.buffers.iter().for_each(|buffer| sys::ggml_backend_buffer_free(*buffer));
            self.contexts.iter().for_each(|context| sys::ggml_free(*context));
        }
    }
}

/// A context for the descriptions of `tensors` tensors; buffers have their data.
pub(super) fn new_context(tensors: usize) -> *mut sys::ggml_context {
    // SAFETY: plain calls; the result is checked.
    unsafe {
        let params = sys::ggml_init_params {
            mem_size: (tensors + 1) * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead(),
            mem_buffer: ptr::null_mut(),
            no_alloc: true,
        };
        let context = sys::ggml_init(params);
        assert!(!context.is_null(), "memory for {tensors} descriptions of tensors");
        context
    }
}

/// Where llama.cpp would place the weights of `product` without us.
unsafe fn llama_type(product: *mut sys::ggml_tensor) -> sys::ggml_backend_buffer_type_t {
    type ExtraTypes =
        unsafe extern "C" fn(sys::ggml_backend_dev_t) -> *mut sys::ggml_backend_buffer_type_t;
    // SAFETY: ggml's registry knows the function by this name, with this type; it returns
    // a list that ends with null.
    unsafe {
        let registry = sys::ggml_backend_cpu_reg();
        let name = c"ggml_backend_dev_get_extra_bufts";
        let address = sys::ggml_backend_reg_get_proc_address(registry, name.as_ptr());
        let extra: Option<ExtraTypes> = std::mem::transmute(address);
        if let Some(extra) = extra {
            let mut types = extra(sys::ggml_backend_reg_dev_get(registry, 0));
            while !(*types).is_null() {
                // Ours says no: nothing is being packed.
                if is_supported(product, *types) {
                    return *types;
                }
                types = types.add(1);
            }
        }
        sys::ggml_backend_cpu_buffer_type()
    }
}

/// ggml can compute `product` with its weights in this type of buffer.
unsafe fn is_supported(
    product: *mut sys::ggml_tensor,
    buffer_type: sys::ggml_backend_buffer_type_t,
) -> bool {
    // SAFETY: as llama.cpp asks when it loads a model: with an empty buffer, which is taken
    // away again.
    unsafe {
        let weights = (*product).src[0];
        (*weights).buffer = sys::ggml_backend_buft_alloc_buffer(buffer_type, 0);
        let device = sys::ggml_backend_reg_dev_get(sys::ggml_backend_cpu_reg(), 0);
        let is_supported = sys::ggml_backend_dev_supports_op(device, product);
        sys::ggml_backend_buffer_free((*weights).buffer);
        (*weights).buffer = ptr::null_mut();
        is_supported
    }
}

/// Quantises rows of `columns` numbers to the bytes of a GGUF file, with ggml's own code.
///
/// # Panics
/// When there are no whole rows, or the type cannot be quantised without statistics.
pub fn quantise(ggml_type: u32, columns: usize, weights: &[f32]) -> Vec<u8> {
    assert!(weights.len().is_multiple_of(columns), "whole rows of {columns}");
    let (rows, row) = (weights.len() / columns, columns as i64); // sizes of memory
    // SAFETY: the output has as many bytes as ggml says that a row takes, times the rows.
    unsafe {
        let mut bytes = vec![0; sys::ggml_row_size(ggml_type, row) * rows];
        let to = bytes.as_mut_ptr().cast();
        let from = weights.as_ptr();
        sys::ggml_quantize_chunk(ggml_type, from, to, 0, rows as i64, row, ptr::null());
        bytes
    }
}

/// The weights of whole rows as a GGUF file has them, by ggml's own code.
///
/// # Panics
/// When there are no whole rows.
pub fn dequantise(ggml_type: u32, columns: usize, weights: &[u8]) -> Vec<f32> {
    // SAFETY: each row has as many bytes as ggml says, and room for its numbers.
    unsafe {
        let row_bytes = sys::ggml_row_size(ggml_type, columns as i64);
        assert!(weights.len().is_multiple_of(row_bytes), "whole rows of {columns}");
        let mut floats = vec![0.0; weights.len() / row_bytes * columns];
        let to_float = (*sys::ggml_get_type_traits(ggml_type)).to_float;
        let to_float = to_float.expect("quantised types have it");
        for (row, floats) in weights.chunks_exact(row_bytes).zip(floats.chunks_exact_mut(columns)) {
            to_float(row.as_ptr().cast(), floats.as_mut_ptr(), columns as i64);
        }
        floats
    }
}

/// The instruction set of our kernels, if they are wanted and compute right: the first time
/// they are wanted in this process, small products are compared with llama.cpp's. If one is
/// wrong, that is logged, and llama.cpp's kernels are used from then on.
pub(super) fn checked(kernels: Choice) -> Option<InstructionSet> {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let wanted = kernels.instruction_set()?;
    let set = ggml::choose(wanted);
    if set != wanted {
        let (set, wanted) = (set.name(), wanted.name());
        tracing::warn!("this process began with the kernels for {set}; {wanted} is not used");
    }
    let works = *WORKS.get_or_init(|| {
        let wrong: Vec<_> = CHECKED_TYPES.into_iter().filter(|of| !is_right(set, *of)).collect();
        for ggml_type in &wrong {
            tracing::error!(
                "the {} kernel for ggml type {ggml_type} gives wrong results; llama.cpp's kernels \
                 compute everything",
                set.name()
            );
        }
        let attention = attentions::is_right(set);
        if !attention {
            tracing::error!(
                "the {} kernel for attention gives wrong results; llama.cpp's kernels compute \
                 everything",
                set.name()
            );
        }
        wrong.is_empty() && attention
    });
    works.then_some(set)
}

const CHECKED_TYPES: [u32; 5] = [
    sys::GGML_TYPE_Q4_0,
    sys::GGML_TYPE_Q8_0,
    sys::GGML_TYPE_Q4_K,
    sys::GGML_TYPE_Q5_K,
    sys::GGML_TYPE_Q6_K,
];

/// A small product by our kernel is that of llama.cpp, but for rounding.
fn is_right(set: InstructionSet, ggml_type: u32) -> bool {
    // ggml's types are small numbers.
    if set.kernel(ggml_type as i32).is_none() {
        return true; // llama.cpp's
    }
    // A strip and a part of one, more rows of activations than one kernel call takes.
    let sizes = Sizes { ggml_type, rows: 24, columns: 512, inputs: 11, copies: 1 };
    let wave = |i: usize, step: f32| (i as f32 * step).sin();
    let weights: Vec<f32> = (0..sizes.rows * sizes.columns).map(|i| wave(i, 0.37)).collect();
    let input: Vec<f32> = (0..sizes.inputs * sizes.columns).map(|i| wave(i, 0.11)).collect();
    let weights = quantise(ggml_type, sizes.columns, &weights);
    let pool = Pool::new(1, false);
    let of = |ours: bool| {
        let mut product = ProductGraph::new(sizes, &weights, ours, &pool);
        product.set_input(&input);
        product.run();
        product.output()
    };
    let (ours, theirs) = (of(true), of(false));
    // Both round activations to 8 bits: products of 512 numbers below 1 differ by about
    // 0.01, and by 10 where something is wrong.
    ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 0.5)
}
