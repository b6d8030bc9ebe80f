//! Rungs 3 to 5: a decode lane, and the calling thread in the role of the front lane.
//!
//! The front lane's executor (glommio) is not part of these rungs.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::inner::texts_of;
use super::measure::{Measured, Watch};
use super::requests::Requests;
use super::workload::{Texts, Workload};
use corelane::clock::Micros;
use corelane::engine::pipeline::Pipeline;
use corelane::limits::{BATCHES, STEPS_IN_FLIGHT};
use corelane::metrics::Metrics;
use corelane::ring::FrontLink;
use corelane::ring::bell::SocketBell;
use corelane::ring::message::Batch;
use corelane::scheduler::Scheduler;

/// Makes the calling thread wait for the decode lane in the same way as the front lane does.
pub struct Waiter {
    bell: Arc<SocketBell>,
    socket: UnixStream,
    metrics: Arc<Metrics>,
    polls: bool,
}

impl Waiter {
    /// Creates a waiter and the bell that wakes it. With `polls`, the waiter spins and never
    /// sleeps.
    pub fn new(polls: bool, metrics: Arc<Metrics>) -> Result<(Self, Arc<SocketBell>), String> {
        let (bell, socket) =
            SocketBell::new().map_err(|error| format!("cannot make a socket pair: {error}"))?;
        let bell = Arc::new(bell);
        Ok((Self { bell: bell.clone(), socket, metrics, polls }, bell))
    }

    /// The current time on the clock that [`Waiter::wait`] uses.
    pub fn now(&self) -> Micros {
        self.metrics.clock.now()
    }

    /// Waits until `ready` returns true or the time `until` has passed.
    pub fn wait(&mut self, until: Option<Micros>, ready: impl Fn() -> bool) {
        let passed = |now| until.is_some_and(|until| until <= now);
        if self.polls {
            while !ready() && !passed(self.now()) {
                std::hint::spin_loop();
            }
            return;
        }
        self.bell.announce();
        let now = self.now();
        if !ready() && !passed(now) {
            let left = until.map(|until| Duration::from_micros(until.0 - now.0));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            });
            // A signal may end the wait early. The caller's loop then waits again.
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], left.as_ref());
            let mut bytes = [0; 64];
            let _ = std::io::Read::read(&mut self.socket, &mut bytes); // the socket may be empty
        }
        self.bell.withdraw();
    }
}

/// A running decode lane and the link to it.
pub struct Pipe {
    /// The front lane's end of the link.
    pub link: FrontLink<Batch>,
    /// Waits for the decode lane.
    pub waiter: Waiter,
    /// The thread of the decode lane.
    pub decode: JoinHandle<()>,
    /// The decode lane's metrics.
    pub metrics: Arc<Metrics>,
}

impl Pipe {
    /// Closes the link and waits for the decode lane to end.
    pub fn end(self) {
        drop(self.link);
        self.decode.join().expect("a lane that panics ends the process");
    }
}

/// Rung 3: sends the recorded batches through both rings.
pub fn rings(pipe: &mut Pipe, workload: &Workload, batches: Vec<Box<Batch>>) -> (Texts, Measured) {
    let mut done = Vec::with_capacity(batches.len());
    let total = batches.len();
    let mut next = batches.into_iter().peekable();
    let watch = Watch::start();
    let mut in_flight = 0;
    while done.len() < total {
        while in_flight < STEPS_IN_FLIGHT
            && let Some(mut batch) = next.next()
        {
            batch.sent = pipe.waiter.now();
            assert!(pipe.link.send(batch).is_ok(), "the link holds every batch");
            in_flight += 1;
        }
        pipe.waiter.wait(None, || pipe.link.is_ready());
        while let Some(batch) = pipe.link.receive() {
            done.push(batch);
            in_flight -= 1;
        }
    }
    let measured = watch.stop();
    (texts_of(workload, &done), measured)
}

/// Rung 4: the scheduler plans the batches while requests arrive and finish.
pub fn scheduler(
    pipe: &mut Pipe,
    scheduler: &mut Scheduler,
    queue: &mut impl Requests,
    spare: &mut heapless::Vec<Box<Batch>, BATCHES>,
) -> Measured {
    let mut pipeline = Pipeline::default();
    let mut nothing_to_plan = false;
    let watch = Watch::start();
    queue.fill(scheduler);
    while !queue.is_done() || pipeline.in_flight() > 0 {
        let now = pipe.waiter.now();
        while let Some(mut batch) = pipe.link.receive() {
            pipeline.received(now);
            scheduler.complete(&mut batch, |event| queue.on_event(event, now));
            queue.fill(scheduler);
            nothing_to_plan = false;
            batch.clear();
            spare.push(batch).expect("there are no more batches than this");
        }
        while !nothing_to_plan && pipeline.may_plan(scheduler.free_slots(), now) {
            let Some(mut batch) = spare.pop() else { break };
            if !scheduler.schedule(&mut batch) {
                nothing_to_plan = true;
                spare.push(batch).expect("it was taken from there");
                break;
            }
            pipeline.sent(batch.step, scheduler.step_time(&batch), now);
            batch.sent = now;
            assert!(pipe.link.send(batch).is_ok(), "the link holds every batch");
        }
        if pipeline.in_flight() == 0 {
            continue;
        }
        let until = (!nothing_to_plan).then(|| pipeline.wake_at()).flatten();
        pipe.waiter.wait(until, || pipe.link.is_ready());
    }
    watch.stop()
}
