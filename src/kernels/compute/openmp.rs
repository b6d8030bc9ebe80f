//! The functions of GCC's OpenMP library that ggml calls, on our pool.
//!
//! ggml's own threads poll at every barrier and between two steps, even if other programs need
//! their cores. Built with OpenMP, ggml leaves threads and barriers to a library. This file is that
//! library: the functions below have the names and arguments of GCC's interface (libgomp's
//! `libgomp_g.h`), so libgomp itself is not needed.
//!
//! A thread without a pool computes alone. ggml's quantising code splits loops among the threads of
//! a team. It runs only on threads without a pool, so each loop is one piece.

// The names are GCC's.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_long, c_uint, c_void};

use super::pool::{self, Work};

/// `#pragma omp parallel num_threads(threads)`: `run(data)` on each thread.
///
/// # Safety
/// As GCC calls it: `run` may be called with `data` by several threads at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel(
    run: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    threads: c_uint,
    _flags: c_uint,
) {
    // SAFETY: the caller guarantees it.
    unsafe { pool::run(Work { run, data }, threads) };
}

/// `#pragma omp barrier`
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_barrier() {
    pool::wait_for_all();
}

/// `#pragma omp single`: true on the one thread that runs it.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_single_start() -> bool {
    pool::place().0 == 0
}

/// The number of the calling thread, from 0.
#[unsafe(no_mangle)]
pub extern "C" fn omp_get_thread_num() -> c_int {
    pool::place().0 as c_int // at most THREADS_MAX
}

/// The number of threads.
#[unsafe(no_mangle)]
pub extern "C" fn omp_get_num_threads() -> c_int {
    pool::place().1 as c_int // at most THREADS_MAX
}

/// `#pragma omp for schedule(dynamic, …)`: the first piece of a loop, which is the whole loop.
///
/// # Safety
/// As GCC calls it: `from` and `to` are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_loop_nonmonotonic_dynamic_start(
    start: c_long,
    end: c_long,
    _step: c_long,
    _piece: c_long,
    from: *mut c_long,
    to: *mut c_long,
) -> bool {
    assert_eq!(pool::place().1, 1, "a loop is not split among threads");
    // SAFETY: the caller guarantees it.
    unsafe { (*from, *to) = (start, end) };
    start != end
}

/// The next piece of a loop: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_loop_nonmonotonic_dynamic_next(
    _from: *mut c_long,
    _to: *mut c_long,
) -> bool {
    false
}

/// The end of a loop.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_loop_end() {}

/// The start of an atomic addition. There is only one thread, so there is nothing to lock.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_atomic_start() {
    assert_eq!(pool::place().1, 1, "no two threads add to one number");
}

/// The end of such an addition.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_atomic_end() {}
