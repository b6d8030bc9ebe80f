//! Measuring: the instruments that ship in the binary.
//!
//! `corelane bench serve` loads a server from outside, over HTTP, and says how
//! fast it answers. In the order data flows:
//!
//! - [`args`]: its flags, which are those of `vllm bench serve`; `check`, whether they
//!   make sense together.
//! - [`serve`]: the run as a whole. [`scenario`] draws what to send, from
//!   [`prompts`] and [`arrivals`], to a [`target`].
//! - [`load`]: the load generator itself, and the interface for others;
//!   [`client`] holds the connections, [`body`] writes requests, [`response`],
//!   [`sse`] and [`reply`] read what comes back into a [`result`] or a
//!   [`failure`].
//! - [`stall`], [`burst`] and [`turns`]: situations in which servers differ.
//! - [`metrics`], [`latency`], [`stats`], [`goodput`]: from results to numbers;
//!   [`load_report`], [`report`], [`compare`], [`saved`]: and to tables and files.
//!
//! The client shares its machine with the server that it measures, so it is
//! one thread that sleeps between events; it counts its own processor time,
//! and every result has it.

pub mod args;
pub mod arrivals;
pub mod body;
pub mod burst;
mod check;
pub mod client;
pub mod compare;
pub mod failure;
pub mod goodput;
pub mod ladder;
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
pub mod stats;
pub mod target;
pub mod turns;
pub mod workload;
