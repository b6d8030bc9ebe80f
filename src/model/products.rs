//! Computes one product through ggml, with corelane's kernels or ggml's. Used to check our kernels
//! before they are used, to test them and to measure them.

use std::ptr;
use std::rc::Rc;

use llama_cpp_sys_2 as sys;

use super::ggml::{Graph, Pool, new_context, quantise, set};
use crate::kernels::{InstructionSet, ggml};

/// A product of weights and rows of activations that can be computed any number of times. A run
/// multiplies with one or several copies of the weights. With several copies, the weights are read
/// from memory and not from the cache, as in a step of a model.
pub struct ProductGraph {
    graph: Graph,
    input: *mut sys::ggml_tensor,
    choices: Option<*mut sys::ggml_tensor>,
}

/// The sizes of a product.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// ggml's number of the weights' type.
    pub ggml_type: u32,
    /// Rows of the weights.
    pub rows: usize,
    /// Columns of the weights and of the activations.
    pub columns: usize,
    /// Rows of activations; with experts, tokens.
    pub inputs: usize,
    /// Copies of the weights, at most [`COPIES_MAX`].
    pub copies: usize,
    /// With experts, how many.
    pub experts: Option<Experts>,
}

/// The experts of a product.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// Their number. Each has the rows and columns of [`Sizes`].
    pub count: usize,
    /// How many each token chooses.
    pub chosen: usize,
    /// Whether each choice of a token has its own row of activations.
    pub own_inputs: bool,
}

/// Most copies of the weights in one graph.
pub const COPIES_MAX: usize = 512;

