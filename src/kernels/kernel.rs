//! One kernel for each weight type and instruction set.

use super::activations::{RowLayout, quantise};
use super::format::{self, Format, STRIP_ROWS};
use super::product::{Work, multiply};
use super::q4_0::Q4_0;
use super::q4_k::Q4K;
use super::q5_k::Q5K;
use super::q6_k::Q6K;
use super::q8_0::Q8_0;
use super::simd::{Avx2, Avx512, AvxVnni, Simd};

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
    /// Bytes of a packed strip of so many columns.
    pub strip_bytes: fn(columns: usize) -> usize,
    /// See [`format::pack`].
    pub pack: fn(columns: usize, from: &[u8], to: &mut [u8]),
    /// See [`format::unpack_row`].
    pub unpack_row: fn(packed: &[u8], row: usize, weights: &mut [f32]),
    /// How a row of activations is laid out.
    pub layout: fn(columns: usize) -> RowLayout,
    /// See [`quantise`].
    pub quantise: unsafe fn(from: *const f32, block: usize, to: *mut u8, layout: RowLayout),
    /// See [`multiply`]: for 1 row of activations, for 2, and so on.
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
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        match self {
            Self::Avx512Vnni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Self::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
            Self::Avx2 => avx2,
        }
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

    fn kernel_of<F: Format>(self) -> Option<Kernel> {
        match self {
            Self::Avx512Vnni => Some(avx512::kernel::<F>()),
            Self::AvxVnni => Some(avx_vnni::kernel::<F>()),
            Self::Avx2 if F::CODE_MAX <= Avx2::CODE_MAX => Some(avx2::kernel::<F>()),
            Self::Avx2 => None,
        }
    }
}

/// A module with the kernels of one instruction set.
macro_rules! kernels {
    ($module:ident, $simd:ty, $features:literal, $($rows:literal)*) => {
        mod $module {
            use super::*;

            const _: () = assert!([$($rows),*].len() <= ROWS_MAX);

            #[target_feature(enable = $features)]
            unsafe fn quantise_block<F: Format>(
                from: *const f32,
                block: usize,
                to: *mut u8,
                layout: RowLayout,
            ) {
                // SAFETY: the features are enabled; the rest is the caller's promise.
                unsafe { quantise::<$simd, F>(from, block, to, layout) }
            }

            #[target_feature(enable = $features)]
            unsafe fn multiply_rows<F: Format, const ROWS: usize>(work: &Work) {
                // SAFETY: the features are enabled; the rest is the caller's promise.
                unsafe { multiply::<$simd, F, ROWS>(work) }
            }

            pub fn kernel<F: Format>() -> Kernel {
                Kernel {
                    name: F::NAME,
                    block_columns: F::COLUMNS,
                    block_bytes: F::BLOCK_BYTES,
                    strip_bytes: format::strip_bytes::<F>,
                    pack: format::pack::<F>,
                    unpack_row: format::unpack_row::<F>,
                    layout: RowLayout::of::<F>,
                    quantise: quantise_block::<F>,
                    multiply: const { &[$(multiply_rows::<F, $rows>),*] },
                }
            }
        }
    };
}

kernels!(avx512, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", 1 2 3 4 5 6 7 8);
kernels!(avx_vnni, AvxVnni, "avx2,fma,f16c,avxvnni", 1 2 3 4);
kernels!(avx2, Avx2, "avx2,fma,f16c", 1 2 3 4);
