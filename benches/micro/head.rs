//! Measures reading a request's head, from three kinds of client.

use std::hint::black_box;

use corelane::http::head::parse;
use criterion::{Criterion, Throughput, criterion_group};

const LOAD_GENERATOR: &str = "POST /v1/completions HTTP/1.1\r\n\
    Host: 127.0.0.1:8080\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 63\r\n\r\n";

const CURL: &str = "POST /v1/completions HTTP/1.1\r\n\
    Host: 127.0.0.1:8080\r\n\
    User-Agent: curl/8.14.1\r\n\
    Accept: */*\r\n\
    content-type: application/json\r\n\
    Content-Length: 51\r\n\r\n";

/// OpenAI's Python client, through a proxy.
const OPENAI_CLIENT: &str = "POST /v1/completions HTTP/1.1\r\n\
    Host: models.example.com\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\n\
    Accept: application/json\r\n\
    Content-Type: application/json\r\n\
    User-Agent: OpenAI/Python 2.8.1\r\n\
    X-Stainless-Lang: python\r\n\
    X-Stainless-Package-Version: 2.8.1\r\n\
    X-Stainless-OS: Linux\r\n\
    X-Stainless-Arch: x64\r\n\
    X-Stainless-Runtime: CPython\r\n\
    X-Stainless-Runtime-Version: 3.13.5\r\n\
    Authorization: Bearer sk-0123456789abcdef0123456789abcdef\r\n\
    X-Stainless-Async: false\r\n\
    x-stainless-retry-count: 0\r\n\
    x-stainless-read-timeout: 600\r\n\
    X-Request-Id: 0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0\r\n\
    X-Forwarded-For: 203.0.113.7\r\n\
    X-Forwarded-Proto: https\r\n\
    Content-Length: 187\r\n\r\n";

fn head(c: &mut Criterion) {
    let mut group = c.benchmark_group("read a request's head");
    for (name, bytes) in [
        ("load generator, 3 fields", LOAD_GENERATOR),
        ("curl, 5 fields", CURL),
        ("OpenAI client behind a proxy, 20 fields", OPENAI_CLIENT),
    ] {
        let (_, length) = parse(bytes.as_bytes()).expect("well formed").expect("whole");
        assert_eq!(length, bytes.len());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| b.iter(|| parse(black_box(bytes.as_bytes()))));
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = head);
