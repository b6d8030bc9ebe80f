//! IQ2_S: a grid of 1,024 rows of eight columns, and a scale for each 16 columns.
//!
//! ```text
//! block of the file, 82 bytes: a half; the low bits of 32 numbers; 256 signs; the high 2 bits of the numbers;
//! 16 scales
//!
//! a tile is as `grids` draws it
//! ```

use super::super::simd::Simd;
use super::grids::{self, Grid, OFFSET, chunk_bytes, head_bytes, pack_chunk, pack_head};
use super::{Format, SCALES_MAX, STRIP_ROWS, word};

/// The type IQ2_S.
pub struct Iq2S;

impl Format for Iq2S {
    const GGML_TYPE: i32 = 22;
    const NAME: &'static str = "IQ2_S";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 82;
    const HEAD_BYTES: usize = head_bytes(16);
    const CHUNK_BYTES: usize = chunk_bytes(8, 2);
    const CODE_MAX: u8 = 43 + OFFSET;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: i32 = OFFSET as i32;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                let number = |part: usize| {
                    let high = u32::from(block[66 + index]) >> (2 * part) & 3;
                    u32::from(block[2 + 4 * index + part]) | high << 8
                };
                pack_chunk::<Self>(chunk, row, number, word(block, 34 + 4 * index));
            }
            pack_head::<Self>(head, row, block, |at| word(block, 74 + 4 * at));
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

impl Grid for Iq2S {
    const GRID: &'static [u32] = &grids::IQ2_S;
    const HIGH_BITS: usize = 2;
    const GRID_COLUMNS: usize = 8;
    const SCALE: f32 = 0.125;
}
