//! corelane serves a GGUF model over HTTP on one Linux machine.
//!
//! It is a thread-per-core engine. A **lane** is one thread, pinned, running
//! one loop; lanes share no memory but SPSC rings and atomics, and nothing
//! between them is locked.
//!
//! ```text
//! socket -> http -> api -> prepare -> scheduler -> [ring: Batch] -> decode lane
//! socket <- http <- api <-  text   <- scheduler <- [ring: Batch] <- (model, sampler)
//!           '------------ front lane ------------'
//! ```
//!
//! One way down, one way up, through the same rooms; no stage calls back into
//! the one before it. The modules, in the order data flows:
//!
//! - [`front`]: the front lane. Owns every socket and composes what follows.
//! - [`http`]: bytes to a request's head and body, and back.
//! - [`api`]: the dialects, JSON to typed requests and back.
//! - [`scheduler`]: which tokens run in the next step. Pure.
//! - [`constraint`]: schemas and grammars that an output must keep to.
//! - [`ring`]: the batches that travel between the lanes.
//! - [`decode`]: the decode lane: runs a batch, samples.
//! - [`model`]: llama.cpp, the fake model, the built-in model.
//! - [`kernels`]: products with the model's weights, in place of llama.cpp's.
//! - [`text`]: tokens back to text, with stop strings.
//! - [`chat`]: what chat models write, as the parts of a message.
//!
//! Below all of them: [`types`], [`limits`], [`clock`], [`memory`] and
//! [`metrics`], which every lane writes into. Beside them: [`ops`], the lane
//! that shows what was counted, and [`mod@bench`], which measures this server
//! and others. Above them: [`config`], [`placement`] and [`lanes`], which start
//! it all.
#![deny(unsafe_op_in_unsafe_fn, missing_docs, clippy::undocumented_unsafe_blocks)]

pub mod api;
pub mod bench;
pub mod chat;
pub mod clock;
pub mod config;
pub mod constraint;
pub mod decode;
pub mod engine;
pub mod http;
pub mod kernels;
pub mod lanes;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod ops;
pub mod placement;
pub mod prepare;
pub mod random;
pub mod ring;
pub mod scheduler;
pub mod server;
pub mod text;
pub mod types;
