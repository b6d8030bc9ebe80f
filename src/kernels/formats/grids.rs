//! The codes of the IQ2 and IQ3 types. A number chooses a row of a grid, which has the sizes of eight
//! (IQ2) or four (IQ3) neighbouring columns, and a bit for each column says whether it is negative.
//!
//! ```text
//! chunk of 32 columns x 16 rows
//!
//!   4 (or 8) times 16 bytes:   in part p, byte r is the low 8 bits of the number of row r
//!                              for the columns 8p .. 8p + 8 (or 4p .. 4p + 4)
//!   64 bytes:                  1 for a negative weight; single bits, as `codes` draws them
//!   16 bytes, not in XXS:      byte r has the high bits of row r's numbers, the first number's lowest
//!
//! head of a tile
//!
//!   64 bytes for 8 scales,
//!   128 for 16:                a word for each row and 8 scales, nibble i is scale i
//!   16 halves                  multiply the scales
//! ```
//!
//! A scale `s` of 4 bits stands for `1 + 2 s`. In the file, the XXS types and IQ2_XS have seven signs for eight
//! columns: the number of negative weights is even.

use super::super::simd::Simd;
use super::codes::{BITS_BYTES, bit, pack_bits, spread};
use super::{CHUNK, Format, HALVES_BYTES, SCALES_MAX, STRIP_ROWS, half, set_word, word};

// ggml's grids, which the build script writes.
include!(concat!(env!("OUT_DIR"), "/grids.rs"));

/// IQ2_XXS's grid.
pub static IQ2_XXS: [u32; 512] = shifted(IQ2XXS_GRID, OFFSET);
/// IQ2_XS's grid.
pub static IQ2_XS: [u32; 1024] = shifted(IQ2XS_GRID, OFFSET);
/// IQ2_S's grid.
pub static IQ2_S: [u32; 2048] = shifted(IQ2S_GRID, OFFSET);
/// IQ3_XXS's grid.
pub static IQ3_XXS: [u32; 256] = shifted(IQ3XXS_GRID, OFFSET);
/// IQ3_S's grid.
pub static IQ3_S: [u32; 512] = shifted(IQ3S_GRID, IQ3_S_OFFSET);

/// Added to sizes and subtracted from codes. The largest size is 62.
pub const OFFSET: u8 = 64;

/// The offset of IQ3_S, whose largest size is 15.
pub const IQ3_S_OFFSET: u8 = 16;

/// What differs between the types with a grid. [`OfGrid`] makes a [`Format`] of it.
pub trait Grid {
    /// See [`Format::GGML_TYPE`].
    const GGML_TYPE: i32;
    /// See [`Format::NAME`].
    const NAME: &'static str;
    /// See [`Format::BLOCK_BYTES`].
    const BLOCK_BYTES: usize;
    /// Scales of a chunk of 32 columns.
    const CHUNK_SCALES: usize;
    /// Added to sizes and subtracted from codes.
    const OFFSET: u8;
    /// Its grid, four columns in a word. Its offset is added to each size.
    const GRID: &'static [u32];
    /// High bits of a number, which are not in its byte.
    const HIGH_BITS: usize;
    /// Columns that a number stands for.
    const GRID_COLUMNS: usize;
    /// Factor of the file's half, which makes all scales integers.
    const SCALE: f32;

    /// Packs a block of the file as a row of a tile, with [`pack_head`] and [`pack_chunk`].
    fn pack_row(block: &[u8], row: usize, head: &mut [u8], codes: &mut [u8]);
}

/// The format of a type with a grid.
pub struct OfGrid<G>(std::marker::PhantomData<G>);

impl<G: Grid> Format for OfGrid<G> {
    const GGML_TYPE: i32 = G::GGML_TYPE;
    const NAME: &'static str = G::NAME;
    const COLUMNS: usize = COLUMNS;
    const BLOCK_BYTES: usize = G::BLOCK_BYTES;
    const HEAD_BYTES: usize = halves_at::<G>() + HALVES_BYTES;
    const CHUNK_BYTES: usize = chunk_bytes::<G>();
    const CODE_MAX: u8 = largest(G::GRID);
    const CHUNK_SCALES: usize = G::CHUNK_SCALES;
    const OFFSET: i32 = G::OFFSET as i32;

    fn pack(blocks: &[&[u8]; STRIP_ROWS], head: &mut [u8], codes: &mut [u8]) {
        for (row, block) in blocks.iter().enumerate() {
            G::pack_row(block, row, head, codes);
        }
    }

    fn unpack(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
        unpack::<G>(head, codes, row, weights);
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
        // SAFETY: the caller guarantees it.
        unsafe { scales::<S, G>(head, row) }
    }

