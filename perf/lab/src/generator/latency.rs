//! The latencies of `vllm bench serve`, with their names and definitions.

use clap::ValueEnum;

/// A latency of which the benchmark reports a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Latency {
    /// Time to the first token: from just before the write to the first event.
    Ttft,
    /// Time per output token after the first, one value per request.
    Tpot,
    /// Inter-token latency: every gap between two events, pooled over all requests.
    Itl,
    /// End-to-end latency: from just before the write to the last event.
    E2el,
    /// From a request's arrival to its write: the wait for --max-concurrency.
    ClientQueueTime,
    /// From a request's arrival to its last event.
    E2elIncludingClientQueue,
}

impl Latency {
    /// All latencies, in the order of a report.
    pub const ALL: [Latency; 6] = [
        Latency::Ttft,
        Latency::Tpot,
        Latency::Itl,
        Latency::E2el,
        Latency::ClientQueueTime,
        Latency::E2elIncludingClientQueue,
    ];

    /// The latency's name in JSON keys: `mean_<key>_ms`.
    pub fn key(self) -> &'static str {
        match self {
            Latency::Ttft => "ttft",
            Latency::Tpot => "tpot",
            Latency::Itl => "itl",
            Latency::E2el => "e2el",
            Latency::ClientQueueTime => "client_queue_time",
            Latency::E2elIncludingClientQueue => "e2el_including_client_queue",
        }
    }

    /// The latency's name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Latency::Ttft => "TTFT",
            Latency::Tpot => "TPOT",
            Latency::Itl => "ITL",
            Latency::E2el => "E2EL",
            Latency::ClientQueueTime => "Client Queue Time",
            Latency::E2elIncludingClientQueue => "E2EL incl. Client Queue",
        }
    }

    /// The latency's heading in a table.
    pub fn heading(self) -> &'static str {
        match self {
            Latency::Ttft => "Time to First Token",
            Latency::Tpot => "Time per Output Token (excl. 1st token)",
            Latency::Itl => "Inter-token Latency",
            Latency::E2el => "End-to-end Latency",
            Latency::ClientQueueTime => "Client-side Queueing",
            Latency::E2elIncludingClientQueue => "Queue-inclusive End-to-end Latency",
        }
    }
}
