//! ggml without a model: threads, contexts and quantised types.

use std::ptr;
use std::rc::Rc;

use llama_cpp_sys_2 as sys;

use super::threads::ComputeThreads;
use crate::limits::POLL_LEVEL;

/// A pool of compute threads. They poll between two products, so products that are compared by time
/// must share one pool.
pub struct Pool(ComputeThreads);

impl Pool {
    /// Starts `threads` threads, including the calling one. With `pinned`, each is pinned to a
    /// core, and the calling thread stays pinned to core 0.
    ///
    /// # Panics
    /// If the system refuses threads.
    pub fn new(threads: usize, pinned: bool) -> Rc<Self> {
        let cores: Vec<usize> = (1..threads).chain([0]).collect();
        Rc::new(Self(
            ComputeThreads::new(threads, pinned.then_some(&cores), 100 * POLL_LEVEL)
                .expect("threads"),
        ))
    }
}

/// A graph that can be computed any number of times. It owns its contexts, buffers and backend.
pub(super) struct Graph {
    /// The descriptions of the tensors.
    contexts: Vec<*mut sys::ggml_context>,
    /// The tensors' data.
    buffers: Vec<sys::ggml_backend_buffer_t>,
    backend: sys::ggml_backend_t,
    /// The backend uses its threads.
    pool: Rc<Pool>,
    graph: *mut sys::ggml_cgraph,
    output: *mut sys::ggml_tensor,
}

impl Graph {
    /// A graph in one of `contexts`, which have their data in `buffers`.
    ///
    /// # Safety
    /// All pointers are ggml's and alive; the result owns the contexts and buffers.
    pub unsafe fn new(
        contexts: Vec<*mut sys::ggml_context>,
        buffers: Vec<sys::ggml_backend_buffer_t>,
        graph: *mut sys::ggml_cgraph,
        output: *mut sys::ggml_tensor,
        pool: &Rc<Pool>,
    ) -> Self {
        assert!(buffers.iter().all(|buffer| !buffer.is_null()), "memory for the tensors");
        // SAFETY: the backend is checked, and freed before the pool.
        let backend = unsafe {
            let backend = sys::ggml_backend_cpu_init();
            assert!(!backend.is_null(), "memory for a backend");
            sys::ggml_backend_cpu_set_threadpool(backend, pool.0.described());
            sys::ggml_backend_cpu_set_n_threads(backend, pool.0.count());
            backend
        };
        Self { contexts, buffers, backend, pool: pool.clone(), graph, output }
    }

    /// Computes the graph.
    pub fn run(&mut self) {
        // SAFETY: the graph and its tensors have memory.
        let status = self
            .pool
            .0
            .run(|| unsafe { sys::ggml_backend_graph_compute(self.backend, self.graph) });
        assert_eq!(status, sys::GGML_STATUS_SUCCESS, "nothing aborts it");
    }

    /// The output of the last run.
    pub fn output(&self) -> Vec<f32> {
        // SAFETY: the graph owns the tensor.
        unsafe { get(self.output) }
    }
}

impl Pool {
    /// The number of jobs that its threads have computed together.
    pub fn jobs(&self) -> u32 {
        self.0.jobs()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: owned by this graph and freed once, users first.
        unsafe {
            sys::ggml_backend_free(self.backend);
            self.buffers.iter().for_each(|buffer| sys::ggml_backend_buffer_free(*buffer));
            self.contexts.iter().for_each(|context| sys::ggml_free(*context));
        }
    }
}

/// Sets the data of a tensor.
///
/// # Safety
/// `tensor` is alive and has memory.
pub(super) unsafe fn set<T>(tensor: *mut sys::ggml_tensor, from: &[T]) {
    // SAFETY: exactly the tensor's bytes are written.
    unsafe {
        assert_eq!(size_of_val(from), sys::ggml_nbytes(tensor), "bytes of a tensor");
        sys::ggml_backend_tensor_set(tensor, from.as_ptr().cast(), 0, size_of_val(from));
    }
}

/// The data of a tensor of floats.
///
/// # Safety
/// `tensor` is alive and has memory.
pub(super) unsafe fn get(tensor: *const sys::ggml_tensor) -> Vec<f32> {
    // SAFETY: exactly the tensor's bytes are read.
    unsafe {
        let bytes = sys::ggml_nbytes(tensor);
        let mut data = vec![0.0; bytes / size_of::<f32>()];
        sys::ggml_backend_tensor_get(tensor, data.as_mut_ptr().cast(), 0, bytes);
        data
    }
}

/// A context for the descriptions of `tensors` tensors. Their data lies in buffers.
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

/// Quantises rows of `columns` numbers to the bytes of a GGUF file, with ggml's code. All columns count as
/// equally important. The first matrix of an IQ2 or IQ3 type takes seconds, in which ggml makes its tables.
///
/// # Panics
/// If a row is incomplete.
pub fn quantise(ggml_type: u32, columns: usize, weights: &[f32]) -> Vec<u8> {
    assert!(weights.len().is_multiple_of(columns), "whole rows of {columns}");
    let (rows, row) = (weights.len() / columns, columns as i64); // sizes that fit in memory
    // SAFETY: the output has one row's bytes, as ggml states them, for each row.
    unsafe {
        let mut bytes = vec![0; sys::ggml_row_size(ggml_type, row) * rows];
        let to = bytes.as_mut_ptr().cast();
        let from = weights.as_ptr();
        // Some types are refused without the columns' importances.
        let same = vec![1.0; columns];
        let needs = sys::ggml_quantize_requires_imatrix(ggml_type);
        let importances = if needs { same.as_ptr() } else { ptr::null() };
        sys::ggml_quantize_chunk(ggml_type, from, to, 0, rows as i64, row, importances);
        bytes
    }
}

/// Dequantises whole rows of a GGUF file, with ggml's code.
///
/// # Panics
/// If a row is incomplete.
pub fn dequantise(ggml_type: u32, columns: usize, weights: &[u8]) -> Vec<f32> {
    // SAFETY: each row has the bytes that ggml states, and room for its numbers.
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
