//! Samples a token from logits, without sorting the vocabulary.
//!
//! The chain is llama.cpp's default: penalties, top-k, top-p, min-p, temperature, draw. There are
//! two routes:
//!
//! - **narrow**, for `top_k` up to [`NARROW_K_MAX`]: one pass over the logits keeps the k largest,
//!   and only those are sorted;
//! - **wide**, otherwise: one pass turns the logits into weights `exp(logit - max)`, and a radix
//!   descent over the bits of the weights finds the smallest weight that top-p keeps. Nothing is
//!   sorted.
//!
//! The less common options (`advanced`) come here too, except for llama.cpp's other samplers and
//! other orders of the chain, which take a third route (`pool`).
//!
//! The draw is a hash of the seed and the position. So equal logits and the same seed give the same
//! token, whatever other sequences run, and a sequence that moves to another slot needs no saved
//! state.
//!
//! **Invariant:** [`Sampler::sample`] makes no heap allocation.

use super::dry::Dry;
pub use super::history::History;
use super::largest::{Candidate, keep_largest, kth_largest, max};
pub use super::largest::{NARROW_K_MAX, argmax};
use super::penalties::apply_penalties;
use super::pool::{GREEDY_BELOW, Pool};
use super::weights::{RADIX_BUCKETS, draw_from, exp_into, nucleus_floor, reheat};
use crate::types::{Sampling, TokenId};

