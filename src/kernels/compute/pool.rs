//! A pool of threads that compute one job after another, together with the thread that owns it.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::gettid;

use super::affinity::{pin, pin_this_thread};
use super::barrier::Barrier;
use super::gate::Gate;

/// Stack of a compute thread.
const COMPUTE_STACK_BYTES: usize = 2 * 1024 * 1024;

/// Bits of a job's word that hold its number of threads.
const THREADS_BITS: u32 = 10;
/// Threads of a pool: ggml's bound (`GGML_MAX_N_THREADS`).
pub const THREADS_MAX: usize = 512;

const _: () = assert!(THREADS_MAX < 1 << THREADS_BITS);

/// A job of no threads ends the pool.
const NO_THREADS: u32 = 0;

/// This number of threads marks the job "help with the board".
const HELP: u32 = (1 << THREADS_BITS) - 1;
const _: () = assert!((THREADS_MAX as u32) < HELP);

/// Work that threads share without waiting for each other, such as a [`Board`](super::Board).
pub trait Helped: Send + Sync {
    /// Helps until there is nothing to do. Each helper calls it with a number of its own, from 0.
    fn help(&self, helper: usize);
}

/// Number of wake-ups timed at the start. The second shortest counts, because on a busy machine
/// most of them are longer.
const WAKE_UPS: usize = 9;

/// The time after which a thread that does not poll is surely asleep.
const FALL_ASLEEP: Duration = Duration::from_micros(100);

/// Bounds on the time that threads poll at a barrier.
const PATIENCE_MIN: Duration = Duration::from_micros(20);
const PATIENCE_MAX: Duration = Duration::from_micros(200);

thread_local! {
    /// This thread's place in the pool that it computes for.
    static MEMBER: Cell<Member> = const { Cell::new(Member { shared: ptr::null(), index: 0, threads: 1 }) };
}

/// A thread's place in a running job.
#[derive(Clone, Copy)]
struct Member {
    /// Null outside a pool.
    shared: *const Shared,
    /// From 0, the owner.
    index: u32,
    /// Threads of the job.
    threads: u32,
}

/// The threads of a pool.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// The core of each worker, and then the owner's. Empty if the kernel chooses.
    cores: RefCell<Vec<usize>>,
}

struct Worker {
    thread: JoinHandle<()>,
    /// The kernel's thread id; 0 before the thread runs.
    id: Arc<AtomicI32>,
}

#[derive(Default)]
struct Shared {
    /// The number of the job, with its number of threads in the lowest [`THREADS_BITS`] bits. They
    /// are one word, so that a late thread never reads one of them from another job.
    job: Gate,
    work: AtomicPtr<Work>,
    barrier: Barrier,
    /// Threads of the pool, with the owner.
    threads: u32,
    helped: OnceLock<Arc<dyn Helped>>,
    /// How long threads poll at a barrier, and for a job, before they sleep. Nanoseconds.
    at_barrier: AtomicU32,
    for_job: AtomicU32,
}

impl Shared {
    fn at_barrier(&self) -> Duration {
        Duration::from_nanos(self.at_barrier.load(Ordering::Relaxed).into())
    }

    fn for_job(&self) -> Duration {
        Duration::from_nanos(self.for_job.load(Ordering::Relaxed).into())
    }
}

/// A job: a function that each thread calls once, and its argument.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub run: unsafe extern "C" fn(*mut c_void),
    pub data: *mut c_void,
}

