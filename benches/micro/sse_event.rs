//! Measures writing a token's text as an event, in a chunk of the response.

use std::hint::black_box;

use corelane::api::openai::CompletionReply;
use corelane::api::reply::{Delta, FinishReason, PromptFacts, Reply, ReplyContext, ReplyOptions};
use corelane::clock::Micros;
use corelane::http::response::{begin_chunk, end_chunk};
use criterion::{Criterion, Throughput, criterion_group};

fn reply() -> CompletionReply {
    let options = ReplyOptions { stream: true, include_usage: true, ..ReplyOptions::default() };
    let facts = PromptFacts { choices: 1, ..PromptFacts::default() };
    let context = ReplyContext {
        id: "cmpl-0123456789abcdef".into(),
        model: "qwen3-0.6b-q4_k_m".into(),
        created: 1_763_700_000,
        received: Micros(0),
        prompt_tokens: 1,
    };
    CompletionReply::new(options, facts, &context)
}

/// One event, as the connection's task frames it.
fn event(reply: &mut CompletionReply, text: &str, finish: Option<FinishReason>, out: &mut Vec<u8>) {
    let start = out.len();
    begin_chunk(out);
    reply.push_delta(0, Delta { text, finish, ..Delta::default() }, out);
    end_chunk(out, start);
}

fn sse_event(c: &mut Criterion) {
    let mut reply = reply();
    let mut out = Vec::with_capacity(4096);
    let mut group = c.benchmark_group("a token's event");
    for (name, text, end) in [
        ("a word", " river", None),
        ("a word, the last", " river", Some(FinishReason::Length)),
        ("to be escaped", "\"\n\t", None),
        ("an emoji", "🦊", None),
        ("500 bytes of held back text", &"0123456789".repeat(50), None),
    ] {
        out.clear();
        event(&mut reply, text, end, &mut out);
        group.throughput(Throughput::Bytes(out.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear(); // the connection reuses its buffer
                event(&mut reply, black_box(text), end, &mut out);
                black_box(&out);
            });
        });
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = sse_event);
