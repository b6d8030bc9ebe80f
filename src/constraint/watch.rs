//! Stops work on a constraint that takes too long.
//!
//! llguidance bounds the items of its parser, and the time for an item grows with their number.
//! So a few masks take seconds. Each thread notes here what it works on. The front lane looks at all
//! threads from time to time, and stops work that has had too much processor time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use llguidance::{CancellationHandle, TokenParser};
use rustix::thread::gettid;

use crate::clock::cpu_time;

/// A thread that has worked on constraints.
struct Worker {
    /// The kernel's number of it.
    thread: i32,
    /// What it works on now. The lock is held for a few instructions at a time.
    work: Mutex<Option<Work>>,
}

struct Work {
    /// The thread's processor time at the start.
    began: Duration,
    /// The processor time that it may take.
    most: Duration,
    stop: CancellationHandle,
}

/// All workers whose threads still run.
static WORKERS: Mutex<Vec<Weak<Worker>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Arc<Worker> = {
        let thread = gettid().as_raw_nonzero().get();
        let own = Arc::new(Worker { thread, work: Mutex::default() });
        lock(&WORKERS).push(Arc::downgrade(&own));
        own
    };
}

/// What these locks guard is whole after each instruction, so a panic elsewhere breaks nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `act`, which may take this much processor time. [`stop_long_work`] stops it after that; the
/// parser is then of no further use.
///
/// # Errors
/// That of `act`, or that it was stopped.
pub(super) fn work<T>(
    parser: &mut TokenParser,
    most: Duration,
    act: impl FnOnce(&mut TokenParser) -> Result<T, String>,
) -> Result<T, String> {
    let stop = parser.enable_cancellation();
    let note = |work| OWN.with(|own| *lock(&own.work) = work);
    note(Some(Work { began: cpu_time(), most, stop: stop.clone() }));
    let result = act(parser);
    note(None);
    let most = most.as_millis();
    if stop.is_cancelled() {
        return Err(format!("one token took more than {most} ms of processor time"));
    }
    result
}

/// Stops what has had more processor time than it may have. `cpu_of` asks the kernel for the
/// processor time of a thread.
pub fn stop_long_work(cpu_of: impl Fn(i32) -> Option<Duration>) {
    let mut workers = lock(&WORKERS);
    workers.retain(|worker| worker.strong_count() > 0);
    for worker in workers.iter().filter_map(Weak::upgrade) {
        let Some(began) = lock(&worker.work).as_ref().map(|work| work.began) else { continue };
        // Without the lock: this takes a while.
        let Some(cpu) = cpu_of(worker.thread) else { continue };
        if let Some(work) = &*lock(&worker.work)
            && work.began == began
            && cpu.saturating_sub(began) > work.most
        {
            work.stop.cancel();
        }
    }
}