impl Pool {
    /// Starts a pool of `threads` threads, including the owner, which is the calling thread.
    /// `cores` has one core for each thread, and pins it there; the owner gets the last core.
    /// Between two jobs threads poll for `for_job` before they sleep; at a barrier, for as long as
    /// a wake-up takes.
    ///
    /// # Errors
    /// If the system refuses a thread or a core.
    pub fn new(threads: usize, cores: Option<&[usize]>, for_job: Duration) -> Result<Self, String> {
        assert!((1..=THREADS_MAX).contains(&threads), "{threads} threads");
        let count = threads as u32; // at most THREADS_MAX
        let shared = Arc::new(Shared { threads: count, ..Shared::default() });
        // The owner's name, so that a profile of a lane shows all of its threads.
        let name = std::thread::current().name().unwrap_or("compute").to_owned();
        let mut workers = Vec::new();
        for index in 1..threads {
            let (shared, core) = (shared.clone(), cores.map(|cores| cores[index - 1]));
            let builder = std::thread::Builder::new().name(name.clone());
            let id = Arc::new(AtomicI32::new(0));
            let set_id = id.clone();
            let thread = builder.stack_size(COMPUTE_STACK_BYTES).spawn(move || {
                set_id.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
                // If pinning fails, the thread is only slower.
                let _ = core.map(|core| pin_this_thread(&[core]));
                work(&shared, index as u32); // below THREADS_MAX
            });
            let thread = thread
                .map_err(|error| format!("could not start {threads} compute threads: {error}"))?;
            workers.push(Worker { thread, id });
        }
        if let Some(last) = cores.and_then(<[usize]>::last) {
            pin_this_thread(&[*last])
                .map_err(|error| format!("cannot run on core {last}: {error}"))?;
        }
        let cores = RefCell::new(cores.map(<[_]>::to_vec).unwrap_or_default());
        let pool = Self { shared, workers, cores };
        let at_barrier = pool.wake_up_time().clamp(PATIENCE_MIN, PATIENCE_MAX);
        let nanos = |time: Duration| u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        pool.shared.at_barrier.store(nanos(at_barrier), Ordering::Relaxed);
        pool.shared.for_job.store(nanos(for_job), Ordering::Relaxed);
        Ok(pool)
    }

    /// Measures the time that a sleeping thread takes to wake up. A wait that polls this long
    /// before it sleeps costs at most twice the optimum (as in the ski rental problem).
    fn wake_up_time(&self) -> Duration {
        let threads = self.threads() as u32; // at most THREADS_MAX
        if threads == 1 {
            return Duration::ZERO;
        }
        let nothing = Work { run: nothing, data: ptr::null_mut() };
        let mut times = [(); WAKE_UPS].map(|()| {
            std::thread::sleep(FALL_ASLEEP); // the threads are asleep by then: none polls yet
            let began = Instant::now();
            // SAFETY: the function ignores its argument.
            self.lend(|| unsafe { run(nothing, threads) });
            began.elapsed() / 2 // the others wake up, and then the owner
        });
        times.sort_unstable();
        times[1]
    }

    /// The number of jobs that ran on several threads, modulo 2^22.
    pub fn jobs(&self) -> u32 {
        self.shared.job.number() >> THREADS_BITS
    }

    /// Number of threads, with the owner.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Swaps the cores of the owner, which calls this, and a worker. The first worker is 0. Returns
    /// false if nothing changed: the kernel chooses the cores, refuses, or there is no such worker.
    pub fn change_places(&self, worker: usize) -> bool {
        let mut cores = self.cores.borrow_mut();
        let (Some(owner), Some(other)) = (cores.len().checked_sub(1), self.workers.get(worker))
        else {
            return false;
        };
        let id = Pid::from_raw(other.id.load(Ordering::Relaxed));
        // A core may have left the process's set of cores since. Two threads on one core would be
        // slower.
        if id.is_none() || pin(id, &[cores[owner]]).is_err() {
            return false;
        }
        let changed = pin_this_thread(&[cores[worker]]).is_ok();
        if changed {
            cores.swap(worker, owner);
        } else {
            let _ = pin(id, &[cores[worker]]); // back to its former core
        }
        changed
    }

    /// Sets the shared work of [`Pool::call_helpers_of_this_thread`]. Only the first call has an
    /// effect.
    pub fn set_helped(&self, helped: Arc<dyn Helped>) {
        self.shared.helped.get_or_init(|| helped);
    }

    /// Calls all threads but the owner, in the pool that is lent to the calling thread, to help
    /// with the shared work. Does nothing if no pool is lent to this thread.
    pub fn call_helpers_of_this_thread() {
        // SAFETY: `lend` and `work` set it to a pool that lives as long as their calls.
        let Some(shared) = (unsafe { MEMBER.get().shared.as_ref() }) else { return };
        let number = (shared.job.number() >> THREADS_BITS).wrapping_add(1);
        shared.job.set(number << THREADS_BITS | HELP);
    }

    /// Runs `calls` on the calling thread, the owner. Jobs that ggml starts meanwhile run on this
    /// pool.
    pub fn lend<T>(&self, calls: impl FnOnce() -> T) -> T {
        let before = MEMBER.get();
        MEMBER.set(Member { shared: &raw const *self.shared, index: 0, threads: 1 });
        let result = calls();
        MEMBER.set(before);
        result
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.job.set(NO_THREADS);
        for worker in self.workers.drain(..) {
            worker.thread.join().expect("a compute thread that panics ends the process");
        }
    }
}

