//! MXFP4: codes of 4 bits that stand for floats with a sign, two bits of exponent and one of
//! fraction, and a power of two for each 32 columns. (Open Compute Project: Microscaling Formats
//! Specification 1.0, 2023.)
//!
//! ```text
//! head of a tile, 16 bytes: an exponent for each row; the scale is 2 ^ (exponent - 128), because the
//!                           numbers of the codes are doubled. (255, not a number in the
//!                           specification, counts as 254)
//!
//! chunk of 32 columns x 16 rows, 256 bytes: nibbles, as in Q4_0
//! ```

use super::super::simd::Simd;
use super::codes::{NIBBLES_BYTES, nibble, nibbles, pack_bytes};
use super::{Format, SCALES_MAX, STRIP_ROWS};

/// The type MXFP4.
pub struct Mxfp4;

/// Twice the numbers of the codes, plus [`Mxfp4::OFFSET`].
const NUMBERS: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// The bits of 2 ^ -127, the scale of exponent 0 before it is halved.
const LEAST: u32 = 1 << 22;

impl Format for Mxfp4 {
    const GGML_TYPE: i32 = 39;
    const NAME: &'static str = "MXFP4";
    const COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 17;
    const HEAD_BYTES: usize = 16;
    const CHUNK_BYTES: usize = NIBBLES_BYTES;
    const CODE_MAX: u8 = 24;
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 12;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            head[row] = block[0].min(254);
            pack_bytes(codes, row, &block[1..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = f32::from_bits((u32::from(head[row]) << 23).max(LEAST)) * 0.5;
        for (column, weight) in weights.iter_mut().enumerate() {
            let number = f32::from(NUMBERS[usize::from(nibble(codes, row, column))]);
            *weight = scale * (number - 12.0);
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the head has 16 bytes; this reads those from `row` on.
        unsafe {
            let power = S::from_bits(S::left::<23>(S::load_u8(head.add(row))));
            let power = S::max(power, S::from_bits(S::splat_lane(LEAST)));
            let mut scales = [S::splat_f32(0.0); SCALES_MAX];
            scales[0] = S::mul(power, S::splat_f32(0.5));
            scales
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { S::look_up(&NUMBERS, nibbles::<S>(chunk, row, v)) }
    }
}
