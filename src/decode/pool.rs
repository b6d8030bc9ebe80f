//! llama.cpp's samplers in any order, on a shrinking pool of tokens.
//!
//! Most requests take the faster route of [`super::sampler`], which makes no list of tokens. Here
//! each sampler removes tokens from the pool, or changes the logits of those in it. No sampler
//! sorts: each finds the threshold (a weight, logit or distance) of its cut, and one pass removes
//! the tokens beyond it.
//!
//! The definitions are llama.cpp's. If several tokens are equal to the threshold, all of them stay.
//!
//! **Invariant:** nothing here allocates, because the pool has room for the vocabulary.

use super::largest::{Candidate, NARROW_K_MAX, keep_largest, kth_largest, max};
use super::weights::{RADIX_BUCKETS, draw_from, exp_into, nucleus_floor, sum_of};
use crate::types::chain::{Chain, SamplerKind};
use crate::types::{Sampling, TokenId};

/// Temperatures below this are greedy: the second-best logit has no chance, and a division could
/// overflow.
pub(super) const GREEDY_BELOW: f32 = 1e-3;

/// Larger than any meaningful logit, and small enough that its square is finite.
const LOGIT_MAX: f32 = 1e15;

/// The tokens that may still be chosen. At least one, once it was filled. Their logits are finite.
pub(super) struct Pool {
    pub(super) logits: Vec<f32>, // capacity n_vocab
    pub(super) tokens: Vec<u32>, // [logits.len()], capacity n_vocab
    weights: Box<[f32]>,         // [n_vocab], the first [logits.len()] of use after `weigh`
    mass: Box<[f64]>,            // [RADIX_BUCKETS]
    largest: Vec<Candidate>,     // capacity 4 * NARROW_K_MAX
}

impl Pool {
    /// A pool with room for a vocabulary.
    pub fn new(n_vocab: usize) -> Self {
        Self {
            logits: Vec::with_capacity(n_vocab),
            tokens: Vec::with_capacity(n_vocab),
            weights: vec![0.0; n_vocab].into_boxed_slice(),
            mass: vec![0.0; RADIX_BUCKETS].into_boxed_slice(),
            largest: Vec::with_capacity(4 * NARROW_K_MAX),
        }
    }

    /// Fills the pool with all tokens whose logit is above negative infinity.
    pub fn fill(&mut self, logits: &[f32]) {
        assert_eq!(logits.len(), self.weights.len());
        self.logits.clear();
        self.tokens.clear();
        for (token, logit) in logits.iter().enumerate() {
            if *logit > f32::NEG_INFINITY {
                self.logits.push(*logit);
                self.tokens.push(token as u32); // a vocabulary's size fits into 32 bits
            }
        }
    }

    /// Writes the pool's logits to `logits`, `[n_vocab]`.
    pub fn store(&self, logits: &mut [f32]) {
        for (token, logit) in self.tokens.iter().zip(&self.logits) {
            logits[*token as usize] = *logit;
        }
    }

    /// Reads the logits of the pool's tokens from `logits`, `[n_vocab]`.
    pub fn load(&mut self, logits: &[f32]) {
        for (token, logit) in self.tokens.iter().zip(&mut self.logits) {
            *logit = logits[*token as usize];
        }
    }

    /// Applies a sampler other than a penalty. XTC applies if `coin`, in `[0, 1)`, is below its
    /// probability.
    pub fn apply(&mut self, kind: SamplerKind, sampling: &Sampling, chain: &Chain, coin: f64) {
        let min_keep = chain.min_keep as usize;
        match kind {
            SamplerKind::TopNSigma => self.top_n_sigma(chain.top_n_sigma),
            SamplerKind::TopK => self.top_k(sampling.top_k as usize),
            SamplerKind::Typical => self.typical(chain.typical_p, min_keep),
            SamplerKind::TopP => self.top_p(sampling.top_p, min_keep),
            SamplerKind::MinP => self.min_p(sampling.min_p, min_keep),
            SamplerKind::Xtc if coin < f64::from(chain.xtc_probability) => {
                self.xtc(chain.xtc_threshold, min_keep);
            }
            SamplerKind::Xtc => {}
            SamplerKind::Temperature => {
                let temperature = self.dynamic_temperature(
                    sampling.temperature,
                    chain.dynatemp_range,
                    chain.dynatemp_exponent,
                );
                self.temperature(temperature);
            }
            SamplerKind::Penalties | SamplerKind::Dry | SamplerKind::Infill => {
                unreachable!("these look at the text, and not at the pool alone")
            }
        }
    }

