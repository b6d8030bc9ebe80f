//! IQ2_S: a grid of 1,024 rows of eight columns, and a scale for each 16 columns.
//!
//! ```text
//! block of the file, 82 bytes: a half; the low bits of 32 numbers; 256 signs; the high 2 bits of the numbers;
//! 16 scales
//!
//! a tile is as `grids` draws it
//! ```

use super::grids::{self, Grid, OFFSET, OfGrid, chunk_bytes, pack_chunk, pack_head};
use super::word;

/// The type IQ2_S.
pub type Iq2S = OfGrid<Rows>;

/// What differs from other types with a grid.
pub struct Rows;

impl Grid for Rows {
    const GGML_TYPE: i32 = 22;
    const NAME: &'static str = "IQ2_S";
    const BLOCK_BYTES: usize = 82;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: u8 = OFFSET;
    const GRID: &'static [u32] = &grids::IQ2_S;
    const HIGH_BITS: usize = 2;
    const GRID_COLUMNS: usize = 8;
    const SCALE: f32 = 0.125;

    fn pack_row(block: &[u8], row: usize, head: &mut [u8], codes: &mut [u8]) {
        for (index, chunk) in codes.chunks_exact_mut(chunk_bytes::<Self>()).enumerate() {
            let number = |part: usize| {
                let high = u32::from(block[66 + index]) >> (2 * part) & 3;
                u32::from(block[2 + 4 * index + part]) | high << 8
            };
            pack_chunk::<Self>(chunk, row, number, word(block, 34 + 4 * index));
        }
        pack_head::<Self>(head, row, block, |at| word(block, 74 + 4 * at));
    }
}
