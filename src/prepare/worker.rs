//! A worker lane: its link to the front lane, the queue of its tasks, and the checks for tasks that
//! take too long.
//!
//! **Invariant:** no key delays another by more than one piece of a task. The key with the least
//! service for its weight goes first, and a task goes back to the queue after each piece.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::gettid;

use super::{Step, Transfer};
use crate::api::error::ApiError;
use crate::clock::{Clock, Micros, cpu_time};
use crate::fair::Line;
use crate::limits::WORK_MAX;
use crate::ring::bell::SocketBell;
use crate::ring::{self, FrontLink, LaneLink};
use crate::types::KeyId;

/// A piece of a task that takes longer than this is given up. If the lane still runs it after the
/// same time again, the process aborts.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// A task for a worker lane.
pub trait Task {
    /// The expected cost, to compare tasks of one lane.
    fn size(&self) -> usize;
}

/// A task on its way to a lane, or its answer on the way back.
pub struct Work<T> {
    /// The front lane's number for the task, from 1. It is 0 if nobody waits for the answer.
    pub ticket: u64,
    /// The key of the request.
    pub key: KeyId,
    /// The time after which nobody wants the answer.
    pub deadline: Option<Micros>,
    /// The task. `None` once it is done.
    pub task: Option<T>,
    /// The front lane sets this when it no longer waits for the answer.
    pub abandoned: Arc<AtomicBool>,
    /// The answer. `None` if the task was abandoned.
    pub result: Option<Answer>,
}

/// The answer of a worker lane. With [`Step::More`], the request goes to another lane.
pub type Answer = Result<Step<Transfer>, ApiError>;

impl<T: Task> Work<T> {
    fn size(&self) -> usize {
        self.task.as_ref().map_or(0, Task::size)
    }
}

/// The result of a piece of a task.
pub enum Outcome<T> {
    /// The answer.
    Done(Answer),
    /// The rest of the task, for the same lane.
    More(T),
}

/// The running task of a lane, for [`WorkerLink::watch`] on the front lane.
#[derive(Debug, Default)]
struct Pulse {
    /// The ticket of the task; 0 between two tasks.
    ticket: AtomicU64,
    /// The time at which the piece began, in microseconds.
    began: AtomicU64,
    /// The lane's processor time at that moment, in microseconds.
    cpu_began: AtomicU64,
    /// The kernel's id of the lane's thread.
    thread: AtomicI32,
}

/// The state of a thread, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadView {
    /// True if the thread runs, or waits only for a processor.
    pub is_runnable: bool,
    /// The processor time that the thread has had.
    pub cpu: Duration,
}

impl Pulse {
    fn begin(&self, ticket: u64, now: Micros) {
        self.began.store(now.0, Ordering::Relaxed);
        self.cpu_began.store(cpu_time().as_micros() as u64, Ordering::Relaxed); // years at most
        self.ticket.store(ticket, Ordering::Release);
    }

    fn end(&self) {
        self.ticket.store(0, Ordering::Release);
    }

    /// The ticket of the running task, and the time at which its piece began.
    fn running(&self) -> Option<(u64, Micros)> {
        let ticket = self.ticket.load(Ordering::Acquire);
        (ticket != 0).then(|| (ticket, Micros(self.began.load(Ordering::Relaxed))))
    }
}

/// The front lane's end of a link to a worker lane.
pub struct WorkerLink<T> {
    /// Sends tasks, and receives them with their answers.
    pub link: FrontLink<Work<T>>,
    pulse: Arc<Pulse>,
    /// The ticket of the last task that was given up, and the time at which it was given up.
    given_up: Option<(u64, Micros)>,
    /// The time for which tasks have waited although the lane ran none.
    rested: Duration,
}