    /// Draws a token, with `draw` in `[0, 1)`. Returns it with its probability in the pool.
    pub fn draw(&mut self, draw: f64) -> (TokenId, f64) {
        let total = self.weigh();
        let weights = &self.weights[..self.logits.len()];
        let index = draw_from(weights, draw);
        // Below n_vocab, which is an i32 in llama.cpp.
        (self.tokens[index] as TokenId, f64::from(weights[index]) / total)
    }

    /// The `k` largest logits in the pool, largest first; `k` is at most [`NARROW_K_MAX`].
    pub fn largest(&mut self, k: usize) -> &[Candidate] {
        keep_largest(&mut self.largest, &self.logits, k);
        &self.largest
    }

    /// Keeps the tokens of at least probability `p`, or the most probable one if there are none.
    pub fn keep_probable(&mut self, p: f64) {
        let total = self.weigh();
        self.keep_from((p * total) as f32, 1);
    }

    /// Computes unnormalised probabilities, 1 for the largest logit. Returns their sum.
    fn weigh(&mut self) -> f64 {
        let weights = &mut self.weights[..self.logits.len()];
        exp_into(weights, &self.logits, max(&self.logits), 1.0, f32::NEG_INFINITY)
    }

    /// The expected distance of a logit below the largest, after `weigh`.
    fn mean_below_max(&self, total: f64) -> f64 {
        let max = max(&self.logits);
        let weights = &self.weights[..self.logits.len()];
        sum_of(weights, &self.logits, |weight, logit| weight * (max - logit)) / total
    }

    /// Keeps the tokens for which `keep` returns true, given their index and logit.
    fn retain(
        logits: &mut Vec<f32>,
        tokens: &mut Vec<u32>,
        mut keep: impl FnMut(usize, f32) -> bool,
    ) {
        let mut kept = 0;
        for index in 0..logits.len() {
            if keep(index, logits[index]) {
                logits[kept] = logits[index];
                tokens[kept] = tokens[index];
                kept += 1;
            }
        }
        logits.truncate(kept);
        tokens.truncate(kept);
    }

    /// Keeps weights of at least `floor`, after `weigh`. Keeps the `min_keep` largest if that is
    /// more.
    fn keep_from(&mut self, floor: f32, min_keep: usize) {
        let Self { logits, tokens, weights, .. } = self;
        let count = weights[..logits.len()].iter().filter(|weight| **weight >= floor).count();
        if count < min_keep {
            self.top_k(min_keep);
        } else {
            Self::retain(logits, tokens, |index, _| weights[index] >= floor);
        }
    }

    /// Keeps the `k` largest logits.
    pub fn top_k(&mut self, k: usize) {
        let Self { logits, tokens, weights, largest, .. } = self;
        if k >= logits.len() {
            return;
        }
        if k <= NARROW_K_MAX {
            keep_largest(largest, logits, k);
            largest.iter_mut().for_each(|c| c.token = tokens[c.token as usize]);
            logits.clear();
            logits.extend(largest.iter().map(|candidate| candidate.logit));
            tokens.clear();
            tokens.extend(largest.iter().map(|candidate| candidate.token));
            return;
        }
        let floor = kth_largest(&mut weights[..logits.len()], logits, k);
        // Of logits equal to the k-th, keep as many as are needed.
        let mut ties = k - logits.iter().filter(|logit| **logit > floor).count();
        Self::retain(logits, tokens, |_, logit| {
            let is_tie = logit == floor && ties > 0;
            ties -= usize::from(is_tie);
            logit > floor || is_tie
        });
    }

