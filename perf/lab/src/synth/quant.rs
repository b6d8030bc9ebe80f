//! The quantisations of a synthetic model: llama.cpp's mixtures, under the names that model files
//! use.

use llama_cpp_sys_2 as sys;

/// A mixture of tensor types that `llama_model_quantize` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quant {
    /// Its name in lower case.
    pub name: &'static str,
    pub(super) ftype: sys::llama_ftype,
    /// The largest block of any matrix type in the mixture. A row's length must be a multiple of
    /// it.
    pub(super) block: u32,
    /// The block of the token embedding and the output, which are Q6_K or smaller in every mixture
    /// below 8 bits.
    pub(super) embedding_block: u32,
}

/// 16-bit floats: the weights as drawn.
pub const F16: Quant = quant("f16", sys::LLAMA_FTYPE_MOSTLY_F16, 1, 1);

/// Every quantisation offered.
pub const QUANTS: &[Quant] = &[
    F16,
    quant("bf16", sys::LLAMA_FTYPE_MOSTLY_BF16, 1, 1),
    quant("q8_0", sys::LLAMA_FTYPE_MOSTLY_Q8_0, 32, 32),
    quant("q6_k", sys::LLAMA_FTYPE_MOSTLY_Q6_K, 256, 256),
    quant("q5_k_m", sys::LLAMA_FTYPE_MOSTLY_Q5_K_M, 256, 256),
    quant("q5_k_s", sys::LLAMA_FTYPE_MOSTLY_Q5_K_S, 256, 256),
    quant("q5_1", sys::LLAMA_FTYPE_MOSTLY_Q5_1, 32, 256),
    quant("q5_0", sys::LLAMA_FTYPE_MOSTLY_Q5_0, 32, 256),
    quant("q4_k_m", sys::LLAMA_FTYPE_MOSTLY_Q4_K_M, 256, 256),
    quant("q4_k_s", sys::LLAMA_FTYPE_MOSTLY_Q4_K_S, 256, 256),
    quant("q4_1", sys::LLAMA_FTYPE_MOSTLY_Q4_1, 32, 256),
    quant("q4_0", sys::LLAMA_FTYPE_MOSTLY_Q4_0, 32, 256),
    quant("iq4_nl", sys::LLAMA_FTYPE_MOSTLY_IQ4_NL, 32, 256),
    quant("mxfp4_moe", sys::LLAMA_FTYPE_MOSTLY_MXFP4_MOE, 32, 32),
    quant("iq4_xs", sys::LLAMA_FTYPE_MOSTLY_IQ4_XS, 256, 256),
    quant("q3_k_m", sys::LLAMA_FTYPE_MOSTLY_Q3_K_M, 256, 256),
    quant("q2_k", sys::LLAMA_FTYPE_MOSTLY_Q2_K, 256, 256),
    quant("iq3_m", sys::LLAMA_FTYPE_MOSTLY_IQ3_M, 256, 256),
    quant("iq3_xxs", sys::LLAMA_FTYPE_MOSTLY_IQ3_XXS, 256, 256),
    quant("iq2_m", sys::LLAMA_FTYPE_MOSTLY_IQ2_M, 256, 256),
    quant("iq2_xs", sys::LLAMA_FTYPE_MOSTLY_IQ2_XS, 256, 256),
    quant("iq2_xxs", sys::LLAMA_FTYPE_MOSTLY_IQ2_XXS, 256, 256),
];

const fn quant(
    name: &'static str,
    ftype: sys::llama_ftype,
    block: u32,
    embedding_block: u32,
) -> Quant {
    Quant { name, ftype, block, embedding_block }
}

impl Quant {
    /// The quantisation with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        QUANTS.iter().find(|quant| quant.name == name)
    }

    /// Whether the weights are quantised with importances, which llama.cpp asks for in the smallest types.
    pub(super) fn has_importances(&self) -> bool {
        self.name.starts_with("iq2") || self.name.starts_with("iq3")
    }

    /// Whether the weights are not quantised.
    pub(super) fn is_plain(&self) -> bool {
        *self == F16
    }

    /// The most bytes that this many numbers can take. The widest type is Q8_0 (34 bytes for 32
    /// numbers) or, in a mixture below 8 bits, Q6_K (210 bytes for 256).
    pub(super) fn bytes_max(&self, elements: u64) -> u64 {
        match self.block {
            1 => elements * 2,
            32 if self.embedding_block == 32 => elements / 32 * 34,
            _ => elements / 256 * 210,
        }
    }
}
