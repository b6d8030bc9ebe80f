//! One kernel for each weight type and instruction set.

use super::activations::RowLayout;
use super::attention::AttentionKernel;
use super::attention::cached::{self, Bf16, Cached, F16, F32};
use super::format::{Format, STRIP_ROWS};
use super::product::Work;
use super::q4_0::Q4_0;
use super::q4_k::Q4K;
use super::q5_k::Q5K;
use super::q6_k::Q6K;
use super::q8_0::Q8_0;
#[cfg(target_arch = "x86_64")]
use super::x86;

/// An instruction set that there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// AVX-512 with VNNI: F, BW, DQ, VL and VNNI.
    Avx512Vnni,
    /// AVX2 with AVX-VNNI.
    AvxVnni,
    /// AVX2 with FMA and F16C.
    Avx2,
}

/// Rows of activations that a kernel takes at once, at most.
pub const ROWS_MAX: usize = 8;

/// The functions for one weight type on one instruction set.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// The type's name in a GGUF file.
    pub name: &'static str,
    /// Columns of a block, of which the matrix must have whole ones.
    pub block_columns: usize,
    /// Bytes of a block in a GGUF file.
    pub block_bytes: usize,
    /// Bytes of a packed strip of `columns` columns.
    pub strip_bytes: fn(columns: usize) -> usize,
    /// See [`pack`](super::format::pack).
    pub pack: fn(columns: usize, from: &[u8], to: &mut [u8]),
    /// See [`unpack_row`](super::format::unpack_row).
    pub unpack_row: fn(packed: &[u8], row: usize, weights: &mut [f32]),
    /// How a row of activations is laid out.
    pub layout: fn(columns: usize) -> RowLayout,
    /// See [`quantise`](super::activations::quantise).
    pub quantise: unsafe fn(from: *const f32, block: usize, to: *mut u8, layout: RowLayout),
    /// See [`multiply`](super::product::multiply): for 1 row of activations, for 2, and so on.
    pub multiply: &'static [unsafe fn(&Work)],
}

impl Kernel {
    /// Bytes of a packed matrix.
    pub fn packed_bytes(&self, rows: usize, columns: usize) -> usize {
        rows.div_ceil(STRIP_ROWS) * (self.strip_bytes)(columns)
    }
}

impl InstructionSet {
    /// All instruction sets, the fastest first.
    pub const ALL: [Self; 3] = [Self::Avx512Vnni, Self::AvxVnni, Self::Avx2];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512Vnni => "avx512-vnni",
            Self::AvxVnni => "avx-vnni",
            Self::Avx2 => "avx2",
        }
    }

    /// Whether this processor has it.
    pub fn is_here(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return x86::is_here(self);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The best one that this processor has.
    pub fn best() -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.is_here())
    }

    /// The kernel for a type of weights, by ggml's number.
    pub fn kernel(self, ggml_type: i32) -> Option<Kernel> {
        match ggml_type {
            Q4_0::GGML_TYPE => self.kernel_of::<Q4_0>(),
            Q8_0::GGML_TYPE => self.kernel_of::<Q8_0>(),
            Q4K::GGML_TYPE => self.kernel_of::<Q4K>(),
            Q5K::GGML_TYPE => self.kernel_of::<Q5K>(),
            Q6K::GGML_TYPE => self.kernel_of::<Q6K>(),
            _ => None,
        }
    }

    /// The attention kernel for types of cached keys and values, by ggml's numbers.
    pub fn attention(self, keys: i32, values: i32) -> Option<AttentionKernel> {
        match keys {
            F32::GGML_TYPE => self.attention_to::<F32>(values),
            F16::GGML_TYPE => self.attention_to::<F16>(values),
            Bf16::GGML_TYPE => self.attention_to::<Bf16>(values),
            cached::Q8_0::GGML_TYPE => self.attention_to::<cached::Q8_0>(values),
            _ => None,
        }
    }

    fn attention_to<K: Cached>(self, values: i32) -> Option<AttentionKernel> {
        match values {
            F32::GGML_TYPE => self.attention_of::<K, F32>(),
            F16::GGML_TYPE => self.attention_of::<K, F16>(),
            Bf16::GGML_TYPE => self.attention_of::<K, Bf16>(),
            cached::Q8_0::GGML_TYPE => self.attention_of::<K, cached::Q8_0>(),
            _ => None,
        }
    }

    fn attention_of<K: Cached, V: Cached>(self) -> Option<AttentionKernel> {
        #[cfg(target_arch = "x86_64")]
        return Some(x86::attention::<K, V>(self));
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    fn kernel_of<F: Format>(self) -> Option<Kernel> {
        #[cfg(target_arch = "x86_64")]
        return x86::kernel::<F>(self);
        #[cfg(not(target_arch = "x86_64"))]
        None
    }
}
