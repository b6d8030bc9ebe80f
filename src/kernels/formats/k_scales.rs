//! The scales and minima of Q4_K and Q5_K: eight of each in a tile, with 6 bits.
//!
//! ```text
//! head of a tile, 256 bytes: three vectors of 64 bytes, in which each row has 4 bytes
//!
//!   vector 0, byte j of a row:   low bits of scale j | low bits of scale 4 + j
//!   vector 1, byte j of a row:   low bits of minimum o | low bits of minimum 4 + o
//!   vector 2, byte j of a row:   high 2 bits of scale j, scale 4 + j, minimum o, 4 + o
//!
//! "low bits" are 4, and o = 0, 2, 1, 3 for j = 0, 1, 2, 3: so the bytes 0 and 2 are, as
//! two 16-bit integers, the minima of neighbours, and so are 1 and 3.
//!
//!   then 16 halves that multiply the scales, and 16 that multiply the minima
//! ```

use super::super::simd::Simd;
use super::codes::{PAIRED, byte};
use super::{PAIRS_MAX, SCALES_MAX, STRIP_ROWS, half};

/// Bytes of a head.
pub const HEAD_BYTES: usize = 256;

/// Packs the headers of 16 blocks: two halves and 12 bytes of scales and minima.
pub fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8]) {
    for (row, block) in blocks.iter().enumerate() {
        let (scales, minima) = scales_and_minima(&block[4..16]);
        for j in 0..4 {
            let o = PAIRED[j];
            let low = |numbers: [u8; 8], j: usize| numbers[j] & 15 | numbers[4 + j] << 4;
            let high = |numbers: [u8; 8], j: usize| numbers[j] >> 4 | numbers[4 + j] >> 4 << 2;
            head[4 * row + j] = low(scales, j);
            head[64 + 4 * row + j] = low(minima, o);
            head[128 + 4 * row + j] = high(scales, j) | high(minima, o) << 4;
        }
        head[192 + 2 * row..][..2].copy_from_slice(&block[..2]);
        head[224 + 2 * row..][..2].copy_from_slice(&block[2..4]);
    }
}

/// The scale and the minimum of each chunk of 32 columns, for one row.
pub fn unpack(head: &[u8], row: usize) -> [(f32, f32); 8] {
    let (scale, minima_scale) = (half(head, 192 + 2 * row), half(head, 224 + 2 * row));
    std::array::from_fn(|chunk| {
        let number = |vector: usize, j: usize, high_shift: usize| {
            let low = head[vector * 64 + 4 * row + j] >> (chunk / 4 * 4) & 15;
            let high = head[128 + 4 * row + j] >> (high_shift + chunk / 4 * 2) & 3;
            f32::from(low | high << 4)
        };
        let o = PAIRED[chunk % 4];
        (scale * number(0, chunk % 4, 0), minima_scale * number(1, o, 4))
    })
}

/// The 6-bit numbers in a block's 12 bytes, as in ggml's `get_scale_min_k4`.
fn scales_and_minima(bytes: &[u8]) -> ([u8; 8], [u8; 8]) {
    let low = |j: usize| bytes[j] & 63;
    let high = |low4: u8, j: usize| low4 | bytes[j] >> 6 << 4;
    let scales = |j: usize| if j < 4 { low(j) } else { high(bytes[j + 4] & 15, j - 4) };
    let minima = |j: usize| if j < 4 { low(j + 4) } else { high(bytes[j + 4] >> 4, j) };
    (std::array::from_fn(scales), std::array::from_fn(minima))
}

/// Implements [`Format::scales`](super::Format::scales).
///
/// # Safety
/// As for that function.
#[inline(always)]
pub unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
    // SAFETY: the head has 256 bytes, and the vectors of the rows from `row` on end within
    // each part.
    unsafe {
        let (low, high) = (S::load(head.add(4 * row)), S::load(head.add(128 + 4 * row)));
        let first = join::<S>(low, S::left::<4>(high));
        let second = join::<S>(S::right::<4>(low), S::left::<2>(high));
        let scale = S::load_f16(head.add(192 + 2 * row));
        // A loop, because a closure would not have the instruction set.
        let mut scales = [S::splat_f32(0.0); SCALES_MAX];
        for (i, of_chunk) in scales.iter_mut().enumerate().take(8) {
            let four = if i < 4 { first } else { second };
            *of_chunk = S::mul(S::float(byte::<S>(four, i % 4)), scale);
        }
        scales
    }
}

/// Implements [`Format::minima`](super::Format::minima).
///
/// # Safety
/// As for that function.
#[inline(always)]
pub unsafe fn minima<S: Simd>(head: *const u8, row: usize) -> ([S::Int; PAIRS_MAX], S::Float) {
    // SAFETY: the head has 256 bytes, and the vectors of the rows from `row` on end within each
    // part.
    unsafe {
        let (low, high) = (S::load(head.add(64 + 4 * row)), S::load(head.add(128 + 4 * row)));
        let first = join::<S>(low, high);
        let second = join::<S>(S::right::<4>(low), S::right::<2>(high));
        let two = S::splat_lane(0x00FF_00FF);
        let mut pairs = [S::zero(); PAIRS_MAX];
        pairs[0] = S::and(first, two);
        pairs[1] = S::and(S::right::<8>(first), two);
        pairs[2] = S::and(second, two);
        pairs[3] = S::and(S::right::<8>(second), two);
        (pairs, S::load_f16(head.add(224 + 2 * row)))
    }
}

/// Joins the low 4 bits and the next 2 bits of bytes.
///
/// # Safety
/// As [`Simd`] asks.
#[inline(always)]
unsafe fn join<S: Simd>(low: S::Int, high: S::Int) -> S::Int {
    // SAFETY: the caller guarantees it.
    unsafe { S::or(S::and(low, S::splat_byte(0x0F)), S::and(high, S::splat_byte(0x30))) }
}
