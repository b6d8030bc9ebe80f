//! Measuring: the instruments that ship in the binary.
//!
//! [`load`] is the load generator; [`client`] holds the connections, [`body`]
//! writes requests, [`response`], [`sse`] and [`reply`] read what comes back
//! into a [`result`] or a [`failure`].

pub mod arrivals;
pub mod body;
pub mod burst;
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
pub mod sse;
pub mod stall;
pub mod stats;
pub mod target;
