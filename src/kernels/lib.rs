//! Kernels for products of quantised weights with activations, and for attention. These take most
//! of a step's time.
//!
//! llama.cpp builds the graph and runs it on its threads. If a matrix lies in our type of buffer,
//! ggml asks us for the product.
//!
//! ```text
//! model is loaded      ggml.cpp -> ggml::pack      rows of a file -> strips of 16 rows
//! MUL_MAT in a step    ggml.cpp -> ggml::multiply  -> matmul: threads, pieces, rows
//!                                                     -> activations: floats -> bytes
//!                                                     -> product: one strip, a few rows
//!                                                     -> many, amx: some strips, many rows
//! MUL_MAT_ID           the same, and         -> experts: which rows belong to which matrix
//! GET_ROWS             ggml.cpp -> ggml::get_rows  one row, for the token embedding
//! ```
//!
//! [`attention`] is most of a step of long texts. It replaces ggml's `FLASH_ATTN_EXT`, and reads
//! llama.cpp's KV cache as it is.
//!
//! [`delta`] replaces `GATED_DELTA_NET`, and the copies of all states before and behind it.
//!
//! - [`formats`] defines the layout of strips. A file for each type (`q4_k`, ...) draws the layout of
//!   its codes.
//! - [`product`] is the inner loop, generic over the type and over [`simd`]. It prefetches weights
//!   at the distance that [`choose_ahead`] found best at the start.
//! - `x86` compiles it for each instruction set. Loading the first model decides which one runs
//!   ([`kernel`]).
//!
//! llama.cpp's own code computes weight types without a kernel here, and all products on other
//! processors.
//!
//! **Invariant:** a product differs from the exact product of the same quantised weights by no more
//! than llama.cpp's own does (`tests/it/kernels.rs`).

#![deny(unsafe_op_in_unsafe_fn, missing_docs, clippy::undocumented_unsafe_blocks)]

pub mod activations;
pub mod ahead;
#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod choose_ahead;
pub mod compute;
pub mod delta;
mod dispatch;
pub mod experts;
pub mod formats;
pub mod ggml;
pub mod kernel;
pub mod led;
#[cfg(target_arch = "x86_64")]
pub mod machine;
pub mod many;
pub mod matmul;
pub mod product;
pub mod simd;
pub mod team;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::str::FromStr;

pub use dispatch::TYPES;
pub use kernel::InstructionSet;

/// The choice of kernels for products with the weights (`--kernels`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// Our kernels for the best instruction set of the processor; llama.cpp's if it has none of
    /// them.
    #[default]
    Auto,
    /// llama.cpp's kernels.
    Llama,
    /// Our kernels for this instruction set.
    Ours(InstructionSet),
}

impl FromStr for KernelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |set: &InstructionSet| set.name() == text;
        match text {
            "auto" => Ok(Self::Auto),
            "llama" => Ok(Self::Llama),
            _ => match InstructionSet::ALL.into_iter().find(named) {
                Some(set) if set.is_here() => Ok(Self::Ours(set)),
                Some(_) => Err(format!("this processor has no {text}; use --kernels auto")),
                None => Err("it must be auto, llama, amx, avx512-vnni, avx-vnni or avx2".into()),
            },
        }
    }
}

impl KernelChoice {
    /// The instruction set on this processor; `None` leaves everything to llama.cpp.
    pub fn instruction_set(self) -> Option<InstructionSet> {
        match self {
            Self::Auto => InstructionSet::best(),
            Self::Llama => None,
            Self::Ours(set) => Some(set),
        }
    }
}
