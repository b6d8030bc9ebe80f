//! Products of many rows of activations with AMX: one instruction multiplies 16 rows of activations
//! with 16 rows of weights.
//!
//! ```text
//!                       weights: a part of a strip, unpacked once for up to 512 rows
//!                      +------------------------------------+
//!                      | 4 columns of 16 rows, a line       |  tile B: the lines of the columns
//!                      | ...                                |  that share a scale, 8 or 4
//! activations          +------------------------------------+
//! tile A: 32 (or 16)   +------------------------------------+
//! columns of 16 rows   | 16 rows x 16 rows of weights       |  tile C: sums of whole numbers
//!                      +------------------------------------+
//! ```
//!
//! The sums are those that [`product`](super::product) has behind the same columns, and what follows is
//! what it does with them, in the same order. So a row's products are the same bits, whether it is one of
//! many or alone: a text does not depend on how its prompt was cut into steps.
//!
//! (In bfloat16, with scales and minima folded into the weights, nothing would be left to do with the sums. But
//! their bits would be others than those of few rows.)
//!
//! The sums of the next columns are computed while those before are scaled.

use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::activations::{RowLayout, chunk_sums_bytes};
use super::ahead::Ahead;
use super::experts::listed;
use super::formats::{CHUNK, Format, LINE, Minima, STRIP_ROWS, VECTORS, heads_bytes};
use super::many::{STRIPS, TILE_ROWS, Work};
use super::product::prefetch;
use super::simd::avx512::Avx512;
use super::tiles::{
    ACTIVATIONS, FEW_ACTIVATIONS, FEW_ROWS, FEW_SUMS, SUMS, Tiles, WEIGHTS, multiply_tiles,
};

/// Most rows of activations that weights are unpacked for at once.
const ROWS_MAX: usize = 512;

/// Columns that are unpacked at once. Those of all strips fill half of the first-level cache.
const PART_COLUMNS: usize = 256;

/// Chunks of these columns.
const CHUNKS: usize = PART_COLUMNS / CHUNK;

/// A line of memory.
type Line = MaybeUninit<[u8; LINE]>;

/// Some columns of a strip.
#[repr(align(64))]
struct Part {
    /// Signed codes, as `formats` draws unpacked chunks.
    codes: [[Line; VECTORS]; CHUNKS],
    /// A line of floats for each scale.
    scales: [Line; 2 * CHUNKS],
    /// The minima of each tile: pairs of integers and then their scale, or a line of floats.
    minima: [Line; 2 * CHUNKS],
}

/// Two tiles of sums.
#[repr(align(64))]
struct Sums([[Line; TILE_ROWS]; 2]);

/// The products of 16 rows of activations with a strip.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Products([[f32; STRIP_ROWS]; TILE_ROWS]);

/// A thread's memory.
#[derive(Default)]
struct Memory {
    /// For each 16 rows, the products with each strip.
    products: Vec<[Products; STRIPS]>,
    /// The rows of an expert, put together.
    gathered: Vec<Products>,
}

thread_local! {
    static MEMORY: Cell<Memory> =
        const { Cell::new(Memory { products: Vec::new(), gathered: Vec::new() }) };
}

const NO_PRODUCTS: Products = Products([[0.0; STRIP_ROWS]; TILE_ROWS]);

/// In each lane, `sum` plus the two products of 16-bit integers; those at `at` are copied to every lane. (The
/// compiler makes two instructions of the intrinsic.)
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
unsafe fn dot16(sum: __m512i, a: __m512i, at: *const u8) -> __m512i {
    let mut sum = sum;
    // SAFETY: the caller guarantees that the bytes are there.
    unsafe {
        asm!("vpdpwssd {sum:z}, {a:z}, dword ptr [{at}]{{1to16}}",
            sum = inout(zmm_reg) sum, a = in(zmm_reg) a, at = in(reg) at,
            options(nostack, preserves_flags, readonly, pure));
    }
    sum
}

