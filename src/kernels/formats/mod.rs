//! How weights lie in memory: strips of 16 rows.
//!
//! A matrix of a GGUF file has one row after the other, each cut in blocks of 256 (or 32) columns.
//! The kernels here need the same column of many rows side by side. One activation, in every lane
//! of a register, is then multiplied with 16 weights at once, and no sum goes across lanes:
//!
//! ```text
//! matrix [rows, columns]     strip of 16 rows, 64 bytes aligned
//!                            +--------------------+---------------------------------+
//! rows  0..16  ----------->  | heads of all tiles | codes of all tiles              |
//! rows 16..32  ----------->  +--------------------+---------------------------------+
//! ...                         a tile: 16 rows x 256 (or 32) columns, the blocks of a
//!                             GGUF file at that place
//! ```
//!
//! - A tile's **head** has the scales (and minima) of its 16 blocks.
//! - Its **codes** are in chunks of 32 columns. Unpacked, a chunk is 8 vectors of 64
//!   bytes; vector `v` has the columns `4 v .. 4 v + 4` of row `r` in its lane `r`. Packed,
//!   several vectors share bytes, as each format's file draws.
//!
//! A strip takes as many bytes as the 16 rows of the file, rounded up to 64; those of IQ2_XXS, IQ2_XS and IQ3_XXS take
//! 4 to 11 % more. If the number of rows is not a multiple of 16, the last strip is filled up with zeros.

pub mod codes;
pub mod floats;
pub mod grids;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
mod k_scales;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;

pub use codes::{CHUNK, VECTORS, set_word, word};

use super::simd::Simd;

/// Rows in a strip.
pub const STRIP_ROWS: usize = 16;

/// Most scales of a row in a tile.
pub const SCALES_MAX: usize = 16;

/// Most pairs of minima of a row in a tile.
pub const PAIRS_MAX: usize = SCALES_MAX / 2;

/// Bytes of a number of 16 bits for each row of a strip.
pub const HALVES_BYTES: usize = 2 * STRIP_ROWS;

/// Bytes of a cache line. Strips and rows of activations are aligned to it.
pub const LINE: usize = 64;

/// The minima of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Minima {
    /// It has none.
    None,
    /// An integer for each scale, all multiplied by one scale of the tile. They are subtracted.
    Integers,
    /// A float for each tile, which has one scale. It is added.
    Float,
}

/// One type of quantised weights: the weight of a code is `scale * (code - OFFSET)`, or
/// `scale * code` less or plus a minimum where the type has minima.
pub trait Format {
    /// ggml's number of the type.
    const GGML_TYPE: i32;
    /// The type's name in a GGUF file.
    const NAME: &'static str;
    /// Columns of a block, and of a tile.
    const COLUMNS: usize;
    /// Bytes of a block in a GGUF file.
    const BLOCK_BYTES: usize;
    /// Bytes of a tile's head.
    const HEAD_BYTES: usize;
    /// Bytes of a chunk's codes.
    const CHUNK_BYTES: usize;
    /// The largest code.
    const CODE_MAX: u8;
    /// Scales of a chunk.
    const CHUNK_SCALES: usize;
    /// Subtracted from every code; 0 for types with minima.
    const OFFSET: i32;
    /// What minima it has.
    const MINIMA: Minima = Minima::None;

