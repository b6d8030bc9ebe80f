//! Q8_0: 8-bit codes, and a scale for each 32 columns.
//!
//! ```text
//! head of a tile, 32 bytes: 16 halves, a scale for each row
//!
//! chunk of 32 columns x 16 rows, 512 bytes: eight vectors of 64 bytes
//!
//!   vector v:  4 bytes a row, columns 4v .. 4v + 4, plus 128
//! ```
//!
//! The file has signed codes, but the dot-product instructions take unsigned weights. So packing
//! adds 128 to each code, and [`Format::OFFSET`] subtracts it from the product.

use super::super::simd::Simd;
use super::{Format, STRIP_ROWS, VECTORS, half, set_word, word};

/// The type Q8_0.
pub struct Q8_0;

impl Format for Q8_0 {
    const GGML_TYPE: i32 = 8;
    const NAME: &'static str = "Q8_0";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 34;
    const HEAD_BYTES: usize = 32;
    const CHUNK_BYTES: usize = 512;
    const CODE_MAX: u8 = 255;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 128;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            head[2 * row..][..2].copy_from_slice(&block[..2]);
            for v in 0..VECTORS {
                set_word(codes, 64 * v + 4 * row, word(block, 2 + 4 * v) ^ 0x8080_8080);
            }
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, 2 * row);
        for (column, weight) in weights.iter_mut().enumerate() {
            let code = codes[column / 4 * 64 + 4 * row + column % 4];
            *weight = scale * (f32::from(code) - 128.0);
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: a chunk has eight vectors of 64 bytes.
        unsafe { S::load(chunk.add(64 * v + 4 * row)) }
    }
}
