//! Choosing a token from 151,936 logits (Qwen3's vocabulary): what one row costs.

mod settings;

use std::hint::black_box;

use corelane::decode::sampler::{History, Sampler};
use corelane::types::{Sampling, TokenId};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

const N_VOCAB: usize = 151_936;

/// Logits as a language model's: a few large ones over a wide bell.
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

criterion_group!(name = benches; config = settings::short(); targets = sampling);
criterion_main!(benches);
