//! Codes of 4, 2 and 1 bits, of which codes are put together. Each part of a chunk is some vectors
//! of 64 bytes, in which a row has 4 bytes:
//!
//! ```text
//! nibbles, four vectors     vector v, byte i: low 4 bits column 4v + i, high 4 bits column 16 + 4v + i
//! pairs of bits, two        vector h, byte i: bits 2f and 2f + 1 column 4 (2f + h) + i
//! single bits, one          byte i: bit v column 4v + i
//! ```
//!
//! A function takes the words of the file by vector: byte `i` of word `v` is the code of column
//! `4v + i`.

use super::super::simd::Simd;

/// Columns in a chunk.
pub const CHUNK: usize = 32;

/// Vectors in a chunk. Each has four columns.
pub const VECTORS: usize = CHUNK / 4;

/// Bytes of a chunk's nibbles.
pub const NIBBLES_BYTES: usize = 256;

/// Bytes of a chunk's pairs of bits.
pub const PAIRS_BYTES: usize = 128;

/// Bytes of a chunk's single bits.
pub const BITS_BYTES: usize = 64;

/// Reads four bytes, lowest first.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes four bytes, the lowest first.
pub fn set_word(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Packs a row's codes of 4 bits into `to`.
pub fn pack_nibbles(to: &mut [u8], row: usize, codes: impl Fn(usize) -> u32) {
    for v in 0..4 {
        set_word(to, 64 * v + 4 * row, codes(v) | codes(v + 4) << 4);
    }
}

/// Packs the 16 bytes of a block of 32 columns, which has the same two columns in a byte.
pub fn pack_bytes(to: &mut [u8], row: usize, block: &[u8]) {
    for v in 0..4 {
        set_word(to, 64 * v + 4 * row, word(block, 4 * v));
    }
}

/// Packs a row's pairs of bits.
pub fn pack_pairs(to: &mut [u8], row: usize, codes: impl Fn(usize) -> u32) {
    for h in 0..2 {
        let pairs = (0..4).map(|f| codes(2 * f + h) << (2 * f));
        set_word(to, 64 * h + 4 * row, pairs.fold(0, |all, pair| all | pair));
    }
}

/// Packs a row's single bits.
pub fn pack_bits(to: &mut [u8], row: usize, codes: impl Fn(usize) -> u32) {
    let bits = (0..VECTORS).map(|v| codes(v) << v);
    set_word(to, 4 * row, bits.fold(0, |all, bit| all | bit));
}

/// Four bits of `bits`, one in each byte: those of the columns of vector `v`, if bit `c` is that of
/// column `c`.
pub fn spread(bits: u32, v: usize) -> u32 {
    (0..4).fold(0, |word, i| word | (bits >> (4 * v + i) & 1) << (8 * i))
}

/// Byte `j` of each lane.
///
/// # Safety
/// As [`Simd`] asks.
#[inline(always)]
pub unsafe fn byte<S: Simd>(four: S::Int, j: usize) -> S::Int {
    // SAFETY: the caller guarantees the instruction set.
    unsafe {
        let first = match j {
            0 => four,
            1 => S::right::<8>(four),
            2 => S::right::<16>(four),
            _ => S::right::<24>(four),
        };
        S::and(first, S::splat_lane(0xFF))
    }
}

/// The order in which the four numbers of a vector's lanes lie: the bytes 0 and 2 are then, as two
/// 16-bit integers, neighbours, and so are 1 and 3. It is its own inverse.
pub const PAIRED: [usize; 4] = [0, 2, 1, 3];

/// Reads one packed 4-bit code.
pub fn nibble(from: &[u8], row: usize, column: usize) -> u8 {
    let byte = from[column % 16 / 4 * 64 + 4 * row + column % 4];
    if column < 16 { byte & 15 } else { byte >> 4 }
}

/// Reads one packed pair of bits.
pub fn pair(from: &[u8], row: usize, column: usize) -> u8 {
    let v = column / 4;
    from[v % 2 * 64 + 4 * row + column % 4] >> (v / 2 * 2) & 3
}

/// Reads one packed bit.
pub fn bit(from: &[u8], row: usize, column: usize) -> u8 {
    from[4 * row + column % 4] >> (column / 4) & 1
}

/// Unpacks vector `v` of the 4-bit codes of the rows from `row` on.
///
/// # Safety
/// As [`Simd`] asks; `from` has [`NIBBLES_BYTES`].
#[inline(always)]
pub unsafe fn nibbles<S: Simd>(from: *const u8, row: usize, v: usize) -> S::Int {
    // SAFETY: this reads the rows from `row` on of one of four vectors.
    unsafe {
        let packed = S::load(from.add(64 * (v % 4) + 4 * row));
        let low = if v < 4 { packed } else { S::right::<4>(packed) };
        S::and(low, S::splat_byte(0x0F))
    }
}

/// Unpacks vector `v` of the pairs of bits of the rows from `row` on, times 16 with `IS_HIGH`.
///
/// # Safety
/// As [`Simd`] asks; `from` has [`PAIRS_BYTES`].
#[inline(always)]
pub unsafe fn pairs<S: Simd, const IS_HIGH: bool>(from: *const u8, row: usize, v: usize) -> S::Int {
    // SAFETY: this reads the rows from `row` on of one of two vectors.
    unsafe {
        let packed = S::load(from.add(64 * (v % 2) + 4 * row));
        let shifted = match (IS_HIGH, v / 2) {
            (true, 0) => S::left::<4>(packed),
            (true, 1) => S::left::<2>(packed),
            (true, 2) | (false, 0) => packed,
            (true, _) | (false, 1) => S::right::<2>(packed),
            (false, 2) => S::right::<4>(packed),
            (false, _) => S::right::<6>(packed),
        };
        S::and(shifted, S::splat_byte(if IS_HIGH { 0x30 } else { 0x03 }))
    }
}

/// Unpacks vector `v` of the single bits of the rows from `row` on, times `1 << TO`: 2 or 4.
///
/// # Safety
/// As [`Simd`] asks; `from` has [`BITS_BYTES`].
#[inline(always)]
pub unsafe fn bits<S: Simd, const TO: usize>(from: *const u8, row: usize, v: usize) -> S::Int {
    // SAFETY: this reads the rows from `row` on of a vector.
    unsafe {
        let packed = S::load(from.add(4 * row));
        let shifted = match v as isize - TO as isize {
            -4 => S::left::<4>(packed),
            -3 => S::left::<3>(packed),
            -2 => S::left::<2>(packed),
            -1 => S::left::<1>(packed),
            0 => packed,
            1 => S::right::<1>(packed),
            2 => S::right::<2>(packed),
            3 => S::right::<3>(packed),
            4 => S::right::<4>(packed),
            _ => S::right::<5>(packed),
        };
        S::and(shifted, S::splat_byte(1 << TO))
    }
}
