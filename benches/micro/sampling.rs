//! Measures sampling one token from 151,936 logits (Qwen3's vocabulary).

use std::hint::black_box;

use corelane::decode::advanced::{Asked, Limits};
use corelane::decode::sampler::{History, Sampler};
use corelane::sampling::AdvancedSampling;
use corelane::types::chain::{Chain, DryOptions, Mirostat};
use corelane::types::{Sampling, TokenId};
use criterion::{BatchSize, Criterion, criterion_group};

const N_VOCAB: usize = 151_936;

/// Logits like a language model's: a few large ones above a wide bell.
fn logits() -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..N_VOCAB)
        .map(|_| {
            let bell = (0..6).map(|_| uniform()).sum::<f32>() - 3.0;
            let head = uniform().powi(40) * 12.0;
            3.0 * bell + head
        })
        .collect()
}

fn sampling(c: &mut Criterion) {
    let logits = logits();
    let tokens: Vec<TokenId> = (0..500).map(|i| i * 37 % 1000).collect();
    let base = Sampling::default();
    let cases = [
        ("greedy", Sampling::greedy()),
        (
            "top_k 40, top_p 0.95, temperature 0.8",
            Sampling { top_k: 40, top_p: 0.95, temperature: 0.8, ..base },
        ),
        ("temperature 1", base),
        ("top_p 0.95", Sampling { top_p: 0.95, ..base }),
        ("min_p 0.05, temperature 1.5", Sampling { min_p: 0.05, temperature: 1.5, ..base }),
        (
            "penalties, top_k 40",
            Sampling {
                top_k: 40,
                repeat_penalty: 1.1,
                presence_penalty: 0.5,
                frequency_penalty: 0.5,
                ..base
            },
        ),
    ];
    let mut sampler = Sampler::new(N_VOCAB, Box::new([0]));
    let mut group = c.benchmark_group("sample a row of 151,936 logits");
    for (name, sampling) in cases {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || logits.clone(),
                |logits| {
                    let history = History { tokens: &tokens, prompt_tokens: 32 };
                    black_box(sampler.sample(logits, &sampling, history))
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// The less common options. The chain's cases run alone or with a `top_k`, which is their usual
/// setting.
fn advanced(c: &mut Criterion) {
    let logits = logits();
    let tokens: Vec<TokenId> = (0..4000).map(|i| i * 37 % 1000).collect();
    let (base, top_k) = (Sampling::default(), Sampling { top_k: 40, ..Sampling::default() });
    let chain = |chain| AdvancedSampling { chain: Some(chain), ..AdvancedSampling::default() };
    let plain = Chain::default();
    let mirostat = |version| Some(Mirostat { version, tau: 5.0, eta: 0.1 });
    let dry = DryOptions { multiplier: 0.8, last_n: u32::MAX, ..DryOptions::default() };
    let cases = [
        (
            "logprobs alone",
            base,
            AdvancedSampling { logprobs: Some(0), ..AdvancedSampling::default() },
        ),
        (
            "logprobs and 20 more",
            base,
            AdvancedSampling { logprobs: Some(20), ..AdvancedSampling::default() },
        ),
        (
            "1,000 biases",
            base,
            AdvancedSampling {
                logit_bias: (0..1000).map(|i| (i, 0.1)).collect(),
                ..AdvancedSampling::default()
            },
        ),
        ("typical_p 0.9", base, chain(Chain { typical_p: 0.9, ..plain.clone() })),
        ("typical_p 0.9, top_k 40", top_k, chain(Chain { typical_p: 0.9, ..plain.clone() })),
        ("top_n_sigma 2", base, chain(Chain { top_n_sigma: 2.0, ..plain.clone() })),
        ("xtc, always", base, chain(Chain { xtc_probability: 1.0, ..plain.clone() })),
        ("dynatemp 0.5", base, chain(Chain { dynatemp_range: 0.5, ..plain.clone() })),
        ("dry over 4,000 tokens", top_k, chain(Chain { dry, ..plain.clone() })),
        ("mirostat 1", base, chain(Chain { mirostat: mirostat(1), ..plain.clone() })),
        ("mirostat 2", base, chain(Chain { mirostat: mirostat(2), ..plain })),
    ];
    let mut sampler = Sampler::new(N_VOCAB, Box::new([0]));
    let mut group = c.benchmark_group("sample a row of 151,936 logits, with extras");
    for (name, sampling, advanced) in cases {
        let mut mu = advanced.first_mu();
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || logits.clone(),
                |logits| {
                    let history = History { tokens: &tokens, prompt_tokens: 32 };
                    let asked = Asked { sampling: &sampling, advanced: &advanced };
                    black_box(sampler.sample_with(
                        logits,
                        asked,
                        Limits::default(),
                        &mut mu,
                        history,
                    ))
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = sampling, advanced);
