//! IQ4_XS: the codes of IQ4_NL, and a 6-bit scale minus 32 for each 32 columns.
//!
//! ```text
//! head of a tile, 128 bytes
//!
//!   one vector, byte j of a row:   low 4 bits of scales 2j and 2j + 1
//!   16 numbers of 16 bits:         bits 2c and 2c + 1 are the high bits of scale c
//!   16 halves                      multiply the scales
//!
//! chunk of 32 columns x 16 rows, 256 bytes: nibbles, as in Q4_0
//! ```

use super::super::simd::Simd;
use super::codes::{NIBBLES_BYTES, nibble, nibbles, pack_bytes};
use super::iq4_nl::{NUMBERS, number};
use super::{CHUNK, Format, SCALES_MAX, STRIP_ROWS, half};

/// The type IQ4_XS.
pub struct Iq4Xs;

/// Offset of the scales' high bits.
const HIGH: usize = 64;

/// Offset of the halves that multiply the scales.
const SCALE: usize = 96;

/// What is subtracted from a scale.
const SCALE_OFFSET: u8 = 32;

impl Format for Iq4Xs {
    const GGML_TYPE: i32 = 23;
    const NAME: &'static str = "IQ4_XS";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 136;
    const HEAD_BYTES: usize = 128;
    const CHUNK_BYTES: usize = NIBBLES_BYTES;
    const CODE_MAX: u8 = NUMBERS[15];
    const CHUNK_SCALES: usize = 1;
    const OFFSET: i32 = 128;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            head[SCALE + 2 * row..][..2].copy_from_slice(&block[..2]);
            head[HIGH + 2 * row..][..2].copy_from_slice(&block[2..4]);
            head[4 * row..][..4].copy_from_slice(&block[4..8]);
            let chunks = codes.chunks_exact_mut(Self::CHUNK_BYTES);
            for (chunk, bytes) in chunks.zip(block[8..].chunks_exact(CHUNK / 2)) {
                pack_bytes(chunk, row, bytes);
            }
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, SCALE + 2 * row);
        let all_high = u16::from_le_bytes([head[HIGH + 2 * row], head[HIGH + 2 * row + 1]]);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for (index, (chunk, weights)) in chunks.enumerate() {
            let low = head[4 * row + index / 2] >> (index % 2 * 4) & 15;
            let high = (all_high >> (2 * index) & 3) as u8;
            let of_chunk = scale * (f32::from(low | high << 4) - f32::from(SCALE_OFFSET));
            for (column, weight) in weights.iter_mut().enumerate() {
                *weight = of_chunk * number(nibble(chunk, row, column));
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the head has the three parts; this reads those of the rows from `row` on.
        unsafe {
            let low = S::load(head.add(4 * row));
            let high = S::load_u16(head.add(HIGH + 2 * row));
            let scale = S::load_f16(head.add(SCALE + 2 * row));
            let offset = S::splat_lane(u32::from(SCALE_OFFSET).wrapping_neg());
            let (low_bits, high_bits) = (S::splat_lane(0x0F), S::splat_lane(0x30));
            let mut scales = [S::splat_f32(0.0); SCALES_MAX];
            // Written out, because the counts of shifts are constants.
            let numbers = [
                S::or(S::and(low, low_bits), S::and(S::left::<4>(high), high_bits)),
                S::or(S::and(S::right::<4>(low), low_bits), S::and(S::left::<2>(high), high_bits)),
                S::or(S::and(S::right::<8>(low), low_bits), S::and(high, high_bits)),
                S::or(
                    S::and(S::right::<12>(low), low_bits),
                    S::and(S::right::<2>(high), high_bits),
                ),
                S::or(
                    S::and(S::right::<16>(low), low_bits),
                    S::and(S::right::<4>(high), high_bits),
                ),
                S::or(
                    S::and(S::right::<20>(low), low_bits),
                    S::and(S::right::<6>(high), high_bits),
                ),
                S::or(
                    S::and(S::right::<24>(low), low_bits),
                    S::and(S::right::<8>(high), high_bits),
                ),
                S::or(S::right::<28>(low), S::and(S::right::<10>(high), high_bits)),
            ];
            for (of_chunk, number) in scales.iter_mut().zip(numbers) {
                *of_chunk = S::mul(S::float(S::add(number, offset)), scale);
            }
            scales
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { S::look_up(&NUMBERS, nibbles::<S>(chunk, row, v)) }
    }
}
