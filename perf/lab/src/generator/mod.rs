//! `corelane-bench serve` sends load to a server over HTTP and reports its throughput and
//! latencies. Its modules, in the order data flows:
//!
//! - [`args`]: the flags, which are those of `vllm bench serve`. `check` refuses flags that
//!   contradict each other.
//! - [`serve`]: the whole run. [`scenario`] draws the requests with [`prompts`] and [`arrivals`],
//!   and sends them to a [`target`].
//! - [`workload`] describes a load and [`load`] runs it; other code uses this pair directly.
//!   [`client`] holds the connections and [`body`] writes the requests. [`response`], [`sse`] and
//!   [`reply`] turn each response into a [`result`] or a [`failure`].
//! - [`stall`], [`burst`] and [`turns`]: scenarios in which servers differ.
//! - [`metrics`], [`latency`] and [`goodput`] turn results into numbers. [`load_report`],
//!   [`report`], [`compare`] and [`saved`] turn the numbers into tables and files.
//!
//! The client shares its machine with the server under test. It is therefore one thread that sleeps
//! between events. Every result includes the client's own CPU time.

pub mod args;
pub mod arrivals;
pub mod body;
pub mod burst;
mod check;
pub mod client;
pub mod compare;
pub mod failure;
pub mod goodput;
pub mod latency;
pub mod load;
pub mod load_report;
pub mod metrics;
pub mod progress;
pub mod prompts;
pub mod reply;
pub mod report;
pub mod response;
pub mod result;
pub mod saved;
pub mod scenario;
pub mod serve;
pub mod sse;
pub mod stall;
pub mod target;
pub mod turns;
pub mod workload;
