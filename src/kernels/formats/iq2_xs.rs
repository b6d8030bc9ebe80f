//! IQ2_XS: a grid of 512 rows of eight columns, and a scale for each 16 columns.
//!
//! ```text
//! block of the file, 74 bytes: a half; 32 times 16 bits with a number and 7 signs; 16 scales
//!
//! a tile is as `grids` draws it: 11 % more bytes, for the eighth sign and a byte for four high bits
//! ```

use super::super::simd::Simd;
use super::grids::{
    self, Grid, OFFSET, chunk_bytes, eight_signs, head_bytes, pack_chunk, pack_head,
};
use super::{Format, SCALES_MAX, STRIP_ROWS, word};

/// The type IQ2_XS.
pub struct Iq2Xs;

impl Format for Iq2Xs {
    const GGML_TYPE: i32 = 17;
    const NAME: &'static str = "IQ2_XS";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 74;
    const HEAD_BYTES: usize = head_bytes(16);
    const CHUNK_BYTES: usize = chunk_bytes(8, 1);
    const CODE_MAX: u8 = 43 + OFFSET;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: i32 = OFFSET as i32;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            // A word of 16 bits for each eight columns: a number and seven signs.
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                let two =
                    |part: usize| word(block, 2 + 8 * index + part / 2 * 4) >> (part % 2 * 16);
                let of_eight = |part: usize| eight_signs(two(part) >> 9) << (8 * part);
                let signs = (0..4).fold(0, |all, part| all | of_eight(part));
                pack_chunk::<Self>(chunk, row, |part| two(part) & 511, signs);
            }
            pack_head::<Self>(head, row, block, |at| word(block, 66 + 4 * at));
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

impl Grid for Iq2Xs {
    const GRID: &'static [u32] = &grids::IQ2_XS;
    const HIGH_BITS: usize = 1;
    const GRID_COLUMNS: usize = 8;
    const SCALE: f32 = 0.125;
}
