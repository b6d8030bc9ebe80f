//! Q4_K: codes of 4 bits, and for each 32 columns a scale and a minimum of 6 bits.
//!
//! ```text
//! head of a tile, 256 bytes: as `k_scales` draws it
//!
//! chunk of 32 columns x 16 rows, 256 bytes: nibbles, as `codes` draws them
//! ```

use super::super::simd::Simd;
use super::codes::{NIBBLES_BYTES, nibble, pack_nibbles};
use super::{CHUNK, Format, Minima, PAIRS_MAX, SCALES_MAX, STRIP_ROWS, k_scales, word};

/// The type Q4_K.
pub struct Q4K;

impl Format for Q4K {
    const GGML_TYPE: i32 = 12;
    const NAME: &'static str = "Q4_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 144;
    const HEAD_BYTES: usize = k_scales::HEAD_BYTES;
    const CHUNK_BYTES: usize = NIBBLES_BYTES;
    const CODE_MAX: u8 = 15;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 0;
    const MINIMA: Minima = Minima::Integers;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        k_scales::pack(blocks, head);
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                pack_nibbles(chunk, row, |v| four_codes(&block[16..], index, v));
            }
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scales = k_scales::unpack(head, row);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for ((chunk, weights), (scale, minimum)) in chunks.zip(scales) {
            for (column, weight) in weights.iter_mut().enumerate() {
                *weight = scale * f32::from(nibble(chunk, row, column)) - minimum;
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
}

/// Four codes of a block of Q4_K or Q5_K: vector `v` of chunk `index`. In the file, 32 bytes hold
/// the codes of two chunks.
pub fn four_codes(codes: &[u8], index: usize, v: usize) -> u32 {
    word(codes, index / 2 * 32 + 4 * v) >> (index % 2 * 4) & 0x0F0F_0F0F
}
