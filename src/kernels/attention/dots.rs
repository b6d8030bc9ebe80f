//! The scores of a block: products of queries with keys.
//!
//! A tile is four queries and the number of cells that gives 16 sums. Each lane of a sum adds the
//! products of its own numbers. At the end, the lanes of all 16 sums are added together.

use super::super::simd::Simd;
use super::cached::{Cached, Q8_0, QuantisedQuery, prefetch_numbers, query_floats};
use super::tile::{BLOCK_CELLS, Block, Rows, TILE_QUERIES};

/// Multiplies queries with keys.
pub trait Dots {
    /// Whether the keys are read from the cache, so that each read can also prefetch.
    const READS_CACHE: bool;

    /// The products of `Q` queries, `stride` floats apart, with `S::LANES / Q` keys: the first
    /// query's, then the second's, and so on.
    unsafe fn dots<S: Simd, const Q: usize>(
        queries: *const f32,
        stride: usize,
        keys: &[*const u8],
        ahead: &[*const u8],
        numbers: usize,
    ) -> S::Float;
}

/// Multiplies as floats.
pub struct Floats<K>(std::marker::PhantomData<K>);

impl<K: Cached> Dots for Floats<K> {
    const READS_CACHE: bool = K::IS_CACHED;

    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize>(
        queries: *const f32,
        stride: usize,
        keys: &[*const u8],
        ahead: &[*const u8],
        numbers: usize,
    ) -> S::Float {
        // SAFETY: the caller guarantees it.
        unsafe {
            let cells = S::LANES / Q;
            let mut sums = [S::splat_f32(0.0); 16];
            for at in (0..numbers).step_by(S::LANES) {
                let mut query = [S::splat_f32(0.0); Q];
                for (q, query) in query.iter_mut().enumerate() {
                    *query = S::load_f32(queries.add(q * stride + at));
                }
                for cell in 0..cells {
                    let key = K::load::<S>(keys[cell], at);
                    prefetch_numbers::<K>(ahead[cell], at);
                    for q in 0..Q {
                        sums[q * cells + cell] = S::mul_add(query[q], key, sums[q * cells + cell]);
                    }
                }
            }
            S::totals(&sums)
        }
    }
}

/// Multiplies as 8-bit integers, with a scale for each 32 of them.
pub struct Quantised;

impl Dots for Quantised {
    const READS_CACHE: bool = true;

    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize>(
        queries: *const f32,
        stride: usize,
        keys: &[*const u8],
        ahead: &[*const u8],
        numbers: usize,
    ) -> S::Float {
        // SAFETY: the caller guarantees it. With an odd number of blocks, the last one is read
        // twice, and multiplied by zeros.
        unsafe {
            let cells = S::LANES / Q;
            let blocks = numbers / Q8_0::BLOCK_NUMBERS;
            let together = 4 * S::LANES / Q8_0::BLOCK_NUMBERS;
            let unsigned = S::splat_byte(128);
            let mut sums = [S::splat_f32(0.0); 16];
            for block in (0..blocks).step_by(together) {
                let first = block * Q8_0::BLOCK_BYTES;
                let second = (block + 1).min(blocks - 1) * Q8_0::BLOCK_BYTES;
                let at = block * Q8_0::BLOCK_NUMBERS;
                for cell in 0..cells {
                    prefetch_numbers::<Q8_0>(ahead[cell], at);
                    let (first, second) = (keys[cell].add(first), keys[cell].add(second));
                    let codes = S::xor(S::load_blocks(first.add(2), second.add(2)), unsigned);
                    let scales = S::load_scales(first, second);
                    for q in 0..Q {
                        let query = QuantisedQuery::at(queries.add(q * stride).cast_mut(), numbers);
                        let offsets = S::load(query.offsets.add(at));
                        let product = S::dot8(offsets, codes, S::load(query.codes.add(at)));
                        let scales = S::mul(scales, S::load_f32(query.scales.add(at / 4)));
                        let sum = &mut sums[q * cells + cell];
                        *sum = S::mul_add(S::float(product), scales, *sum);
                    }
                }
            }
            S::totals(&sums)
        }
    }
}

/// Computes the scores of all queries.
///
/// # Safety
/// As [`attend`](super::block::attend).
#[inline(always)]
pub unsafe fn dots_of_all<S: Simd, D: Dots>(block: &Block, keys: &mut Rows) {
    // SAFETY: the caller guarantees it.
    unsafe {
        // All tiles together prefetch all lines.
        let tiles = block.count.div_ceil(TILE_QUERIES) * BLOCK_CELLS / (S::LANES / TILE_QUERIES);
        let lines = keys.lines().div_ceil(tiles);
        let mut query = 0;
        while query + TILE_QUERIES <= block.count {
            dots_of::<S, D, TILE_QUERIES>(block, keys, lines, query);
            query += TILE_QUERIES;
        }
        if query + 2 <= block.count {
            dots_of::<S, D, 2>(block, keys, lines, query);
            query += 2;
        }
        if query < block.count {
            dots_of::<S, D, 1>(block, keys, lines, query);
        }
    }
}

/// Computes the scores of `Q` queries. If the keys are converted ones, each tile of cells
/// prefetches `lines` lines.
#[inline(always)]
unsafe fn dots_of<S: Simd, D: Dots, const Q: usize>(
    block: &Block,
    keys: &mut Rows,
    lines: usize,
    query: usize,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let stride = query_floats(block.key_numbers);
        let queries = block.queries.add(query * stride);
        let scores = block.scratch.scores.add(query * BLOCK_CELLS);
        let cells = S::LANES / Q;
        for first in (0..block.cells.len()).step_by(cells) {
            if !D::READS_CACHE {
                keys.prefetch_lines(lines);
            }
            let (keys, ahead) =
                (&keys.rows[first..first + cells], &keys.ahead[first..first + cells]);
            let dots = D::dots::<S, Q>(queries, stride, keys, ahead, block.key_numbers);
            let mut lanes = [0.0f32; 16];
            S::store_f32(lanes.as_mut_ptr(), dots);
            for q in 0..Q {
                let to = scores.add(q * BLOCK_CELLS + first);
                to.copy_from_nonoverlapping(lanes.as_ptr().add(q * cells), cells);
            }
        }
        if D::READS_CACHE {
            keys.were_read();
        }
    }
}
