//! The online softmax: scores of a block become weights of its values.

use super::super::simd::Simd;
use super::tile::{BLOCK_CELLS, Block, SUM_LANES};

/// Replaces a query's scores by `exp(score - maximum)`, and updates its state to the new maximum.
///
/// # Safety
/// As [`attend`](super::block::attend).
#[inline(always)]
pub unsafe fn soften<S: Simd>(block: &Block, query: usize) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let scores = block.scratch.scores.add(query * BLOCK_CELLS);
        limit(scores, block.cells.len(), block.softcap);
        for behind in block.cells.len()..BLOCK_CELLS {
            scores.add(behind).write(f32::NEG_INFINITY);
        }
        let maximum = block.state.maxima.add(query);
        let sums = block.state.sums.add(query * SUM_LANES);
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
            let factor = exp::<S>(S::splat_f32(maximum.read() - largest));
            S::store_f32(sums, S::mul(S::load_f32(sums), factor));
            shrink_output::<S>(block, query, factor);
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

/// Limits scores by the soft cap, if there is one.
unsafe fn limit(scores: *mut f32, count: usize, softcap: f32) {
    if softcap != 0.0 {
        // SAFETY: the caller guarantees it.
        for score in unsafe { std::slice::from_raw_parts_mut(scores, count) } {
            *score = softcap * (*score / softcap).tanh();
        }
    }
}

/// Multiplies a query's output by a factor.
#[inline(always)]
unsafe fn shrink_output<S: Simd>(block: &Block, query: usize, factor: S::Float) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let output = block.state.outputs.add(query * block.value_numbers);
        for at in (0..block.value_numbers).step_by(S::LANES) {
            S::store_f32(output.add(at), S::mul(S::load_f32(output.add(at)), factor));
        }
    }
}

/// The exponential function of numbers up to 0, with a relative error below 3e-7. It is 0 below
/// about -88.
#[inline(always)]
unsafe fn exp<S: Simd>(x: S::Float) -> S::Float {
    // exp(x) = 2^n 2^f, with n an integer and f between -1/2 and 1/2; the second factor is a
    // sum of (f ln 2)^k / k!.
    const TERMS: [f32; 6] =
        [1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2, 1.0];
    // SAFETY: the caller guarantees it.
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
