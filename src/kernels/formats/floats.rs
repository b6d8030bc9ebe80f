//! F16 and BF16: weights that are floats of 16 bits. Activations stay floats of 32 bits, so nothing is
//! rounded but sums.
//!
//! ```text
//! strip: for each column, 32 bytes: a float of 16 bits for each of the 16 rows
//! ```
//!
//! The sums of 32 columns are added up first, then those of all columns: long sums lose less so, and a
//! row's is the same whichever rows are beside it.

use super::super::activations::RowLayout;
use super::super::attention::cached::{Bf16, Cached, F16};
use super::super::product::{Work, prefetch};
use super::super::simd::Simd;
use super::{CHUNK, HALVES_BYTES, LINE, STRIP_ROWS, f16_to_f32};

/// Bytes of a weight.
const BYTES: usize = 2;

/// Columns that are added up at once, and that a matrix has a multiple of.
pub const COLUMNS: usize = CHUNK;

/// Bytes of a row's part of these columns in a GGUF file.
pub const BLOCK_BYTES: usize = BYTES * COLUMNS;

/// A type of floats.
pub trait Floats: Cached {
    /// The type's name in a GGUF file.
    const NAME: &'static str;

    /// The number of these bits.
    fn number(bits: u16) -> f32;
}

impl Floats for F16 {
    const NAME: &'static str = "F16";

    fn number(bits: u16) -> f32 {
        f16_to_f32(bits)
    }
}

impl Floats for Bf16 {
    const NAME: &'static str = "BF16";

    fn number(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }
}

/// Bytes of a strip.
pub fn strip_bytes(columns: usize) -> usize {
    columns * HALVES_BYTES
}

/// As [`pack`](super::pack).
pub fn pack(columns: usize, from: &[u8], to: &mut [u8]) {
    let strips = to.chunks_exact_mut(strip_bytes(columns));
    for (strip, rows) in strips.zip(from.chunks(STRIP_ROWS * columns * BYTES)) {
        for (column, sixteen) in strip.chunks_exact_mut(HALVES_BYTES).enumerate() {
            for (row, weight) in sixteen.chunks_exact_mut(BYTES).enumerate() {
                let at = (row * columns + column) * BYTES;
                weight.copy_from_slice(rows.get(at..at + BYTES).unwrap_or(&[0; BYTES]));
            }
        }
    }
}

/// As [`unpack_row`](super::unpack_row).
pub fn unpack_row<W: Floats>(packed: &[u8], row: usize, weights: &mut [f32]) {
    let strip = &packed[row / STRIP_ROWS * strip_bytes(weights.len())..];
    for (sixteen, weight) in strip.chunks_exact(HALVES_BYTES).zip(weights) {
        let at = row % STRIP_ROWS * BYTES;
        *weight = W::number(u16::from_le_bytes([sixteen[at], sixteen[at + 1]]));
    }
}

/// The layout of a row of `columns` activations, which are all that it has.
pub fn layout(columns: usize) -> RowLayout {
    let end = columns * size_of::<f32>();
    RowLayout { sums: end, scales: end, stride: end.next_multiple_of(LINE) }
}

/// Copies block number `block` of a row of activations.
///
/// # Safety
/// As for [`quantise`](super::super::activations::quantise).
pub unsafe fn copy(from: *const f32, block: usize, to: *mut u8, _layout: RowLayout) {
    let at = block * COLUMNS;
    // SAFETY: the caller guarantees that both rows have the block.
    unsafe { to.cast::<f32>().add(at).copy_from_nonoverlapping(from.add(at), COLUMNS) };
}

/// Multiplies a strip with `ROWS` rows of activations.
///
/// # Safety
/// As for [`multiply`](super::super::product::multiply).
#[inline(always)]
pub unsafe fn multiply<S: Simd, W: Floats, const ROWS: usize>(work: &Work) {
    // SAFETY: the caller guarantees it. All offsets lie within the strip and the rows of `columns`
    // columns; a prefetch may go beyond.
    unsafe {
        let zeros = [[S::splat_f32(0.0); 2]; ROWS];
        let vectors = STRIP_ROWS / S::LANES;
        let mut rows = [std::ptr::null::<f32>(); ROWS];
        for (row, activations) in rows.iter_mut().zip(work.activations) {
            *row = activations.cast();
        }
        let mut totals = zeros;
        for first in (0..work.columns).step_by(COLUMNS) {
            let strip = work.strip.add(first * HALVES_BYTES);
            prefetch(work.ahead, strip, COLUMNS * HALVES_BYTES);
            let mut sums = zeros;
            for column in 0..COLUMNS {
                let mut weights = [S::splat_f32(0.0); 2];
                for (v, weights) in weights.iter_mut().take(vectors).enumerate() {
                    *weights = W::load::<S>(strip.add(column * HALVES_BYTES), v * S::LANES);
                }
                for r in 0..ROWS {
                    let activation = rows[r].add(first + column).read();
                    for v in 0..vectors {
                        sums[r][v] = S::mul_add(S::splat_f32(activation), weights[v], sums[r][v]);
                    }
                }
            }
            for r in 0..ROWS {
                for v in 0..vectors {
                    totals[r][v] = S::add_f32(totals[r][v], sums[r][v]);
                }
            }
        }
        for (total, out) in totals.iter().zip(work.out) {
            for (v, total) in total.iter().take(vectors).enumerate() {
                S::store_f32(out.add(v * S::LANES), *total);
            }
        }
    }
}