impl<T> WorkerLink<T> {
    /// Checks whether the lane's task has run for longer than `WORK_TIMEOUT`. If so, returns its
    /// ticket once: the caller must give the task up. `passed` is the interval of these checks, and
    /// `look_at` gets a thread's state from the kernel. A runnable thread that has had less
    /// processor time than `WORK_TIMEOUT` is excused: other programs have the processors.
    ///
    /// # Panics
    /// If the lane still runs that task after the same time again, or has tasks and begins none for
    /// twice that time. It is stuck, and its requests would wait for ever.
    pub fn watch(
        &mut self,
        now: Micros,
        passed: Duration,
        look_at: impl Fn(i32) -> Option<ThreadView>,
    ) -> Option<u64> {
        let is_starved = || {
            let cpu_began = Duration::from_micros(self.pulse.cpu_began.load(Ordering::Relaxed));
            let thread = look_at(self.pulse.thread.load(Ordering::Relaxed));
            thread.is_some_and(|thread| {
                thread.is_runnable && thread.cpu.saturating_sub(cpu_began) < WORK_TIMEOUT
            })
        };
        let running = self.pulse.running();
        // The sum of intervals counts and not the clock: the whole process may have been stopped.
        let rests = running.is_none() && self.link.in_flight() > 0;
        let is_long = self.rested >= WORK_TIMEOUT; // each check of /proc takes time
        let rests = rests && !(is_long && is_starved());
        self.rested = if rests { self.rested + passed } else { Duration::ZERO };
        let rested = self.rested;
        assert!(rested < 2 * WORK_TIMEOUT, "requests wait, and none was prepared for {rested:.0?}");
        let (ticket, began) = running.filter(|(_, began)| now >= *began + WORK_TIMEOUT)?;
        if is_starved() {
            return None;
        }
        let elapsed = Duration::from_micros(now.since(began));
        // The time counts from the first check that found the task too long: the whole process may
        // have been stopped before.
        match self.given_up {
            Some((given_up, at)) if given_up == ticket => {
                assert!(
                    now < at + WORK_TIMEOUT,
                    "a request has been prepared for {elapsed:.0?} and cannot be given up"
                );
                None
            }
            _ => {
                tracing::error!("a request has been prepared for {elapsed:.0?}: it is given up");
                self.given_up = Some((ticket, now));
                Some(ticket)
            }
        }
    }
}

/// The lane's end of the link.
pub struct Worker<T> {
    link: LaneLink<Work<T>>,
    pulse: Arc<Pulse>,
    line: Line<Box<Work<T>>, WORK_MAX>,
    clock: Clock,
}

/// A link between the front lane and a worker lane. `front_bell` wakes the front lane; `weights`
/// has the weight of each key.
pub fn link<T>(
    front_bell: Arc<SocketBell>,
    weights: &[f64],
    clock: Clock,
) -> (WorkerLink<T>, Worker<T>) {
    let (front, link) = ring::link(WORK_MAX, front_bell, Duration::ZERO);
    let pulse = Arc::new(Pulse::default());
    let worker = Worker { link, pulse: pulse.clone(), line: Line::new(weights), clock };
    (WorkerLink { link: front, pulse, given_up: None, rested: Duration::ZERO }, worker)
}