unsafe extern "C" fn nothing(_data: *mut c_void) {}

/// Runs jobs until the pool ends.
fn work(shared: &Shared, index: u32) {
    let mut last = NO_THREADS;
    // A thread without a part in the last job sleeps at once, so that its core is free for others.
    let mut has_part = true;
    loop {
        shared.job.wait(last, if has_part { shared.for_job() } else { Duration::ZERO });
        last = shared.job.number();
        let threads = last & ((1 << THREADS_BITS) - 1);
        if threads == NO_THREADS {
            return;
        }
        has_part = index < threads;
        if threads == HELP {
            let helped = shared.helped.get().expect("it is set before helpers are called");
            helped.help(index as usize - 1);
            continue;
        }
        if has_part {
            // SAFETY: the owner set it before the job's word. It waits at the barrier below for
            // this thread, so it has set no other, and the work's data is alive.
            let job = unsafe { *shared.work.load(Ordering::Relaxed) };
            MEMBER.set(Member { shared, index, threads });
            // SAFETY: as above.
            unsafe { (job.run)(job.data) };
            shared.barrier.wait(threads, shared.at_barrier());
        }
    }
}

/// Runs a job on `threads` threads of the pool that is lent to the calling thread. The pool must
/// have as many. Without a pool, or inside a job, it runs on the calling thread alone.
///
/// # Safety
/// The function may be called with this argument, by several threads at once.
pub(super) unsafe fn run(mut work: Work, threads: u32) {
    let member = MEMBER.get();
    // SAFETY: `lend` and `work` set it to a pool that lives as long as their calls.
    let shared = unsafe { member.shared.as_ref() };
    let (Some(shared), true) = (shared, threads > 1 && member.threads == 1) else {
        let alone = Member { shared: ptr::null(), index: 0, threads: 1 };
        MEMBER.set(alone);
        // SAFETY: the caller guarantees it.
        unsafe { (work.run)(work.data) };
        MEMBER.set(member);
        return;
    };
    assert!(threads <= shared.threads, "{threads} of {} threads", shared.threads);
    shared.work.store(&raw mut work, Ordering::Relaxed); // published by the word of the job
    let number = (shared.job.number() >> THREADS_BITS).wrapping_add(1);
    MEMBER.set(Member { threads, ..member });
    shared.job.set(number << THREADS_BITS | threads);
    // SAFETY: the caller guarantees it.
    unsafe { (work.run)(work.data) };
    shared.barrier.wait(threads, shared.at_barrier());
    MEMBER.set(member);
}

/// The calling thread's number in its job, and the job's number of threads.
pub(super) fn place() -> (u32, u32) {
    let member = MEMBER.get();
    (member.index, member.threads)
}

