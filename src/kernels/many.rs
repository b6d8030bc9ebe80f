//! Products of many rows of activations, on processors with instructions that multiply matrices.

use super::activations::RowLayout;

/// Least rows of activations that are many. The products of fewer take less time one by one.
pub const ROWS_MIN: usize = 24;

/// Strips that are multiplied at once.
pub const STRIPS: usize = 4;

/// Rows of activations that are multiplied at once. Their memory has room for whole tiles.
pub const TILE_ROWS: usize = 16;

/// Multiplies some strips with many rows. The products have the bits of those one by one.
pub type Many = unsafe fn(&Work);

/// Some strips, to be multiplied with all rows of activations.
#[derive(Clone, Copy)]
pub struct Work {
    /// The first packed strip. The others follow it.
    pub strips: *const u8,
    /// Bytes of a strip.
    pub strip_bytes: usize,
    /// Rows of weights in the strips. The last strip may be incomplete.
    pub rows: usize,
    /// Columns of the strips and of the activations.
    pub columns: usize,
    /// The quantised activations. Without a list, rows are read up to a multiple of [`TILE_ROWS`].
    pub activations: *const u8,
    /// The layout of each row.
    pub layout: RowLayout,
    /// Rows of activations.
    pub inputs: usize,
    /// The number of each row in `activations`; null if they lie in their order.
    pub from: *const u32,
    /// The number of each row in `output`; null if they lie in their order.
    pub to: *const u32,
    /// Where the first row of `output` has the products of the first strip.
    pub output: *mut f32,
    /// Floats from one row of `output` to the next.
    pub output_stride: usize,
}
