//! Finds the largest of many logits in one pass, with loops that compilers vectorise. Only the kept
//! logits are sorted.

use super::weights::{LANES, any_above};

/// The largest `top_k` that takes the narrow route.
pub const NARROW_K_MAX: usize = 1024;

/// A logit and its token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub logit: f32,
    pub token: u32,
}

/// The largest logit, or negative infinity if there is none.
pub(super) fn max(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = logits.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = if *logit > *lane { *logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m })
}

/// The first token with the largest logit.
pub fn argmax(logits: &[f32]) -> usize {
    let max = max(logits);
    logits.iter().position(|logit| *logit == max).unwrap_or(0)
}

/// Fills `candidates` with the `k` largest logits, largest first; equal ones are in order of token.
/// Negative infinity and NaN are left out. `candidates` has room for four times [`NARROW_K_MAX`].
pub(super) fn keep_largest(candidates: &mut Vec<Candidate>, logits: &[f32], k: usize) {
    let capacity = (4 * k).clamp(256, 4 * NARROW_K_MAX);
    let mut floor = f32::NEG_INFINITY;
    candidates.clear();
    for (block_index, block) in logits.chunks(4 * LANES).enumerate() {
        // Nearly all blocks end here, because none of their logits is among the `k` largest so far.
        if !any_above(block, floor) {
            continue;
        }
        for (offset, logit) in block.iter().enumerate() {
            if *logit > floor {
                if candidates.len() == capacity {
                    floor = cut(candidates, k);
                    if *logit <= floor {
                        continue;
                    }
                }
                // A vocabulary's size fits into 32 bits (llama.cpp's is an i32).
                let token = (block_index * 4 * LANES + offset) as u32;
                candidates.push(Candidate { logit: *logit, token });
            }
        }
    }
    if candidates.len() > k {
        cut(candidates, k);
    }
    candidates.sort_unstable_by(largest_first);
}

/// Keeps only the `k` largest candidates, and returns the smallest of their logits.
fn cut(candidates: &mut Vec<Candidate>, k: usize) -> f32 {
    candidates.select_nth_unstable_by(k - 1, largest_first);
    candidates.truncate(k);
    candidates[k - 1].logit
}

fn largest_first(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The `k`-th largest logit, by selection in a copy.
pub(super) fn kth_largest(scratch: &mut [f32], logits: &[f32], k: usize) -> f32 {
    scratch.copy_from_slice(logits);
    let (_, kth, _) = scratch.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    *kth
}
