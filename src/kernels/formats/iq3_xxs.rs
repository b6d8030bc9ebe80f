//! IQ3_XXS: a grid of 256 rows of four columns, and a scale for each 32 columns.
//!
//! ```text
//! block of the file, 98 bytes: a half; 64 numbers; then for each chunk a word of 4 times 7 signs and a scale
//!
//! a tile is as `grids` draws it: 4 % more bytes, for the eighth sign
//! ```

use super::grids::{self, Grid, OFFSET, OfGrid, pack_xxs_row};

/// The type IQ3_XXS.
pub type Iq3Xxs = OfGrid<Rows>;

/// What differs from other types with a grid.
pub struct Rows;

impl Grid for Rows {
    const GGML_TYPE: i32 = 18;
    const NAME: &'static str = "IQ3_XXS";
    const BLOCK_BYTES: usize = 98;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: u8 = OFFSET;
    const GRID: &'static [u32] = &grids::IQ3_XXS;
    const HIGH_BITS: usize = 0;
    const GRID_COLUMNS: usize = 4;
    const SCALE: f32 = 0.25;

    fn pack_row(block: &[u8], row: usize, head: &mut [u8], codes: &mut [u8]) {
        pack_xxs_row::<Self>(
            block,
            row,
            head,
            codes,
            |chunk| 2 + 8 * chunk,
            |chunk| 66 + 4 * chunk,
        );
    }
}
