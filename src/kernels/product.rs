//! The inner loop: one strip of weights times a few rows of activations.
//!
//! ```text
//!             16 rows of weights, the lanes of a register
//!            +---------------------------------------+
//! 4 columns  | codes, unpacked once for all rows ... |  vector v
//!            +---------------------------------------+
//!                x  4 activations of row r, in every lane, straight from memory
//!                =  sums[r], 16 integers; for 32 columns, no more is done (with AVX2, sums of
//!                   pairs in 16 bits, which are added up in 32 bits every few vectors)
//! ```
//!
//! The sums of each group of columns that shares a scale are then converted to floats and
//! multiplied by that scale. The sums of each block are multiplied by the activations' scale. No
//! sum goes across lanes.

use super::activations::{RowLayout, chunk_sums_bytes};
use super::ahead::Ahead;
use super::formats::{CHUNK, Format, LINE, Minima, SCALES_MAX, STRIP_ROWS, VECTORS, heads_bytes};
use super::simd::Simd;

/// Most rows of activations that a kernel takes at once.
pub const ROWS_MAX: usize = 8;

/// Arguments of one kernel call.
#[derive(Clone, Copy)]
pub struct Work {
    /// A packed strip.
    pub strip: *const u8,
    /// Columns of the strip and of the activations.
    pub columns: usize,
    /// The rows of activations.
    pub activations: [*const u8; ROWS_MAX],
    /// The layout of each row.
    pub layout: RowLayout,
    /// Receive the 16 products of each row.
    pub out: [*mut f32; ROWS_MAX],
    /// The prefetch distance.
    pub ahead: Ahead,
}

/// Multiplies a strip with `ROWS` rows of activations.
///
/// # Safety
/// As [`Simd`] asks; each pointer in `work` is valid for the data that its field describes.
#[inline(always)]
pub unsafe fn multiply<S: Simd, F: Format, const ROWS: usize>(work: &Work) {
    // SAFETY: the caller guarantees it.
    unsafe {
        for row in (0..STRIP_ROWS).step_by(S::LANES) {
            multiply_lanes::<S, F, ROWS>(work, row);
        }
    }
}

