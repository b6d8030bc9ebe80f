//! Q4_0: 4-bit codes minus 8, and a scale for each 32 columns.
//!
//! ```text
//! head of a tile, 32 bytes: 16 halves, a scale for each row
//!
//! chunk of 32 columns x 16 rows, 256 bytes: nibbles, as `codes` draws them. A byte of the file has
//! the same two columns, so packing only moves a row's bytes.
//! ```

use super::codes::{NIBBLES_BYTES, nibble, pack_bytes};
use super::{Format, STRIP_ROWS, half};

/// The type Q4_0.
pub struct Q4_0;

impl Format for Q4_0 {
    const GGML_TYPE: i32 = 2;
    const NAME: &'static str = "Q4_0";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 18;
    const HEAD_BYTES: usize = 32;
    const CHUNK_BYTES: usize = NIBBLES_BYTES;
    const CODE_MAX: u8 = 15;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 8;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            head[2 * row..][..2].copy_from_slice(&block[..2]);
            pack_bytes(codes, row, &block[2..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, 2 * row);
        for (column, weight) in weights.iter_mut().enumerate() {
            *weight = scale * (f32::from(nibble(codes, row, column)) - 8.0);
        }
    }
}
