//! IQ4_NL: codes of 4 bits that stand for 16 uneven numbers, and a scale for each 32 columns.
//!
//! ```text
//! head of a tile, 32 bytes: 16 halves, a scale for each row
//!
//! chunk of 32 columns x 16 rows, 256 bytes: nibbles, as in Q4_0
//! ```

use super::super::simd::Simd;
use super::codes::{NIBBLES_BYTES, nibble, nibbles, pack_bytes};
use super::{Format, STRIP_ROWS, half};

/// The type IQ4_NL.
pub struct Iq4Nl;

/// The numbers plus 128, as in ggml's `kvalues_iq4nl`.
pub const NUMBERS: [u8; 16] =
    [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

impl Format for Iq4Nl {
    const GGML_TYPE: i32 = 20;
    const NAME: &'static str = "IQ4_NL";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 18;
    const HEAD_BYTES: usize = 32;
    const CHUNK_BYTES: usize = NIBBLES_BYTES;
    const CODE_MAX: u8 = NUMBERS[15];
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 128;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            head[2 * row..][..2].copy_from_slice(&block[..2]);
            pack_bytes(codes, row, &block[2..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, 2 * row);
        for (column, weight) in weights.iter_mut().enumerate() {
            *weight = scale * number(nibble(codes, row, column));
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { S::look_up(&NUMBERS, nibbles::<S>(chunk, row, v)) }
    }
}

/// The number that a code stands for.
pub fn number(code: u8) -> f32 {
    f32::from(NUMBERS[usize::from(code)]) - 128.0
}
