//! Mirostat (Basu et al., 2021): samples so that the text has a given mean surprise per token.
//!
//! Its state is one number, `mu`: the largest surprise that a token may have, in bits. The decode
//! lane's slot holds it, and the scheduler gets it with each token.

use super::largest::Candidate;
use super::pool::Pool;
use crate::types::TokenId;
use crate::types::chain::Mirostat;

/// The number of tokens from which version 1 estimates Zipf's exponent.
const LOOKED_AT: usize = 100;

/// Draws a token, with `draw` in `[0, 1)`. Moves `mu` so that the surprise approaches `tau`, in
/// bits.
pub(super) fn draw_mirostat(
    pool: &mut Pool,
    mirostat: Mirostat,
    n_vocab: usize,
    mu: &mut f32,
    draw: f64,
) -> TokenId {
    if mirostat.version == 1 {
        let k = tokens_to_keep(pool.largest(LOOKED_AT), n_vocab, *mu);
        pool.top_k(k);
    } else {
        // Version 2 keeps the tokens with a surprise of at most `mu`.
        pool.keep_probable(f64::from(-*mu).exp2());
    }
    let (token, p) = pool.draw(draw);
    let surprise = -p.max(f64::MIN_POSITIVE).log2();
    *mu -= mirostat.eta * (surprise as f32 - mirostat.tau);
    token
}

/// Version 1: estimates the exponent of Zipf's law from the most probable tokens. Returns the
/// number of tokens to keep.
fn tokens_to_keep(largest: &[Candidate], n_vocab: usize, mu: f32) -> usize {
    let (mut tb, mut tt) = (0.0, 0.0);
    for (index, pair) in largest.windows(2).enumerate() {
        let t = ((index + 2) as f64 / (index + 1) as f64).ln();
        // The logarithm of the ratio of two probabilities.
        tb += t * f64::from(pair[0].logit - pair[1].logit);
        tt += t * t;
    }
    let s = tb / tt;
    let epsilon = s - 1.0;
    let one_less = 1.0 - (n_vocab as f64).powf(-epsilon);
    let k = (epsilon * f64::from(mu).exp2() / one_less).powf(1.0 / s);
    // With one token left the estimate is NaN, which keeps all. `as` turns infinity into the
    // largest number.
    if k.is_nan() { usize::MAX } else { (k as usize).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::AdvancedSampling;
    use crate::types::chain::Chain;

    fn of(logits: &[f32]) -> Pool {
        let mut pool = Pool::new(logits.len());
        pool.fill(logits);
        pool
    }

    /// Zipf's law.
    fn zipf(n: usize, exponent: f32) -> Vec<f32> {
        (1..=n).map(|rank| -exponent * (rank as f32).ln()).collect()
    }

    #[test]
    fn the_first_kind_keeps_as_many_tokens_as_the_paper_says() {
        let keep = |logits: &[f32], mu| tokens_to_keep(of(logits).largest(100), logits.len(), mu);
        // Exponent 1.2 and mu 6: (0.2 * 64 / (1 - 2000^-0.2))^(1/1.2) is 12.8 / 0.7813
        // to the 0.8333: 10.28.
        assert_eq!(keep(&zipf(2000, 1.2), 6.0), 10);
        assert_eq!(keep(&zipf(2000, 1.2), -60.0), 1, "one is left at least");
        assert_eq!(keep(&[5.0], 6.0), usize::MAX, "one token says nothing");
    }

    #[test]
    fn the_second_kind_keeps_what_surprises_little_enough() {
        // 1, 2, 3 and 3 bits.
        let logits = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln);
        let drawn = |mu: f32| {
            let draws = (0..100).map(|i| {
                let mirostat = Mirostat { version: 2, tau: 5.0, eta: 0.0 };
                let (mut mu, draw) = (mu, (f64::from(i) + 0.5) / 100.0);
                draw_mirostat(&mut of(&logits), mirostat, 4, &mut mu, draw)
            });
            let mut drawn: Vec<TokenId> = draws.collect();
            drawn.dedup();
            drawn
        };
        assert_eq!(drawn(2.5), [0, 1]);
        assert_eq!(drawn(3.5), [0, 1, 2, 3]);
        assert_eq!(drawn(0.5), [0], "the most probable one stays");
        let (mut mu, mirostat) = (2.5, Mirostat { version: 2, tau: 5.0, eta: 0.1 });
        draw_mirostat(&mut of(&logits), mirostat, 4, &mut mu, 0.99);
        // Token 1 of two thirds and one third: 1.585 bits, 3.415 too few.
        assert!((mu - (2.5 + 0.1 * 3.415)).abs() < 1e-3, "{mu}");
    }

    #[test]
    fn the_surprise_is_held_where_it_is_asked_for() {
        let logits = zipf(2000, 1.2);
        for version in [1, 2] {
            let mirostat = Mirostat { version, tau: 3.0, eta: 0.1 };
            let chain = Chain { mirostat: Some(mirostat), ..Chain::default() };
            let mut mu =
                AdvancedSampling { chain: Some(chain), ..AdvancedSampling::default() }.first_mu();
            assert_eq!(mu, 6.0);
            let mut surprise = 0.0;
            for step in 0..2000u32 {
                let draw = f64::from(step.wrapping_mul(2_654_435_761)) / 4_294_967_296.0;
                let before = mu;
                draw_mirostat(&mut of(&logits), mirostat, logits.len(), &mut mu, draw);
                // mu moves by eta * (tau - surprise).
                if step >= 1000 {
                    surprise += f64::from((before - mu) / 0.1 + 3.0) / 1000.0;
                }
            }
            assert!((surprise - 3.0).abs() < 0.3, "version {version}: {surprise} bits");
        }
    }
}