    #[inline(always)]
    unsafe fn code<S: Simd>(chunk: *const u8, row: usize, v: usize) -> S::Int {
        // SAFETY: the caller guarantees it.
        unsafe { code::<S, G>(chunk, row, v) }
    }
}

/// Columns of a tile.
const COLUMNS: usize = 256;

/// The largest byte.
const fn largest(grid: &[u32]) -> u8 {
    let (mut at, mut largest) = (0, 0);
    while at < 4 * grid.len() {
        let byte = grid[at / 4].to_le_bytes()[at % 4];
        largest = if byte > largest { byte } else { largest };
        at += 1;
    }
    largest
}

/// Adds an offset to each byte.
const fn shifted<const N: usize>(mut grid: [u32; N], offset: u8) -> [u32; N] {
    assert!(largest(&grid) <= u8::MAX - offset);
    let mut at = 0;
    while at < N {
        grid[at] += 0x0101_0101 * offset as u32;
        at += 1;
    }
    grid
}

/// Bytes of a chunk.
pub const fn chunk_bytes<G: Grid>() -> usize {
    signs_at::<G>() + BITS_BYTES + if G::HIGH_BITS > 0 { STRIP_ROWS } else { 0 }
}

/// Offset of the signs in a chunk.
const fn signs_at<G: Grid>() -> usize {
    CHUNK / G::GRID_COLUMNS * STRIP_ROWS
}

/// Scales in a tile: 8 or 16.
const fn scales_of<G: Grid>() -> usize {
    COLUMNS / CHUNK * G::CHUNK_SCALES
}

/// Offset of the halves in a head.
const fn halves_at<G: Grid>() -> usize {
    scales_of::<G>() / 8 * 64
}

/// Packs a row's half and its scales, eight in a word.
pub fn pack_head<G: Grid>(head: &mut [u8], row: usize, half: &[u8], words: impl Fn(usize) -> u32) {
    let halves = halves_at::<G>();
    for at in 0..halves / 64 {
        set_word(head, 64 * at + 4 * row, words(at));
    }
    head[halves + 2 * row..][..2].copy_from_slice(&half[..2]);
}

/// Packs a row's numbers and signs, of which bit `c` is that of column `c`.
pub fn pack_chunk<G: Grid>(
    chunk: &mut [u8],
    row: usize,
    number: impl Fn(usize) -> u32,
    signs: u32,
) {
    let parts = CHUNK / G::GRID_COLUMNS;
    let high = (0..parts).fold(0, |all, part| {
        chunk[STRIP_ROWS * part + row] = number(part) as u8; // its low bits
        all | number(part) >> 8 << (G::HIGH_BITS * part)
    });
    let signs_at = signs_at::<G>();
    pack_bits(&mut chunk[signs_at..], row, |v| spread(signs, v));
    if G::HIGH_BITS > 0 {
        chunk[signs_at + BITS_BYTES + row] = high as u8; // eight bits
    }
}

/// Packs a block of an XXS type, which has for each chunk the bytes of its numbers, at `number_at`, and a word of four
/// times seven signs and a scale, at `word_at`.
pub fn pack_xxs_row<G: Grid>(
    block: &[u8],
    row: usize,
    head: &mut [u8],
    codes: &mut [u8],
    number_at: impl Fn(usize) -> usize,
    word_at: impl Fn(usize) -> usize,
) {
    let last = |chunk: usize| word(block, word_at(chunk));
    for (index, chunk) in codes.chunks_exact_mut(chunk_bytes::<G>()).enumerate() {
        let number = |part: usize| u32::from(block[number_at(index) + part]);
        let of_eight = |part: usize| eight_signs(last(index) >> (7 * part)) << (8 * part);
        let signs = (0..4).fold(0, |all, part| all | of_eight(part));
        pack_chunk::<G>(chunk, row, number, signs);
    }
    let scales = (0..8).fold(0, |all, chunk| all | last(chunk) >> 28 << (4 * chunk));
    pack_head::<G>(head, row, block, |_| scales);
}

/// Adds the eighth sign to seven: the number of negative weights is even.
pub fn eight_signs(seven: u32) -> u32 {
    let seven = seven & 127;
    seven | (seven.count_ones() & 1) << 7
}

