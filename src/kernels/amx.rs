//! Products of many rows of activations with AMX: one instruction multiplies 16 rows of activations
//! with 16 rows of weights, 32 columns of each, in bfloat16. Sums are floats of 32 bits.
//!
//! ```text
//!                       weights: some columns of four strips, unpacked for up to 256 rows
//!                      +---------+---------+---------+---------+
//!                      | strip s |  s + 1  |  s + 2  |  s + 3  |  tile B: 16 lines; line 2v + i has the
//!                      +---------+---------+---------+---------+  columns 4v + i and 4v + i + 2 of each row
//! activations
//! tile A: 32 columns   +---------+---------+---------+---------+
//! of 16 rows, a line   | 16 x 16 | 16 x 16 | 16 x 16 | 16 x 16 |  tile C: sums over all columns
//! for each             +---------+---------+---------+---------+
//! ```
//!
//! An instruction adds its products to a tile that it needs 52 cycles long, and the next may begin after 16: so
//! four tiles of sums keep the unit busy.
//!
//! Scales and minima are part of the unpacked weights, so that nothing is left to do with the sums. A
//! bfloat16 is rounded to 8 bits, 1/3 of the error of activations in 8-bit integers, which share a
//! scale.
//!
//! Activations are converted to tiles once for a product: `[rows / 16][columns / 32]` of 1 KiB. A row's
//! products do not depend on the rows beside it.

use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

use super::ahead::Ahead;
use super::experts::listed;
use super::formats::{CHUNK, Format, LINE, Minima, SCALES_MAX, STRIP_ROWS, VECTORS, heads_bytes};
use super::many::{STRIPS, Work};
use super::product::prefetch;
use super::simd::avx512::Avx512;

/// Rows of activations in a tile.
const TILE_ROWS: usize = 16;

/// Most rows of activations that weights are unpacked for at once.
const ROWS_MAX: usize = 256;

/// Columns that are unpacked at once. Those of the strips fill two thirds of the first-level cache.
const PART_COLUMNS: usize = 256;

/// Tiles of these columns.
const PART_TILES: usize = PART_COLUMNS / CHUNK;

/// A tile in memory: of weights, of activations, or of sums.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Tile([[u8; LINE]; TILE_ROWS]);

/// A tile of zeros.
const NO_TILE: Tile = Tile([[0; LINE]; TILE_ROWS]);

/// A thread's memory.
struct Memory {
    /// The sums of some strips: for each 16 rows, a tile for each strip.
    sums: Vec<[Tile; STRIPS]>,
    /// The activations of an expert, put together.
    gathered: Vec<Tile>,
}

thread_local! {
    static MEMORY: RefCell<Memory> =
        const { RefCell::new(Memory { sums: Vec::new(), gathered: Vec::new() }) };
}

/// The tile registers of this thread, configured as long as this lives.
struct Tiles(());

/// Numbers of tile registers. Sums have [`STRIPS`], from 0.
const ACTIVATIONS: u8 = 4;
const WEIGHTS: [u8; 2] = [5, 6];