/// Adds sums of whole numbers, converted to floats and multiplied by `scale`, to `to`. (The compiler would
/// move all accumulators in each pass of a loop.)
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn add_scaled(to: __m512, sums: *const __m512i, scale: __m512) -> __m512 {
    let mut to = to;
    let _floats: __m512;
    // SAFETY: the caller guarantees that the sums are there.
    unsafe {
        asm!("vcvtdq2ps {floats:z}, zmmword ptr [{sums}]", "vfmadd231ps {to:z}, {floats:z}, {scale:z}",
            to = inout(zmm_reg) to, floats = out(zmm_reg) _floats, sums = in(reg) sums,
            scale = in(zmm_reg) scale,
            options(nostack, readonly, pure));
    }
    to
}

/// Runs a block for each row below a constant. The block is written out for each, so that the vectors of
/// all rows stay in registers.
macro_rules! unroll {
    ($row:ident < $rows:ident, $body:block) => {
        unroll!($row $rows $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($row:ident $rows:ident $body:block $($number:literal)*) => {
        $(if $number < $rows {
            let $row: usize = $number;
            $body
        })*
    };
}

/// Multiplies some strips with all rows of activations.
///
/// # Safety
/// The processor has AVX-512 with VNNI and AMX, the process the permission to use it, and each pointer in
/// `work` is valid for the data that its field describes.
#[inline(always)]
pub unsafe fn multiply<F: Format>(work: &Work) {
    let stride = work.layout.stride;
    // SAFETY: the caller guarantees it.
    let _tiles = unsafe { Tiles::configure(CHUNK / F::CHUNK_SCALES) };
    // The loops stand in no closure: that would not have the instruction set.
    let mut memory = MEMORY.take();
    memory.products.resize(ROWS_MAX / TILE_ROWS, [NO_PRODUCTS; STRIPS]);
    for first in (0..work.inputs).step_by(ROWS_MAX) {
        let places = first..(first + ROWS_MAX).min(work.inputs);
        // SAFETY: the caller guarantees it; the list has the places.
        unsafe {
            let activations = if work.from.is_null() {
                work.activations.add(first * stride)
            } else {
                gather(work, places.clone(), &mut memory.gathered);
                memory.gathered.as_ptr().cast()
            };
            multiply_rows::<F>(work, activations, places, &mut memory.products);
        }
    }
    MEMORY.set(memory);
}

/// Copies the listed rows of activations one behind the other, and fills up the last tile with zeros. The
/// memory grows when a thread first needs as much.
unsafe fn gather(work: &Work, places: Range<usize>, to: &mut Vec<Products>) {
    let stride = work.layout.stride;
    let rows = places.len().next_multiple_of(TILE_ROWS);
    let needed = (rows * stride).div_ceil(size_of::<Products>());
    if to.len() < needed {
        to.resize(needed, NO_PRODUCTS);
    }
    let to: *mut u8 = to.as_mut_ptr().cast();
    // SAFETY: the memory has these rows.
    unsafe { to.add(places.len() * stride).write_bytes(0, (rows - places.len()) * stride) };
    for (row, place) in places.enumerate() {
        // SAFETY: the caller guarantees that the list has the place, and the activations the row.
        unsafe {
            let from = work.activations.add(listed(work.from, place) * stride);
            to.add(row * stride).copy_from_nonoverlapping(from, stride);
        }
    }
}

/// Multiplies the strips with the rows of some places, which begin at `activations`.
#[inline(always)]
unsafe fn multiply_rows<F: Format>(
    work: &Work,
    activations: *const u8,
    places: Range<usize>,
    products: &mut [[Products; STRIPS]],
) {
    let mut parts = [const { MaybeUninit::<Part>::uninit() }; STRIPS];
    let mut sums = MaybeUninit::<Sums>::uninit();
    let count = work.rows.div_ceil(STRIP_ROWS);
    let of_part = PART_COLUMNS / F::COLUMNS;
    let all = work.columns / F::COLUMNS;
    for strip in (0..count).step_by(STRIPS) {
        let strips = strip..count.min(strip + STRIPS);
        for first in (0..all).step_by(of_part) {
            let tiles = first..(first + of_part).min(all);
            for (strip, part) in strips.clone().zip(&mut parts) {
                let from = work.strips.wrapping_add(strip * work.strip_bytes);
                // SAFETY: the part has room for as many columns.
                unsafe { unpack::<F>(from, work.columns, tiles.clone(), part.as_mut_ptr()) };
            }
            for (products, row) in products.iter_mut().zip((0..places.len()).step_by(TILE_ROWS)) {
                let rows = activations.wrapping_add(row * work.layout.stride);
                let places = places.start + row..places.end.min(places.start + row + TILE_ROWS);
                if tiles.end == all {
                    // SAFETY: the list has the places.
                    unsafe { prefetch_output(work, strips.clone(), places.clone()) };
                }
                for (strip, (part, products)) in
                    strips.clone().zip(parts.iter().zip(&mut *products))
                {
                    let codes = work.strips.wrapping_add(
                        strip * work.strip_bytes
                            + heads_bytes::<F>(work.columns)
                            + tiles.start * F::COLUMNS / CHUNK * F::CHUNK_BYTES,
                    );
                    let block = Block {
                        ahead: if row == 0 { codes } else { std::ptr::null() },
                        rows,
                        layout: work.layout,
                        part: part.as_ptr(),
                        tiles: tiles.clone(),
                        sums: sums.as_mut_ptr(),
                    };
                    // SAFETY: the rows, or those that fill up the last tile, are in the memory.
                    unsafe {
                        if places.len() > FEW_ROWS {
                            block.multiply::<F, TILE_ROWS>(products);
                        } else {
                            block.multiply::<F, FEW_ROWS>(products);
                        }
                    }
                }
                if tiles.end == all {
                    for (row, place) in places.enumerate() {
                        for (products, strip) in products.iter().zip(strips.clone()) {
                            // SAFETY: the list has the place, and the output its row.
                            unsafe { write(work, strip, place, &products.0[row]) };
                        }
                    }
                }
            }
        }
    }
}

/// Prefetches the output of some strips, to be written. Each row lies in a page of its own.
#[inline(always)]
unsafe fn prefetch_output(work: &Work, strips: Range<usize>, places: Range<usize>) {
    for place in places {
        // SAFETY: the list has the place. A prefetch may be of any address.
        unsafe {
            let at = listed(work.to, place) * work.output_stride;
            for strip in strips.clone() {
                let line = work.output.wrapping_add(at + strip * STRIP_ROWS);
                // (The intrinsic is another instruction where the build is for all x86-64-v3 processors.)
                asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
        }
    }
}

/// Writes the products of a strip with the row at a place of the lists.
#[inline(always)]
unsafe fn write(work: &Work, strip: usize, place: usize, products: &[f32; STRIP_ROWS]) {
    let count = STRIP_ROWS.min(work.rows - strip * STRIP_ROWS);
    // SAFETY: the list has the place, and the output its row. (The output of some strips may begin in the
    // middle of its memory.)
    unsafe {
        let at = listed(work.to, place) * work.output_stride + strip * STRIP_ROWS;
        let to = work.output.wrapping_add(at);
        match count {
            STRIP_ROWS => _mm512_storeu_ps(to, _mm512_loadu_ps(products.as_ptr())),
            _ => to.copy_from_nonoverlapping(products.as_ptr(), count),
        }
    }
}

/// Lines of the minima of a tile.
const fn minima_lines<F: Format>() -> usize {
    match F::MINIMA {
        Minima::None => 0,
        Minima::Integers => F::COLUMNS / CHUNK * F::CHUNK_SCALES / 2 + 1,
        Minima::Float => 1,
    }
}

/// Unpacks some tiles of a strip.
#[inline(always)]
unsafe fn unpack<F: Format>(strip: *const u8, columns: usize, tiles: Range<usize>, to: *mut Part) {
    const {
        // The codes less their offset are signed bytes.
        assert!(F::CODE_MAX as i32 - F::OFFSET <= 127 && F::OFFSET <= 128);
        assert!(PART_COLUMNS.is_multiple_of(F::COLUMNS));
        assert!(PART_COLUMNS / F::COLUMNS * minima_lines::<F>() <= 2 * CHUNKS);
    }
    let chunks = F::COLUMNS / CHUNK;
    let ahead = Ahead::of_this_machine();
    // SAFETY: the caller guarantees it. The tiles' lines are as many as the part has.
    unsafe {
        let offset = _mm512_set1_epi8(F::OFFSET as i8); // 128 is -128, which differs by 256
        let strip_codes = strip.add(heads_bytes::<F>(columns));
        let mut codes = (&raw mut (*to).codes).cast::<__m512i>();
        let mut scales = (&raw mut (*to).scales).cast::<__m512>();
        let mut minima = (&raw mut (*to).minima).cast::<__m512i>();
        for tile in tiles {
            let head = strip.add(tile * F::HEAD_BYTES);
            prefetch(ahead, head, F::HEAD_BYTES);
            for scale in F::scales::<Avx512>(head, 0).iter().take(chunks * F::CHUNK_SCALES) {
                scales.write(*scale);
                scales = scales.add(1);
            }
            match F::MINIMA {
                Minima::None => (),
                Minima::Integers => {
                    let (pairs, scale) = F::minima::<Avx512>(head, 0);
                    for pair in pairs.iter().take(chunks * F::CHUNK_SCALES / 2) {
                        minima.write(*pair);
                        minima = minima.add(1);
                    }
                    minima.write(_mm512_castps_si512(scale));
                    minima = minima.add(1);
                }
                Minima::Float => {
                    minima.write(_mm512_castps_si512(F::minimum::<Avx512>(head, 0)));
                    minima = minima.add(1);
                }
            }
            for chunk in tile * chunks..(tile + 1) * chunks {
                let at = strip_codes.add(chunk * F::CHUNK_BYTES);
                for v in 0..VECTORS {
                    let code = F::code::<Avx512>(at, 0, v);
                    let code = if F::OFFSET == 0 { code } else { _mm512_sub_epi8(code, offset) };
                    codes.write(code);
                    codes = codes.add(1);
                }
            }
        }
    }
}

/// Up to 16 rows of activations and a part of a strip.
struct Block {
    /// The first row.
    rows: *const u8,
    layout: RowLayout,
    part: *const Part,
    /// The numbers of the part's tiles.
    tiles: Range<usize>,
    sums: *mut Sums,
    /// The packed codes, ahead of which weights are prefetched meanwhile; or null.
    ahead: *const u8,
}

impl Block {
    /// Computes the sums of a group of columns, which share a scale.
    #[inline(always)]
    unsafe fn start<F: Format, const ROWS: usize>(&self, group: usize) {
        const A: u8 = ACTIVATIONS;
        const B: u8 = WEIGHTS;
        let columns = CHUNK / F::CHUNK_SCALES;
        let stride = self.layout.stride;
        if !self.ahead.is_null() {
            let bytes = F::CHUNK_BYTES / F::CHUNK_SCALES;
            prefetch(Ahead::of_this_machine(), self.ahead.wrapping_add(group * bytes), bytes);
        }
        // SAFETY: the group lies in the rows and in the part.
        unsafe {
            let rows = self.rows.add(self.tiles.start * F::COLUMNS + group * columns);
            let codes = (&raw const (*self.part).codes).cast::<Line>();
            let codes = codes.add(group * columns / 4).cast();
            let to = (&raw mut (*self.sums).0[group % 2]).cast();
            match (ROWS, group % 2) {
                (FEW_ROWS, 0) => {
                    multiply_tiles::<FEW_SUMS, FEW_ACTIVATIONS, B>(rows, stride, codes, to);
                }
                (FEW_ROWS, _) => {
                    multiply_tiles::<FEW_SUMS, FEW_ACTIVATIONS, { B + 1 }>(rows, stride, codes, to);
                }
                (_, 0) => multiply_tiles::<SUMS, A, B>(rows, stride, codes, to),
                (_, _) => {
                    multiply_tiles::<{ SUMS + 1 }, { A + 1 }, { B + 1 }>(rows, stride, codes, to);
                }
            }
        }
    }

    /// Adds the products of `ROWS` rows with the part to those of the columns before, if there are any.
    #[inline(always)]
    unsafe fn multiply<F: Format, const ROWS: usize>(&self, products: &mut Products) {
        let Self { rows, layout, part, tiles, sums, .. } = self;
        let groups = F::COLUMNS / CHUNK * F::CHUNK_SCALES; // of a tile
        let all = tiles.len() * groups;
        // SAFETY: the caller guarantees it; the sums of a group are written before they are read.
        unsafe {
            let scales = (&raw const (**part).scales).cast::<__m512>();
            let minima = (&raw const (**part).minima).cast::<__m512i>();
            let sums = (&raw const (**sums).0).cast::<[__m512i; TILE_ROWS]>();
            let products = products.0.as_mut_ptr().cast::<__m512>();
            let mut totals = [_mm512_setzero_ps(); ROWS];
            if tiles.start > 0 {
                unroll!(r < ROWS, { totals[r] = products.add(r).read() });
            }
            self.start::<F, ROWS>(0);
            for (index, tile) in tiles.clone().enumerate() {
                let mut tile_sums = [_mm512_setzero_ps(); ROWS];
                for group in index * groups..(index + 1) * groups {
                    if group + 1 < all {
                        self.start::<F, ROWS>(group + 1);
                    }
                    let scale = scales.add(group).read();
                    let sums = sums.add(group % 2).cast::<__m512i>();
                    unroll!(r < ROWS, {
                        tile_sums[r] = add_scaled(tile_sums[r], sums.add(r), scale)
                    });
                }
                let lines = minima_lines::<F>();
                let minima = minima.add(index * lines);
                let of_tile = layout.sums + tile * F::COLUMNS / CHUNK * chunk_sums_bytes::<F>();
                match F::MINIMA {
                    Minima::None => (),
                    Minima::Integers => {
                        let scale = _mm512_castsi512_ps(minima.add(lines - 1).read());
                        unroll!(r < ROWS, {
                            let at = rows.add(r * layout.stride + of_tile);
                            let mut sum = _mm512_setzero_si512();
                            for pair in 0..lines - 1 {
                                sum = dot16(sum, minima.add(pair).read(), at.add(4 * pair));
                            }
                            let sum = _mm512_cvtepi32_ps(sum);
                            tile_sums[r] = _mm512_fnmadd_ps(sum, scale, tile_sums[r]);
                        });
                    }
                    Minima::Float => {
                        let minimum = _mm512_castsi512_ps(minima.read());
                        unroll!(r < ROWS, {
                            let at = rows.add(r * layout.stride + of_tile).cast::<i32>();
                            let sum = _mm512_set1_ps(at.read_unaligned() as f32);
                            tile_sums[r] = _mm512_fmadd_ps(sum, minimum, tile_sums[r]);
                        });
                    }
                }
                unroll!(r < ROWS, {
                    let at = rows.add(r * layout.stride + layout.scales).cast::<f32>();
                    let scale = _mm512_set1_ps(at.add(tile).read());
                    totals[r] = _mm512_fmadd_ps(tile_sums[r], scale, totals[r]);
                });
            }
            unroll!(r < ROWS, { products.add(r).write(totals[r]) });
        }
    }
}
