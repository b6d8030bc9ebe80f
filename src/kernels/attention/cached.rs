//! The types of cached keys and values: one row of numbers for each cell and head.

use super::super::formats::half;
use super::super::product::prefetch_line;
use super::super::simd::Simd;

/// A type of cached numbers.
pub trait Cached {
    /// ggml's number of the type.
    const GGML_TYPE: i32;
    /// Numbers in a block.
    const BLOCK_NUMBERS: usize;
    /// Bytes of a block.
    const BLOCK_BYTES: usize;
    /// Whether the rows are in the cache itself, rather than in a converted copy.
    const IS_CACHED: bool = true;
    /// Whether keys of this type are multiplied as integers. Queries are then rounded to 8 bits,
    /// like the keys.
    const IS_QUANTISED: bool = false;

    /// Reads the numbers `at .. at + S::LANES` of a row; `at` is a multiple of the lanes.
    ///
    /// # Safety
    /// As [`Simd`] asks; the row has these numbers.
    unsafe fn load<S: Simd>(row: *const u8, at: usize) -> S::Float;
}

/// 32-bit floats.
pub struct F32;
/// Rows of the cache as floats, for one block of cells.
pub struct Converted;
/// IEEE's 16-bit floats.
pub struct F16;
/// Floats cut to 16 bits.
pub struct Bf16;
/// Signed bytes. Each 32 of them share a scale: a 16-bit float before them.
pub struct Q8_0;

impl Cached for F32 {
    const GGML_TYPE: i32 = 0;
    const BLOCK_NUMBERS: usize = 1;
    const BLOCK_BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, at: usize) -> S::Float {
        // SAFETY: the caller guarantees it.
        unsafe { S::load_f32(row.cast::<f32>().add(at)) }
    }
}

impl Cached for Converted {
    const GGML_TYPE: i32 = F32::GGML_TYPE;
    const BLOCK_NUMBERS: usize = F32::BLOCK_NUMBERS;
    const BLOCK_BYTES: usize = F32::BLOCK_BYTES;
    const IS_CACHED: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, at: usize) -> S::Float {
        // SAFETY: the caller guarantees it.
        unsafe { F32::load::<S>(row, at) }
    }
}

impl Cached for F16 {
    const GGML_TYPE: i32 = 1;
    const BLOCK_NUMBERS: usize = 1;
    const BLOCK_BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, at: usize) -> S::Float {
        // SAFETY: the caller guarantees it.
        unsafe { S::load_f16(row.add(2 * at)) }
    }
}

impl Cached for Bf16 {
    const GGML_TYPE: i32 = 30;
    const BLOCK_NUMBERS: usize = 1;
    const BLOCK_BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, at: usize) -> S::Float {
        // SAFETY: the caller guarantees it.
        unsafe { S::load_bf16(row.add(2 * at)) }
    }
}

impl Cached for Q8_0 {
    const GGML_TYPE: i32 = 8;
    const BLOCK_NUMBERS: usize = 32;
    const BLOCK_BYTES: usize = 34;
    const IS_QUANTISED: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, at: usize) -> S::Float {
        // SAFETY: the caller guarantees it; a vector lies in one block.
        unsafe {
            let block = row.add(at / Self::BLOCK_NUMBERS * Self::BLOCK_BYTES);
            let codes = S::load_i8(block.add(2 + at % Self::BLOCK_NUMBERS));
            S::mul(S::float(codes), S::load_scale(block))
        }
    }
}

/// Prefetches a row from number `at` on, if the row is in the cache itself.
#[inline(always)]
pub fn prefetch_numbers<C: Cached>(row: *const u8, at: usize) {
    if C::IS_CACHED {
        prefetch_line(row.wrapping_add(at * C::BLOCK_BYTES / C::BLOCK_NUMBERS));
    }
}

/// Bytes of a row of `numbers` numbers.
pub const fn row_bytes<C: Cached>(numbers: usize) -> usize {
    numbers / C::BLOCK_NUMBERS * C::BLOCK_BYTES
}

