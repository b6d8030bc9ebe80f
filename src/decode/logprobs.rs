//! Log-probabilities of the sampled token and of the most probable ones, from the model's raw
//! logits: before biases, penalties and temperature, over the whole vocabulary.
//!
//! **Invariant:** nothing here allocates.

use super::largest::{Candidate, keep_largest, max};
use super::weights::sum_exp;
use crate::ring::message::TokenLogprobs;
use crate::types::TokenId;

/// The log-probabilities of `token` and of the `top` most probable tokens, at most
/// [`crate::limits::TOP_LOGPROBS_MAX`]. `logits` is `[n_vocab]`; `largest` is scratch for
/// [`keep_largest`].
pub(super) fn logprobs_of(
    logits: &[f32],
    largest: &mut Vec<Candidate>,
    token: TokenId,
    top: usize,
) -> TokenLogprobs {
    let max = max(logits);
    let log_total = sum_exp(logits, max).ln() as f32;
    // NaN becomes the smallest value, too.
    let logprob = |logit: f32| (logit - max - log_total).max(TokenLogprobs::MIN);
    let mut logprobs =
        TokenLogprobs { logprob: logprob(logits[token as usize]), ..TokenLogprobs::default() };
    if top > 0 {
        keep_largest(largest, logits, top);
        // Below n_vocab, which is an i32 in llama.cpp.
        let pair = |candidate: &Candidate| (candidate.token as TokenId, logprob(candidate.logit));
        logprobs.top.extend(largest.iter().map(pair));
    }
    logprobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::largest::NARROW_K_MAX;
    use crate::limits::TOP_LOGPROBS_MAX;

    const N_VOCAB: usize = 151_936;

    /// The definition, in double precision.
    fn log_softmax(logits: &[f32]) -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let below = |logit: &f32| f64::from(*logit) - f64::from(max);
        let total: f64 = logits.iter().map(|logit| below(logit).exp()).sum();
        logits.iter().map(|logit| below(logit) - total.ln()).collect()
    }

    fn uniform(state: &mut u64) -> f32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 40) as f32 / (1u64 << 24) as f32
    }

    #[test]
    fn they_are_those_of_a_slow_log_softmax() {
        let mut largest = Vec::with_capacity(4 * NARROW_K_MAX);
        // Distributions from nearly flat to nearly certain, around zero and far from it.
        let shapes: [(f32, f32); 5] =
            [(0.1, 0.0), (3.0, 0.0), (12.0, -20.0), (30.0, 500.0), (80.0, -100.0)];
        for (seed, (spread, offset)) in shapes.into_iter().enumerate() {
            let mut state = seed as u64;
            let logits: Vec<f32> =
                (0..N_VOCAB).map(|_| offset + spread * (uniform(&mut state) - 0.5)).collect();
            let exact = log_softmax(&logits);
            let mut order: Vec<usize> = (0..N_VOCAB).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
            for token in [0, 17, N_VOCAB - 1, order[0], order[N_VOCAB - 1]] {
                let found = logprobs_of(&logits, &mut largest, token as TokenId, TOP_LOGPROBS_MAX);
                assert!((f64::from(found.logprob) - exact[token]).abs() < 1e-4);
                assert_eq!(found.top.len(), TOP_LOGPROBS_MAX);
                for ((token, logprob), expected) in found.top.iter().zip(&order) {
                    assert_eq!(*token as usize, *expected);
                    assert!((f64::from(*logprob) - exact[*expected]).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn nothing_but_numbers_comes_out() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let mut largest = Vec::with_capacity(4 * NARROW_K_MAX);
        for logits in [[-inf; 40], [inf; 40], [nan; 40]] {
            let found = logprobs_of(&logits, &mut largest, 3, 20);
            let mut all = found.top.iter().map(|(_, logprob)| *logprob).chain([found.logprob]);
            assert!(all.all(|logprob| logprob.is_finite()), "{found:?}");
        }
        let mut logits = [-inf; 40];
        (logits[4], logits[5], logits[6]) = (1.0, 1.0, nan);
        let found = logprobs_of(&logits, &mut largest, 6, 20);
        assert_eq!(found.logprob, TokenLogprobs::MIN);
        let half = 0.5f32.ln();
        assert!(found.top.iter().map(|(token, _)| *token).eq([4, 5]), "there are no more");
        assert!(found.top.iter().all(|(_, logprob)| (logprob - half).abs() < 1e-5));
    }

    #[test]
    fn no_alternatives_are_looked_for_unless_asked_for() {
        let found = logprobs_of(&[0.0, 0.0], &mut Vec::with_capacity(4 * NARROW_K_MAX), 1, 0);
        assert!(found.top.is_empty() && (found.logprob - 0.5f32.ln()).abs() < 1e-5);
    }
}