impl ProductGraph {
    /// Makes the tensors. `weights` has the bytes of a GGUF file. With `ours`, our kernels
    /// multiply; without, the kernels of ggml that llama.cpp would choose.
    ///
    /// # Panics
    /// If ggml has no memory or, with `ours`, there is no kernel for the type.
    pub fn new(sizes: Sizes, weights: &[u8], ours: bool, pool: &Rc<Pool>) -> Self {
        let Sizes { ggml_type, rows, columns, inputs, copies, experts } = sizes;
        assert!((1..=COPIES_MAX).contains(&copies), "{copies} copies, at most {COPIES_MAX}");
        let (rows, columns, inputs) = (rows as i64, columns as i64, inputs as i64); // sizes that fit in memory
        // SAFETY: the calls follow ggml's documentation: tensors in contexts without memory, then
        // buffers for them. Every result that may be null is checked. The tensors live as long as
        // their contexts, the buffers as long as `self`.
        unsafe {
            let contexts = [new_context(copies), new_context(2 * copies + 1)];
            let new_2d = sys::ggml_new_tensor_2d;
            let (input, choices) = match experts {
                None => (new_2d(contexts[1], sys::GGML_TYPE_F32, columns, inputs), None),
                Some(Experts { chosen, own_inputs, .. }) => {
                    let chosen = chosen as i64; // some
                    let own = if own_inputs { chosen } else { 1 };
                    let float = sys::GGML_TYPE_F32;
                    let input = sys::ggml_new_tensor_3d(contexts[1], float, columns, own, inputs);
                    (input, Some(new_2d(contexts[1], sys::GGML_TYPE_I32, chosen, inputs)))
                }
            };
            let graph = sys::ggml_new_graph(contexts[1]);
            let mut matrices = Vec::with_capacity(copies);
            let mut output = ptr::null_mut();
            for _ in 0..copies {
                let count = experts.map_or(1, |experts| experts.count as i64);
                let matrix = sys::ggml_new_tensor_3d(contexts[0], ggml_type, columns, rows, count);
                output = match choices {
                    None => sys::ggml_mul_mat(contexts[1], matrix, input),
                    Some(choices) => sys::ggml_mul_mat_id(contexts[1], matrix, input, choices),
                };
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
            let buffers = vec![weights_buffer, rest];
            let graph = Graph::new(contexts.to_vec(), buffers, graph, output, pool);
            matrices.iter().for_each(|matrix| set(*matrix, weights));
            Self { graph, input, choices }
        }
    }

    /// Sets the activations, row by row.
    pub fn set_input(&mut self, input: &[f32]) {
        // SAFETY: the tensor belongs to the graph, and has memory.
        unsafe { set(self.input, input) };
    }

    /// Sets the experts of each token, token by token.
    ///
    /// # Panics
    /// If the product has no experts.
    pub fn set_choices(&mut self, choices: &[i32]) {
        let tensor = self.choices.expect("a product with experts");
        // SAFETY: the tensor belongs to the graph, and has memory.
        unsafe { set(tensor, choices) };
    }

    /// Computes the product.
    pub fn run(&mut self) {
        self.graph.run();
    }

    /// The output of the last run: for each row of activations, or choice of a token, one number per
    /// row of weights.
    pub fn output(&self) -> Vec<f32> {
        self.graph.output()
    }
}

/// The type of buffer in which llama.cpp would place the weights of `product` without us.
unsafe fn llama_type(product: *mut sys::ggml_tensor) -> sys::ggml_backend_buffer_type_t {
    type ExtraTypes =
        unsafe extern "C" fn(sys::ggml_backend_dev_t) -> *mut sys::ggml_backend_buffer_type_t;
    // SAFETY: ggml's registry knows the function by this name and type; it returns a list that ends
    // with null.
    unsafe {
        let registry = sys::ggml_backend_cpu_reg();
        let name = c"ggml_backend_dev_get_extra_bufts";
        let address = sys::ggml_backend_reg_get_proc_address(registry, name.as_ptr());
        let extra: Option<ExtraTypes> = std::mem::transmute(address);
        if let Some(extra) = extra {
            let mut types = extra(sys::ggml_backend_reg_dev_get(registry, 0));
            while !(*types).is_null() {
                // Our own type is never supported here, because no model is being packed.
                if is_supported(product, *types) {
                    return *types;
                }
                types = types.add(1);
            }
        }
        sys::ggml_backend_cpu_buffer_type()
    }
}

/// Whether ggml can compute `product` with its weights in this type of buffer.
unsafe fn is_supported(
    product: *mut sys::ggml_tensor,
    buffer_type: sys::ggml_backend_buffer_type_t,
) -> bool {
    // SAFETY: follows llama.cpp's own check when it loads a model: with an empty buffer, which is
    // removed afterwards.
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

/// Whether a small product by our kernel equals llama.cpp's, except for rounding.
pub(super) fn is_right(set: InstructionSet, ggml_type: u32) -> bool {
    // ggml's type numbers are small.
    if set.kernel(ggml_type as i32).is_none() {
        return true; // llama.cpp computes it
    }
    // The weights have a strip and a part of one; the activations have more rows than one call of a
    // kernel takes.
    equals(Sizes { ggml_type, rows: 24, columns: 512, inputs: 11, copies: 1, experts: None })
}

/// Whether a small product with experts equals llama.cpp's. The kernels of the types are checked apart.
pub(super) fn has_right_experts() -> bool {
    let experts = Some(Experts { count: 5, chosen: 2, own_inputs: true });
    let ggml_type = sys::GGML_TYPE_Q4_K;
    equals(Sizes { ggml_type, rows: 120, columns: 512, inputs: 11, copies: 1, experts })
}

/// Whether our kernel and llama.cpp's give the same product of waves, except for rounding.
fn equals(sizes: Sizes) -> bool {
    let Sizes { ggml_type, rows, columns, inputs, experts, .. } = sizes;
    let wave = |i: usize, step: f32| (i as f32 * step).sin();
    let count = experts.map_or(1, |experts| experts.count);
    let own = experts.map_or(1, |experts| if experts.own_inputs { experts.chosen } else { 1 });
    let weights = match ggml_type {
        sys::GGML_TYPE_IQ2_XXS
        | sys::GGML_TYPE_IQ2_XS
        | sys::GGML_TYPE_IQ2_S
        | sys::GGML_TYPE_IQ3_XXS
        | sys::GGML_TYPE_IQ3_S => random_blocks(ggml_type, columns, rows),
        _ => {
            let wave: Vec<f32> = (0..count * rows * columns).map(|i| wave(i, 0.37)).collect();
            quantise(ggml_type, columns, &wave)
        }
    };
    let input: Vec<f32> = (0..inputs * own * columns).map(|i| wave(i, 0.11)).collect();
    let pool = Pool::new(1, false);
    let of = |ours: bool| {
        let mut product = ProductGraph::new(sizes, &weights, ours, &pool);
        product.set_input(&input);
        if let Some(Experts { count, chosen, .. }) = experts {
            // A token's experts differ.
            let expert = |i: usize| ((i / chosen + i % chosen) % count) as i32;
            product.set_choices(&(0..inputs * chosen).map(expert).collect::<Vec<_>>());
        }
        product.run();
        product.output()
    };
    let (ours, theirs) = (of(true), of(false));
    // Both sides round activations to 8 bits. Sums of 512 products of numbers below 1 then differ
    // by about 0.01; an error of the kernel would make them differ by 10.
    ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 0.5)
}

/// Rows of weights below 1 of a type whose blocks begin with a half and may else have any bits. (To quantise to
/// such a type takes seconds.)
fn random_blocks(ggml_type: u32, columns: usize, rows: usize) -> Vec<u8> {
    /// 2^-9 as a half. No type multiplies it with more than 15 x 31 (IQ3_S) or 62 x 31 / 4 (IQ3_XXS).
    const HALF: u16 = 6 << 10;
    // SAFETY: plain calls for a type that there is.
    let (block, row) =
        unsafe { (sys::ggml_type_size(ggml_type), sys::ggml_row_size(ggml_type, columns as i64)) };
    let mut state = 1u32;
    let mut byte = || {
        // Numerical Recipes' generator: the high bits are the good ones.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut bytes: Vec<u8> = (0..row * rows).map(|_| byte()).collect();
    for block in bytes.chunks_exact_mut(block) {
        block[..2].copy_from_slice(&HALF.to_le_bytes());
    }
    bytes
}
