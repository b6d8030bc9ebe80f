//! Measures a body to a typed request: JSON parsing and the checks of all fields.

use std::hint::black_box;

use corelane::api::openai::read_completion;
use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use serde_json::json;

fn bodies() -> [(&'static str, String); 4] {
    let chat = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n\
                <|im_start|>user\nWhy is the sky \"blue\"?<|im_end|>\n<|im_start|>assistant\n";
    let tokens: Vec<u32> = (0..1890).map(|i| i * 7919 % 151_936).collect();
    let words = "It was a bright cold day in April, and the clocks were striking thirteen.\n";
    let text = words.repeat(64 * 1024 / words.len());
    [
        ("a completion, 51 bytes", json!({"prompt": "Once upon a time", "max_tokens": 60})),
        (
            "a chat with sampling fields",
            json!({
                "model": "qwen3-0.6b", "prompt": chat, "max_tokens": 256, "temperature": 0.7,
                "top_p": 0.9, "top_k": 40, "seed": 42, "stop": ["<|im_end|>", "\n\n"],
                "stream": true, "stream_options": {"include_usage": true},
                "presence_penalty": 0.5, "frequency_penalty": 0.5, "user": "u-1234"
            }),
        ),
        ("1,890 token ids", json!({"prompt": tokens, "max_tokens": 60})),
        ("a text of 64 KiB", json!({"prompt": text, "max_tokens": 60})),
    ]
    .map(|(name, body)| (name, body.to_string()))
}

fn request_json(c: &mut Criterion) {
    let mut group = c.benchmark_group("read a completion request");
    for (name, body) in bodies() {
        read_completion(&mut body.clone().into_bytes()).expect("a good request");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |b| {
            // The parser rewrites strings in place, so each run needs a body of its own. Making it
            // and dropping the request are not measured.
            b.iter_batched_ref(
                || body.clone().into_bytes(),
                |body| read_completion(black_box(body)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = request_json);
