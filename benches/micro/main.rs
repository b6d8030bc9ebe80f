//! Benchmarks of single mechanisms, without a model. `cargo bench --bench micro -- ring` runs those
//! with `ring` in their names.

mod detokenise;
mod head;
mod mask;
mod request_json;
mod ring;
mod sampling;
mod schedule;
mod settings;
mod sse_event;
mod tcp_send;

// The last two pin the calling thread.
criterion::criterion_main!(
    detokenise::benches,
    head::benches,
    mask::benches,
    request_json::benches,
    sampling::benches,
    schedule::benches,
    sse_event::benches,
    tcp_send::benches,
    ring::benches,
);
