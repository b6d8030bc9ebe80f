//! Q5_1: 5-bit codes, and for each 32 columns a scale and a minimum.
//!
//! ```text
//! head of a tile, 64 bytes: as in Q4_1
//!
//! chunk of 32 columns x 16 rows, 320 bytes: as in Q5_0
//! ```

use super::super::simd::Simd;
use super::codes::{BITS_BYTES, NIBBLES_BYTES};
use super::q4_1::{self, pack_head, unpack_head};
use super::q5_0::{code, pack_codes, unpack_code};
use super::{Format, Minima, STRIP_ROWS};

/// The type Q5_1.
pub struct Q5_1;

impl Format for Q5_1 {
    const GGML_TYPE: i32 = 7;
    const NAME: &'static str = "Q5_1";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 24;
    const HEAD_BYTES: usize = q4_1::HEAD_BYTES;
    const CHUNK_BYTES: usize = NIBBLES_BYTES + BITS_BYTES;
    const CODE_MAX: u8 = 31;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 0;
    const MINIMA: Minima = Minima::Float;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            pack_head(head, row, block);
            pack_codes(codes, row, &block[4..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let (scale, minimum) = unpack_head(head, row);
        for (column, weight) in weights.iter_mut().enumerate() {
            *weight = f32::from(unpack_code(codes, row, column)) * scale + minimum;
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { code::<S>(chunk, row, v) }
    }
}
