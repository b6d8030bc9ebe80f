//! The compute threads, and how they wait.
//!
//! The decode lane and the embed lane each own a [`Pool`]. ggml runs an operation on all threads of a
//! pool, and lets them wait for each other at a barrier, some hundred times in a step. ggml's own
//! threads would poll there. When another program takes the core of one thread, all others would burn
//! theirs until the kernel brings it back, some milliseconds later each time. Ours poll for as long
//! as a wake-up takes, and then sleep. So whoever has work gets the core.
//!
//! On a busy machine, a step can also have one thread that leads. It computes alone, but puts the
//! products with weights on a [`Board`], and the other threads take pieces of them while they have a
//! core. Nothing waits for them, so a step takes as long as the leader needs, and not as long as the
//! unluckiest thread. Alone on the machine that is slower, for the rest of the step has one thread. The
//! scheduler chooses by measurement.
//!
//! ggml finds these threads as the library of OpenMP (`openmp.rs`).

mod affinity;
mod barrier;
mod board;
mod gate;
mod openmp;
mod pool;
mod sync;

pub use affinity::pin_this_thread;
pub use board::{Board, PIECES_MAX, SLOTS as BOARD_SLOTS, Task};
pub use pool::{Helped, Pool, THREADS_MAX};
