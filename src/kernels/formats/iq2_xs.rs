//! IQ2_XS: a grid of 512 rows of eight columns, and a scale for each 16 columns.
//!
//! ```text
//! block of the file, 74 bytes: a half; 32 times 16 bits with a number and 7 signs; 16 scales
//!
//! a tile is as `grids` draws it: 11 % more bytes, for the eighth sign and a byte for four high bits
//! ```

use super::grids::{self, Grid, OFFSET, OfGrid, chunk_bytes, eight_signs, pack_chunk, pack_head};
use super::word;

/// The type IQ2_XS.
pub type Iq2Xs = OfGrid<Rows>;

/// What differs from other types with a grid.
pub struct Rows;

impl Grid for Rows {
    const GGML_TYPE: i32 = 17;
    const NAME: &'static str = "IQ2_XS";
    const BLOCK_BYTES: usize = 74;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: u8 = OFFSET;
    const GRID: &'static [u32] = &grids::IQ2_XS;
    const HIGH_BITS: usize = 1;
    const GRID_COLUMNS: usize = 8;
    const SCALE: f32 = 0.125;

    fn pack_row(block: &[u8], row: usize, head: &mut [u8], codes: &mut [u8]) {
        // A word of 16 bits for each eight columns: a number and seven signs.
        for (index, chunk) in codes.chunks_exact_mut(chunk_bytes::<Self>()).enumerate() {
            let two = |part: usize| word(block, 2 + 8 * index + part / 2 * 4) >> (part % 2 * 16);
            let of_eight = |part: usize| eight_signs(two(part) >> 9) << (8 * part);
            let signs = (0..4).fold(0, |all, part| all | of_eight(part));
            pack_chunk::<Self>(chunk, row, |part| two(part) & 511, signs);
        }
        pack_head::<Self>(head, row, block, |at| word(block, 66 + 4 * at));
    }
}
