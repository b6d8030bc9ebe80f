//! Q5_K: Q4_K with a fifth bit.
//!
//! ```text
//! head of a tile, 256 bytes: as `k_scales` draws it
//!
//! chunk of 32 columns x 16 rows, 320 bytes: nibbles, then the fifth bits, as `codes` draws them
//! ```

use super::super::simd::Simd;
use super::codes::{
    BITS_BYTES, NIBBLES_BYTES, bit, bits, nibble, nibbles, pack_bits, pack_nibbles,
};
use super::q4_k::four_codes;
use super::{CHUNK, Format, Minima, PAIRS_MAX, SCALES_MAX, STRIP_ROWS, k_scales, word};

/// The type Q5_K.
pub struct Q5K;

impl Format for Q5K {
    const GGML_TYPE: i32 = 13;
    const NAME: &'static str = "Q5_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 176;
    const HEAD_BYTES: usize = k_scales::HEAD_BYTES;
    const CHUNK_BYTES: usize = NIBBLES_BYTES + BITS_BYTES;
    const CODE_MAX: u8 = 31;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 0;
    const MINIMA: Minima = Minima::Integers;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        k_scales::pack(blocks, head);
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                pack_nibbles(chunk, row, |v| four_codes(&block[48..], index, v));
                // In the file, byte l has the bits of column l of all eight chunks.
                let fifth = |v: usize| word(block, 16 + 4 * v) >> index & 0x0101_0101;
                pack_bits(&mut chunk[NIBBLES_BYTES..], row, fifth);
            }
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scales = k_scales::unpack(head, row);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for ((chunk, weights), (scale, minimum)) in chunks.zip(scales) {
            for (column, weight) in weights.iter_mut().enumerate() {
                let fifth = bit(&chunk[NIBBLES_BYTES..], row, column);
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
    unsafe fn minima<S: Simd>(head: *const u8, row: usize) -> ([S::Int; PAIRS_MAX], S::Float) {
        // SAFETY: the caller guarantees it.
        unsafe { k_scales::minima::<S>(head, row) }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it; the fifth bits follow the nibbles.
        unsafe {
            let fifth = bits::<S, 4>(chunk.add(NIBBLES_BYTES), row, v);
            S::or(nibbles::<S>(chunk, row, v), fifth)
        }
    }
}
