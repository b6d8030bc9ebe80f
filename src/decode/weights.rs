//! Logits as unnormalised probabilities: exponentials, sums, the nucleus, the
//! draw, in loops that compilers vectorise.

/// Lanes of the vectorised loops: one AVX-512 register of `f32`.
pub(super) const LANES: usize = 16;

/// `weights[i] = exp((logits[i] - max) / temperature)`, or 0 below `floor`. Returns their sum.
pub(super) fn exp_into(
    weights: &mut [f32],
    logits: &[f32],
    max: f32,
    temperature: f32,
    floor: f32,
) -> f64 {
    let scale = 1.0 / temperature;
    for (weight, logit) in weights.iter_mut().zip(logits) {
        let value = exp_not_positive((*logit - max) * scale);
        *weight = if *logit >= floor { value } else { 0.0 };
    }
    sum_above(weights, 0.0)
}

/// The sum of the weights over `floor`: in vector lanes, and in `f64` from one
/// block to the next, so that no small weight is lost in a large sum.
fn sum_above(weights: &[f32], floor: f32) -> f64 {
    let sum_block = |block: &[f32]| {
        let mut lanes = [0.0f32; LANES];
        let chunks = block.chunks_exact(LANES);
        let rest: f32 = chunks.remainder().iter().filter(|weight| **weight > floor).sum();
        for chunk in chunks {
            for (lane, weight) in lanes.iter_mut().zip(chunk) {
                *lane += if *weight > floor { *weight } else { 0.0 };
            }
        }
        lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>() + f64::from(rest)
    };
    weights.chunks(SUM_BLOCK).map(sum_block).sum()
}

/// The sum of `value` over the weights and their logits, with the accuracy of [`sum_above`].
pub(super) fn sum_of(weights: &[f32], logits: &[f32], value: impl Fn(f32, f32) -> f32) -> f64 {
    let sum_block = |(weights, logits): (&[f32], &[f32])| {
        let mut lanes = [0.0f32; LANES];
        let (weights, logits) = (weights.chunks_exact(LANES), logits.chunks_exact(LANES));
        let rest = weights.remainder().iter().zip(logits.remainder());
        let rest: f32 = rest.map(|(weight, logit)| value(*weight, *logit)).sum();
        for (weights, logits) in weights.zip(logits) {
            for ((lane, weight), logit) in lanes.iter_mut().zip(weights).zip(logits) {
                *lane += value(*weight, *logit);
            }
        }
        lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>() + f64::from(rest)
    };
    weights.chunks(SUM_BLOCK).zip(logits.chunks(SUM_BLOCK)).map(sum_block).sum()
}

/// The sum of `exp(logit - max)`, without storing the exponentials.
pub(super) fn sum_exp(logits: &[f32], max: f32) -> f64 {
    sum_of(logits, logits, |_, logit| exp_not_positive(logit - max))
}

/// The number of weights that are summed in `f32` before their sum is added in `f64`.
const SUM_BLOCK: usize = 1024;

/// Recomputes the weights that are not 0 at another temperature.
pub(super) fn reheat(weights: &mut [f32], logits: &[f32], max: f32, temperature: f32) {
    let scale = 1.0 / temperature;
    for (weight, logit) in weights.iter_mut().zip(logits) {
        let value = exp_not_positive((*logit - max) * scale);
        *weight = if *weight > 0.0 { value } else { 0.0 };
    }
}

/// `exp(x)` for `x <= 0`, to a relative error under 1e-5, in a form that compilers
/// vectorise: `2^n * p(f)` with `n + f = x / ln 2` and a polynomial of degree 6
/// (Taylor) on `|f| <= 1/2`. NaN and anything below -87 give 0.
fn exp_not_positive(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let y = x * std::f32::consts::LOG2_E;
    let rounded = y + ROUND;
    let f = (y - (rounded - ROUND)) * std::f32::consts::LN_2;
    let p = 1.0 / 720.0;
    let p = p * f + 1.0 / 120.0;
    let p = p * f + 1.0 / 24.0;
    let p = p * f + 1.0 / 6.0;
    let p = p * f + 0.5;
    let p = p * f + 1.0;
    let p = p * f + 1.0;
    // n's low 9 bits become sign and exponent; -126 <= n <= 0 where it counts.
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if x > -87.0 { p * power } else { 0.0 }
}

