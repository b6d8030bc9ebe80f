//! Q4_1: 4-bit codes, and for each 32 columns a scale and a minimum.
//!
//! ```text
//! head of a tile, 64 bytes: 16 halves, a scale for each row; then 16 halves, the minima
//!
//! chunk of 32 columns x 16 rows, 256 bytes: nibbles, as in Q4_0
//! ```

use super::codes::{NIBBLES_BYTES, nibble, pack_bytes};
use super::{Format, HALVES_BYTES, Minima, STRIP_ROWS, half};

/// The type Q4_1.
pub struct Q4_1;

/// Bytes of a head with scales and minima.
pub const HEAD_BYTES: usize = 2 * HALVES_BYTES;

impl Format for Q4_1 {
    const GGML_TYPE: i32 = 3;
    const NAME: &'static str = "Q4_1";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 20;
    const HEAD_BYTES: usize = HEAD_BYTES;
    const CHUNK_BYTES: usize = NIBBLES_BYTES;
    const CODE_MAX: u8 = 15;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 0;
    const MINIMA: Minima = Minima::Float;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            pack_head(head, row, block);
            pack_bytes(codes, row, &block[4..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let (scale, minimum) = unpack_head(head, row);
        for (column, weight) in weights.iter_mut().enumerate() {
            *weight = f32::from(nibble(codes, row, column)) * scale + minimum;
        }
    }
}

/// Packs the scale and the minimum of a block, which begins with them.
pub fn pack_head(head: &mut [u8], row: usize, block: &[u8]) {
    head[2 * row..][..2].copy_from_slice(&block[..2]);
    head[HALVES_BYTES + 2 * row..][..2].copy_from_slice(&block[2..4]);
}

/// The scale and the minimum of a row.
pub fn unpack_head(head: &[u8], row: usize) -> (f32, f32) {
    (half(head, 2 * row), half(head, HALVES_BYTES + 2 * row))
}
