//! Measures tokens to text: bytes from the vocabulary, whole characters, stop strings.

use std::hint::black_box;

use corelane::kernels::KernelChoice;
use corelane::model::load::{Source, load};
use corelane::model::vocab::Vocab;
use corelane::text::stop::StopStrings;
use corelane::text::{Pushed, TextStream};
use corelane::types::TokenId;
use criterion::{BatchSize, Criterion, Throughput, criterion_group};

const ASCII: &str = "Once upon a time there was a little fox who lived in the woods. Every \
    morning she walked to the river, and every morning the river told her a story. ";

/// Tokens of the built-in vocabulary are single bytes here, so every character is cut three or four
/// times.
const CUT: &str = "从前有一只小狐狸，住在森林里。🦊🌲 毎朝、彼女は川まで歩きました。🌊 ";

/// Typical stop strings: two that never start, and one that starts with every line.
const STOPS: [&str; 3] = ["<|im_end|>", "</answer>", "\n\nUser:"];

fn stream(stops: &[&str]) -> TextStream {
    TextStream::new(StopStrings::new(stops.iter().map(ToString::to_string).collect()))
}

fn whole(vocab: &Vocab, tokens: &[TokenId], stream: &mut TextStream, shown: &mut String) {
    for token in tokens {
        // An event takes the text before the next token.
        shown.clear();
        let pushed = stream.push(vocab.bytes_of(*token), shown);
        assert_eq!(pushed, Pushed::Open);
        black_box(&shown);
    }
}

fn detokenise(c: &mut Criterion) {
    let vocab = load(&Source::BuiltIn, KernelChoice::Auto, |_| true)
        .expect("the built-in model loads")
        .vocab;
    let mut group = c.benchmark_group("tokens to text");
    for (name, text) in [("ASCII", ASCII), ("cut characters", CUT)] {
        let tokens = vocab.tokenize(&text.repeat(8), false, false).unwrap();
        for (with, stops) in [("no stop strings", &[][..]), ("three stop strings", &STOPS)] {
            // The time is for all tokens, the rate for single ones.
            group.throughput(Throughput::Elements(tokens.len() as u64));
            group.bench_function(format!("{name}, {with}"), |b| {
                b.iter_batched_ref(
                    || (stream(stops), String::with_capacity(64)),
                    |(stream, shown)| whole(&vocab, black_box(&tokens), stream, shown),
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = detokenise);
