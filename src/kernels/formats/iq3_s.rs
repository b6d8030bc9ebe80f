//! IQ3_S: a grid of 512 rows of four columns, and a scale for each 32 columns.
//!
//! ```text
//! block of the file, 110 bytes: a half; the low bits of 64 numbers; their high bits; 256 signs; 8 scales
//!
//! a tile is as `grids` draws it
//! ```

use super::super::simd::Simd;
use super::grids::{self, Grid, IQ3_S_OFFSET, chunk_bytes, head_bytes, pack_chunk, pack_head};
use super::{Format, SCALES_MAX, STRIP_ROWS, word};

/// The type IQ3_S.
pub struct Iq3S;

impl Format for Iq3S {
    const GGML_TYPE: i32 = 21;
    const NAME: &'static str = "IQ3_S";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 110;
    const HEAD_BYTES: usize = head_bytes(8);
    const CHUNK_BYTES: usize = chunk_bytes(4, 1);
    const CODE_MAX: u8 = 15 + IQ3_S_OFFSET;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = IQ3_S_OFFSET as i32;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                let number = |part: usize| {
                    let high = u32::from(block[66 + index]) >> part & 1;
                    u32::from(block[2 + 8 * index + part]) | high << 8
                };
                pack_chunk::<Self>(chunk, row, number, word(block, 74 + 4 * index));
            }
            pack_head::<Self>(head, row, block, |_| word(block, 106));
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

impl Grid for Iq3S {
    const GRID: &'static [u32] = &grids::IQ3_S;
    const HIGH_BITS: usize = 1;
    const GRID_COLUMNS: usize = 4;
    const SCALE: f32 = 1.0;
}
