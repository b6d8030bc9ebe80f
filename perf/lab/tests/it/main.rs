//! The tests of `corelane-bench`, a file for each of its commands.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod ladder;
mod serve;
mod synth;