/// Implements [`Format::unpack`].
pub fn unpack<G: Grid>(head: &[u8], codes: &[u8], row: usize, weights: &mut [f32]) {
    let scale = G::SCALE * half(head, halves_at::<G>() + 2 * row);
    let (columns, signs_at) = (G::GRID_COLUMNS, signs_at::<G>());
    let chunks = codes.chunks_exact(chunk_bytes::<G>()).zip(weights.chunks_exact_mut(CHUNK));
    for (index, (chunk, weights)) in chunks.enumerate() {
        for (column, weight) in weights.iter_mut().enumerate() {
            let part = column / columns;
            let mut number = usize::from(chunk[STRIP_ROWS * part + row]);
            if G::HIGH_BITS > 0 {
                let high = usize::from(chunk[signs_at + BITS_BYTES + row]) >> (G::HIGH_BITS * part);
                number |= (high & ((1 << G::HIGH_BITS) - 1)) << 8;
            }
            let word = G::GRID[(number * columns + column % columns) / 4];
            let size = f32::from(word.to_le_bytes()[column % 4]) - f32::from(G::OFFSET);
            let is_negative = bit(&chunk[signs_at..], row, column) == 1;
            let group = index * G::CHUNK_SCALES + column * G::CHUNK_SCALES / CHUNK;
            let of_group = scale_of(head, row, group) * scale;
            *weight = of_group * if is_negative { -size } else { size };
        }
    }
}

/// The number that a scale stands for.
fn scale_of(head: &[u8], row: usize, scale: usize) -> f32 {
    let nibble = word(head, 64 * (scale / 8) + 4 * row) >> (scale % 8 * 4) & 15;
    (1 + 2 * nibble) as f32
}

/// Implements [`Format::scales`].
///
/// # Safety
/// As for that function.
#[inline(always)]
pub unsafe fn scales<S: Simd, G: Grid>(head: *const u8, row: usize) -> [S::Float; SCALES_MAX] {
    // SAFETY: the head has the words and then 16 halves; this reads those of the rows from `row` on.
    unsafe {
        let half = S::load_f16(head.add(halves_at::<G>() + 2 * row));
        let half = S::mul(half, S::splat_f32(G::SCALE));
        // A loop, because a closure would not have the instruction set.
        let mut scales = [S::splat_f32(0.0); SCALES_MAX];
        for (i, scale) in scales.iter_mut().enumerate().take(scales_of::<G>()) {
            let word = S::load(head.add(64 * (i / 8) + 4 * row));
            // Twice the number.
            let twice = match i % 8 {
                0 => S::left::<1>(word),
                1 => S::right::<3>(word),
                2 => S::right::<7>(word),
                3 => S::right::<11>(word),
                4 => S::right::<15>(word),
                5 => S::right::<19>(word),
                6 => S::right::<23>(word),
                _ => S::right::<27>(word),
            };
            let number = S::or(S::and(twice, S::splat_lane(30)), S::splat_lane(1));
            *scale = S::mul(S::float(number), half);
        }
        scales
    }
}

/// Implements [`Format::code`].
///
/// # Safety
/// As for that function.
#[inline(always)]
pub unsafe fn code<S: Simd, G: Grid>(chunk: *const u8, row: usize, v: usize) -> S::Int {
    // No number of 8 + HIGH_BITS bits is beyond the grid, and no size changes its sign.
    const { assert!(4 * G::GRID.len() == G::GRID_COLUMNS << (8 + G::HIGH_BITS)) };
    const { assert!(largest(G::GRID) <= 2 * G::OFFSET) };
    // SAFETY: the chunk has the parts that are drawn above; this reads those of the rows from `row` on. By the
    // assertion, the gather stays in the grid.
    unsafe {
        let (words, signs_at) = (G::GRID_COLUMNS / 4, signs_at::<G>());
        let part = v / words;
        let mut number = S::load_u8(chunk.add(STRIP_ROWS * part + row));
        if G::HIGH_BITS > 0 {
            let high = S::load_u8(chunk.add(signs_at + BITS_BYTES + row));
            let high = match G::HIGH_BITS * part {
                0 => S::left::<8>(high),
                1 => S::left::<7>(high),
                2 => S::left::<6>(high),
                3 => S::left::<5>(high),
                4 => S::left::<4>(high),
                5 => S::left::<3>(high),
                6 => S::left::<2>(high),
                _ => S::left::<1>(high),
            };
            let mask = ((1 << G::HIGH_BITS) - 1) << 8;
            number = S::or(number, S::and(high, S::splat_lane(mask)));
        }
        if words == 2 {
            number = S::left::<1>(number);
        }
        let sizes = S::gather(G::GRID.as_ptr().add(v % words), number);
        let signs = S::load(chunk.add(signs_at + 4 * row));
        let signs = match v {
            0 => S::left::<7>(signs),
            1 => S::left::<6>(signs),
            2 => S::left::<5>(signs),
            3 => S::left::<4>(signs),
            4 => S::left::<3>(signs),
            5 => S::left::<2>(signs),
            6 => S::left::<1>(signs),
            _ => signs,
        };
        S::mirror(sizes, signs, S::splat_byte(2 * G::OFFSET))
    }
}