impl<T: Task> Worker<T> {
    /// Does tasks until the front lane closes the link. `do_task` does one piece of a task.
    pub fn run(mut self, mut do_task: impl FnMut(T, &Wanted<'_>) -> Outcome<T>) {
        self.pulse.thread.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        loop {
            let first = if self.line.is_empty() { self.link.receive() } else { None };
            for work in first.into_iter().chain(std::iter::from_fn(|| self.link.try_receive())) {
                self.line.push(work.key, work.size(), work);
            }
            if self.link.is_closed() {
                return; // the clients of waiting tasks are already disconnected
            }
            let Some((number, mut work)) = self.line.pop() else { continue };
            if let Some(rest) = self.run_piece(&mut work, &mut do_task) {
                work.task = Some(rest);
                self.line.put_back(number, work.key, work.size(), work);
            } else {
                self.link.send(work);
            }
        }
    }

    /// Does a piece of a task, and charges its key with the time. Returns the rest of the task, if
    /// any.
    fn run_piece(
        &mut self,
        work: &mut Work<T>,
        do_task: &mut impl FnMut(T, &Wanted<'_>) -> Outcome<T>,
    ) -> Option<T> {
        let task = work.task.take().expect("it has not been done");
        let began = self.clock.now();
        self.pulse.begin(work.ticket, began);
        let wanted = Wanted {
            abandoned: &work.abandoned,
            is_closed: &|| self.link.is_closed(),
            deadline: Cell::new(work.deadline),
            clock: self.clock,
        };
        let outcome = if wanted.is_wanted() {
            Some(do_task(task, &wanted))
        } else {
            (!wanted.is_abandoned()).then(|| Outcome::Done(Err(ApiError::deadline())))
        };
        self.pulse.end();
        self.line.serve(work.key, self.clock.now().since(began) as f64);
        match outcome {
            Some(Outcome::More(rest)) => return Some(rest),
            Some(Outcome::Done(result)) => work.result = Some(result),
            None => {}
        }
        None
    }
}

/// Tells whether somebody still waits for a task.
pub struct Wanted<'a> {
    abandoned: &'a AtomicBool,
    is_closed: &'a dyn Fn() -> bool,
    deadline: Cell<Option<Micros>>,
    clock: Clock,
}

impl Wanted<'_> {
    /// False once the client has left, the deadline has passed or the front lane is gone.
    pub fn is_wanted(&self) -> bool {
        let in_time = |deadline| self.clock.now() < deadline;
        !self.is_abandoned() && self.deadline.get().is_none_or(in_time)
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed) || (self.is_closed)()
    }

    /// Adds a deadline that the lane found in the body. The earliest one counts.
    pub(super) fn ends(&self, deadline: Option<Micros>) {
        self.deadline.set(self.deadline.get().into_iter().chain(deadline).min());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::prepare::Texts;
    use crate::prepare::lane::PrepareTask;

    /// Sends tasks to a lane and returns them in the order in which it does them. A task is its key
    /// and its number of texts. The lane does one text at a time, in a millisecond.
    fn run(weights: &[f64], sent: &[(u16, usize)]) -> Vec<(u16, usize)> {
        let (bell, _socket) = SocketBell::new().unwrap();
        let (mut front, worker) = link(Arc::new(bell), weights, Metrics::default().clock);
        for (index, (key, texts)) in sent.iter().enumerate() {
            let texts = vec![Box::from([1]); *texts];
            let answer = Box::new(|_, _: &mut Vec<u8>| ());
            let texts = Texts { texts, vectors: Vec::new(), bytes: 0, answer, timeout: None };
            let work = Work {
                ticket: index as u64 + 1,
                key: KeyId::at(*key),
                deadline: None,
                task: Some(Box::new(texts)),
                abandoned: Arc::default(),
                result: None,
            };
            assert!(front.link.send(Box::new(work)).is_ok());
        }
        let lane = std::thread::spawn(move || {
            worker.run(|mut texts: Box<Texts>, _| {
                std::thread::sleep(Duration::from_millis(1));
                texts.vectors.push(Vec::new());
                if texts.tokens_left() > 0 {
                    return Outcome::More(texts);
                }
                Outcome::Done(Ok(Step::Embed(texts)))
            });
        });
        let mut done = Vec::new();
        while done.len() < sent.len() {
            let Some(work) = front.link.receive() else { continue };
            done.push(sent[work.ticket as usize - 1]);
        }
        drop(front);
        lane.join().unwrap();
        done
    }

    #[test]
    fn a_key_waits_for_one_piece_of_anothers_task_and_not_for_the_rest() {
        let mut sent = vec![(0, 40); 5];
        sent.push((1, 1));
        assert_eq!(run(&[1.0, 1.0], &sent)[0], (1, 1));
    }

    #[test]
    fn a_small_task_of_a_key_overtakes_its_large_ones() {
        let done = run(&[1.0], &[(0, 30), (0, 30), (0, 1)]);
        assert_eq!(done[0], (0, 1));
    }

    #[test]
    fn what_is_late_or_abandoned_is_not_begun() {
        let (bell, _socket) = SocketBell::new().unwrap();
        let (mut front, worker) = link(Arc::new(bell), &[1.0], Metrics::default().clock);
        for ticket in [1, 2] {
            let texts = Texts {
                texts: Vec::new(),
                vectors: Vec::new(),
                bytes: 0,
                answer: Box::new(|_, _| ()),
                timeout: None,
            };
            let work = Work {
                ticket,
                key: KeyId::at(0),
                deadline: (ticket == 1).then_some(Micros(0)),
                task: Some(Box::new(texts)),
                abandoned: Arc::new(AtomicBool::new(ticket == 2)),
                result: None,
            };
            assert!(front.link.send(Box::new(work)).is_ok());
        }
        let lane = std::thread::spawn(move || worker.run(|_, _| panic!("it is begun")));
        let mut results = [None, None];
        for _ in 0..2 {
            let work = loop {
                match front.link.receive() {
                    Some(work) => break work,
                    None => std::thread::yield_now(),
                }
            };
            results[work.ticket as usize - 1] = work.result.map(|result| result.err().unwrap());
        }
        drop(front);
        lane.join().unwrap();
        assert_eq!(results[0].as_ref().map(|error| error.status), Some(504));
        assert!(results[1].is_none());
    }

    /// A link to a lane that began a task at 0 and never reacts again.
    fn stuck() -> WorkerLink<PrepareTask> {
        let (bell, _socket) = SocketBell::new().unwrap();
        let (front, worker) = link(Arc::new(bell), &[1.0], Metrics::default().clock);
        worker.pulse.begin(7, Micros(0));
        front
    }

    #[test]
    fn a_task_that_runs_too_long_is_given_up_once() {
        let mut front = stuck();
        let blocked = |_| Some(ThreadView { is_runnable: false, cpu: Duration::ZERO });
        let starved = |_| Some(ThreadView { is_runnable: true, cpu: Duration::from_secs(1) });
        let busy = |_| Some(ThreadView { is_runnable: true, cpu: Duration::MAX });
        let mut watch = |now| front.watch(now, Duration::ZERO, blocked);
        let limit = Micros(0) + WORK_TIMEOUT;
        assert_eq!(watch(Micros(limit.0 - 1)), None);
        assert_eq!(watch(limit), Some(7));
        assert_eq!(watch(limit), None);
        // The lane began another task.
        front.pulse.begin(8, limit);
        let later = limit + WORK_TIMEOUT;
        assert_eq!(front.watch(later, Duration::ZERO, starved), None, "it gets no processor");
        assert_eq!(front.watch(later, Duration::ZERO, busy), Some(8));
        front.pulse.end();
        assert_eq!(front.watch(limit + 9 * WORK_TIMEOUT, Duration::ZERO, busy), None);
    }

    #[test]
    #[should_panic(expected = "cannot be given up")]
    fn a_lane_that_does_not_stop_ends_the_process() {
        let mut front = stuck();
        let limit = Micros(0) + WORK_TIMEOUT;
        assert_eq!(front.watch(limit, Duration::ZERO, |_| None), Some(7));
        front.watch(limit + WORK_TIMEOUT, Duration::ZERO, |_| None);
    }

    #[test]
    #[should_panic(expected = "none was prepared")]
    fn a_lane_that_begins_nothing_ends_the_process() {
        let (bell, _socket) = SocketBell::new().unwrap();
        let (mut front, _worker) =
            link::<PrepareTask>(Arc::new(bell), &[1.0], Metrics::default().clock);
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            assert_eq!(front.watch(Micros(0), second, |_| None), None, "it has nothing to do");
        }
        let work = Work {
            ticket: 1,
            key: KeyId::at(0),
            deadline: None,
            task: None,
            abandoned: Arc::default(),
            result: None,
        };
        assert!(front.link.send(Box::new(work)).is_ok());
        for _ in 0..1000 {
            front.watch(Micros(0), second, |_| None);
        }
    }
}
