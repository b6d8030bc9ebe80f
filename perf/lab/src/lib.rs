//! `corelane-bench` measures corelane and other servers. `corelane bench` and `corelane model synth`
//! start it.
//!
//! - [`generator`]: `serve` sends load to a server over HTTP and reports throughput and latencies.
//! - [`ladder`]: `ladder` measures corelane layer by layer, from the bare model to a client.
//! - [`replay`]: `replay` measures what guesses bring on recorded texts.
//! - [`synth`]: `synth` makes a model with random weights and the shape of a real one.
//!
//! All that is here is a program of its own, so the server's binary has no client, no plots and no
//! second I/O stack. Errors are messages for the user.
#![deny(unsafe_op_in_unsafe_fn, missing_docs, clippy::undocumented_unsafe_blocks)]

pub mod generator;
pub mod ladder;
pub mod replay;
pub mod stats;
pub mod synth;
