//! Stops work on a constraint that takes too long.
//!
//! llguidance limits the items of its parser, but the time for an item grows with their number. So
//! a few masks would take seconds. Each thread notes its current work here. The front lane checks
//! all threads from time to time, and stops work that has used too much processor time.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use llguidance::panic_utils::catch_unwind;
use llguidance::{CancellationHandle, TokenParser};
use rustix::thread::gettid;

use crate::clock::cpu_time;

/// Threads whose work on constraints is watched. A server has four of them.
const CONSTRAINT_WORKERS_MAX: usize = 16;

/// A thread that works on constraints.
struct Worker {
    /// The kernel's thread id.
    thread: i32,
    /// Its current work.
    work: ArcSwapOption<Work>,
}

struct Work {
    /// [`RUNNING`], [`ENDED`] or [`STOPPED`]. Work that has ended is not stopped any more: its
    /// parser would remember that, and fail at its next work.
    state: AtomicU8,
    /// The thread's processor time at the start.
    began: Duration,
    /// The processor time that it may take.
    most: Duration,
    stop: CancellationHandle,
}

const RUNNING: u8 = 0;
const ENDED: u8 = 1;
const STOPPED: u8 = 2;

/// The workers whose threads still run.
static WORKERS: [ArcSwapOption<Worker>; CONSTRAINT_WORKERS_MAX] =
    [const { ArcSwapOption::const_empty() }; CONSTRAINT_WORKERS_MAX];

/// A thread's own entry in [`WORKERS`], which ends with the thread.
struct Own {
    worker: Arc<Worker>,
    /// `None` if all entries are taken. The thread's work is then not watched.
    place: Option<&'static ArcSwapOption<Worker>>,
}

impl Own {
    fn enter() -> Self {
        let thread = gettid().as_raw_nonzero().get();
        let worker = Arc::new(Worker { thread, work: ArcSwapOption::empty() });
        let is_taken = |place: &&ArcSwapOption<Worker>| {
            place.compare_and_swap(&None::<Arc<Worker>>, Some(worker.clone())).is_none()
        };
        let place = WORKERS.iter().find(is_taken);
        Self { worker, place }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.store(None);
        }
    }
}

thread_local! {
    static OWN: Own = Own::enter();
}

/// Runs `act`, which may use `most` processor time. After that, [`stop_long_work`] stops it, and
/// the parser can no longer be used.
///
/// # Errors
/// The error of `act`, or that it panicked or was stopped.
pub(super) fn work<T, E: Display>(
    parser: &mut TokenParser,
    most: Duration,
    act: impl FnOnce(&mut TokenParser) -> Result<T, E>,
) -> Result<T, String> {
    let stop = parser.enable_cancellation();
    let work = Arc::new(Work { state: AtomicU8::new(RUNNING), began: cpu_time(), most, stop });
    OWN.with(|own| own.worker.work.store(Some(work.clone())));
    let result = catch_unwind(AssertUnwindSafe(|| Ok(act(parser))));
    OWN.with(|own| own.worker.work.store(None));
    if work.state.swap(ENDED, Ordering::AcqRel) == STOPPED {
        let most = most.as_millis();
        return Err(format!("the next token took more than {most} ms of processor time"));
    }
    result.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Stops all work that has used more processor time than it may. `cpu_of` returns the processor
/// time of a thread.
pub fn stop_long_work(cpu_of: impl Fn(i32) -> Option<Duration>) {
    for worker in WORKERS.iter().filter_map(ArcSwapOption::load_full) {
        let Some(work) = worker.work.load_full() else { continue };
        let cpu = cpu_of(worker.thread);
        let is_long = cpu.is_some_and(|cpu| cpu.saturating_sub(work.began) > work.most);
        // If the work has changed meanwhile, the time may belong to later work.
        let is_current = worker.work.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, &work));
        let stops = || {
            let (to, order) = (STOPPED, Ordering::AcqRel);
            work.state.compare_exchange(RUNNING, to, order, Ordering::Relaxed).is_ok()
        };
        if is_long && is_current && stops() {
            work.stop.cancel();
        }
    }
}
