//! Work that the front lane hands to a thread of its own, because nothing on the front
//! lane may run for more than about a millisecond: the prepare lane and the embed lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use super::prepare::{Parsed, Prepared, PreparedEmbeddings};
use crate::api::Route;
use crate::api::error::ApiError;
use crate::limits::WORK_JOBS_MAX;
use crate::ring::bell::{SocketBell, ThreadBell};

/// What there is to do.
pub enum Work {
    /// For the prepare lane: a long body.
    Body(Route, Vec<u8>),
    /// For the prepare lane: a body that the front lane has read, with something to
    /// compile.
    Parsed(Parsed),
    /// For the embed lane: texts.
    Embed(Box<PreparedEmbeddings>),
}

/// What compiling a constraint counts as, beside bodies of so many bytes: neither is known
/// before. Prompts go first.
const COMPILING: usize = 1 << 20;

impl Work {
    /// About how long it takes, beside others for the same lane.
    fn size(&self) -> usize {
        match self {
            Work::Body(_, body) => body.len(),
            Work::Parsed(_) => COMPILING,
            Work::Embed(work) => work.tokens(),
        }
    }
}

/// Work for a lane, and afterwards what became of it.
pub struct Job {
    /// The front lane's number for it.
    pub ticket: u64,
    /// What to do; none afterwards.
    pub work: Option<Work>,
    /// Set by the front lane when the client has left.
    pub abandoned: Arc<AtomicBool>,
    /// The answer; none for what was abandoned.
    pub result: Option<Result<Prepared, ApiError>>,
}

/// The front lane's end of the link to a lane that works.
pub struct WorkLink {
    jobs: Producer<Box<Job>>,
    done: Consumer<Box<Job>>,
    bell: Arc<ThreadBell>,
    in_flight: usize,
}

impl WorkLink {
    /// Hands a job over.
    ///
    /// # Errors
    /// The job itself, when [`WORK_JOBS_MAX`] are there.
    pub fn send(&mut self, job: Box<Job>) -> Result<(), Box<Job>> {
        // Also bounds `done`, so the lane's own push always finds a place.
        if self.in_flight == WORK_JOBS_MAX {
            return Err(job);
        }
        self.in_flight += 1;
        assert!(self.jobs.push(job).is_ok(), "the ring holds every job in flight");
        self.bell.ring();
        Ok(())
    }

    /// The next finished job, if there is one.
    pub fn receive(&mut self) -> Option<Box<Job>> {
        let job = self.done.pop().ok()?;
        self.in_flight -= 1;
        Some(job)
    }

    /// True when [`WorkLink::receive`] would return a job.
    pub fn is_ready(&self) -> bool {
        !self.done.is_empty()
    }
}

impl Drop for WorkLink {
    fn drop(&mut self) {
        self.bell.close();
    }
}

/// The other end, for the lane's thread.
pub struct Worker {
    jobs: Consumer<Box<Job>>,
    done: Producer<Box<Job>>,
    bell: Arc<ThreadBell>,
    front_bell: Arc<SocketBell>,
}

/// A link between the front lane, which `front_bell` wakes, and a lane that works.
pub fn link(front_bell: Arc<SocketBell>) -> (WorkLink, Worker) {
    let (jobs_tx, jobs) = RingBuffer::new(WORK_JOBS_MAX);
    let (done, done_rx) = RingBuffer::new(WORK_JOBS_MAX);
    let bell = Arc::new(ThreadBell::default());
    let link = WorkLink { jobs: jobs_tx, done: done_rx, bell: bell.clone(), in_flight: 0 };
    (link, Worker { jobs, done, bell, front_bell })
}

impl Worker {
    /// Does what comes, until the front lane closes the link.
    ///
    /// `do_work` may ask whether anybody still wants what it does, and stop where nobody
    /// does.
    pub fn run(
        mut self,
        mut do_work: impl FnMut(Work, &dyn Fn() -> bool) -> Result<Prepared, ApiError>,
    ) {
        // In turns the smallest, so that nobody waits for more than one large one of
        // others, and the oldest, so that a large one has its turn.
        let mut oldest_next = false;
        let mut waiting = heapless::Vec::<Box<Job>, WORK_JOBS_MAX>::new();
        loop {
            let idle = waiting.is_empty();
            self.bell.wait(Duration::ZERO, || !idle || !self.jobs.is_empty());
            if self.bell.is_closed() {
                return; // whoever waited for these has been cut off
            }
            while let Ok(job) = self.jobs.pop() {
                assert!(waiting.push(job).is_ok(), "there are no more jobs in flight than this");
            }
            let size = |index: &usize| waiting[*index].work.as_ref().map_or(0, Work::size);
            let Some(smallest) = (0..waiting.len()).min_by_key(size) else { continue };
            let mut job = waiting.remove(if oldest_next { 0 } else { smallest });
            oldest_next = !oldest_next;
            let work = job.work.take().expect("it has not been done");
            let is_wanted = || !job.abandoned.load(Ordering::Relaxed) && !self.bell.is_closed();
            let result = is_wanted().then(|| do_work(work, &is_wanted));
            job.result = result;
            assert!(self.done.push(job).is_ok(), "the ring holds every job in flight");
            self.front_bell.ring();
        }
    }
}
