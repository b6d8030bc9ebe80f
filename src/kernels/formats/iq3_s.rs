//! IQ3_S: a grid of 512 rows of four columns, and a scale for each 32 columns.
//!
//! ```text
//! block of the file, 110 bytes: a half; the low bits of 64 numbers; their high bits; 256 signs; 8 scales
//!
//! a tile is as `grids` draws it
//! ```

use super::grids::{self, Grid, IQ3_S_OFFSET, OfGrid, chunk_bytes, pack_chunk, pack_head};
use super::word;

/// The type IQ3_S.
pub type Iq3S = OfGrid<Rows>;

/// What differs from other types with a grid.
pub struct Rows;

impl Grid for Rows {
    const GGML_TYPE: i32 = 21;
    const NAME: &'static str = "IQ3_S";
    const BLOCK_BYTES: usize = 110;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: u8 = IQ3_S_OFFSET;
    const GRID: &'static [u32] = &grids::IQ3_S;
    const HIGH_BITS: usize = 1;
    const GRID_COLUMNS: usize = 4;
    const SCALE: f32 = 1.0;

    fn pack_row(block: &[u8], row: usize, head: &mut [u8], codes: &mut [u8]) {
        for (index, chunk) in codes.chunks_exact_mut(chunk_bytes::<Self>()).enumerate() {
            let number = |part: usize| {
                let high = u32::from(block[66 + index]) >> part & 1;
                u32::from(block[2 + 8 * index + part]) | high << 8
            };
            pack_chunk::<Self>(chunk, row, number, word(block, 74 + 4 * index));
        }
        pack_head::<Self>(head, row, block, |_| word(block, 106));
    }
}
