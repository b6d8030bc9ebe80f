//! Q3_K: 3-bit codes minus 4, and a 6-bit scale minus 32 for each 16 columns.
//!
//! ```text
//! head of a tile, 224 bytes: three vectors of 64 bytes, in which each row has 4 bytes, as in the file
//!
//!   vectors 0 and 1, byte j of a row:   low 4 bits of scales 4 vector + j and 8 + 4 vector + j
//!   vector 2, byte j of a row:          high 2 bits of scales j, 4 + j, 8 + j, 12 + j
//!
//!   then 16 halves that multiply the scales
//!
//! chunk of 32 columns x 16 rows, 192 bytes: pairs of bits, then the third bits, as `codes` draws them
//! ```

use super::super::simd::Simd;
use super::codes::{BITS_BYTES, PAIRS_BYTES, bit, bits, byte, pack_bits, pack_pairs, pair, pairs};
use super::q2_k::pairs_of_chunk;
use super::{CHUNK, Format, SCALES_MAX, STRIP_ROWS, half, word};

/// The type Q3_K.
pub struct Q3K;

/// Offset of the halves that multiply the scales.
const SCALE: usize = 192;

/// What is subtracted from a scale.
const SCALE_OFFSET: u8 = 32;

impl Format for Q3K {
    const GGML_TYPE: i32 = 11;
    const NAME: &'static str = "Q3_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 110;
    const HEAD_BYTES: usize = 224;
    const CHUNK_BYTES: usize = PAIRS_BYTES + BITS_BYTES;
    const CODE_MAX: u8 = 7;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: i32 = 4;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                pack_pairs(chunk, row, |v| pairs_of_chunk(&block[32..], index, v));
                // In the file, byte l has the bits of column l of all eight chunks.
                let third = |v: usize| word(block, 4 * v) >> index & 0x0101_0101;
                pack_bits(&mut chunk[PAIRS_BYTES..], row, third);
            }
            for i in 0..3 {
                head[64 * i + 4 * row..][..4].copy_from_slice(&block[96 + 4 * i..][..4]);
            }
            head[SCALE + 2 * row..][..2].copy_from_slice(&block[108..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let scale = half(head, SCALE + 2 * row);
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for (index, (chunk, weights)) in chunks.enumerate() {
            for (column, weight) in weights.iter_mut().enumerate() {
                let group = 2 * index + column / 16;
                let low = head[64 * (group / 4 % 2) + 4 * row + group % 4] >> (group / 8 * 4) & 15;
                let high = head[128 + 4 * row + group % 4] >> (group / 4 * 2) & 3;
                let of_16 = scale * (f32::from(low | high << 4) - f32::from(SCALE_OFFSET));
                let third = bit(&chunk[PAIRS_BYTES..], row, column);
                *weight = of_16 * (f32::from(pair(chunk, row, column) | third << 2) - 4.0);
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the head has three vectors of 64 bytes and then 16 halves; this reads those of the
        // rows from `row` on.
        unsafe {
            let scale = S::load_f16(head.add(SCALE + 2 * row));
            let high = S::load(head.add(128 + 4 * row));
            let (low_bits, high_bits) = (S::splat_byte(0x0F), S::splat_byte(0x30));
            let offset = S::splat_lane(u32::from(SCALE_OFFSET).wrapping_neg());
            // A loop, because a closure would not have the instruction set.
            let mut scales = [S::splat_f32(0.0); SCALES_MAX];
            for (i, of_group) in scales.iter_mut().enumerate() {
                let low = S::load(head.add(64 * (i / 4 % 2) + 4 * row));
                let low = if i < 8 { low } else { S::right::<4>(low) };
                let high = match i / 4 {
                    0 => S::left::<4>(high),
                    1 => S::left::<2>(high),
                    2 => high,
                    _ => S::right::<2>(high),
                };
                let four = S::or(S::and(low, low_bits), S::and(high, high_bits));
                let number = S::add(byte::<S>(four, i % 4), offset);
                *of_group = S::mul(S::float(number), scale);
            }
            scales
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it; the third bits follow the pairs.
        unsafe {
            let third = bits::<S, 2>(chunk.add(PAIRS_BYTES), row, v);
            S::or(pairs::<S, false>(chunk, row, v), third)
        }
    }
}
