//! Q5_K: Q4_K with a fifth bit.
//!
//! ```text
//! chunk of 32 columns x 16 rows, 320 bytes
//!
//!   four vectors of 64 bytes    the low 4 bits, as in Q4_K
//!   one vector                  4 bytes a row; bit v of byte i: column 4v + i
//! ```

use super::format::{CHUNK, Format, SCALES_MAX, STRIP_ROWS, VECTORS, set_word, word};
use super::k_scales;
use super::q4_k::{nibble, nibbles, pack_nibbles, unpack_nibbles};
use super::simd::Simd;

/// The type Q5_K.
pub struct Q5K;

/// Offset of a chunk's fifth bits.
const FIFTH: usize = 256;

impl Format for Q5K {
    const GGML_TYPE: i32 = 13;
    const NAME: &'static str = "Q5_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 176;
    const HEAD_BYTES: usize = k_scales::HEAD_BYTES;
    const CHUNK_BYTES: usize = 320;
    const CODE_MAX: u8 = 31;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 0;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        k_scales::pack(blocks, head);
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                pack_nibbles(chunk, row, |v| nibbles(&block[48..], index, v));
                // In the file, byte l has the bits of column l of all eight chunks.
                let bit = |v| (word(block, 16 + 4 * v) >> index & 0x0101_0101) << v;
                set_word(chunk, FIFTH + 4 * row, (0..VECTORS).map(bit).fold(0, |a, b| a | b));
            }
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scales = k_scales::unpack(head, row);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for ((chunk, weights), (scale, minimum)) in chunks.zip(scales) {
            for (column, weight) in weights.iter_mut().enumerate() {
                let fifth = chunk[FIFTH + 4 * row + column % 4] >> (column / 4) & 1;
                *weight = scale * f32::from(nibble(chunk, row, column) | fifth << 4) - minimum;
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the caller guarantees it.
        unsafe { k_scales::scales::<S>(head, row) }
    }

    #[inline(always)]
    unsafe fn minima<S: Simd>(head: *const u8, row: usize) -> ([S::Int; 4], S::Float) {
        // SAFETY: the caller guarantees it.
        unsafe { k_scales::minima::<S>(head, row) }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it; the fifth bits follow the low ones.
        unsafe {
            let low = unpack_nibbles::<S>(chunk, row, v);
            let bits = S::load(chunk.add(FIFTH + 4 * row));
            let bit = match v {
                0 => S::left::<4>(bits),
                1 => S::left::<3>(bits),
                2 => S::left::<2>(bits),
                3 => S::left::<1>(bits),
                4 => bits,
                5 => S::right::<1>(bits),
                6 => S::right::<2>(bits),
                _ => S::right::<3>(bits),
            };
            S::or(low, S::and(bit, S::splat_byte(0x10)))
        }
    }
}
