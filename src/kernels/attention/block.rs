//! The inner loop: some queries of one KV head meet one block of cells.
//!
//! ```text
//! for each query      scores  = query x keys of the block           (dots)
//!                     maximum = the larger of the old one and theirs  (soften)
//!                     scores  = exp(scores - maximum); sum += scores
//!                     output  = output x exp(old maximum - maximum)
//!                             + scores x values of the block          (add_values)
//! ```
//!
//! After all blocks, `output / sum` is the softmax's average of the values. This is the
//! online softmax of Milakov and Gimelshein (arXiv 1805.02867), as FlashAttention uses it
//! (arXiv 2205.14135).
//!
//! **Invariant:** what a query becomes does not depend on the queries beside it, bit by bit:
//! each number is computed by the same operations in the same order, for any count of
//! queries.

use super::super::product::prefetch;
use super::super::simd::Simd;
use super::cached::{Cached, Converted, QuantisedQuery};

/// Cells of a block.
pub const BLOCK_CELLS: usize = 32;

/// Floats of [`State::sums`] for a query: one for each lane.
pub const SUM_LANES: usize = 16;

/// With this number of queries or more, keys and values are converted to floats first, once
/// for all queries.
const CONVERT_QUERIES: usize = 8;

/// Arguments of one kernel call.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// The cells, 1 to [`BLOCK_CELLS`].
    pub cells: &'a [u32],
    /// Cells whose keys and values are prefetched meanwhile, for the kernel call that follows.
    pub next: &'a [u32],
    /// The next head's keys in cell 0.
    pub next_keys: *const u8,
    /// The next head's values in cell 0.
    pub next_values: *const u8,
    /// The head's keys in cell 0.
    pub keys: *const u8,
    /// Bytes from one cell's keys to the next one's.
    pub key_stride: usize,
    /// The head's values in cell 0.
    pub values: *const u8,
    /// Bytes from one cell's values to the next one's.
    pub value_stride: usize,
    /// Numbers of a query and of a key.
    pub key_numbers: usize,
    /// Numbers of a value.
    pub value_numbers: usize,
    /// `[count][query_floats(key_numbers)]`, already scaled; for some types of keys as
    /// [`QuantisedQuery`] has them.
    pub queries: *const f32,
    /// How many queries there are.
    pub count: usize,
    /// `[count][BLOCK_CELLS]`, added to the scores; null where nothing is.
    pub bias: *const f32,
    /// Scores are limited to this size by a hyperbolic tangent; 0 where they are not.
    pub softcap: f32,
    /// What the queries have found so far.
    pub state: State,
    /// Memory that nobody else uses.
    pub scratch: Scratch,
}

/// What some queries have found in the cells so far. At first `maxima` are
/// [`NO_MAXIMUM`], and the others 0.
#[derive(Clone, Copy)]
pub struct State {
    /// `[count]`: the largest score.
    pub maxima: *mut f32,
    /// `[count][SUM_LANES]`: the sums of `exp(score - maximum)`, in parts.
    pub sums: *mut f32,
    /// `[count][value_numbers]`: the values, each times `exp(score - maximum)`.
    pub outputs: *mut f32,
}

/// Smaller than any score, and finite: its difference to minus infinity is no NaN.
pub const NO_MAXIMUM: f32 = f32::MIN;

/// Memory for a kernel call.
#[derive(Clone, Copy)]
pub struct Scratch {
    /// `[count][BLOCK_CELLS]`
    pub scores: *mut f32,
    /// `[BLOCK_CELLS][max(key_numbers, value_numbers)]`
    pub converted: *mut f32,
}

/// Lets the queries look at a block of cells.
///
/// # Safety
/// As [`Simd`] asks; each pointer in `block` is valid for the data that its field describes.
/// Both counts of numbers are multiples of 16, and of the blocks of their types.
#[inline(always)]
pub unsafe fn attend<S: Simd, K: Cached, V: Cached>(block: &Block) {
    // SAFETY: the caller's promise. Behind the last cell, its row stands again.
    unsafe {
        let cells = block.cells;
        let mut keys = Rows::of(cells, block.keys, block.key_stride);
        keys.ahead(block.next, block.next_keys, block.key_stride);
        let mut values = Rows::of(cells, block.values, block.value_stride);
        values.ahead(block.next, block.next_values, block.value_stride);
        if is_quantised::<S, K>() {
            dots_of_all::<S, Quantised>(block, &mut keys);
        } else if block.count >= CONVERT_QUERIES {
            convert::<S, K>(block, &mut keys, block.key_numbers);
            dots_of_all::<S, Floats<Converted>>(block, &mut keys);
        } else {
            dots_of_all::<S, Floats<K>>(block, &mut keys);
        }
        for query in 0..block.count {
            soften::<S>(block, query);
        }
        if block.count >= CONVERT_QUERIES {
            convert::<S, V>(block, &mut values, block.value_numbers);
            add_values_to_all::<S, Converted>(block, &mut values);
        } else {
            add_values_to_all::<S, V>(block, &mut values);
        }
    }
}