    /// Keeps the smallest set of tokens whose probabilities reach `p` (Holtzman et al., 2020).
    fn top_p(&mut self, p: f32, min_keep: usize) {
        let total = self.weigh();
        let weights = &self.weights[..self.logits.len()];
        let floor = nucleus_floor(weights, &mut self.mass, f64::from(p) * total);
        self.keep_from(floor.min(1.0), min_keep);
    }

    /// Keeps tokens at least `p` times as probable as the most probable one.
    fn min_p(&mut self, p: f32, min_keep: usize) {
        self.weigh();
        self.keep_from(p.min(1.0), min_keep);
    }

    /// Keeps the tokens whose information is nearest to its expectation, the entropy, until their
    /// probabilities pass `p` (Meister et al., "Locally Typical Sampling", 2022).
    ///
    /// The information of a token is a constant minus its logit. So its distance from the entropy
    /// is the distance of the logit from the expected logit.
    fn typical(&mut self, p: f32, min_keep: usize) {
        let total = self.weigh();
        let expected = max(&self.logits) - self.mean_below_max(total) as f32;
        let weights = &self.weights[..self.logits.len()];
        let mass = f64::from(p) * total;
        let distance = distance_that_holds(weights, &self.logits, expected, mass, min_keep);
        Self::retain(&mut self.logits, &mut self.tokens, |_, logit| {
            (logit - expected).abs() <= distance
        });
    }

    /// Keeps logits at most `n` standard deviations below the largest (Tang et al., "Top-nσ",
    /// 2024).
    fn top_n_sigma(&mut self, n: f32) {
        let Self { logits, tokens, .. } = self;
        let (max, count) = (max(logits), logits.len() as f64);
        let mean = (sum_of(logits, logits, |_, logit| logit - max) / count) as f32 + max;
        let squares = sum_of(logits, logits, |_, logit| (logit - mean) * (logit - mean));
        let floor = f64::from(max) - f64::from(n) * (squares / count).sqrt();
        Self::retain(logits, tokens, |_, logit| f64::from(logit) >= floor);
    }

    /// Excludes top choices: of the tokens with at least probability `threshold`, only the least
    /// probable one stays. Does nothing if fewer than `min_keep` tokens would be left.
    fn xtc(&mut self, threshold: f32, min_keep: usize) {
        let total = self.weigh();
        let Self { logits, tokens, weights, .. } = self;
        let weights = &weights[..logits.len()];
        let floor = (f64::from(threshold) * total) as f32;
        let above = || weights.iter().enumerate().filter(move |(_, weight)| **weight >= floor);
        let Some((least, _)) = above().min_by(|a, b| a.1.total_cmp(b.1)) else { return };
        let dropped = above().count() - 1;
        if logits.len() - dropped >= min_keep {
            Self::retain(logits, tokens, |index, _| weights[index] < floor || index == least);
        }
    }

    /// The dynamic temperature, from `temperature - range` to `temperature + range`. It grows with
    /// the normalised entropy (0 to 1) to the power of `exponent`.
    fn dynamic_temperature(&mut self, temperature: f32, range: f32, exponent: f32) -> f32 {
        if range <= 0.0 || self.logits.len() < 2 {
            return temperature;
        }
        let total = self.weigh();
        let entropy = total.ln() + self.mean_below_max(total);
        let part = (entropy / (self.logits.len() as f64).ln()).clamp(0.0, 1.0);
        let (low, high) = ((temperature - range).max(0.0), temperature + range);
        low + (high - low) * part.powf(exponent.into()) as f32
    }

