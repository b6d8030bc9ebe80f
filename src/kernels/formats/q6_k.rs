//! Q6_K: 6-bit codes minus 32, and an 8-bit scale for each 16 columns.
//!
//! ```text
//! head of a tile, 288 bytes
//!
//!   vector i of four, byte j of a row:   scale 4i + j, signed
//!   16 halves                            multiply the scales of each row
//!
//! chunk of 32 columns x 16 rows, 384 bytes: nibbles, then the high bits as pairs, as `codes` draws
//! them
//! ```

use super::super::simd::Simd;
use super::codes::{
    NIBBLES_BYTES, PAIRS_BYTES, nibble, nibbles, pack_nibbles, pack_pairs, pair, pairs,
};
use super::{CHUNK, Format, SCALES_MAX, STRIP_ROWS, half, word};

/// The type Q6_K.
pub struct Q6K;

impl Format for Q6K {
    const GGML_TYPE: i32 = 14;
    const NAME: &'static str = "Q6_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 210;
    const HEAD_BYTES: usize = 288;
    const CHUNK_BYTES: usize = NIBBLES_BYTES + PAIRS_BYTES;
    const CODE_MAX: u8 = 63;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: i32 = 32;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                // In the file, 64 bytes of low bits and 32 bytes of high bits hold 4 chunks.
                let (part, index) = (index / 4, index % 4);
                let low = |v: usize| {
                    let at = 64 * part + 32 * (index % 2) + 4 * v;
                    word(block, at) >> (index / 2 * 4) & 0x0F0F_0F0F
                };
                let high =
                    |v: usize| word(block, 128 + 32 * part + 4 * v) >> (2 * index) & 0x0303_0303;
                pack_nibbles(chunk, row, low);
                pack_pairs(&mut chunk[NIBBLES_BYTES..], row, high);
            }
            for i in 0..4 {
                head[64 * i + 4 * row..][..4].copy_from_slice(&block[192 + 4 * i..][..4]);
            }
            head[256 + 2 * row..][..2].copy_from_slice(&block[208..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, 256 + 2 * row);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for (index, (chunk, weights)) in chunks.enumerate() {
            for (column, weight) in weights.iter_mut().enumerate() {
                let high = pair(&chunk[NIBBLES_BYTES..], row, column);
                let code = nibble(chunk, row, column) | high << 4;
                let index = 2 * index + column / 16;
                let of_16 = head[64 * (index / 4) + 4 * row + index % 4].cast_signed();
                *weight = scale * f32::from(of_16) * (f32::from(code) - 32.0);
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the head has four vectors of 64 bytes and 16 halves; this reads those of the rows
        // from `row` on.
        unsafe {
            let scale = S::load_f16(head.add(256 + 2 * row));
            // A loop, because a closure would not have the instruction set.
            let mut scales = [S::splat_f32(0.0); SCALES_MAX];
            for (i, of_row) in scales.iter_mut().enumerate() {
                let four = S::load(head.add(64 * (i / 4) + 4 * row));
                let top = match i % 4 {
                    0 => S::left::<24>(four),
                    1 => S::left::<16>(four),
                    2 => S::left::<8>(four),
                    _ => four,
                };
                *of_row = S::mul(S::float(S::right_signed::<24>(top)), scale);
            }
            scales
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it; the high bits follow the nibbles.
        unsafe {
            let high = pairs::<S, true>(chunk.add(NIBBLES_BYTES), row, v);
            S::or(nibbles::<S>(chunk, row, v), high)
        }
    }
}