/// Whether keys of a type are multiplied as integers, with a [`QuantisedQuery`].
pub const fn is_quantised<S: Simd, K: Cached>() -> bool {
    K::IS_QUANTISED && S::CODE_MAX == u8::MAX
}

/// The keys or values of a block.
struct Rows {
    /// A row for each cell. Behind the last one, it stands again.
    rows: [*const u8; BLOCK_CELLS],
    /// A row for each of them that is prefetched while it is read: bursts of prefetches would
    /// make the core wait.
    ahead: [*const u8; BLOCK_CELLS],
}

impl Rows {
    #[inline(always)]
    fn of(cells: &[u32], first: *const u8, stride: usize) -> Self {
        let last = cells.len() - 1;
        let mut rows = [first; BLOCK_CELLS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = first.wrapping_add(cells[i.min(last)] as usize * stride);
        }
        Self { rows, ahead: rows }
    }

    /// Prefetches the rows of these cells.
    #[inline(always)]
    fn ahead(&mut self, cells: &[u32], first: *const u8, stride: usize) {
        for (ahead, cell) in self.ahead.iter_mut().zip(cells) {
            *ahead = first.wrapping_add(*cell as usize * stride);
        }
    }

    /// Nothing is prefetched any more.
    #[inline(always)]
    fn stop(&mut self) {
        self.ahead = self.rows;
    }
}

/// Prefetches the numbers from `at` on of a row.
#[inline(always)]
fn prefetch_numbers<C: Cached>(row: *const u8, at: usize) {
    if C::IS_CACHED {
        prefetch(row.wrapping_add(at * C::BLOCK_BYTES / C::BLOCK_NUMBERS), 1);
    }
}

/// Converts the rows of a block to floats, and lets `rows` point to them.
#[inline(always)]
unsafe fn convert<S: Simd, C: Cached>(block: &Block, rows: &mut Rows, numbers: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let first = block.scratch.converted;
        for cell in 0..block.cells.len() {
            for at in (0..numbers).step_by(S::LANES) {
                let number = C::load::<S>(rows.rows[cell], at);
                prefetch_numbers::<C>(rows.ahead[cell], at);
                S::store_f32(first.add(cell * numbers + at), number);
            }
        }
        for (cell, row) in rows.rows.iter_mut().enumerate() {
            let cell = cell.min(block.cells.len() - 1);
            *row = first.add(cell * numbers).cast_const().cast();
        }
    }
}

/// How queries are multiplied with keys.
trait Dots {
    /// The products of `Q` queries, `stride` floats apart, with `S::LANES / Q` keys: those of
    /// the first query, then those of the second.
    unsafe fn dots<S: Simd, const Q: usize>(
        queries: *const f32,
        stride: usize,
        keys: &[*const u8],
        ahead: &[*const u8],
        numbers: usize,
    ) -> S::Float;
}

/// As floats.
struct Floats<K>(std::marker::PhantomData<K>);

