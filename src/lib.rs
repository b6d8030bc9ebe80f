//! corelane serves a GGUF model over HTTP on one Linux machine.
//!
//! It is a thread-per-core engine. A **lane** is one thread that runs one loop. Lanes share only
//! SPSC rings and atomics. Nothing between them is locked.
//!
//! ```text
//! socket -> http -> api -> prepare -> engine, scheduler -> [ring: Batch] -> decode lane
//! socket <- http <- api <-  text   <- engine, scheduler <- [ring: Batch] <- (model, sampler)
//!           '---------------- front lane --------------'
//! ```
//!
//! A request goes down through these modules, and its reply comes back up through them. No module
//! calls one above it. In the order in which data flows:
//!
//! - [`server`]: the front lane. It owns every socket and calls the modules below.
//! - [`http`]: turns bytes into a request's head and body, and a reply into bytes.
//! - [`api`]: the dialects: JSON to typed requests, and texts to JSON.
//! - [`prepare`]: turns a body into a [`Job`](engine::job::Job): prompts as tokens, checked.
//! - [`engine`]: takes jobs, keeps the decode lane busy, turns tokens into replies. Pure.
//! - [`scheduler`]: decides which tokens run in the next step. Pure.
//! - [`ring`]: the links between lanes, and the batches that travel on them.
//! - [`decode`]: the decode lane. It runs a batch and samples tokens.
//! - [`model`]: llama.cpp, the fake model and the built-in model.
//! - [`kernels`]: a crate of its own: products with weights, attention, and the threads that run a
//!   model's operations.
//! - [`text`]: turns tokens back into text and finds stop strings.
//!
//! Prompts and texts of chats are in [`chat`]; schemas and grammars for a text are in
//! [`constraint`]. [`types`], [`sampling`], [`limits`], [`clock`], [`abort`], [`fair`], [`cgroup`],
//! [`random`], [`memory`], [`metrics`] and [`pressure`] are below all of these. [`ops`] is the lane that shows metrics, [`traces`] the
//! lane that sends spans of requests, [`disk`] the lane that keeps prefixes in files, [`profile`] shows where the lanes spend their time, and
//! [`page`] has the files of the web page. [`mod@tune`] measures what settings bring. [`hub`]
//! downloads models. [`systemd`] talks to the service manager. [`flags`], [`config`],
//! [`placement`] and [`lanes`] start everything. [`keys`] has the API keys. What measures this
//! server and others is a program of its own, in `perf/lab`.
#![deny(unsafe_op_in_unsafe_fn, missing_docs, clippy::undocumented_unsafe_blocks)]

pub use corelane_kernels as kernels;

pub mod abort;
pub mod api;
pub mod cgroup;
pub mod chat;
pub mod clock;
pub mod config;
pub mod constraint;
pub mod decode;
pub mod disk;
pub mod engine;
pub mod fair;
pub mod flags;
pub mod http;
pub mod hub;
pub mod keys;
pub mod lanes;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod ops;
pub mod page;
pub mod placement;
pub mod prepare;
pub mod pressure;
pub mod profile;
pub mod random;
pub mod ring;
pub mod sampling;
pub mod scheduler;
pub mod server;
pub mod systemd;
pub mod text;
pub mod traces;
pub mod tune;
pub mod types;
