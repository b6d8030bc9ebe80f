//! Q4_K: codes of 4 bits, and for each 32 columns a scale and a minimum of 6 bits.
//!
//! ```text
//! chunk of 32 columns x 16 rows, 256 bytes: four vectors of 64 bytes
//!
//!   vector v:  row 0             row 1             ...  row 15
//!              4 bytes, columns  4 bytes                4 bytes
//!              4v .. 4v + 4
//!   in each byte: low 4 bits column 4v + i, high 4 bits column 16 + 4v + i
//! ```

use super::format::{CHUNK, Format, SCALES_MAX, STRIP_ROWS, set_word, word};
use super::k_scales;
use super::simd::Simd;

/// The type Q4_K.
pub struct Q4K;

impl Format for Q4K {
    const GGML_TYPE: i32 = 12;
    const NAME: &'static str = "Q4_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 144;
    const HEAD_BYTES: usize = k_scales::HEAD_BYTES;
    const CHUNK_BYTES: usize = 256;
    const CODE_MAX: u8 = 15;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 0;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        k_scales::pack(blocks, head);
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                pack_nibbles(chunk, row, |v| nibbles(&block[16..], index, v));
            }
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scales = k_scales::unpack(head, row);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for ((chunk, weights), (scale, minimum)) in chunks.zip(scales) {
            for (column, weight) in weights.iter_mut().enumerate() {
                *weight = scale * f32::from(nibble(chunk, row, column)) - minimum;
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the caller guarantees it.
        unsafe { k_scales::scales::<S>(head, row) }
    }

    #[inline(always)]
    unsafe fn minima<S: Simd>(head: *const u8, row: usize) -> ([S::Int; 4], S::Float) {
        // SAFETY: the caller guarantees it.
        unsafe { k_scales::minima::<S>(head, row) }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { unpack_nibbles::<S>(chunk, row, v) }
    }
}

/// Four codes of a block of Q4_K or Q5_K: vector `v` of chunk `index`. In the file, 32 bytes hold
/// the codes of two chunks.
pub fn nibbles(codes: &[u8], index: usize, v: usize) -> u32 {
    word(codes, index / 2 * 32 + 4 * v) >> (index % 2 * 4) & 0x0F0F_0F0F
}

/// Packs the low 4 bits of a row's codes into the first 256 bytes of a chunk.
pub fn pack_nibbles(chunk: &mut [u8], row: usize, nibbles: impl Fn(usize) -> u32) {
    for v in 0..4 {
        set_word(chunk, 64 * v + 4 * row, nibbles(v) | nibbles(v + 4) << 4);
    }
}

/// Reads one packed 4-bit code.
pub fn nibble(chunk: &[u8], row: usize, column: usize) -> u8 {
    let byte = chunk[column % 16 / 4 * 64 + 4 * row + column % 4];
    if column < 16 { byte & 15 } else { byte >> 4 }
}

/// Unpacks vector `v` of the 4-bit codes.
///
/// # Safety
/// As [`Format::code`].
#[inline(always)]
pub unsafe fn unpack_nibbles<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
    // SAFETY: a chunk starts with four vectors of 64 bytes; this reads those of the rows from `row`
    // on.
    unsafe {
        let packed = S::load(chunk.add(64 * (v % 4) + 4 * row));
        let low = if v < 4 { packed } else { S::right::<4>(packed) };
        S::and(low, S::splat_byte(0x0F))
    }
}
