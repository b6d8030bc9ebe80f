//! Computes one attention through ggml, with corelane's kernels or ggml's. Used to check our
//! kernels before they are used, to test them and to measure them.

use std::ptr;
use std::rc::Rc;

use llama_cpp_sys_2 as sys;

use super::ggml::{Graph, Pool, new_context, quantise, set};
use crate::kernels::{InstructionSet, ggml};

/// The sizes and options of an attention.
#[derive(Clone, Debug)]
pub struct AttentionSizes {
    /// ggml's type numbers of the cached keys and the cached values.
    pub cached: [u32; 2],
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values.
    pub kv_heads: usize,
    /// Length of a query and of a key.
    pub key_numbers: usize,
    /// Length of a value.
    pub value_numbers: usize,
    /// Rows of queries in each stream.
    pub rows: usize,
    /// Cells of each stream.
    pub cells: usize,
    /// KV caches computed together.
    pub streams: usize,
    /// Factor of the products of queries and keys.
    pub scale: f32,
    /// The slope bound of ALiBi; 0 without ALiBi.
    pub max_bias: f32,
    /// The bound of scores; 0 for none.
    pub softcap: f32,
    /// Attentions computed one after the other. Each has keys and values of its own, so that they
    /// come from memory, as in a step of a model.
    pub layers: usize,
}

/// The input of an attention.
#[derive(Clone, Debug)]
pub struct AttentionInput {
    /// `[streams, rows, heads, key_numbers]`
    pub queries: Vec<f32>,
    /// `[streams, cells, kv_heads, key_numbers]`
    pub keys: Vec<f32>,
    /// `[streams, cells, kv_heads, value_numbers]`
    pub values: Vec<f32>,
    /// `[streams, rows, cells]`
    pub mask: Vec<f32>,
    /// `[heads]`, or empty.
    pub sinks: Vec<f32>,
}

/// An attention that can be computed any number of times.
pub struct AttentionGraph(Graph);

/// Most layers in one graph.
pub const LAYERS_MAX: usize = 256;

impl AttentionGraph {
    /// Makes the tensors.
    ///
    /// # Panics
    /// If ggml has no memory, or the input's sizes differ from `sizes`.
    pub fn new(sizes: &AttentionSizes, input: &AttentionInput, pool: &Rc<Pool>) -> Self {
        let s = sizes;
        assert!((1..=LAYERS_MAX).contains(&s.layers), "{} layers", s.layers);
        // The casts are of sizes that fit in memory.
        let [heads, kv_heads, rows, cells, streams] =
            [s.heads, s.kv_heads, s.rows, s.cells, s.streams].map(|size| size as i64);
        let [key_numbers, value_numbers] = [s.key_numbers, s.value_numbers].map(|size| size as i64);
        let mask: Vec<u16> = input.mask.iter().map(|value| half(*value)).collect();
        // SAFETY: the calls follow ggml's documentation: tensors in a context without memory, then
        // a buffer for them. Every result that may be null is checked. The tensors live as long as
        // their context, the buffer as long as `self`.
        unsafe {
            let context = new_context(10 * s.layers + 8);
            let new = |of, sizes: [i64; 4]| {
                let [a, b, c, d] = sizes;
                sys::ggml_new_tensor_4d(context, of, a, b, c, d)
            };
            // From `[..., rows, heads, numbers]` to `[..., heads, rows, numbers]`.
            let by_head = |tensor| sys::ggml_permute(context, tensor, 0, 2, 1, 3);
            let queries = new(sys::GGML_TYPE_F32, [key_numbers, heads, rows, streams]);
            let of_mask = new(sys::GGML_TYPE_F16, [cells, rows, 1, streams]);
            let sinks = new(sys::GGML_TYPE_F32, [heads, 1, 1, 1]);
            let graph = sys::ggml_new_graph(context);
            let mut cached = Vec::new();
            let mut output = ptr::null_mut();
            for _ in 0..s.layers {
                let keys = new(s.cached[0], [key_numbers, kv_heads, cells, streams]);
                let values = new(s.cached[1], [value_numbers, kv_heads, cells, streams]);
                let (k, v) = (by_head(keys), by_head(values));
                let q = by_head(queries);
                let (scale, bias, cap) = (s.scale, s.max_bias, s.softcap);
                output = sys::ggml_flash_attn_ext(context, q, k, v, of_mask, scale, bias, cap);
                if !input.sinks.is_empty() {
                    sys::ggml_flash_attn_ext_add_sinks(output, sinks);
                }
                sys::ggml_build_forward_expand(graph, output);
                cached.push((keys, values));
            }
            let buffer_type = sys::ggml_backend_cpu_buffer_type();
            let buffer = sys::ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type);
            let graph = Graph::new(vec![context], vec![buffer], graph, output, pool);
            set(queries, &input.queries);
            set(of_mask, &mask);
            if !input.sinks.is_empty() {
                set(sinks, &input.sinks);
            }
            let keys = quantise(s.cached[0], s.key_numbers, &input.keys);
            let values = quantise(s.cached[1], s.value_numbers, &input.values);
            for (of_keys, of_values) in cached {
                set(of_keys, &keys);
                set(of_values, &values);
            }
            Self(graph)
        }
    }

    /// Computes all layers, with our kernels for an instruction set or with ggml's.
    pub fn run(&mut self, ours: Option<InstructionSet>) {
        ggml::use_attention(ours);
        self.0.run();
        ggml::use_attention(None);
    }

    /// The output of the last run: `[streams, rows, heads, value_numbers]`.
    pub fn output(&self) -> Vec<f32> {
        self.0.output()
    }
}

/// Converts to 16 bits.
fn half(value: f32) -> u16 {
    // SAFETY: the function has no preconditions.
    unsafe { sys::ggml_fp32_to_fp16(value) }
}

/// Whether small attentions by our kernels equal llama.cpp's, except for rounding.
pub(super) fn is_right(set: InstructionSet) -> bool {
    [sys::GGML_TYPE_F16, sys::GGML_TYPE_Q8_0].into_iter().all(|cached| is_right_for(set, cached))
}

fn is_right_for(set: InstructionSet, cached: u32) -> bool {
    let sizes = AttentionSizes {
        cached: [cached; 2],
        heads: 4,
        kv_heads: 2,
        key_numbers: 64,
        value_numbers: 64,
        rows: 6,
        cells: 320,
        streams: 1,
        scale: 0.125,
        max_bias: 0.0,
        softcap: 0.0,
        layers: 1,
    };
    let wave = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect();
    // The first two rows decode, the others belong to a prompt.
    let sees = |i: usize| match i / sizes.cells {
        row @ ..2 => i % 2 == row,
        row => i % sizes.cells < 300 + row,
    };
    let mask = |i| if sees(i) { 0.0 } else { f32::NEG_INFINITY };
    let input = AttentionInput {
        queries: wave(sizes.rows * sizes.heads * sizes.key_numbers, 0.37),
        keys: wave(sizes.cells * sizes.kv_heads * sizes.key_numbers, 0.11),
        values: wave(sizes.cells * sizes.kv_heads * sizes.value_numbers, 0.23),
        mask: (0..sizes.rows * sizes.cells).map(mask).collect(),
        sinks: Vec::new(),
    };
    let mut graph = AttentionGraph::new(&sizes, &input, &Pool::new(1, false));
    let mut of = |ours| {
        graph.run(ours);
        graph.output()
    };
    let (ours, theirs) = (of(Some(set)), of(None));
    // The outputs are averages of numbers below 1. Both sides round some inputs to 8 or 16 bits.
    ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 0.05)
}
