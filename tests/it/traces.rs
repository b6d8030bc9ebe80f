//! The front lane and a collector of traces that takes nothing.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use corelane::config::ServeConfig;
use corelane::limits::{SPANS_BATCH_MAX, SPANS_QUEUED_MAX};
use corelane::traces::Endpoint;

use crate::support::{TestServer, body, config};

#[test]
fn spans_beyond_the_queue_are_dropped_and_counted_and_nobody_waits() {
    // The kernel accepts connections, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::new(&format!("http://{}", silent.local_addr().unwrap()), &[]).unwrap();
    let server = TestServer::fake(ServeConfig { otlp: Some(endpoint), ..config() }, 0);
    let requests = SPANS_QUEUED_MAX + 2 * SPANS_BATCH_MAX;
    let mut client = server.connect();
    let mut slowest = Duration::ZERO;
    for _ in 0..requests {
        let began = Instant::now();
        assert_eq!(client.post("/v1/completions", &body("a", 1, "")).status, 200);
        slowest = slowest.max(began.elapsed());
    }
    assert!(
        slowest < Duration::from_secs(2),
        "a collector has 3 s, and a request took {slowest:?}"
    );
    let metrics = server.metrics.clone();
    let (sent, failed) = (metrics.spans.sent.get(), metrics.spans.failed.get());
    let dropped = metrics.front.spans_dropped.get();
    assert!(dropped > 0, "{sent} sent, {failed} failed, {dropped} dropped");
    assert_eq!(sent, 0);
    server.drain();
    server.join(); // within the time that lanes have to end
    let (sent, failed) = (metrics.spans.sent.get(), metrics.spans.failed.get());
    let dropped = metrics.front.spans_dropped.get();
    assert_eq!(
        (sent, failed + dropped),
        (0, requests as u64),
        "{failed} failed, {dropped} dropped"
    );
}
