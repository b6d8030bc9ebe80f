//! Q2_K: 2-bit codes, and for each 16 columns a scale and a minimum of 4 bits.
//!
//! ```text
//! head of a tile, 320 bytes
//!
//!   vector i of four, byte j of a row:   low 4 bits scale 4i + o, high 4 bits minimum 4i + o,
//!                                        with o = 0, 2, 1, 3 for j = 0, 1, 2, 3: so the bytes 0
//!                                        and 2 have the minima of neighbours, and so do 1 and 3
//!   16 halves                            multiply the scales
//!   16 halves                            multiply the minima
//!
//! chunk of 32 columns x 16 rows, 128 bytes: pairs of bits, as `codes` draws them
//! ```

use super::super::simd::Simd;
use super::codes::{PAIRED, PAIRS_BYTES, byte, pack_pairs, pair, pairs};
use super::{CHUNK, Format, Minima, PAIRS_MAX, SCALES_MAX, STRIP_ROWS, half, word};

/// The type Q2_K.
pub struct Q2K;

/// Offset of the halves that multiply the scales.
const SCALE: usize = 256;

/// Offset of the halves that multiply the minima.
const MINIMA_SCALE: usize = 288;

impl Format for Q2K {
    const GGML_TYPE: i32 = 10;
    const NAME: &'static str = "Q2_K";
    const COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 84;
    const HEAD_BYTES: usize = 320;
    const CHUNK_BYTES: usize = PAIRS_BYTES;
    const CODE_MAX: u8 = 3;
    const CHUNK_SCALES: usize = 2;
    const OFFSET: i32 = 0;
    const MINIMA: Minima = Minima::Integers;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            for (index, chunk) in codes.chunks_exact_mut(Self::CHUNK_BYTES).enumerate() {
                pack_pairs(chunk, row, |v| pairs_of_chunk(&block[16..], index, v));
            }
            for (at, of_group) in block[..16].iter().enumerate() {
                head[64 * (at / 4) + 4 * row + PAIRED[at % 4]] = *of_group;
            }
            head[SCALE + 2 * row..][..2].copy_from_slice(&block[80..82]);
            head[MINIMA_SCALE + 2 * row..][..2].copy_from_slice(&block[82..]);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        let (scale, minima_scale) =
            (half(head, SCALE + 2 * row), half(head, MINIMA_SCALE + 2 * row));
        let chunks = codes.chunks_exact(Self::CHUNK_BYTES).zip(weights.chunks_exact_mut(CHUNK));
        for (index, (chunk, weights)) in chunks.enumerate() {
            for (column, weight) in weights.iter_mut().enumerate() {
                let group = 2 * index + column / 16;
                let of_group = head[64 * (group / 4) + 4 * row + PAIRED[group % 4]];
                let of_16 =
                    (scale * f32::from(of_group & 15), minima_scale * f32::from(of_group >> 4));
                *weight = of_16.0 * f32::from(pair(chunk, row, column)) - of_16.1;
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the head has four vectors of 64 bytes and then 16 halves; this reads those of the
        // rows from `row` on.
        unsafe {
            let scale = S::load_f16(head.add(SCALE + 2 * row));
            // A loop, because a closure would not have the instruction set.
            let mut scales = [S::splat_f32(0.0); SCALES_MAX];
            for (i, of_group) in scales.iter_mut().enumerate() {
                let four = S::load(head.add(64 * (i / 4) + 4 * row));
                let low = S::and(byte::<S>(four, PAIRED[i % 4]), S::splat_lane(0x0F));
                *of_group = S::mul(S::float(low), scale);
            }
            scales
        }
    }

    #[inline(always)]
    unsafe fn minima<S: Simd>(head: *const u8, row: usize) -> ([S::Int; PAIRS_MAX], S::Float) {
        // SAFETY: as for the scales.
        unsafe {
            let two = S::splat_lane(0x000F_000F);
            let mut pairs = [S::zero(); PAIRS_MAX];
            for i in 0..4 {
                let four = S::load(head.add(64 * i + 4 * row));
                pairs[2 * i] = S::and(S::right::<4>(four), two);
                pairs[2 * i + 1] = S::and(S::right::<12>(four), two);
            }
            (pairs, S::load_f16(head.add(MINIMA_SCALE + 2 * row)))
        }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { pairs::<S, false>(chunk, row, v) }
    }
}

/// The low two bits of a block of Q2_K or Q3_K: those of vector `v` of chunk `index`. In the file,
/// 32 bytes hold the codes of four chunks.
pub fn pairs_of_chunk(codes: &[u8], index: usize, v: usize) -> u32 {
    word(codes, index / 4 * 32 + 4 * v) >> (index % 4 * 2) & 0x0303_0303
}