impl Tiles {
    /// Configures the registers.
    ///
    /// # Safety
    /// The processor has AMX, and the process the permission to use it: [`is_here`].
    unsafe fn configure() -> Self {
        /// What LDTILECFG reads.
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        static CONFIGURATION: Configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        };
        const { assert!(size_of::<Configuration>() == LINE) };
        // SAFETY: the caller guarantees that the instruction is there; it reads 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack)) };
        Self(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` needed the same.
        unsafe { asm!("tilerelease", options(nomem, nostack)) };
    }
}

/// Reads a tile.
///
/// # Safety
/// The registers are configured.
#[inline(always)]
unsafe fn load<const TILE: u8>(from: *const Tile) {
    // SAFETY: the caller guarantees it, and that the tile is valid.
    unsafe {
        asm!("tileloadd tmm{tile}, [{from} + {line}*1]",
            tile = const TILE, from = in(reg) from, line = in(reg) LINE,
            options(nostack, preserves_flags, readonly));
    }
}

/// Writes a tile.
///
/// # Safety
/// The registers are configured.
#[inline(always)]
unsafe fn store<const TILE: u8>(to: *mut Tile) {
    // SAFETY: the caller guarantees it, and that the tile is valid.
    unsafe {
        asm!("tilestored [{to} + {line}*1], tmm{tile}",
            tile = const TILE, to = in(reg) to, line = in(reg) LINE,
            options(nostack, preserves_flags));
    }
}

/// Sets a tile to zeros.
///
/// # Safety
/// The registers are configured.
#[inline(always)]
unsafe fn clear<const TILE: u8>() {
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("tilezero tmm{tile}", tile = const TILE, options(nostack, preserves_flags, nomem));
    }
}

/// Adds the products of two tiles to a third.
///
/// # Safety
/// The registers are configured.
#[inline(always)]
unsafe fn add_products<const TO: u8, const A: u8, const B: u8>() {
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("tdpbf16ps tmm{to}, tmm{a}, tmm{b}", to = const TO, a = const A, b = const B,
            options(nostack, preserves_flags, nomem));
    }
}

/// Multiplies some strips with all rows of activations.
///
/// # Safety
/// The processor has AMX, the process the permission to use it, and each pointer in `work` is valid
/// for the data that its field describes.
#[inline(always)]
pub unsafe fn multiply<F: Format>(work: &Work) {
    let row_tiles = work.columns / CHUNK; // of 16 rows
    let activations: *const Tile = work.activations.cast();
    // SAFETY: the caller guarantees it.
    let _tiles = unsafe { Tiles::configure() };
    MEMORY.with_borrow_mut(|Memory { sums, gathered }| {
        sums.resize(ROWS_MAX / TILE_ROWS, [NO_TILE; STRIPS]);
        for first in (0..work.inputs).step_by(ROWS_MAX) {
            let rows = first..(first + ROWS_MAX).min(work.inputs);
            // SAFETY: the caller guarantees it; the list has the rows.
            unsafe {
                let activations = if work.from.is_null() {
                    activations.add(first / TILE_ROWS * row_tiles)
                } else {
                    gather(work, rows.clone(), gathered);
                    gathered.as_ptr()
                };
                match rows.len().div_ceil(TILE_ROWS) {
                    1 => multiply_few::<F, 1>(work, activations, rows),
                    2 => multiply_few::<F, 2>(work, activations, rows),
                    _ => multiply_rows::<F>(work, activations, rows, sums),
                }
            }
        }
    });
}

/// Copies the listed rows of activations to tiles of their own. The memory grows when a thread first
/// needs as much.
unsafe fn gather(work: &Work, rows: Range<usize>, to: &mut Vec<Tile>) {
    let row_tiles = work.columns / CHUNK;
    let needed = rows.len().div_ceil(TILE_ROWS) * row_tiles;
    if to.len() < needed {
        to.resize(needed, NO_TILE);
    }
    let tiles: *const Tile = work.activations.cast();
    for (row, place) in rows.enumerate() {
        // SAFETY: the caller guarantees that the list has the place, and the activations the row.
        unsafe {
            let from = listed(work.from, place);
            let tiles = tiles.add(from / TILE_ROWS * row_tiles);
            for (tile, to) in to[row / TILE_ROWS * row_tiles..][..row_tiles].iter_mut().enumerate()
            {
                to.0[row % TILE_ROWS] = (*tiles.add(tile)).0[from % TILE_ROWS];
            }
        }
    }
}

/// Multiplies the strips with some rows, whose tiles begin at `activations`.
#[inline(always)]
unsafe fn multiply_rows<F: Format>(
    work: &Work,
    activations: *const Tile,
    rows: Range<usize>,
    sums: &mut [[Tile; STRIPS]],
) {
    let mut weights = [const { MaybeUninit::<[Tile; PART_TILES]>::uninit() }; STRIPS];
    let row_tiles = work.columns / CHUNK;
    let strips = work.rows.div_ceil(STRIP_ROWS);
    for strip in (0..strips).step_by(STRIPS) {
        let strips = strip..strips.min(strip + STRIPS);
        let run = match strips.len() {
            1 => multiply_tiles::<1>,
            2 => multiply_tiles::<2>,
            3 => multiply_tiles::<3>,
            _ => multiply_tiles::<STRIPS>,
        };
        for first in (0..work.columns).step_by(PART_COLUMNS) {
            let part = first..(first + PART_COLUMNS).min(work.columns);
            for (strip, weights) in strips.clone().zip(&mut weights) {
                let from = work.strips.wrapping_add(strip * work.strip_bytes);
                // SAFETY: the memory has a tile for each 32 columns of the part.
                unsafe {
                    let to = weights.as_mut_ptr().cast();
                    unpack::<F>(from, work.columns, part.clone(), to, |_| ());
                }
            }
            let weights = weights.as_ptr().cast();
            for (block, sums) in sums[..rows.len().div_ceil(TILE_ROWS)].iter_mut().enumerate() {
                // SAFETY: the activations have these tiles; those of the weights are written.
                unsafe {
                    let activations = activations.add(block * row_tiles + first / CHUNK);
                    run(activations, weights, part.len() / CHUNK, sums, first == 0);
                }
            }
        }
        for (row, place) in rows.clone().enumerate() {
            for (sums, strip) in sums[row / TILE_ROWS].iter().zip(strips.clone()) {
                // SAFETY: the list has the place, and the output its row.
                unsafe { write(work, strip, place, &sums.0[row % TILE_ROWS]) };
            }
        }
    }
}

/// Writes the products of a strip with the row at a place of the lists.
#[inline(always)]
unsafe fn write(work: &Work, strip: usize, place: usize, products: &[u8; LINE]) {
    let count = STRIP_ROWS.min(work.rows - strip * STRIP_ROWS);
    // SAFETY: the list has the place, and the output its row. (The output of some strips may begin in the
    // middle of its memory.)
    unsafe {
        let at = listed(work.to, place) * work.output_stride + strip * STRIP_ROWS;
        let to = work.output.wrapping_add(at).cast::<u8>();
        match count {
            STRIP_ROWS => to.cast::<[u8; LINE]>().write(*products),
            _ => to.copy_from_nonoverlapping(products.as_ptr(), count * size_of::<f32>()),
        }
    }
}

/// As [`multiply_rows`], for up to 16 rows times `BLOCKS`. Most of the time is spent on unpacking, so the
/// columns before are multiplied meanwhile: after each tile that is unpacked, one tile.
#[inline(always)]
unsafe fn multiply_few<F: Format, const BLOCKS: usize>(
    work: &Work,
    activations: *const Tile,
    rows: Range<usize>,
) {
    /// Some columns of a strip, unpacked.
    struct Unpacked {
        weights: *const Tile,
        activations: *const Tile,
        tiles: usize,
        strip: usize,
        is_first: bool,
        is_last: bool,
    }
    let row_tiles = work.columns / CHUNK;
    let mut weights = [const { MaybeUninit::<[Tile; PART_TILES]>::uninit() }; 2];
    // SAFETY: the caller guarantees it; the tiles are among those of the part.
    let multiply = |part: &Unpacked, tile: usize| unsafe {
        if tile == 0 && part.is_first {
            clear::<0>();
            clear::<1>();
        }
        load::<{ WEIGHTS[0] }>(part.weights.add(tile));
        load::<{ ACTIVATIONS }>(part.activations.add(tile));
        add_products::<0, { ACTIVATIONS }, { WEIGHTS[0] }>();
        if BLOCKS == 2 {
            load::<{ ACTIVATIONS + 3 }>(part.activations.add(row_tiles + tile));
            add_products::<1, { ACTIVATIONS + 3 }, { WEIGHTS[0] }>();
        }
    };
    let finish = |part: &Unpacked, from: usize| {
        (from..part.tiles).for_each(|tile| multiply(part, tile));
        if part.is_last {
            let mut sums = [NO_TILE; 2];
            // SAFETY: as above; the list has the place, and the output its row.
            unsafe {
                store::<0>(&raw mut sums[0]);
                if BLOCKS == 2 {
                    store::<1>(&raw mut sums[1]);
                }
                for (row, place) in rows.clone().enumerate() {
                    write(work, part.strip, place, &sums[row / TILE_ROWS].0[row % TILE_ROWS]);
                }
            }
        }
    };
    let mut before: Option<Unpacked> = None;
    let mut turn = 0;
    for strip in 0..work.rows.div_ceil(STRIP_ROWS) {
        let from = work.strips.wrapping_add(strip * work.strip_bytes);
        for first in (0..work.columns).step_by(PART_COLUMNS) {
            let part = first..(first + PART_COLUMNS).min(work.columns);
            let to: *mut Tile = weights[turn].as_mut_ptr().cast();
            turn = 1 - turn;
            // SAFETY: the memory has a tile for each 32 columns of the part.
            unsafe {
                unpack::<F>(from, work.columns, part.clone(), to, |tile| {
                    if let Some(before) = &before
                        && tile < before.tiles
                    {
                        multiply(before, tile);
                    }
                });
            }
            let tiles = part.len() / CHUNK;
            if let Some(before) = &before {
                finish(before, tiles.min(before.tiles));
            }
            before = Some(Unpacked {
                weights: to,
                activations: activations.wrapping_add(first / CHUNK),
                tiles,
                strip,
                is_first: first == 0,
                is_last: part.end == work.columns,
            });
        }
    }
    if let Some(before) = &before {
        finish(before, 0);
    }
}

/// Multiplies 16 rows of activations with `COUNT` strips, for as many columns as `tiles` have. `weights`
/// are tiles `[COUNT][PART_TILES]`. Begins with sums of zero with `is_first`.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn multiply_tiles<const COUNT: usize>(
    activations: *const Tile,
    weights: *const Tile,
    tiles: usize,
    sums: &mut [Tile; STRIPS],
    is_first: bool,
) {
    /// Some calls for each strip below `COUNT`.
    macro_rules! strips {
        ($($strip:literal: $call:expr;)*) => { $(if $strip < COUNT { $call; })* };
    }
    const A: u8 = ACTIVATIONS;
    const B0: u8 = WEIGHTS[0];
    const B1: u8 = WEIGHTS[1];
    // SAFETY: the caller guarantees it.
    unsafe {
        let sums = sums.as_mut_ptr();
        if is_first {
            strips! {
                0: clear::<0>();
                1: clear::<1>();
                2: clear::<2>();
                3: clear::<3>();
            }
        } else {
            strips! {
                0: load::<0>(sums);
                1: load::<1>(sums.add(1));
                2: load::<2>(sums.add(2));
                3: load::<3>(sums.add(3));
            }
        }
        for tile in 0..tiles {
            let weights = weights.add(tile);
            load::<A>(activations.add(tile));
            strips! {
                0: (load::<B0>(weights), add_products::<0, A, B0>());
                1: (load::<B1>(weights.add(PART_TILES)), add_products::<1, A, B1>());
                2: (load::<B0>(weights.add(2 * PART_TILES)), add_products::<2, A, B0>());
                3: (load::<B1>(weights.add(3 * PART_TILES)), add_products::<3, A, B1>());
            }
        }
        strips! {
            0: store::<0>(sums);
            1: store::<1>(sums.add(1));
            2: store::<2>(sums.add(2));
            3: store::<3>(sums.add(3));
        }
    }
}

/// Weights are cut to bfloat16, which takes two instructions less than rounding. It makes them smaller by
/// half of the last place, so they are made larger by as much before: by 0.69 / 256, between the means of
/// the share of a number that this is (0.72 / 256), and of that with larger numbers counting more (0.67 /
/// 256). A weight that a bfloat16 holds stays what it is, because the last place is at least 1 / 256 of a number.
const FOR_CUT: f32 = 1.0 + 0.69 / 256.0;

/// Unpacks some columns of a strip, whole tiles of the format. Calls `between` with the number of each
/// tile that it has unpacked, from 0.
///
/// # Safety
/// The processor has AVX-512 with VNNI. The strip has `columns` columns, and `to` room for a tile for
/// each 32 columns of the part.
#[inline(always)]
unsafe fn unpack<F: Format>(
    strip: *const u8,
    columns: usize,
    part: Range<usize>,
    to: *mut Tile,
    between: impl Fn(usize),
) {
    // A code below 128 behind these bits is a bfloat16: 128 plus the code. Larger codes are converted.
    const BITS: i16 = 0x4300;
    let is_small = F::CODE_MAX < 128;
    let zero = F::OFFSET as f32 + if is_small { 128.0 } else { 0.0 };
    let (chunks, groups) = (F::COLUMNS / CHUNK, F::CHUNK_SCALES);
    let ahead = Ahead::of_this_machine();
    // SAFETY: the caller guarantees it.
    unsafe {
        let codes = strip.add(heads_bytes::<F>(columns));
        let mut to = to.cast::<u8>();
        let mut unpacked = 0;
        for tile in part.start / F::COLUMNS..part.end / F::COLUMNS {
            let head = strip.add(tile * F::HEAD_BYTES);
            prefetch(ahead, head, F::HEAD_BYTES);
            let mut scales = F::scales::<Avx512>(head, 0);
            let mut added = [_mm512_setzero_ps(); SCALES_MAX];
            for (added, scale) in added.iter_mut().zip(scales).take(chunks * groups) {
                *added = _mm512_mul_ps(scale, _mm512_set1_ps(-zero));
            }
            match F::MINIMA {
                Minima::None => (),
                Minima::Integers => {
                    let (pairs, scale) = F::minima::<Avx512>(head, 0);
                    for (pair, minima) in pairs.iter().take(chunks * groups / 2).enumerate() {
                        let even = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(*minima));
                        let odd = _mm512_srai_epi32::<16>(*minima);
                        for (group, minima) in [(2 * pair, even), (2 * pair + 1, odd)] {
                            let minima = _mm512_cvtepi32_ps(minima);
                            added[group] = _mm512_fnmadd_ps(minima, scale, added[group]);
                        }
                    }
                }
                Minima::Float => added[0] = _mm512_add_ps(added[0], F::minimum::<Avx512>(head, 0)),
            }
            for number in scales.iter_mut().chain(&mut added) {
                *number = _mm512_mul_ps(*number, _mm512_set1_ps(FOR_CUT));
            }
            for chunk in 0..chunks {
                let at = codes.add((tile * chunks + chunk) * F::CHUNK_BYTES);
                prefetch(ahead, at, F::CHUNK_BYTES);
                for v in 0..VECTORS {
                    let group = chunk * groups + v * groups / VECTORS;
                    let (scale, added) = (scales[group], added[group]);
                    let code = F::code::<Avx512>(at, 0, v);
                    for odd in [false, true] {
                        // Two columns of each row, in the halves of its lane.
                        let pair = if odd { _mm512_srli_epi16::<8>(code) } else { code };
                        let pair = _mm512_and_si512(pair, _mm512_set1_epi16(0xFF));
                        let (low, high) = if is_small {
                            let pair = _mm512_or_si512(pair, _mm512_set1_epi16(BITS));
                            let high = _mm512_and_si512(pair, _mm512_set1_epi32(!0xFFFF));
                            let low = _mm512_slli_epi32::<16>(pair);
                            (_mm512_castsi512_ps(low), _mm512_castsi512_ps(high))
                        } else {
                            let low = _mm512_and_si512(pair, _mm512_set1_epi32(0xFF));
                            let high = _mm512_srli_epi32::<16>(pair);
                            (_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high))
                        };
                        let low = _mm512_fmadd_ps(low, scale, added);
                        let high = _mm512_fmadd_ps(high, scale, added);
                        _mm512_store_si512(to.cast(), bfloats(low, high));
                        to = to.add(LINE);
                    }
                }
                between(unpacked);
                unpacked += 1;
            }
        }
    }
}

/// Cuts two vectors to bfloat16, and puts them in the low and the high halves of the lanes.
#[inline(always)]
unsafe fn bfloats(low: __m512, high: __m512) -> __m512i {
    // SAFETY: the caller guarantees AVX-512.
    unsafe {
        let (low, high) = (_mm512_castps_si512(low), _mm512_castps_si512(high));
        // In each bit, `low` or the high half of `high`.
        let high_half = _mm512_set1_epi32(!0xFFFF);
        _mm512_ternarylogic_epi32::<0b1111_1000>(_mm512_srli_epi32::<16>(low), high, high_half)
    }
}

/// Writes a row of activations to its lines of the tiles of all rows.
///
/// # Safety
/// The processor has AVX-512. `from` has `columns` numbers, and `to` a tile for each 32 columns of each
/// 16 rows.
#[inline(always)]
pub unsafe fn convert(from: *const f32, columns: usize, row: usize, to: *mut u8) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let to = to.cast::<Tile>().add(row / TILE_ROWS * (columns / CHUNK));
        for tile in 0..columns / CHUNK {
            let from = from.add(tile * CHUNK);
            // In lane 2v + i are the columns 4v + i and 4v + i + 2.
            let columns = [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(CHUNK / 2))];
            let low = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
            let high =
                _mm512_setr_epi32(2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
            let low = _mm512_permutex2var_ps(columns[0], low, columns[1]);
            let high = _mm512_permutex2var_ps(columns[0], high, columns[1]);
            // Halves of the last place are rounded up.
            let round = |numbers: __m512| {
                let bits = _mm512_castps_si512(numbers);
                _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)))
            };
            let (low, high) = (round(low), round(high));
            let line = (*to.add(tile)).0[row % TILE_ROWS].as_mut_ptr();
            _mm512_store_si512(line.cast(), bfloats(low, high));
        }
    }
}

/// Bytes of the activations of a product.
pub fn bytes(rows: usize, columns: usize) -> usize {
    rows.div_ceil(TILE_ROWS) * (columns / CHUNK) * size_of::<Tile>()
}

/// Whether the processor has AMX for bfloat16, and Linux lets this process use it. The first call asks.
pub fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    *IS_HERE.get_or_init(|| {
        const LEAF: u32 = 7;
        const HAS_BFLOAT16: u32 = 1 << 22;
        const HAS_TILES: u32 = 1 << 24;
        let has = __cpuid(0).eax >= LEAF;
        let features = if has { __cpuid_count(LEAF, 0).edx } else { 0 };
        features & HAS_TILES != 0 && features & HAS_BFLOAT16 != 0 && is_permitted()
    })
}

/// Asks Linux for the permission, which holds for all threads of the process.
fn is_permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes numbers only. An unknown one is refused.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA, out("rcx") _, out("r11") _, options(nostack));
    }
    if result != 0 {
        tracing::info!("Linux does not let this process use AMX: error {}", result.wrapping_neg());
    }
    result == 0
}
