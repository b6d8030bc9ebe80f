//! The worker lanes that prepare requests: the prepare lane and the embed lane. They take over work
//! that is too long for a turn of the front lane, which may take about a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use time::OffsetDateTime;

use super::{Envelope, Prepared, ServedModel, Texts};
use crate::api::error::ApiError;
use crate::api::route::Request;
use crate::constraint::Compiler;
use crate::limits::WORK_MAX;
use crate::ring::bell::SocketBell;
use crate::ring::{self, FrontLink, LaneLink};

/// A task for one of these lanes.
pub enum Task {
    /// For the prepare lane: a long body.
    Body(Envelope, Vec<u8>),
    /// For the prepare lane: a request that has something to compile.
    Request(Envelope, Request),
    /// For the embed lane: texts to embed.
    Embed(Box<Texts>),
}

/// The cost of compiling a constraint, counted as bytes of a body. The real cost is unknown before,
/// so prompts go first.
const COMPILING: usize = 1 << 20;

impl Task {
    /// The expected cost, to compare tasks of one lane.
    fn size(&self) -> usize {
        match self {
            Task::Body(_, body) => body.len(),
            Task::Request(..) => COMPILING,
            Task::Embed(texts) => texts.tokens(),
        }
    }
}

/// A task on its way to a lane, or its answer on the way back.
pub struct Work {
    /// The front lane's number for the task.
    pub ticket: u64,
    /// The task. `None` once it is done.
    pub task: Option<Task>,
    /// Set by the front lane when the client has disconnected.
    pub abandoned: Arc<AtomicBool>,
    /// The answer. `None` if the task was abandoned.
    pub result: Option<Result<Prepared, ApiError>>,
}

/// A link between the front lane and a worker lane. `front_bell` wakes the front lane.
pub fn link(front_bell: Arc<SocketBell>) -> (FrontLink<Work>, LaneLink<Work>) {
    ring::link(WORK_MAX, front_bell, Duration::ZERO)
}

/// Runs a lane: does tasks until the front lane closes the link.
///
/// `do_task` may ask whether the answer is still wanted, and stop if it is not.
pub fn run(
    mut link: LaneLink<Work>,
    mut do_task: impl FnMut(Task, &dyn Fn() -> bool) -> Result<Prepared, ApiError>,
) {
    // Alternate between the smallest task and the oldest one. A small task then waits for at most
    // one large task, and a large one still gets its turn.
    let mut oldest_next = false;
    let mut waiting = heapless::Vec::<Box<Work>, WORK_MAX>::new();
    loop {
        let first = if waiting.is_empty() { link.receive() } else { None };
        let more = std::iter::from_fn(|| link.try_receive());
        for work in first.into_iter().chain(more) {
            assert!(waiting.push(work).is_ok(), "the link holds no more than this");
        }
        if link.is_closed() {
            return; // the clients of waiting tasks are already disconnected
        }
        let size = |index: &usize| waiting[*index].task.as_ref().map_or(0, Task::size);
        let Some(smallest) = (0..waiting.len()).min_by_key(size) else { continue };
        let mut work = waiting.remove(if oldest_next { 0 } else { smallest });
        oldest_next = !oldest_next;
        let task = work.task.take().expect("it has not been done");
        let is_wanted = || !work.abandoned.load(Ordering::Relaxed) && !link.is_closed();
        let result = is_wanted().then(|| do_task(task, &is_wanted));
        work.result = result;
        link.send(work);
    }
}

/// Does a task of the prepare lane. Creates the compiler, which holds the whole vocabulary as a
/// tree, when the first constraint must be compiled.
pub fn prepare(
    task: Task,
    model: &ServedModel,
    compiler: &mut Option<Compiler>,
    now: OffsetDateTime,
) -> Result<Prepared, ApiError> {
    let (envelope, request) = match task {
        Task::Body(envelope, body) => (envelope, super::read(envelope.route, body)?),
        Task::Request(envelope, request) => (envelope, request),
        Task::Embed(_) => unreachable!("this is for the embed lane"),
    };
    if request.compiles() && compiler.is_none() {
        let made = Compiler::new(&model.vocab);
        let made = made.map_err(|reason| {
            ApiError::invalid(format!("this model's text cannot be constrained: {reason}"))
        });
        *compiler = Some(made?);
    }
    super::finish(request, &envelope, model, compiler.as_mut(), now)
}