/// Buckets of one level of [`nucleus_floor`]'s descent.
pub(super) const RADIX_BUCKETS: usize = 1 << 12;

/// The smallest weight of the smallest set of weights whose sum reaches
/// `target`. (Of several equal smallest weights, all are kept.)
///
/// A positive `f32`'s bits are ordered as its value is. The descent sums the
/// mass in 4,096 buckets of the upper bits, finds the one in which the target
/// is reached, and repeats inside it with the bits below, three times.
pub(super) fn nucleus_floor(weights: &[f32], mass: &mut [f64], target: f64) -> f32 {
    // A few large weights usually reach the target, so look only at those above a floor.
    let floors = [1.0 / 256.0, 1.0 / 65_536.0, 0.0];
    let floor = floors.into_iter().find(|floor| sum_above(weights, *floor) >= target);
    let floor = floor.unwrap_or(0.0);
    // Weights are at most 1.0 = 0x3F80_0000, so 30 bits hold them: 12 + 9 + 9.
    let mut prefix = 0u32;
    let mut prefix_shift = 30;
    let mut above = 0.0;
    for bits in [12, 9, 9] {
        let shift = prefix_shift - bits;
        let buckets = &mut mass[..1 << bits];
        buckets.fill(0.0);
        for block in weights.chunks(4 * LANES) {
            if !any_above(block, floor) {
                continue;
            }
            for weight in block {
                let word = weight.to_bits();
                if *weight > floor && word >> prefix_shift == prefix {
                    buckets[(word >> shift) as usize & ((1 << bits) - 1)] += f64::from(*weight);
                }
            }
        }
        let mut bucket = buckets.len() - 1;
        while bucket > 0 && above + buckets[bucket] < target {
            above += buckets[bucket];
            bucket -= 1;
        }
        prefix = (prefix << bits) | bucket as u32; // below 2^12
        prefix_shift = shift;
    }
    f32::from_bits(prefix).max(f32::MIN_POSITIVE)
}

/// True when some value of a block is over `floor`: no branch, so it vectorises.
pub(super) fn any_above(block: &[f32], floor: f32) -> bool {
    let mut any = false;
    for value in block {
        any |= *value > floor;
    }
    any
}

/// The index at which the running sum of the weights passes `draw` of the total.
pub(super) fn draw_from(weights: &[f32], draw: f64) -> usize {
    let mut rest = draw * sum_above(weights, 0.0);
    let mut last = 0; // the last token with any weight, in case rounding leaves a rest
    for (block_index, block) in weights.chunks(SUM_BLOCK).enumerate() {
        let sum = sum_above(block, 0.0);
        if rest >= sum {
            rest -= sum;
            let end = block.iter().rposition(|weight| *weight > 0.0);
            last = end.map_or(last, |offset| block_index * SUM_BLOCK + offset);
            continue;
        }
        for (offset, weight) in block.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            last = block_index * SUM_BLOCK + offset;
            rest -= f64::from(*weight);
            if rest < 0.0 {
                return last;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exp() {
        for i in 0..100_000 {
            let x = -(i as f32) * 0.0009;
            let (ours, exact) = (exp_not_positive(x), f64::from(x).exp());
            if x > -86.0 {
                let error = (f64::from(ours) / exact - 1.0).abs();
                assert!(error < 1e-5, "exp({x}) = {ours}, exactly {exact}");
            }
        }
        assert_eq!(exp_not_positive(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_not_positive(f32::NAN), 0.0);
        assert_eq!(exp_not_positive(0.0), 1.0);
    }
}