    /// Packs the blocks of 16 rows (`blocks[r]` has [`Self::BLOCK_BYTES`]) into a tile.
    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]);

    /// Unpacks the [`Self::COLUMNS`] weights of one row of a tile.
    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]);

    /// The scales of rows `row..row + S::LANES` of a tile, one vector for each group of
    /// columns. Unused entries are 0. By default, the head begins with 16 halves, a scale for each
    /// row.
    ///
    /// # Safety
    /// As [`Simd`] asks; `head` points to [`Self::HEAD_BYTES`], and `row` is 0, or 8 with 8 lanes.
    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the caller guarantees it; this reads the halves from `row` on.
        unsafe {
            let mut scales = [S::splat_f32(0.0); SCALES_MAX];
            scales[0] = S::load_f16(head.add(2 * row));
            scales
        }
    }

    /// The minima of these rows, as 16-bit integers: each lane of vector `pair` has those of the
    /// scales `2 pair` and `2 pair + 1`. The second value is the scale of the minima.
    ///
    /// # Safety
    /// As for [`Self::scales`].
    unsafe fn minima<S: Simd>(_head: *const u8, _row: usize) -> ([S::Int; PAIRS_MAX], S::Float) {
        unreachable!("{} has no integers as minima", Self::NAME)
    }

    /// The minimum of these rows, where it is a float: the 16 halves behind the scales.
    ///
    /// # Safety
    /// As for [`Self::scales`].
    #[inline(always)]
    unsafe fn minimum<S: Simd>(head: *const u8, row: usize) -> S::Float {
        // SAFETY: the caller guarantees it; this reads the second halves from `row` on.
        unsafe { S::load_f16(head.add(HALVES_BYTES + 2 * row)) }
    }

    /// The codes of these rows in vector `v` of a chunk, four columns. By default, they are nibbles.
    ///
    /// # Safety
    /// As for [`Self::scales`]; `chunk` points to [`Self::CHUNK_BYTES`].
    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { codes::nibbles::<S>(chunk, row, v) }
    }
}

/// Bytes of the heads of a strip.
pub fn heads_bytes<F: Format>(columns: usize) -> usize {
    (columns / F::COLUMNS * F::HEAD_BYTES).next_multiple_of(LINE)
}

/// Bytes of a strip.
pub fn strip_bytes<F: Format>(columns: usize) -> usize {
    heads_bytes::<F>(columns) + columns / CHUNK * F::CHUNK_BYTES
}

/// Bytes of a packed matrix.
pub fn packed_bytes<F: Format>(rows: usize, columns: usize) -> usize {
    rows.div_ceil(STRIP_ROWS) * strip_bytes::<F>(columns)
}

/// Packs a matrix. `from` has its rows in the GGUF file's form, `to` has [`packed_bytes`].
pub fn pack<F: Format>(columns: usize, from: &[u8], to: &mut [u8]) {
    let row_bytes = columns / F::COLUMNS * F::BLOCK_BYTES;
    let rows = from.len() / row_bytes;
    assert_eq!(from.len(), rows * row_bytes, "whole rows of {columns} {}", F::NAME);
    assert_eq!(to.len(), packed_bytes::<F>(rows, columns), "{rows} rows of {columns} {}", F::NAME);
    let no_row = vec![0; F::BLOCK_BYTES];
    let strips = to.chunks_exact_mut(strip_bytes::<F>(columns));
    for (strip, rows) in strips.zip(from.chunks(STRIP_ROWS * row_bytes)) {
        let (heads, codes) = strip.split_at_mut(heads_bytes::<F>(columns));
        let heads = heads.chunks_exact_mut(F::HEAD_BYTES);
        let codes = codes.chunks_exact_mut(F::COLUMNS / CHUNK * F::CHUNK_BYTES);
        for (tile, (head, codes)) in heads.zip(codes).enumerate() {
            let block = |row: usize| {
                let at = row * row_bytes + tile * F::BLOCK_BYTES;
                rows.get(at..at + F::BLOCK_BYTES).unwrap_or(&no_row)
            };
            F::pack(&std::array::from_fn(block), head, codes);
        }
    }
}

/// Unpacks one row of a packed matrix.
pub fn unpack_row<F: Format>(packed: &[u8], row: usize, weights: &mut [f32]) {
    let columns = weights.len();
    let strip_bytes = strip_bytes::<F>(columns);
    let strip = &packed[row / STRIP_ROWS * strip_bytes..][..strip_bytes];
    let (heads, codes) = strip.split_at(heads_bytes::<F>(columns));
    let heads = heads.chunks_exact(F::HEAD_BYTES);
    let codes = codes.chunks_exact(F::COLUMNS / CHUNK * F::CHUNK_BYTES);
    for ((head, codes), weights) in heads.zip(codes).zip(weights.chunks_exact_mut(F::COLUMNS)) {
        F::unpack(head, codes, row % STRIP_ROWS, weights);
    }
}

/// Reads a 16-bit float.
pub fn half(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// Converts an IEEE half to a float, exactly.
fn f16_to_f32(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 1023);
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}
