//! IQ2_XXS: a grid of 256 rows of eight columns, and a scale for each 32 columns.
//!
//! ```text
//! block of the file, 66 bytes: a half; then for each chunk four numbers, and a word of 4 times 7 signs and a
//! scale
//!
//! a tile is as `grids` draws it: 6 % more bytes, for the eighth sign
//! ```

use super::grids::{self, Grid, OFFSET, OfGrid, pack_xxs_row};

/// The type IQ2_XXS.
pub type Iq2Xxs = OfGrid<Rows>;

/// What differs from other types with a grid.
pub struct Rows;

impl Grid for Rows {
    const GGML_TYPE: i32 = 16;
    const NAME: &'static str = "IQ2_XXS";
    const BLOCK_BYTES: usize = 66;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: u8 = OFFSET;
    const GRID: &'static [u32] = &grids::IQ2_XXS;
    const HIGH_BITS: usize = 0;
    const GRID_COLUMNS: usize = 8;
    const SCALE: f32 = 0.125;

    fn pack_row(block: &[u8], row: usize, head: &mut [u8], codes: &mut [u8]) {
        pack_xxs_row::<Self>(block, row, head, codes, |chunk| 2 + 8 * chunk, |chunk| 6 + 8 * chunk);
    }
}