/// Multiplies the rows `first .. first + S::LANES` of a strip.
#[inline(always)]
unsafe fn multiply_lanes<S: Simd, F: Format, const ROWS: usize>(work: &Work, first: usize) {
    // SAFETY: the caller guarantees it. All offsets lie within the strip of `columns` columns or
    // within rows of `layout`; a prefetch may go beyond.
    unsafe {
        let Work { strip, columns, layout, ahead, .. } = *work;
        let mut rows = [std::ptr::null(); ROWS];
        rows.copy_from_slice(&work.activations[..ROWS]);
        // With a set whose unsigned bytes end before the largest code, 128 is subtracted here.
        let is_signed = F::CODE_MAX > S::CODE_MAX;
        const { assert!(F::CODE_MAX <= S::CODE_MAX || F::OFFSET == 128) };
        const { assert!(!matches!(F::MINIMA, Minima::Float) || F::COLUMNS == CHUNK) };
        let adds_pairs = S::ADDS_PAIRS && !is_signed;
        let most = if adds_pairs { pair_sums_max::<F>() } else { 1 };
        let ones = S::splat_lane(0x0001_0001);
        let codes = strip.add(heads_bytes::<F>(columns));
        let chunks = F::COLUMNS / CHUNK;
        let mut totals = [S::splat_f32(0.0); ROWS];
        for tile in 0..columns / F::COLUMNS {
            let head = strip.add(tile * F::HEAD_BYTES);
            prefetch(ahead, head, F::HEAD_BYTES);
            let scales: [S::Float; SCALES_MAX] = F::scales::<S>(head, first);
            let mut tile_sums = [S::splat_f32(0.0); ROWS];
            for chunk in 0..chunks {
                let index = tile * chunks + chunk;
                let at = codes.add(index * F::CHUNK_BYTES);
                prefetch(ahead, at, F::CHUNK_BYTES);
                let vectors = VECTORS / F::CHUNK_SCALES;
                for group in 0..F::CHUNK_SCALES {
                    let mut sums = [S::zero(); ROWS];
                    if F::OFFSET != 0 && !is_signed {
                        let at = layout.sums + (index * F::CHUNK_SCALES + group) * size_of::<i32>();
                        for (sum, row) in sums.iter_mut().zip(rows) {
                            *sum = S::splat(row.add(at));
                        }
                    }
                    for span in (group * vectors..(group + 1) * vectors).step_by(most) {
                        let mut pairs = [S::zero(); ROWS];
                        for v in span..span + most {
                            let mut codes = F::code::<S>(at, first, v);
                            if is_signed {
                                codes = S::xor(codes, S::splat_byte(0x80));
                            }
                            for r in 0..ROWS {
                                let four = S::splat(rows[r].add(index * CHUNK + 4 * v));
                                if adds_pairs {
                                    pairs[r] = S::add_pairs(pairs[r], codes, four);
                                } else if is_signed {
                                    sums[r] = S::dot8_signed(sums[r], codes, four);
                                } else {
                                    sums[r] = S::dot8(sums[r], codes, four);
                                }
                            }
                        }
                        if adds_pairs {
                            for (sum, pairs) in sums.iter_mut().zip(pairs) {
                                *sum = S::dot16(*sum, pairs, ones);
                            }
                        }
                    }
                    let scale = scales[chunk * F::CHUNK_SCALES + group];
                    for (tile_sum, sum) in tile_sums.iter_mut().zip(sums) {
                        *tile_sum = S::mul_add(S::float(sum), scale, *tile_sum);
                    }
                }
            }
            let of_tile = layout.sums + tile * chunks * chunk_sums_bytes::<F>();
            match F::MINIMA {
                Minima::None => (),
                Minima::Integers => {
                    let (pairs, scale) = F::minima::<S>(head, first);
                    let mut sums = [S::zero(); ROWS];
                    for (pair, minima) in pairs[..chunks * F::CHUNK_SCALES / 2].iter().enumerate() {
                        let at = of_tile + 2 * pair * size_of::<i16>();
                        for (sum, row) in sums.iter_mut().zip(rows) {
                            *sum = S::dot16(*sum, *minima, S::splat(row.add(at)));
                        }
                    }
                    for (tile_sum, sum) in tile_sums.iter_mut().zip(sums) {
                        *tile_sum = S::neg_mul_add(S::float(sum), scale, *tile_sum);
                    }
                }
                Minima::Float => {
                    let minimum = F::minimum::<S>(head, first);
                    for (tile_sum, row) in tile_sums.iter_mut().zip(rows) {
                        let sum = S::float(S::splat(row.add(of_tile)));
                        *tile_sum = S::mul_add(sum, minimum, *tile_sum);
                    }
                }
            }
            for r in 0..ROWS {
                let scale = rows[r].add(layout.scales).cast::<f32>().add(tile).read();
                totals[r] = S::mul_add(tile_sums[r], S::splat_f32(scale), totals[r]);
            }
        }
        for (r, total) in totals.into_iter().enumerate() {
            S::store_f32(work.out[r].add(first), total);
        }
    }
}

/// The most vectors of codes of a group whose sums of pairs fit in 16 bits: 1, 2, 4 or 8.
const fn pair_sums_max<F: Format>() -> usize {
    let largest = F::CODE_MAX as usize * 2 * 127;
    assert!(F::CODE_MAX > 127 || largest <= i16::MAX as usize);
    let mut most = VECTORS / F::CHUNK_SCALES;
    while most > 1 && most * largest > i16::MAX as usize {
        most /= 2;
    }
    most
}

/// Prefetches as many bytes as `bytes`, at the distance `ahead` behind `from`. They need not be
/// valid memory.
#[inline(always)]
pub fn prefetch(ahead: Ahead, from: *const u8, bytes: usize) {
    let from = from.wrapping_add(ahead.bytes());
    match ahead {
        Ahead::Near => lines(from, bytes).for_each(prefetch_near),
        Ahead::Far => lines(from, bytes).for_each(prefetch_line),
    }
}

/// The cache lines of `bytes` bytes.
#[inline(always)]
pub fn lines(from: *const u8, bytes: usize) -> impl Iterator<Item = *const u8> {
    (0..bytes).step_by(LINE).map(move |at| from.wrapping_add(at))
}

/// Prefetches the line at `from`, which need not be valid memory, into the first-level cache.
#[inline(always)]
pub fn prefetch_near(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and a prefetch of an address
        // without memory does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Prefetches the line at `from`, which need not be valid memory, into the second-level cache. More
/// lines can be on their way to it than to the first-level cache.
#[inline(always)]
pub fn prefetch_line(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as in `prefetch_near`, an address without memory does no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}