/// Buffers for sampling from one vocabulary.
pub struct Sampler {
    pub(super) end_tokens: Box<[TokenId]>,
    weights: Box<[f32]>,                   // [n_vocab]
    pub(super) candidates: Vec<Candidate>, // capacity 4 * NARROW_K_MAX
    pub(super) counts: Box<[u32]>,         // [n_vocab], all 0 between calls
    mass: Box<[f64]>,                      // [RADIX_BUCKETS]
    // For the less common options (`advanced`).
    pub(super) raw: Box<[f32]>, // [n_vocab], logits as the model gave them
    pub(super) pool: Pool,
    pub(super) dry: Dry,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab` tokens, of which `end_tokens` end a generation.
    pub fn new(n_vocab: usize, end_tokens: Box<[TokenId]>) -> Self {
        Self {
            end_tokens,
            weights: vec![0.0; n_vocab].into_boxed_slice(),
            candidates: Vec::with_capacity(4 * NARROW_K_MAX),
            counts: vec![0; n_vocab].into_boxed_slice(),
            mass: vec![0.0; RADIX_BUCKETS].into_boxed_slice(),
            raw: vec![0.0; n_vocab].into_boxed_slice(),
            pool: Pool::new(n_vocab),
            dry: Dry::new(),
        }
    }

    /// True for end-of-generation tokens.
    pub fn is_end(&self, token: TokenId) -> bool {
        self.end_tokens.contains(&token)
    }

    /// Samples the token after `history`. Penalties change `logits` (`[n_vocab]`) in place. NaN
    /// never wins.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        sampling: &Sampling,
        history: History<'_>,
    ) -> TokenId {
        if sampling.ignore_eos {
            self.forbid_ends(logits);
        }
        apply_penalties(&mut self.counts, logits, sampling, history);
        self.choose(logits, sampling, history.uniform(sampling.seed))
    }

    /// An end-of-generation token, or 0 if the vocabulary has none.
    pub(super) fn first_end(&self) -> TokenId {
        self.end_tokens.first().copied().unwrap_or_default()
    }

    pub(super) fn forbid_ends(&self, logits: &mut [f32]) {
        for token in &self.end_tokens {
            logits[*token as usize] = f32::NEG_INFINITY;
        }
    }

    /// Chooses a token by one of the two routes, after the penalties. `draw` is in `[0, 1)`.
    pub(super) fn choose(&mut self, logits: &[f32], sampling: &Sampling, draw: f64) -> TokenId {
        assert_eq!(logits.len(), self.weights.len());
        let token = if sampling.temperature < GREEDY_BELOW || sampling.top_k == 1 {
            argmax(logits)
        } else {
            let k = sampling.top_k as usize;
            if k == 0 || k >= logits.len() {
                self.sample_wide(logits, sampling, f32::NEG_INFINITY, draw)
            } else if k <= NARROW_K_MAX {
                self.sample_narrow(logits, sampling, k, draw)
            } else {
                let floor = kth_largest(&mut self.weights, logits, k);
                self.sample_wide(logits, sampling, floor, draw)
            }
        };
        token as TokenId // below n_vocab, which is an i32 in llama.cpp
    }

    fn sample_narrow(&mut self, logits: &[f32], s: &Sampling, k: usize, draw: f64) -> usize {
        let candidates = &mut self.candidates;
        keep_largest(candidates, logits, k);
        let Some(best) = candidates.first() else { return 0 };
        let max = best.logit;
        if s.top_p < 1.0 {
            let total: f32 = candidates.iter().map(|c| (c.logit - max).exp()).sum();
            let mut reached = 0.0;
            let kept = candidates.iter().position(|c| {
                reached += (c.logit - max).exp();
                reached >= s.top_p * total
            });
            candidates.truncate(kept.map_or(candidates.len(), |index| index + 1));
        }
        if s.min_p > 0.0 {
            let floor = max + s.min_p.ln();
            let kept = candidates.iter().take_while(|c| c.logit >= floor).count();
            candidates.truncate(kept.max(1));
        }
        let weight = |c: &Candidate| f64::from(((c.logit - max) / s.temperature).exp());
        let total: f64 = candidates.iter().map(weight).sum();
        let mut rest = draw * total;
        let chosen = candidates.iter().find(|c| {
            rest -= weight(c);
            rest < 0.0
        });
        chosen.unwrap_or(&candidates[0]).token as usize
    }

    /// The wide route. Only logits of at least `floor` take part.
    fn sample_wide(&mut self, logits: &[f32], s: &Sampling, floor: f32, draw: f64) -> usize {
        let max = max(logits);
        if !max.is_finite() {
            return argmax(logits);
        }
        let weights = &mut self.weights;
        let total = exp_into(weights, logits, max, 1.0, floor);
        let mut smallest = f32::MIN_POSITIVE;
        if s.top_p < 1.0 {
            smallest = nucleus_floor(weights, &mut self.mass, f64::from(s.top_p) * total);
        }
        // The largest weight is 1. Its token stays, whatever top_p and min_p are.
        smallest = smallest.max(s.min_p).min(1.0);
        if smallest > f32::MIN_POSITIVE {
            for weight in weights.iter_mut() {
                *weight = if *weight >= smallest { *weight } else { 0.0 };
            }
        }
        if s.temperature != 1.0 {
            reheat(weights, logits, max, s.temperature);
        }
        draw_from(weights, draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::history::uniform;

    const NO_HISTORY: History<'static> = History { tokens: &[], prompt_tokens: 0 };

    /// Pseudo-random logits with a few large ones, as models have them.
    fn logits(n: usize, seed: u64) -> Vec<f32> {
        (0..n as u64)
            .map(|i| {
                let u = uniform(seed, i);
                (8.0 * u * u * u * u * u - 3.0 * uniform(seed ^ 1, i)) as f32
            })
            .collect()
    }

    /// The definition of the chain, with a full sort: the probability of each token.
    fn reference(logits: &[f32], s: &Sampling) -> Vec<f64> {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        if s.top_k > 0 {
            order.truncate(s.top_k as usize);
        }
        let max = f64::from(logits[order[0]]);
        let weight = |i: &usize| (f64::from(logits[*i]) - max).exp();
        let total: f64 = order.iter().map(weight).sum();
        if s.top_p < 1.0 {
            let mut reached = 0.0;
            let kept = order.iter().position(|i| {
                reached += weight(i);
                reached >= f64::from(s.top_p) * total
            });
            order.truncate(kept.map_or(order.len(), |k| k + 1));
        }
        order.retain(|i| weight(i) >= f64::from(s.min_p));
        let hot = |i: &usize| ((f64::from(logits[*i]) - max) / f64::from(s.temperature)).exp();
        let total: f64 = order.iter().map(hot).sum();
        let mut probabilities = vec![0.0; logits.len()];
        for i in &order {
            probabilities[*i] = hot(i) / total;
        }
        probabilities
    }

    /// Draws many times and compares the frequencies with the definition.
    fn check(n: usize, s: Sampling) {
        let logits = logits(n, 7);
        let expected = reference(&logits, &s);
        let mut sampler = Sampler::new(n, Box::new([]));
        let draws = 20_000;
        let mut seen = vec![0u32; n];
        for seed in 0..draws {
            let sampling = Sampling { seed, ..s };
            let token = sampler.sample(&mut logits.clone(), &sampling, NO_HISTORY);
            seen[token as usize] += 1;
        }
        for (token, (count, p)) in seen.iter().zip(&expected).enumerate() {
            assert!(*p > 0.0 || *count == 0, "token {token} was cut off, and drawn {count} times");
            let mean = p * draws as f64;
            let tolerance = 5.0 * (mean * (1.0 - p)).sqrt() + 3.0;
            let off = (f64::from(*count) - mean).abs();
            assert!(off <= tolerance, "token {token}: {count} draws, {mean:.1} expected ({s:?})");
        }
    }

    #[test]
    fn draws_follow_the_definition_of_the_chain() {
        let base = Sampling::default();
        check(300, base);
        check(300, Sampling { temperature: 0.5, ..base });
        check(300, Sampling { top_k: 40, top_p: 0.95, temperature: 0.8, ..base });
        check(300, Sampling { top_k: 5, ..base });
        check(300, Sampling { top_p: 0.7, ..base });
        check(300, Sampling { top_p: 0.9, min_p: 0.05, temperature: 1.7, ..base });
        check(300, Sampling { min_p: 0.2, ..base });
        // The limits of each option.
        check(300, Sampling { top_p: 0.0, ..base });
        check(300, Sampling { top_p: 1e-30, ..base });
        check(300, Sampling { min_p: 1.0, ..base });
        check(300, Sampling { top_p: 0.0, top_k: 40, ..base });
        check(300, Sampling { top_k: 300, top_p: 0.3, ..base });
        check(300, Sampling { top_k: u32::MAX, ..base });
        check(300, Sampling { temperature: 0.01, ..base });
        check(3000, Sampling { top_k: 2000, top_p: 0.5, ..base });
        check(3000, Sampling { top_k: 1000, temperature: 0.3, ..base });
    }

    #[test]
    fn the_nucleus_is_the_smallest_set() {
        for seed in 0..200 {
            let logits = logits(5000, seed);
            let s =
                Sampling { top_p: (uniform(seed, 99) * 0.98 + 0.01) as f32, ..Sampling::default() };
            let kept = reference(&logits, &s).iter().filter(|p| **p > 0.0).count();
            let mut weights = vec![0.0; logits.len()];
            let total = exp_into(&mut weights, &logits, max(&logits), 1.0, f32::NEG_INFINITY);
            let mut mass = vec![0.0; RADIX_BUCKETS];
            let floor = nucleus_floor(&weights, &mut mass, f64::from(s.top_p) * total);
            let ours = weights.iter().filter(|w| **w >= floor).count();
            // One token more or less is rounding at the edge.
            assert!(ours.abs_diff(kept) <= 1, "seed {seed}: kept {ours} tokens, should be {kept}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_token() {
        let logits = logits(1000, 3);
        let s = Sampling { seed: 42, temperature: 1.5, ..Sampling::default() };
        let mut sampler = Sampler::new(1000, Box::new([]));
        let first = sampler.sample(&mut logits.clone(), &s, NO_HISTORY);
        let again = Sampler::new(1000, Box::new([])).sample(&mut logits.clone(), &s, NO_HISTORY);
        assert_eq!(first, again);
    }

    #[test]
    fn temperature_zero_is_greedy() {
        let mut values = logits(1000, 5);
        values[321] = 50.0;
        values[322] = 50.0;
        let mut sampler = Sampler::new(1000, Box::new([]));
        for seed in 0..10 {
            for temperature in [0.0, f32::MIN_POSITIVE, 1e-39, 1e-4] {
                let s = Sampling { seed, temperature, ..Sampling::default() };
                assert_eq!(sampler.sample(&mut values.clone(), &s, NO_HISTORY), 321);
            }
        }
    }

    #[test]
    fn ignore_eos_never_ends() {
        let mut sampler = Sampler::new(10, Box::new([3]));
        let mut logits = [0.0f32; 10];
        logits[3] = 9.0;
        logits[7] = 1.0;
        let s = Sampling { ignore_eos: true, ..Sampling::greedy() };
        assert_eq!(sampler.sample(&mut logits, &s, NO_HISTORY), 7);
        assert!(sampler.is_end(3) && !sampler.is_end(7));
    }

    #[test]
    fn logits_that_are_not_numbers_never_win_or_panic() {
        let nan = f32::NAN;
        let inf = f32::INFINITY;
        let cases = [[nan; 40], [f32::NEG_INFINITY; 40], [inf; 40]];
        let samplings = [
            Sampling::greedy(),
            Sampling::default(),
            Sampling { top_p: 0.5, ..Sampling::default() },
            Sampling { top_k: 5, top_p: 0.5, min_p: 0.1, ..Sampling::default() },
        ];
        let mut sampler = Sampler::new(40, Box::new([]));
        for s in &samplings {
            for case in &cases {
                let token = sampler.sample(&mut case.clone(), s, NO_HISTORY);
                assert!((0..40).contains(&token));
            }
            let mut one = [nan; 40];
            one[17] = -3.0;
            assert_eq!(sampler.sample(&mut one, s, NO_HISTORY), 17, "{s:?}");
        }
    }
}
