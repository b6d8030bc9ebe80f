//! Computes one gated delta net through ggml, as llama.cpp's graphs have it, with corelane's kernels or
//! ggml's. Used to check our kernels before they are used, and to test them.

use std::rc::Rc;

use llama_cpp_sys_2 as sys;

use super::ggml::{Graph, Pool, get, new_context, set};
use crate::kernels::{InstructionSet, ggml};

/// The sizes of a gated delta net.
#[derive(Clone, Copy, Debug)]
pub struct DeltaSizes {
    /// Numbers of a query, a key, a value, and a row of a state.
    pub numbers: usize,
    /// Heads of the queries and keys.
    pub key_heads: usize,
    /// Heads of the values and states.
    pub heads: usize,
    /// Tokens of each sequence.
    pub tokens: usize,
    /// Sequences.
    pub sequences: usize,
    /// States that are kept behind the last tokens of each sequence, at least 1.
    pub kept: usize,
    /// Rows for the states behind a token. There are `kept` times as many.
    pub rows: usize,
    /// The row of the first sequence's new state. The others follow.
    pub first_row: usize,
}

/// The input of a gated delta net.
#[derive(Clone, Debug)]
pub struct DeltaInput {
    /// `[sequences, tokens, key_heads, numbers]`
    pub queries: Vec<f32>,
    /// `[sequences, tokens, key_heads, numbers]`
    pub keys: Vec<f32>,
    /// `[sequences, tokens, heads, numbers]`
    pub values: Vec<f32>,
    /// `[sequences, tokens, heads]`
    pub gates: Vec<f32>,
    /// `[sequences, tokens, heads]`
    pub betas: Vec<f32>,
    /// `[kept, rows, heads, numbers, numbers]`
    pub states: Vec<f32>,
    /// The row of each sequence's state, below `kept * rows`.
    pub from: Vec<i32>,
}

/// Computes a gated delta net with our kernels for an instruction set or with ggml's. Returns its output
/// `[sequences, tokens, heads, numbers]` and the states after it.
///
/// # Panics
/// If ggml has no memory, or the input's sizes differ from `sizes`.
pub fn compute(
    sizes: DeltaSizes,
    input: &DeltaInput,
    ours: Option<InstructionSet>,
    pool: &Rc<Pool>,
) -> (Vec<f32>, Vec<f32>) {
    const F32: sys::ggml_type = sys::GGML_TYPE_F32;
    let DeltaSizes { tokens, kept, first_row, .. } = sizes;
    let written = tokens.min(kept) as i64; // as all sizes here, it fits
    let [numbers, key_heads, heads, tokens, sequences, kept, rows] =
        [sizes.numbers, sizes.key_heads, sizes.heads, tokens, sizes.sequences, kept, sizes.rows]
            .map(|size| size as i64);
    let state = numbers * numbers * heads;
    let bytes = |floats: i64| floats as usize * size_of::<f32>();
    // SAFETY: the calls follow ggml's documentation: tensors in a context without memory, then a buffer
    // for them. The tensors live as long as their context, and the context as long as the graph.
    unsafe {
        let context = new_context(32);
        let new = |sizes: [i64; 4]| {
            let [a, b, c, d] = sizes;
            sys::ggml_new_tensor_4d(context, F32, a, b, c, d)
        };
        let queries = new([numbers, key_heads, tokens, sequences]);
        let keys = new([numbers, key_heads, tokens, sequences]);
        let values = new([numbers, heads, tokens, sequences]);
        let gates = new([1, heads, tokens, sequences]);
        let betas = new([1, heads, tokens, sequences]);
        let states = sys::ggml_new_tensor_2d(context, F32, state, kept * rows);
        let from = sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_I32, sequences);
        let gathered = sys::ggml_get_rows(context, states, from);
        let view = sys::ggml_view_2d(context, gathered, state, sequences, bytes(state), 0);
        let before = sys::ggml_reshape_4d(context, view, numbers, numbers, heads, sequences);
        let delta =
            sys::ggml_gated_delta_net(context, queries, keys, values, gates, betas, before, kept);
        let outputs = numbers * heads * tokens * sequences;
        let output = sys::ggml_view_1d(context, delta, outputs, 0);
        let (row, all) = (bytes(state), bytes(state * sequences));
        let after =
            sys::ggml_view_3d(context, delta, state, sequences, written, row, all, bytes(outputs));
        let (plane, first) = (bytes(state * rows), first_row * row);
        let to = sys::ggml_view_3d(context, states, state, sequences, written, row, plane, first);
        let graph = sys::ggml_new_graph(context);
        sys::ggml_build_forward_expand(graph, output);
        sys::ggml_build_forward_expand(graph, sys::ggml_cpy(context, after, to));
        let buffer_type = sys::ggml_backend_cpu_buffer_type();
        let buffer = sys::ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type);
        let mut graph = Graph::new(vec![context], vec![buffer], graph, output, pool);
        set(queries, &input.queries);
        set(keys, &input.keys);
        set(values, &input.values);
        set(gates, &input.gates);
        set(betas, &input.betas);
        set(states, &input.states);
        set(from, &input.from);
        ggml::use_attention(ours);
        graph.run();
        ggml::use_attention(None);
        (graph.output(), get(states))
    }
}

impl DeltaInput {
    /// Waves of different lengths, for a small check. The states stand where the new ones go.
    pub fn waves(sizes: DeltaSizes) -> Self {
        let DeltaSizes { numbers, key_heads, heads, tokens, sequences, kept, rows, first_row } =
            sizes;
        let wave = |count: usize, step: f32| (0..count).map(move |i| (i as f32 * step).sin());
        let of_keys = numbers * key_heads * tokens * sequences;
        let of_values = heads * tokens * sequences;
        let shorter = 1.0 / (numbers as f32).sqrt(); // keys have a length of about 1
        let from = (first_row..first_row + sequences).map(|row| row as i32).collect(); // a few
        Self {
            queries: wave(of_keys, 0.37).collect(),
            keys: wave(of_keys, 0.11).map(|key| key * shorter).collect(),
            values: wave(of_values * numbers, 0.23).collect(),
            gates: wave(of_values, 0.53).map(|gate| -gate.abs()).collect(),
            betas: wave(of_values, 0.71).map(f32::abs).collect(),
            states: wave(kept * rows * heads * numbers * numbers, 0.013).collect(),
            from,
        }
    }
}

/// Whether small gated delta nets by our kernels equal llama.cpp's, except for rounding.
pub(super) fn is_right(set: InstructionSet) -> bool {
    [64, 128].into_iter().all(|numbers| {
        let sizes = DeltaSizes {
            numbers,
            key_heads: 1,
            heads: 2,
            tokens: 3,
            sequences: 2,
            kept: 2,
            rows: 3,
            first_row: 1,
        };
        let input = DeltaInput::waves(sizes);
        let of = |ours| compute(sizes, &input, ours, &Pool::new(1, false));
        let (ours, theirs) = (of(Some(set)), of(None));
        let pairs = ours.0.iter().zip(&theirs.0).chain(ours.1.iter().zip(&theirs.1));
        pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-3)
    })
}
