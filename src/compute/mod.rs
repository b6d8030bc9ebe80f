//! The compute threads, and how they wait.
//!
//! The decode lane and the embed lane each own a [`Pool`]. ggml runs an operation on all threads of a
//! pool, and lets them wait for each other at a barrier, some hundred times in a step. ggml's own
//! threads would poll there. When another program takes the core of one thread, all others would burn
//! theirs until the kernel brings it back, some milliseconds later each time. Ours poll for as long
//! as a wake-up takes, and then sleep. So whoever has work gets the core.
//!
//! ggml finds these threads as the library of OpenMP (`openmp.rs`).

mod barrier;
mod gate;
mod openmp;
mod pool;
mod sync;

pub use pool::Pool;
