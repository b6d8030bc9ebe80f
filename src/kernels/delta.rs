//! The gated delta net: a linear attention with a state for each head, of models such as Qwen3.5.
//!
//! The state `S` of a head is a square matrix. Behind each token, with its key `k`, value `v`, query
//! `q`, gate `g` and `beta`:
//!
//! ```text
//! S = exp(g) S
//! S = S + beta (v - S k) k^T
//! output = S q / sqrt(numbers)
//! ```
//!
//! (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024, arXiv 2412.06464.) Each row of `S` depends
//! on itself alone. So a row stays in registers for all tokens of a step: it is read once and written
//! once, and a state of many megabytes crosses memory once in each direction.

use super::simd::Simd;

/// Rows of a state that are computed together, so that one need not wait for its own sums.
const ROWS: usize = 2;

/// Numbers of each token of a sequence.
#[derive(Clone, Copy)]
pub struct TokenRows {
    /// Those of the first token.
    pub first: *const f32,
    /// Bytes between two tokens.
    pub stride: usize,
}

/// A head of a sequence.
pub struct Head {
    /// Numbers in a row of the state.
    pub numbers: usize,
    /// Tokens of the step.
    pub tokens: usize,
    /// The state before: `[numbers, numbers]`.
    pub from: *const f32,
    /// The state behind the last token. It may be `from`.
    pub to: *mut f32,
    /// States to write: behind the last token, the one before it, and so on; at most `tokens`.
    pub snapshots: usize,
    /// Bytes between two of them.
    pub snapshot_stride: usize,
    /// `[tokens][numbers]`
    pub queries: TokenRows,
    /// `[tokens][numbers]`
    pub keys: TokenRows,
    /// `[tokens][numbers]`
    pub values: TokenRows,
    /// `[tokens]`: the logarithm of what stays of the state.
    pub gates: TokenRows,
    /// `[tokens]`: how much of the difference is learned.
    pub betas: TokenRows,
    /// The first token's output: `[numbers]`
    pub output: *mut f32,
    /// Floats between two tokens' outputs.
    pub output_stride: usize,
}

/// Computes a head on an instruction set.
///
/// # Safety
/// The processor has the instruction set, all pointers are valid for the sizes that they state, and no
/// other thread uses the state or the output.
pub type Run = unsafe fn(&Head);

impl TokenRows {
    /// # Safety
    /// There is such a token.
    #[inline(always)]
    unsafe fn of(self, token: usize) -> *const f32 {
        // SAFETY: the caller guarantees it.
        unsafe { self.first.byte_add(token * self.stride) }
    }
}

/// Computes a head whose rows fill `V` vectors.
///
/// # Safety
/// As for [`Run`].
#[inline(always)]
pub unsafe fn run<S: Simd, const V: usize>(head: &Head) {
    debug_assert_eq!(head.numbers, V * S::LANES);
    for row in (0..head.numbers).step_by(ROWS) {
        // SAFETY: the caller guarantees it; `numbers` is even.
        unsafe { run_rows::<S, V>(head, row) };
    }
}

/// Computes [`ROWS`] rows of a state for all tokens.
#[expect(clippy::needless_range_loop, reason = "indices into several arrays")]
#[inline(always)]
unsafe fn run_rows<S: Simd, const V: usize>(head: &Head, row: usize) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let place = |row: usize, vector: usize| row * head.numbers + vector * S::LANES;
        let scale = 1.0 / (head.numbers as f32).sqrt();
        let mut state = [[S::splat_f32(0.0); V]; ROWS];
        for (r, state) in state.iter_mut().enumerate() {
            for (v, state) in state.iter_mut().enumerate() {
                *state = S::load_f32(head.from.add(place(row + r, v)));
            }
        }
        for token in 0..head.tokens {
            let (key, query) = (head.keys.of(token), head.queries.of(token));
            let values = head.values.of(token).add(row);
            let beta = head.betas.of(token).read();
            let stays = S::splat_f32(head.gates.of(token).read().exp());
            let mut sums = [S::splat_f32(0.0); ROWS];
            for v in 0..V {
                let key = S::load_f32(key.add(v * S::LANES));
                for r in 0..ROWS {
                    state[r][v] = S::mul(state[r][v], stays);
                    sums[r] = S::mul_add(state[r][v], key, sums[r]);
                }
            }
            let mut learned = [S::splat_f32(0.0); ROWS];
            for r in 0..ROWS {
                let known = S::total_f32(sums[r]);
                learned[r] = S::splat_f32((values.add(r).read() - known) * beta);
                sums[r] = S::splat_f32(0.0);
            }
            for v in 0..V {
                let key = S::load_f32(key.add(v * S::LANES));
                let query = S::load_f32(query.add(v * S::LANES));
                for r in 0..ROWS {
                    state[r][v] = S::mul_add(learned[r], key, state[r][v]);
                    sums[r] = S::mul_add(state[r][v], query, sums[r]);
                }
            }
            let output = head.output.add(token * head.output_stride + row);
            for r in 0..ROWS {
                output.add(r).write(S::total_f32(sums[r]) * scale);
            }
            let behind = head.tokens - 1 - token;
            if behind < head.snapshots {
                let to = head.to.byte_add(behind * head.snapshot_stride);
                for r in 0..ROWS {
                    for v in 0..V {
                        S::store_f32(to.add(place(row + r, v)), state[r][v]);
                    }
                }
            }
        }
    }
}
