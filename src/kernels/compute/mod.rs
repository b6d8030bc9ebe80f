//! The compute threads, and how they wait.
//!
//! The decode lane and the embed lane each own a [`Pool`]. ggml runs an operation on all threads of
//! a pool, and lets them wait for each other at a barrier, some hundred times in a step. ggml's own
//! threads would poll there. If another program took the core of one thread, all others would poll
//! until the kernel gave the core back, some milliseconds later. The threads here poll for about as
//! long as a wake-up takes, and then sleep, so that their cores are free for threads with work.
//!
//! On a busy machine, one thread can lead a step instead. It computes alone, but puts the products
//! with weights on a [`Board`]. The other threads take pieces of them while they have a core, and
//! the leader does not wait for them. So a step takes as long as the leader needs, and not as long
//! as the slowest thread. On a free machine this is slower, because all other operations run on one
//! thread. The scheduler chooses between the two by measurement.
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
