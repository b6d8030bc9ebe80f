//! Q5_0: 5-bit codes minus 16, and a scale for each 32 columns.
//!
//! ```text
//! head of a tile, 32 bytes: 16 halves, a scale for each row
//!
//! chunk of 32 columns x 16 rows, 320 bytes: nibbles, then the fifth bits, as `codes` draws them
//! ```

use super::super::simd::Simd;
use super::codes::{
    BITS_BYTES, NIBBLES_BYTES, bit, bits, nibble, nibbles, pack_bits, pack_bytes, spread,
};
use super::{Format, STRIP_ROWS, half, word};

/// The type Q5_0.
pub struct Q5_0;

impl Format for Q5_0 {
    const GGML_TYPE: i32 = 6;
    const NAME: &'static str = "Q5_0";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 22;
    const HEAD_BYTES: usize = 32;
    const CHUNK_BYTES: usize = NIBBLES_BYTES + BITS_BYTES;
    const CODE_MAX: u8 = 31;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 16;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            head[2 * row..][..2].copy_from_slice(&block[..2]);
            pack_codes(codes, row, &block[2..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, 2 * row);
        for (column, weight) in weights.iter_mut().enumerate() {
            *weight = scale * (f32::from(unpack_code(codes, row, column)) - 16.0);
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { code::<S>(chunk, row, v) }
    }
}

/// Packs the codes of a block: in the file, four bytes of fifth bits and 16 of nibbles.
pub fn pack_codes(codes: &mut [u8], row: usize, block: &[u8]) {
    let fifth = word(block, 0);
    pack_bytes(codes, row, &block[4..]);
    pack_bits(&mut codes[NIBBLES_BYTES..], row, |v| spread(fifth, v));
}

/// Reads one packed code.
pub fn unpack_code(codes: &[u8], row: usize, column: usize) -> u8 {
    nibble(codes, row, column) | bit(&codes[NIBBLES_BYTES..], row, column) << 4
}

/// Unpacks vector `v` of the codes.
///
/// # Safety
/// As [`Format::code`].
#[inline(always)]
pub unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
    // SAFETY: the caller guarantees it; the fifth bits follow the nibbles.
    unsafe {
        let fifth = bits::<S, 4>(chunk.add(NIBBLES_BYTES), row, v);
        S::or(nibbles::<S>(chunk, row, v), fifth)
    }
}
