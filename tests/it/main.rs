//! The integration tests, a file for each behaviour. `tests/README.md` says where to look.

#[path = "../support/pages.rs"]
mod pages;
#[path = "../support/mod.rs"]
mod support;

mod attention;
mod builtin;
mod command_line;
mod connections;
mod constraint;
mod costly;
mod decode_lane;
mod delta;
mod described;
mod disk;
mod documents;
mod draft;
mod embeddings;
mod experts;
mod fairness;
mod guesses;
mod http;
mod hub;
mod hub_cache;
mod hub_program;
mod hybrid;
mod infill;
mod isolation;
mod kernels;
mod late;
mod llama;
mod masks;
mod metrics;
mod numbers;
mod openapi;
mod ops;
mod page;
mod policy;
mod prefix_store;
mod pressure;
mod profile;
mod rank;
mod sampling;
mod schemas;
mod scores;
mod serving;
mod slots;
mod templates;
mod tools;
mod traces;
mod unicode;
mod window;