/// A query in the form that is multiplied with keys of type [`Q8_0`], stored in place of its
/// floats:
///
/// ```text
/// codes    [numbers] i8, in blocks of 32, from -127 to 127
/// offsets  [numbers / 4] i32: -128 times the sum of four codes, because keys are
///          multiplied as unsigned bytes, 128 larger than they are
/// scales   [numbers / 4] f32: of the block that the four codes are in
/// ```
///
/// `numbers` is rounded up to whole pairs of blocks, with zeros.
pub struct QuantisedQuery {
    /// Where the codes are.
    pub codes: *mut u8,
    /// Where the offsets are.
    pub offsets: *mut u8,
    /// Where the scales are.
    pub scales: *mut f32,
}

impl QuantisedQuery {
    /// The query at `query`, with `numbers` numbers.
    ///
    /// # Safety
    /// `query` has room for [`query_floats`] floats.
    pub unsafe fn at(query: *mut f32, numbers: usize) -> Self {
        let numbers = query_floats(numbers);
        // SAFETY: the caller guarantees it.
        unsafe {
            let codes: *mut u8 = query.cast();
            Self { codes, offsets: codes.add(numbers), scales: codes.add(2 * numbers).cast() }
        }
    }

    /// Rounds `query` in place, block by block, as ggml does for Q8_0.
    ///
    /// # Safety
    /// `query` points to [`query_floats`] floats. The first `numbers` of them are set, and are
    /// whole blocks.
    pub unsafe fn quantise(query: *mut f32, numbers: usize) {
        let mut floats = [0.0; HEAD_NUMBERS_MAX];
        let padded = query_floats(numbers);
        // SAFETY: the caller guarantees it.
        let (to, from) = unsafe {
            (Self::at(query, numbers), std::slice::from_raw_parts(query.cast_const(), numbers))
        };
        floats[..numbers].copy_from_slice(from);
        for (block, floats) in floats[..padded].chunks_exact(Q8_0::BLOCK_NUMBERS).enumerate() {
            let largest = floats.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let inverse = if largest > LARGEST_MIN { 127.0 / largest } else { 0.0 };
            for (index, four) in floats.chunks_exact(4).enumerate() {
                let codes = [0, 1, 2, 3].map(|i| (four[i] * inverse).round_ties_even() as i8); // within 127
                let sum: i32 = codes.into_iter().map(i32::from).sum();
                let group = block * (Q8_0::BLOCK_NUMBERS / 4) + index;
                // SAFETY: the groups of whole blocks, as the caller promises room for.
                unsafe {
                    to.codes.cast::<[i8; 4]>().add(group).write(codes);
                    to.offsets.cast::<i32>().add(group).write(-128 * sum);
                    to.scales.add(group).write(largest / 127.0);
                }
            }
        }
    }
}

/// Below this, the largest number of a block counts as zero, because 127 divided by it could
/// overflow.
const LARGEST_MIN: f32 = 1e-36;

/// Most numbers of a head.
pub const HEAD_NUMBERS_MAX: usize = 256;

/// Numbers of a head are a multiple of this: the largest vector.
pub const HEAD_NUMBERS_STEP: usize = 16;

/// Floats of room for a query of `numbers` numbers: whole pairs of blocks of [`Q8_0`].
pub const fn query_floats(numbers: usize) -> usize {
    numbers.next_multiple_of(2 * Q8_0::BLOCK_NUMBERS)
}

/// Converts a value of the mask, a 16-bit float.
pub fn mask_value(bits: u16) -> f32 {
    match bits {
        0 => 0.0,
        HIDDEN => f32::NEG_INFINITY,
        bits => half(&bits.to_le_bytes(), 0),
    }
}

/// The mask's bits for a cell that a row does not see: minus infinity.
pub const HIDDEN: u16 = 0xfc00;