/// Waits for all threads of the calling thread's job.
pub(super) fn wait_for_all() {
    let member = MEMBER.get();
    if member.threads > 1 {
        // SAFETY: a member of a job of several threads is in its pool, which lives as long as the
        // job.
        let shared = unsafe { &*member.shared };
        shared.barrier.wait(member.threads, shared.at_barrier());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use rustix::thread::{CpuSet, sched_getaffinity};
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// What the threads of a job write.
    struct Seen {
        threads: [AtomicUsize; 4],
        /// Threads that saw after the barrier that all others had written.
        saw_all: AtomicUsize,
    }

    unsafe extern "C" fn see(data: *mut c_void) {
        // SAFETY: the tests pass it, and it outlives the job.
        let seen = unsafe { &*data.cast::<Seen>() };
        let (index, threads) = place();
        seen.threads[index as usize].fetch_add(1, Ordering::Relaxed);
        wait_for_all();
        let written = seen.threads.iter().filter(|thread| thread.load(Ordering::Relaxed) > 0);
        if written.count() >= threads as usize {
            seen.saw_all.fetch_add(1, Ordering::Relaxed);
        }
        wait_for_all();
    }

    fn job(threads: u32) -> [usize; 4] {
        let seen = Seen { threads: Default::default(), saw_all: AtomicUsize::default() };
        let data = (&raw const seen).cast_mut().cast();
        // SAFETY: `see` takes a `Seen`, which outlives the call.
        unsafe { run(Work { run: see, data }, threads) };
        let ran = seen.threads.map(AtomicUsize::into_inner);
        assert_eq!(seen.saw_all.into_inner(), ran.iter().sum::<usize>());
        ran
    }

    #[test]
    fn each_thread_of_a_job_runs_it_once() {
        let pool = Pool::new(4, None, Duration::ZERO).unwrap();
        for _ in 0..200 {
            for threads in [4, 2, 1, 3] {
                let ran = pool.lend(|| job(threads));
                let expected: [usize; 4] =
                    std::array::from_fn(|i| usize::from(i < threads as usize));
                assert_eq!(ran, expected);
            }
        }
        assert_eq!(pool.jobs() as usize, WAKE_UPS + 600);
    }

    #[test]
    fn the_owner_and_a_worker_change_places() {
        let allowed = sched_getaffinity(None).unwrap();
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        let Some(cores) = cores.get(..2) else { return };
        // On a thread of its own: it stays pinned.
        let check = || {
            let pool = Pool::new(2, Some(cores), Duration::ZERO).unwrap();
            let of = |thread: Option<Pid>| {
                let set = sched_getaffinity(thread).unwrap();
                (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
            };
            let worker = || Pid::from_raw(pool.workers[0].id.load(Ordering::Relaxed));
            assert_eq!((of(None), of(worker())), (vec![cores[1]], vec![cores[0]]));
            assert!(pool.change_places(0));
            assert_eq!((of(None), of(worker())), (vec![cores[0]], vec![cores[1]]));
            assert!(pool.change_places(0));
            assert_eq!((of(None), of(worker())), (vec![cores[1]], vec![cores[0]]));
            assert!(!pool.change_places(1), "there is none");
            assert_eq!(pool.lend(|| job(2)), [1, 1, 0, 0]);
        };
        std::thread::scope(|scope| scope.spawn(check).join().unwrap());
    }

    #[test]
    fn without_a_pool_the_calling_thread_computes_alone() {
        assert_eq!(job(4), [1, 0, 0, 0]);
        let _idle = Pool::new(2, None, Duration::ZERO).unwrap();
        assert_eq!(job(2), [1, 0, 0, 0], "it is not lent");
    }

    #[test]
    fn two_pools_compute_at_once() {
        let computes = || {
            let pool = Pool::new(2, None, Duration::from_millis(1)).unwrap();
            (0..300).for_each(|_| assert_eq!(pool.lend(|| job(2)), [1, 1, 0, 0]));
        };
        std::thread::scope(|scope| {
            scope.spawn(computes);
            scope.spawn(computes);
        });
    }

    /// Processor time of the calling thread.
    fn processor_time() -> Duration {
        clock_gettime(ClockId::ThreadCPUTime).try_into().expect("it is not negative")
    }

    unsafe extern "C" fn wait_long(data: *mut c_void) {
        // SAFETY: the test passes it, and it outlives the job.
        let used_us = unsafe { &*data.cast::<AtomicUsize>() };
        if place().0 == 0 {
            std::thread::sleep(Duration::from_millis(200));
            wait_for_all();
        } else {
            let before = processor_time();
            wait_for_all();
            used_us.store((processor_time() - before).as_micros() as usize, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_thread_that_waits_long_gives_its_core_away() {
        let pool = Pool::new(2, None, Duration::ZERO).unwrap();
        let used_us = AtomicUsize::new(usize::MAX);
        let data = (&raw const used_us).cast_mut().cast();
        // SAFETY: `wait_long` takes this number, which outlives the call.
        pool.lend(|| unsafe { run(Work { run: wait_long, data }, 2) });
        let used_us = used_us.into_inner();
        assert!(used_us < 20_000, "it used {used_us} us of 200 ms");
    }

    #[test]
    fn a_pool_keeps_to_its_cores() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cores = (0..THREADS_MAX).filter(|core| allowed.is_set(*core));
        let cores: Vec<usize> = cores.take(2).collect();
        std::thread::spawn(move || {
            let pool = Pool::new(cores.len(), Some(&cores), Duration::ZERO).unwrap();
            assert_eq!(pool.threads(), cores.len());
            let own = rustix::thread::sched_getaffinity(None).unwrap();
            assert!(own.count() == 1 && own.is_set(*cores.last().unwrap()));
        })
        .join()
        .unwrap();
    }
}