impl<K: Cached> Dots for Floats<K> {
    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize>(
        queries: *const f32,
        stride: usize,
        keys: &[*const u8],
        ahead: &[*const u8],
        numbers: usize,
    ) -> S::Float {
        // SAFETY: the caller's promise.
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

/// As 8-bit integers, with a scale for each 32 of them.
struct Quantised;

impl Dots for Quantised {
    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize>(
        queries: *const f32,
        stride: usize,
        keys: &[*const u8],
        ahead: &[*const u8],
        numbers: usize,
    ) -> S::Float {
        use super::cached::Q8_0;
        // SAFETY: the caller's promise. Where the blocks are odd in number, the last one is
        // read twice, and meets zeros.
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

/// The scores of all queries.
#[inline(always)]
unsafe fn dots_of_all<S: Simd, D: Dots>(block: &Block, keys: &mut Rows) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut query = 0;
        while query + 4 <= block.count {
            dots_of::<S, D, 4>(block, keys, query);
            keys.stop();
            query += 4;
        }
        if query + 2 <= block.count {
            dots_of::<S, D, 2>(block, keys, query);
            keys.stop();
            query += 2;
        }
        if query < block.count {
            dots_of::<S, D, 1>(block, keys, query);
        }
    }
}

/// The scores of `Q` queries.
#[inline(always)]
unsafe fn dots_of<S: Simd, D: Dots, const Q: usize>(block: &Block, keys: &Rows, query: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let stride = super::cached::query_floats(block.key_numbers);
        let queries = block.queries.add(query * stride);
        let scores = block.scratch.scores.add(query * BLOCK_CELLS);
        let cells = S::LANES / Q;
        for first in (0..block.cells.len()).step_by(cells) {
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
    }
}

/// Makes scores of a query `exp(score - maximum)`, and brings its state up to the new
/// maximum.
#[inline(always)]
unsafe fn soften<S: Simd>(block: &Block, query: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let scores = block.scratch.scores.add(query * BLOCK_CELLS);
        if block.softcap != 0.0 {
            for score in std::slice::from_raw_parts_mut(scores, block.cells.len()) {
                *score = block.softcap * (*score / block.softcap).tanh();
            }
        }
        for behind in block.cells.len()..BLOCK_CELLS {
            scores.add(behind).write(f32::NEG_INFINITY);
        }
        let (maximum, sums) =
            (block.state.maxima.add(query), block.state.sums.add(query * SUM_LANES));
        let mut largest = S::splat_f32(maximum.read());
        for at in (0..BLOCK_CELLS).step_by(S::LANES) {
            let mut score = S::load_f32(scores.add(at));
            if !block.bias.is_null() {
                score = S::add_f32(score, S::load_f32(block.bias.add(query * BLOCK_CELLS + at)));
                S::store_f32(scores.add(at), score);
            }
            largest = S::max(largest, score);
        }
        let largest = S::largest(largest);
        if largest > maximum.read() {
            shrink::<S>(block, query, exp::<S>(S::splat_f32(maximum.read() - largest)));
            maximum.write(largest);
        }
        let mut sum = S::load_f32(sums);
        for at in (0..BLOCK_CELLS).step_by(S::LANES) {
            let score = S::load_f32(scores.add(at));
            let score = exp::<S>(S::add_f32(score, S::splat_f32(-largest)));
            S::store_f32(scores.add(at), score);
            sum = S::add_f32(sum, score);
        }
        S::store_f32(sums, sum);
    }
}

/// Multiplies the sums and the outputs of a query with a factor.
#[inline(always)]
unsafe fn shrink<S: Simd>(block: &Block, query: usize, factor: S::Float) {
    // SAFETY: the caller's promise.
    unsafe {
        let sums = block.state.sums.add(query * SUM_LANES);
        S::store_f32(sums, S::mul(S::load_f32(sums), factor));
        let outputs = block.state.outputs.add(query * block.value_numbers);
        for at in (0..block.value_numbers).step_by(S::LANES) {
            S::store_f32(outputs.add(at), S::mul(S::load_f32(outputs.add(at)), factor));
        }
    }
}

/// The exponential function of numbers of at most 0, with a relative error below 3e-7. Below
/// about -88 it is 0.
#[inline(always)]
unsafe fn exp<S: Simd>(x: S::Float) -> S::Float {
    // exp(x) = 2^n 2^f, with n an integer and f between -1/2 and 1/2; the second factor is a
    // sum of (f ln 2)^k / k!.
    const TERMS: [f32; 6] =
        [1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2, 1.0];
    // SAFETY: the caller's promise.
    unsafe {
        let log2 = S::mul(x, S::splat_f32(std::f32::consts::LOG2_E));
        let log2 = S::max(log2, S::splat_f32(-127.0));
        let n = S::round(log2);
        let f = S::add_f32(log2, S::mul(S::float(n), S::splat_f32(-1.0)));
        let mut sum = S::splat_f32(1.540_353e-4);
        for term in TERMS {
            sum = S::mul_add(sum, f, S::splat_f32(term));
        }
        // The bits of 2^n; of 0 where n is -127.
        let power = S::from_bits(S::left::<23>(S::add(n, S::splat_lane(127))));
        S::mul(sum, power)
    }
}

/// Adds the values of a block, times the scores, to the outputs of all queries.
#[inline(always)]
unsafe fn add_values_to_all<S: Simd, V: Cached>(block: &Block, values: &mut Rows) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut query = 0;
        while query + 4 <= block.count {
            add_values::<S, V, 4>(block, values, query);
            values.stop();
            query += 4;
        }
        if query + 2 <= block.count {
            add_values::<S, V, 2>(block, values, query);
            values.stop();
            query += 2;
        }
        if query < block.count {
            add_values::<S, V, 1>(block, values, query);
        }
    }
}

/// Adds the values of a block to the outputs of `Q` queries: as many numbers at once as
/// there are registers for their sums.
#[inline(always)]
unsafe fn add_values<S: Simd, V: Cached, const Q: usize>(
    block: &Block,
    values: &Rows,
    query: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = 0;
        while 8 * Q <= S::LANES && at + 8 * S::LANES <= block.value_numbers {
            add_numbers::<S, V, Q, 8>(block, values, query, at);
            at += 8 * S::LANES;
        }
        while 4 * Q <= S::LANES && at + 4 * S::LANES <= block.value_numbers {
            add_numbers::<S, V, Q, 4>(block, values, query, at);
            at += 4 * S::LANES;
        }
        while at + 2 * S::LANES <= block.value_numbers {
            add_numbers::<S, V, Q, 2>(block, values, query, at);
            at += 2 * S::LANES;
        }
        if at < block.value_numbers {
            add_numbers::<S, V, Q, 1>(block, values, query, at);
        }
    }
}

/// The same, for the numbers from `at` on that fill `W` vectors.
#[inline(always)]
unsafe fn add_numbers<S: Simd, V: Cached, const Q: usize, const W: usize>(
    block: &Block,
    values: &Rows,
    query: usize,
    at: usize,
) {
    // SAFETY: the caller's promise.
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
