//! The kernels compiled for the instruction sets of x86-64.

use super::activations::{RowLayout, quantise};
use super::amx;
use super::attention::AttentionKernel;
use super::attention::block::{self, attend};
use super::attention::cached::Cached;
use super::attention::tile::Block;
use super::delta::{self, Head};
use super::formats::floats::{self, Floats};
use super::formats::{self, Format};
use super::kernel::{InstructionSet, Kernel};
use super::many;
use super::product::{ROWS_MAX, Work, multiply};
use super::simd::Simd;
use super::simd::avx2::{Avx2, AvxVnni};
use super::simd::avx512::Avx512;
use super::tiles;

/// Whether this processor supports an instruction set.
pub fn is_here(set: InstructionSet) -> bool {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    match set {
        InstructionSet::Amx => InstructionSet::Avx512Vnni.is_here() && tiles::is_here(),
        InstructionSet::Avx512Vnni => {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
        }
        InstructionSet::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
        InstructionSet::Avx2 => avx2,
    }
}

/// The kernel for a format.
pub fn kernel<F: Format>(set: InstructionSet) -> Kernel {
    match set {
        InstructionSet::Amx => Kernel { many: Some(multiply_many::<F>), ..avx512::kernel::<F>() },
        InstructionSet::Avx512Vnni => avx512::kernel::<F>(),
        InstructionSet::AvxVnni => avx_vnni::kernel::<F>(),
        InstructionSet::Avx2 => avx2::kernel::<F>(),
    }
}

/// The kernel for weights that are floats.
pub fn float_kernel<W: Floats>(set: InstructionSet) -> Kernel {
    match set {
        InstructionSet::Amx | InstructionSet::Avx512Vnni => avx512::float_kernel::<W>(),
        InstructionSet::AvxVnni => avx_vnni::float_kernel::<W>(),
        InstructionSet::Avx2 => avx2::float_kernel::<W>(),
    }
}

/// The kernel for a pair of cached types.
pub fn attention<K: Cached, V: Cached>(set: InstructionSet) -> AttentionKernel {
    match set {
        InstructionSet::Amx | InstructionSet::Avx512Vnni => avx512::attention::<K, V>(),
        InstructionSet::AvxVnni => avx_vnni::attention::<K, V>(),
        InstructionSet::Avx2 => avx2::attention::<K, V>(),
    }
}

/// The gated delta net whose states have `numbers` numbers in a row.
pub fn delta(set: InstructionSet, numbers: usize) -> Option<delta::Run> {
    match (set, numbers) {
        (InstructionSet::Amx | InstructionSet::Avx512Vnni, 64) => Some(avx512::run_delta::<4>),
        (InstructionSet::Amx | InstructionSet::Avx512Vnni, 128) => Some(avx512::run_delta::<8>),
        (InstructionSet::AvxVnni, 64) => Some(avx_vnni::run_delta::<8>),
        (InstructionSet::AvxVnni, 128) => Some(avx_vnni::run_delta::<16>),
        (InstructionSet::Avx2, 64) => Some(avx2::run_delta::<8>),
        (InstructionSet::Avx2, 128) => Some(avx2::run_delta::<16>),
        _ => None,
    }
}

/// Multiplies some strips with many rows of activations.
///
/// # Safety
/// As for [`amx::multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn multiply_many<F: Format>(work: &many::Work) {
    // SAFETY: the features are enabled; the caller guarantees the rest.
    unsafe { amx::multiply::<F>(work) }
}

/// The rows of activations that a kernel takes at once. With 16 registers, sums of more than four rows
/// do not stay in them if a chunk has several scales, and Q6_K was slower with six.
const fn rows_max<S: Simd, F: Format>(all: usize) -> usize {
    if S::LANES == 8 && F::CHUNK_SCALES > 1 && all > 4 { 4 } else { all }
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
                // SAFETY: the features are enabled; the caller guarantees the rest.
                unsafe { quantise::<$simd, F>(from, block, to, layout) }
            }

            #[target_feature(enable = $features)]
            unsafe fn multiply_rows<F: Format, const ROWS: usize>(work: &Work) {
                // SAFETY: the features are enabled; the caller guarantees the rest.
                unsafe { multiply::<$simd, F, ROWS>(work) }
            }

            #[target_feature(enable = $features)]
            unsafe fn multiply_floats<W: Floats, const ROWS: usize>(work: &Work) {
                // SAFETY: the features are enabled; the caller guarantees the rest.
                unsafe { floats::multiply::<$simd, W, ROWS>(work) }
            }

            #[target_feature(enable = $features)]
            unsafe fn attend_block<K: Cached, V: Cached>(block: &Block) {
                // SAFETY: the features are enabled; the caller guarantees the rest.
                unsafe { attend::<$simd, K, V>(block) }
            }

            #[target_feature(enable = $features)]
            pub unsafe fn run_delta<const V: usize>(head: &Head) {
                // SAFETY: the features are enabled; the caller guarantees the rest.
                unsafe { delta::run::<$simd, V>(head) }
            }

            pub fn attention<K: Cached, V: Cached>() -> AttentionKernel {
                AttentionKernel {
                    attend: attend_block::<K, V>,
                    is_quantised: block::is_quantised::<$simd, K>(),
                    block_numbers: [K::BLOCK_NUMBERS, V::BLOCK_NUMBERS],
                }
            }

            pub fn float_kernel<W: Floats>() -> Kernel {
                Kernel {
                    name: W::NAME,
                    block_columns: floats::COLUMNS,
                    block_bytes: floats::BLOCK_BYTES,
                    strip_bytes: floats::strip_bytes,
                    pack: floats::pack,
                    unpack_row: floats::unpack_row::<W>,
                    layout: floats::layout,
                    quantise: floats::copy,
                    multiply: &[$(multiply_floats::<W, $rows>),*],
                    many: None,
                }
            }

            pub fn kernel<F: Format>() -> Kernel {
                Kernel {
                    name: F::NAME,
                    block_columns: F::COLUMNS,
                    block_bytes: F::BLOCK_BYTES,
                    strip_bytes: formats::strip_bytes::<F>,
                    pack: formats::pack::<F>,
                    unpack_row: formats::unpack_row::<F>,
                    layout: RowLayout::of::<F>,
                    quantise: quantise_block::<F>,
                    multiply: const {
                        let all: &[unsafe fn(&Work)] = &[$(multiply_rows::<F, $rows>),*];
                        all.split_at(rows_max::<$simd, F>(all.len())).0
                    },
                    many: None,
                }
            }
        }
    };
}

kernels!(avx512, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", 1 2 3 4 5 6 7 8);
kernels!(avx_vnni, AvxVnni, "avx2,fma,f16c,avxvnni", 1 2 3 4);
kernels!(avx2, Avx2, "avx2,fma,f16c", 1 2 3 4 5 6);
