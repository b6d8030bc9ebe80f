//! IQ2_XXS: a grid of 256 rows of eight columns, and a scale for each 32 columns.
//!
//! ```text
//! block of the file, 66 bytes: a half; then for each chunk four numbers, and a word of 4 times 7 signs and a
//! scale
//!
//! a tile is as `grids` draws it: 6 % more bytes, for the eighth sign
//! ```

use super::super::simd::Simd;
use super::grids::{
    self, Grid, OFFSET, chunk_bytes, eight_signs, head_bytes, pack_chunk, pack_head,
};
use super::{Format, SCALES_MAX, STRIP_ROWS, word};

/// The type IQ2_XXS.
pub struct Iq2Xxs;

impl Format for Iq2Xxs {
    const GGML_TYPE: i32 = 16;
    const NAME: &'static str = "IQ2_XXS";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 66;
    const HEAD_BYTES: usize = head_bytes(8);
    const CHUNK_BYTES: usize = chunk_bytes(8, 0);
    const CODE_MAX: u8 = 43 + OFFSET;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = OFFSET as i32;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            // For each chunk four numbers, and a word with their signs and the scale.
            let last = |chunk: usize| word(block, 2 + 8 * chunk + 4);
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                let number = |part: usize| u32::from(block[2 + 8 * index + part]);
                let of_eight = |part: usize| eight_signs(last(index) >> (7 * part)) << (8 * part);
                pack_chunk::<Self>(chunk, row, number, (0..4).fold(0, |all, p| all | of_eight(p)));
            }
            let scales = (0..8).fold(0, |all, chunk| all | last(chunk) >> 28 << (4 * chunk));
            pack_head::<Self>(head, row, block, |_| scales);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        grids::unpack::<Self>(head, codes, row, weights);
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the caller guarantees it.
        unsafe { grids::scales::<S, Self>(head, row) }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { grids::code::<S, Self>(chunk, row, v) }
    }
}

impl Grid for Iq2Xxs {
    const GRID: &'static [u32] = &grids::IQ2_XXS;
    const HIGH_BITS: usize = 0;
    const GRID_COLUMNS: usize = 8;
    const SCALE: f32 = 0.125;
}
