//! Adds the values of a block, multiplied by the scores, to the outputs.
//!
//! A tile of outputs, four queries by four vectors of numbers, stays in registers for all cells of
//! the block.

use super::super::simd::Simd;
use super::cached::{Cached, prefetch_numbers};
use super::tile::{BLOCK_CELLS, Block, Rows, TILE_QUERIES};

/// Adds the values of a block, multiplied by the scores, to the outputs of all queries.
///
/// # Safety
/// As [`attend`](super::block::attend).
#[inline(always)]
pub unsafe fn add_values_to_all<S: Simd, V: Cached>(block: &Block, values: &mut Rows) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let tiles = block.count / TILE_QUERIES * block.value_numbers.div_ceil(4 * S::LANES);
        let line_cells = values.calls_of_line(tiles * BLOCK_CELLS);
        let mut query = 0;
        while query + TILE_QUERIES <= block.count {
            add_values::<S, V, TILE_QUERIES>(block, values, query, line_cells);
            query += TILE_QUERIES;
        }
        if query + 2 <= block.count {
            add_values::<S, V, 2>(block, values, query, line_cells);
            query += 2;
        }
        if query < block.count {
            add_values::<S, V, 1>(block, values, query, line_cells);
        }
    }
}

/// Adds the values of a block to the outputs of `Q` queries. Takes as many numbers at once as there
/// are registers for the sums. If the values are converted ones, prefetches a line ahead for each
/// `line_cells` cells.
#[inline(always)]
unsafe fn add_values<S: Simd, V: Cached, const Q: usize>(
    block: &Block,
    values: &mut Rows,
    query: usize,
    line_cells: usize,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let mut at = 0;
        while 8 * Q <= S::LANES && at + 8 * S::LANES <= block.value_numbers {
            add_numbers::<S, V, Q, 8>(block, values, query, line_cells, at);
            at += 8 * S::LANES;
        }
        while 4 * Q <= S::LANES && at + 4 * S::LANES <= block.value_numbers {
            add_numbers::<S, V, Q, 4>(block, values, query, line_cells, at);
            at += 4 * S::LANES;
        }
        while at + 2 * S::LANES <= block.value_numbers {
            add_numbers::<S, V, Q, 2>(block, values, query, line_cells, at);
            at += 2 * S::LANES;
        }
        if at < block.value_numbers {
            add_numbers::<S, V, Q, 1>(block, values, query, line_cells, at);
        }
        if V::IS_CACHED {
            values.were_read();
        }
    }
}

/// Adds the numbers from `at` on that fill `W` vectors.
#[inline(always)]
unsafe fn add_numbers<S: Simd, V: Cached, const Q: usize, const W: usize>(
    block: &Block,
    values: &mut Rows,
    query: usize,
    line_cells: usize,
    at: usize,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let outputs = block.state.outputs.add(query * block.value_numbers + at);
        let scores = block.scratch.scores.add(query * BLOCK_CELLS);
        let output = |q: usize, w: usize| outputs.add(q * block.value_numbers + w * S::LANES);
        let mut sums = [[S::splat_f32(0.0); Q]; W];
        for (w, sums) in sums.iter_mut().enumerate() {
            for (q, sum) in sums.iter_mut().enumerate() {
                *sum = S::load_f32(output(q, w));
            }
        }
        for cell in 0..block.cells.len() {
            if !V::IS_CACHED && cell & (line_cells - 1) == 0 {
                values.prefetch_lines(1);
            }
            let mut scores_of = [S::splat_f32(0.0); Q];
            for (q, score) in scores_of.iter_mut().enumerate() {
                *score = S::splat_f32(scores.add(q * BLOCK_CELLS + cell).read());
            }
            for (w, sums) in sums.iter_mut().enumerate() {
                let value = V::load::<S>(values.rows[cell], at + w * S::LANES);
                prefetch_numbers::<V>(values.ahead[cell], at + w * S::LANES);
                for (sum, score) in sums.iter_mut().zip(scores_of) {
                    *sum = S::mul_add(score, value, *sum);
                }
            }
        }
        for (w, sums) in sums.iter().enumerate() {
            for (q, sum) in sums.iter().enumerate() {
                S::store_f32(output(q, w), *sum);
            }
        }
    }
}
