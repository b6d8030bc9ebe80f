//! The inner loop: some queries of one KV head attend one block of cells.
//!
//! ```text
//! for each query      scores  = query x keys of the block             dots.rs
//!                     maximum = the larger of the old one and theirs  softmax.rs
//!                     scores  = exp(scores - maximum); sum += scores
//!                     output  = output x exp(old maximum - maximum)
//!                             + scores x values of the block          values.rs
//! ```
//!
//! After all blocks, `output / sum` is the softmax's average of the values. This is the online
//! softmax of Milakov and Gimelshein (arXiv 1805.02867), as FlashAttention uses it (arXiv
//! 2205.14135).
//!
//! **Invariant:** a query's result does not depend on the queries beside it, bit by bit. Each
//! number is computed by the same operations in the same order for any number of queries.

use super::super::simd::Simd;
use super::cached::{Cached, Converted};
use super::dots::{Floats, Quantised, dots_of_all};
use super::softmax::soften;
use super::tile::{Block, Rows};
use super::values::add_values_to_all;

/// From this number of queries on, keys and values are first converted to floats, once for all
/// queries.
const CONVERT_QUERIES: usize = 8;

/// Whether keys of a type are multiplied as integers, with a
/// [`QuantisedQuery`](super::cached::QuantisedQuery).
pub const fn is_quantised<S: Simd, K: Cached>() -> bool {
    K::IS_QUANTISED && S::CODE_MAX == u8::MAX
}

/// Attends a block of cells with all queries.
///
/// # Safety
/// As [`Simd`] asks; each pointer in `block` is valid for the data that its field describes. The
/// lengths of keys and values are multiples of 16, and of the blocks of their types.
#[inline(always)]
pub unsafe fn attend<S: Simd, K: Cached, V: Cached>(block: &Block) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let mut keys = Rows::of::<K>(block.cells, block.keys, block.key_stride, block.key_numbers);
        keys.ahead(block.next, block.next_keys, block.key_stride);
        let mut values =
            Rows::of::<V>(block.cells, block.values, block.value_stride, block.value_numbers);
        values.ahead(block.next, block.next_values, block.value_stride);
        let converts = block.count >= CONVERT_QUERIES;
        if is_quantised::<S, K>() {
            dots_of_all::<S, Quantised>(block, &mut keys);
        } else if converts {
            convert::<S, K>(block, &mut keys, block.key_numbers);
            dots_of_all::<S, Floats<Converted>>(block, &mut keys);
        } else {
            dots_of_all::<S, Floats<K>>(block, &mut keys);
        }
        for query in 0..block.count {
            soften::<S>(block, query);
        }
        if converts {
            convert::<S, V>(block, &mut values, block.value_numbers);
            add_values_to_all::<S, Converted>(block, &mut values);
        } else {
            add_values_to_all::<S, V>(block, &mut values);
        }
    }
}

/// Converts the rows of a block to floats, and lets `rows` point to them.
#[inline(always)]
unsafe fn convert<S: Simd, C: Cached>(block: &Block, rows: &mut Rows, numbers: usize) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let first = block.scratch.converted;
        for (cell, row) in rows.rows.iter_mut().enumerate() {
            let to = first.add(cell.min(block.cells.len() - 1) * numbers);
            if cell < block.cells.len() {
                for at in (0..numbers).step_by(S::LANES) {
                    S::store_f32(to.add(at), C::load::<S>(*row, at));
                }
            }
            *row = to.cast_const().cast();
        }
    }
}