    /// Divides the logits. Close to 0, only the largest stays.
    fn temperature(&mut self, temperature: f32) {
        if temperature < GREEDY_BELOW {
            return self.top_k(1);
        }
        // Several low temperatures in a row would make them infinite.
        let divide = |logit: &mut f32| {
            *logit = (*logit / temperature).clamp(-LOGIT_MAX, LOGIT_MAX);
        };
        self.logits.iter_mut().for_each(divide);
    }
}

/// The smallest distance from `centre` within which there are at least `count` logits, and their
/// weights add up to more than `mass`. `f32::MAX` if all logits together are not enough.
fn distance_that_holds(
    weights: &[f32],
    logits: &[f32],
    centre: f32,
    mass: f64,
    count: usize,
) -> f32 {
    let holds = |distance: f32| {
        let is_near = |logit: f32| (logit - centre).abs() <= distance;
        sum_of(weights, logits, |weight, logit| if is_near(logit) { weight } else { 0.0 }) > mass
            && (count < 2 || logits.iter().filter(|logit| is_near(**logit)).count() >= count)
    };
    // Bisects over all floats: the bits of positive floats are in the order of their values.
    let (mut low, mut high) = (0, f32::MAX.to_bits());
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(f32::from_bits(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    f32::from_bits(high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::decode::sampler::{History, Sampler};

    fn of(logits: &[f32]) -> Pool {
        let mut pool = Pool::new(logits.len());
        pool.fill(logits);
        pool
    }

    fn of_probabilities(p: &[f32]) -> Pool {
        of(&p.iter().map(|p| p.ln()).collect::<Vec<_>>())
    }

    /// The tokens in the pool, in order.
    fn tokens(pool: &Pool) -> Vec<u32> {
        let mut tokens = pool.tokens.clone();
        tokens.sort_unstable();
        tokens
    }

    /// The tokens that `apply` leaves of a pool with these probabilities.
    fn left(p: &[f32], apply: impl FnOnce(&mut Pool)) -> Vec<u32> {
        let mut pool = of_probabilities(p);
        apply(&mut pool);
        tokens(&pool)
    }

    #[test]
    fn each_sampler_keeps_what_its_definition_says() {
        let p = [0.1, 0.2, 0.3, 0.4];
        assert_eq!(left(&p, |pool| pool.top_k(1)), [3]);
        assert_eq!(left(&p, |pool| pool.top_k(3)), [1, 2, 3]);
        assert_eq!(left(&p, |pool| pool.top_k(9)), [0, 1, 2, 3]);
        assert_eq!(left(&p, |pool| pool.top_p(0.0, 0)), [3]);
        assert_eq!(left(&p, |pool| pool.top_p(0.69, 0)), [2, 3]);
        assert_eq!(left(&p, |pool| pool.top_p(0.71, 0)), [1, 2, 3]);
        assert_eq!(left(&p, |pool| pool.min_p(0.26, 0)), [1, 2, 3]);
        assert_eq!(left(&p, |pool| pool.min_p(0.51, 0)), [2, 3]);
        assert_eq!(left(&p, |pool| pool.min_p(1.0, 0)), [3]);
    }

    #[test]
    fn min_keep_leaves_so_many_at_least() {
        let p = [0.1, 0.2, 0.3, 0.4];
        assert_eq!(left(&p, |pool| pool.top_p(0.1, 3)), [1, 2, 3]);
        assert_eq!(left(&p, |pool| pool.min_p(1.0, 2)), [2, 3]);
        assert_eq!(left(&p, |pool| pool.min_p(0.26, 2)), [1, 2, 3], "more is left anyway");
        assert_eq!(left(&p, |pool| pool.top_p(0.1, 9)), [0, 1, 2, 3], "there are no more");
        // Expected logit: -1.28. Nearest: 0.3 (-1.20), 0.2 (-1.61), 0.4 (-0.92), 0.1.
        assert_eq!(left(&p, |pool| pool.typical(0.1, 0)), [2]);
        assert_eq!(left(&p, |pool| pool.typical(0.1, 2)), [1, 2]);
        assert_eq!(left(&p, |pool| pool.typical(0.1, 3)), [1, 2, 3]);
    }

    #[test]
    fn typical_keeps_the_expected_and_not_the_most_probable() {
        // Entropy 0.168 nats; -ln 0.97 = 0.03 is nearest.
        assert_eq!(left(&[0.97, 0.01, 0.01, 0.01], |pool| pool.typical(0.5, 0)), [0]);
        // Entropy 1.332; -ln 0.2 = 1.609 is nearer than -ln 0.4 = 0.916.
        assert_eq!(left(&[0.4, 0.2, 0.2, 0.2], |pool| pool.typical(0.5, 0)), [1, 2, 3]);
        assert_eq!(left(&[0.4, 0.2, 0.2, 0.2], |pool| pool.typical(0.7, 0)), [0, 1, 2, 3]);
    }

    #[test]
    fn top_n_sigma_cuts_at_standard_deviations() {
        // Mean 0, deviation 2 (of a population): 2 - 2n.
        for (n, expected) in [(1.9, vec![0, 2]), (2.1, vec![0, 1, 2, 3])] {
            let mut pool = of(&[2.0, -2.0, 2.0, -2.0]);
            pool.top_n_sigma(n);
            assert_eq!(tokens(&pool), expected, "{n}");
        }
        // Logits -2.30, -1.61, -1.20, -0.92: deviation 0.52, so from -1.44 on.
        assert_eq!(left(&[0.1, 0.2, 0.3, 0.4], |pool| pool.top_n_sigma(1.0)), [2, 3]);
    }

    #[test]
    fn xtc_drops_the_top_choices_but_the_least_of_them() {
        let p = [0.4, 0.3, 0.2, 0.1];
        assert_eq!(left(&p, |pool| pool.xtc(0.09, 0)), [3]);
        assert_eq!(left(&p, |pool| pool.xtc(0.19, 0)), [2, 3]);
        assert_eq!(left(&p, |pool| pool.xtc(0.29, 0)), [1, 2, 3]);
        assert_eq!(left(&p, |pool| pool.xtc(0.39, 0)), [0, 1, 2, 3], "one alone stays");
        assert_eq!(left(&p, |pool| pool.xtc(0.45, 0)), [0, 1, 2, 3], "none is so probable");
        assert_eq!(left(&p, |pool| pool.xtc(0.09, 2)), [0, 1, 2, 3], "too few would be left");
        let chain = Chain { xtc_probability: 0.5, ..Chain::default() };
        let with_coin = |coin| {
            let apply = |pool: &mut Pool| {
                pool.apply(SamplerKind::Xtc, &Sampling::default(), &chain, coin);
            };
            left(&p, apply)
        };
        assert_eq!(with_coin(0.49), [3]);
        assert_eq!(with_coin(0.5), [0, 1, 2, 3], "not this time");
    }

    #[test]
    fn dynamic_temperature_follows_the_entropy() {
        let temperature =
            |p: &[f32], exponent| of_probabilities(p).dynamic_temperature(1.0, 0.5, exponent);
        // Equal probabilities give the highest temperature, a certain token the lowest.
        assert!((temperature(&[0.25; 4], 1.0) - 1.5).abs() < 1e-4);
        assert!((temperature(&[1.0, 1e-30], 1.0) - 0.5).abs() < 1e-4);
        // Entropy of (0.9, 0.1) in bits, of 1 possible: 0.469.
        assert!((temperature(&[0.9, 0.1], 1.0) - (0.5 + 0.469)).abs() < 1e-3);
        assert!((temperature(&[0.9, 0.1], 2.0) - (0.5 + 0.469 * 0.469)).abs() < 1e-3);
        let mut pool = of(&[3.0, 1.0]);
        pool.temperature(0.5);
        assert_eq!(pool.logits, [6.0, 2.0]);
        pool.temperature(0.0);
        assert_eq!(tokens(&pool), [0]);
    }

    /// `"samplers": "ttt…"`: each divides by almost nothing.
    #[test]
    fn no_sampler_empties_the_pool() {
        let sampling = Sampling {
            temperature: 0.0011,
            top_k: 2,
            top_p: 0.5,
            min_p: 0.5,
            ..Sampling::default()
        };
        let mut chain =
            Chain { typical_p: 0.5, top_n_sigma: 0.1, xtc_probability: 1.0, ..Chain::default() };
        chain.dynatemp_range = 0.001;
        let kinds = SamplerKind::ORDER.into_iter();
        let pooled = kinds.filter(|k| !matches!(k, SamplerKind::Penalties | SamplerKind::Dry));
        for kind in pooled {
            for logits in [[3.0, -1e30, 2.0, -7.0], [-1e30; 4], [1e30, 1e30, 0.0, -5.0], [0.0; 4]] {
                let mut pool = of(&logits);
                for _ in 0..15 {
                    pool.apply(SamplerKind::Temperature, &sampling, &chain, 0.0);
                }
                pool.apply(kind, &sampling, &chain, 0.0);
                let (token, p) = pool.draw(0.7);
                assert!(pool.logits.iter().all(|logit| logit.is_finite()), "{kind:?}");
                assert!((0..4).contains(&token) && p > 0.0, "{kind:?}: {token}, {p}");
            }
        }
    }

    #[test]
    fn a_wide_top_k_is_exact_among_equals() {
        let logits: Vec<f32> = (0..5000).map(|i| (i % 7) as f32).collect();
        for k in [NARROW_K_MAX, NARROW_K_MAX + 1, 3000, 4999] {
            let mut pool = of(&logits);
            pool.top_k(k);
            assert_eq!(pool.logits.len(), k);
            let mut sorted = logits.clone();
            sorted.sort_unstable_by(|a, b| b.total_cmp(a));
            let smallest = pool.logits.iter().copied().fold(f32::MAX, f32::min);
            assert_eq!(smallest, sorted[k - 1]);
            assert!(pool.tokens.iter().zip(&pool.logits).all(|(t, l)| logits[*t as usize] == *l));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(1), // another seed may hit a cut at a rounding error
            ..ProptestConfig::with_cases(60)
        })]

        #[test]
        fn the_chain_draws_what_the_fast_routes_draw(
            n in 20usize..3000,
            seed in any::<u64>(),
            top_k in prop_oneof![Just(0u32), 1u32..50, 1000u32..3000],
            top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
            min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
            temperature in prop_oneof![Just(1.0f32), 0.0f32..2.0],
        ) {
            const GRID: u32 = 500;
            let none = History { tokens: &[], prompt_tokens: 0 };
            let uniform = |i: u64| none.uniform(seed.wrapping_add(i)) as f32;
            let logit = |i: u64| 8.0 * uniform(2 * i).powi(5) - 3.0 * uniform(2 * i + 1);
            let logits: Vec<f32> = (0..n as u64).map(logit).collect();
            let sampling = Sampling { top_k, top_p, min_p, temperature, ..Sampling::default() };
            let chain = Chain::default();
            let mut pool = of(&logits);
            for kind in SamplerKind::ORDER {
                if chain.is_on(kind, &sampling) {
                    pool.apply(kind, &sampling, &chain, 0.5);
                }
            }
            let mut sampler = Sampler::new(n, Box::new([]));
            let mut difference = vec![0i32; n];
            for i in 0..GRID {
                let draw = (f64::from(i) + 0.5) / f64::from(GRID);
                difference[sampler.choose(&logits, &sampling, draw) as usize] += 1;
                difference[pool.draw(draw).0 as usize] -= 1;
            }
            // A part `p` holds `p * GRID` draws, give or take one, wherever it lies.
            for (token, difference) in difference.iter().enumerate() {
                prop_assert!(difference.abs() <= 2, "token {}: {} more", token, difference);
            }
        }
    }
}
