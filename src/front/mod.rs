//! The front lane: a glommio executor that owns every socket, and composes
//! the stages: HTTP, dialects, scheduler, text.
//!
//! One task accepts, one task for each connection reads and writes, one task
//! runs the engine, and one looks for passed timeouts while there are
//! connections. They share [`Front`] through `Rc`; nothing in it is locked.
//!
//! **Invariant:** nothing here blocks, and no tick is longer than about 1 ms.

pub mod connection;
pub mod engine;
pub mod exchange;
pub mod forecast;
pub mod kernel;
pub mod listener;
mod pace;
pub mod prepare;
mod prompt;
mod resolve;
mod timers;
mod times;
pub mod work;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::{AsyncRead, future};
use glommio::net::TcpStream;
use glommio::timer::{Timer, sleep};

use crate::api::error::ApiError;
use crate::clock::{Clock, Micros};
use crate::config::ApiKey;
use crate::limits::{LOOK_UP, LOOK_UP_EVERY, READ_BYTES, SWEEP_INTERVAL};
use crate::memory::allocations_on_this_thread;
use crate::metrics::{FrontMetrics, Metrics, State};
use crate::ring::FrontLink;
use crate::ring::bell::SocketBell;
use crate::scheduler::Capacity;
use engine::Engine;
use prepare::{Prepared, Serving};
use timers::Timers;
use work::{Job, Work, WorkLink};

/// What the front lane is told at its start.
pub struct FrontConfig {
    /// Keys that clients must give one of; none lets everybody in.
    pub keys: Vec<ApiKey>,
    /// How long a request may take that does not say so itself.
    pub request_timeout: Option<Duration>,
    /// How long a step may take before it is given up.
    pub step_timeout: Duration,
    /// How long running requests may take to finish after a drain began.
    pub drain: Duration,
    /// Poll the rings while there is work, instead of sleeping between events.
    pub polls: bool,
    /// Where request ids and default seeds begin.
    pub entropy: u64,
    /// Where to count, and the clock.
    pub metrics: Arc<Metrics>,
}

/// What other lanes tell the front lane.
pub struct Control {
    /// Wakes the front lane.
    pub bell: Arc<SocketBell>,
    /// Makes the decode lane give up the step that it runs.
    pub abort_step: Arc<AtomicBool>,
    draining: AtomicBool,
}

impl Control {
    /// A control over the front lane that `bell` wakes.
    pub fn new(bell: Arc<SocketBell>) -> Self {
        Self { bell, abort_step: Arc::default(), draining: AtomicBool::new(false) }
    }

    /// Stop accepting; finish what runs; end.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// True after [`Control::drain`].
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

/// The model is loaded: everything that the front lane needs to serve it.
pub struct Ready {
    /// What is served.
    pub serving: Arc<Serving>,
    /// The room there is.
    pub capacity: Capacity,
    /// The link to the decode lane.
    pub link: FrontLink,
    /// The link to the prepare lane.
    pub prepare: WorkLink,
    /// The link to the embed lane, if there is one.
    pub embed: Option<WorkLink>,
}

/// What the tasks of the front lane share.
pub struct Front {
    config: FrontConfig,
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    clock: Clock,
    loaded: RefCell<Option<Loaded>>,
    /// When the step that was given up began, and when that was.
    given_up: Cell<Option<(Micros, Micros)>>,
    timers: Timers,
    /// Scratch that every connection reads into.
    read_buffer: RefCell<Box<[u8]>>,
    draining: Cell<bool>,
    drain_began: Cell<Micros>,
    /// The drain is over: connections end wherever they are.
    closing: Cell<bool>,
    connections: Cell<usize>,
    /// Requests between their head and the last byte of their response.
    exchanges: Cell<usize>,
    body_bytes: Cell<usize>,
    entropy: Cell<u64>,
    /// Somebody changed what the engine should do.
    kicked: Cell<bool>,
    engine_waker: RefCell<Option<Waker>>,
}

/// What exists once the model is loaded.
struct Loaded {
    serving: Arc<Serving>,
    engine: Engine,
    prepare: WorkLink,
    embed: Option<WorkLink>,
    working: Vec<Working>,
    next_ticket: u64,
}

/// A connection that waits for the prepare lane or the embed lane.
struct Working {
    ticket: u64,
    slot: WorkSlot,
    abandoned: Arc<AtomicBool>,
}

/// Where a lane's answer is left for its connection.
type WorkSlot = Rc<RefCell<WorkState>>;

#[derive(Default)]
struct WorkState {
    result: Option<Result<Prepared, ApiError>>,
    waker: Option<Waker>,
}

/// Runs the front lane on the calling thread's executor, until drained.
pub async fn run(
    config: FrontConfig,
    control: Arc<Control>,
    listener: std::net::TcpListener,
    bell_socket: StdUnixStream,
    mut ready: rtrb::Consumer<Ready>,
) {
    let front = Rc::new(Front {
        entropy: Cell::new(config.entropy),
        metrics: config.metrics.clone(),
        clock: config.metrics.clock,
        config,
        control,
        loaded: RefCell::new(None),
        given_up: Cell::new(None),
        timers: Timers::default(),
        read_buffer: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
        draining: Cell::new(false),
        drain_began: Cell::new(Micros(0)),
        closing: Cell::new(false),
        connections: Cell::new(0),
        exchanges: Cell::new(0),
        body_bytes: Cell::new(0),
        kicked: Cell::new(false),
        engine_waker: RefCell::new(None),
    });
    // A stream socket is a stream socket: glommio makes only its TcpStream from
    // one that exists already.
    let mut bell_socket = TcpStream::from(socket2::Socket::from(bell_socket));
    let mut accepting = Some(listener::start(&front, listener));
    glommio::spawn_local(sweep(front.clone())).detach();
    loop {
        front.tick(&mut ready);
        if front.draining.get() {
            drop(accepting.take()); // closes the listening socket
            if front.is_drained() {
                break;
            }
        }
        front.wait(&mut bell_socket, &ready).await;
    }
    front.end().await;
}

impl Front {
    /// Cuts off what is still open, and lets go of the other lanes, which end
    /// when they have nobody to work for.
    async fn end(&self) {
        self.closing.set(true);
        self.timers.wake_all();
        let began = self.clock.now();
        while self.connections.get() > 0 && self.clock.now().seconds_since(began) < 0.5 {
            sleep(Duration::from_millis(1)).await;
        }
        self.loaded.take();
        self.counters().allocations.advance_to(allocations_on_this_thread());
    }

    /// Does all that can be done now without waiting.
    fn tick(&self, ready: &mut rtrb::Consumer<Ready>) {
        self.control.bell.withdraw();
        self.kicked.set(false);
        if let Ok(ready) = ready.pop() {
            self.load(ready);
        }
        let now = self.clock.now();
        if let Some(loaded) = &mut *self.loaded.borrow_mut() {
            loaded.receive_work();
            loaded.engine.pump(now);
        }
        if self.control.is_draining() && !self.draining.replace(true) {
            tracing::info!("draining: no new requests");
            self.counters().set_state(State::Draining);
            self.drain_began.set(now);
            self.timers.wake_all(); // idle connections close
        }
        self.counters().tick_us.observe(self.clock.now().since(now));
        self.counters().allocations.advance_to(allocations_on_this_thread());
    }

    fn load(&self, ready: Ready) {
        let Ready { serving, capacity, link, prepare, embed } = ready;
        let engine = Engine::new(serving.clone(), capacity, link, self.metrics.clone());
        let (working, next_ticket) = (Vec::new(), 0);
        let loaded = Loaded { engine, serving, prepare, embed, working, next_ticket };
        self.loaded.replace(Some(loaded));
        if !self.draining.get() {
            self.counters().set_state(State::Ready);
        }
    }

    /// Where this lane counts.
    fn counters(&self) -> &FrontMetrics {
        &self.metrics.front
    }

    /// A connection was opened.
    fn opened(&self) {
        self.connections.set(self.connections.get() + 1);
        self.counters().connections.set(self.connections.get() as u64);
    }

    /// A connection was closed.
    fn closed(&self) {
        self.connections.set(self.connections.get() - 1);
        self.counters().connections.set(self.connections.get() as u64);
    }

    /// Waits until [`Front::tick`] has something to do.
    async fn wait(&self, socket: &mut TcpStream, ready: &rtrb::Consumer<Ready>) {
        if self.config.polls {
            // On a core of its own the lane never sleeps while the decode lane
            // works; it lets the other tasks and the sockets have their turn.
            let mut looked_up = self.clock.now();
            while self.is_busy() {
                if self.has_news(ready) || self.plan_is_due_in() == Some(Duration::ZERO) {
                    return;
                }
                let now = self.clock.now();
                if now.since(looked_up) < LOOK_UP_EVERY.as_micros() as u64 {
                    glommio::executor().yield_task_queue_now().await;
                } else {
                    look_up().await;
                    looked_up = now;
                }
            }
        }
        let mut plan = self.plan_is_due_in().map(Timer::new);
        future::poll_fn(|cx| {
            self.control.bell.announce();
            if self.has_news(ready) {
                return Poll::Ready(());
            }
            if let Some(timer) = &mut plan
                && Pin::new(timer).poll(cx).is_ready()
            {
                return Poll::Ready(());
            }
            remember(&mut self.engine_waker.borrow_mut(), cx);
            // Any byte is a wake-up; an end would be our own doing.
            let mut bytes = [0; 64];
            Pin::new(&mut *socket).poll_read(cx, &mut bytes).map(|_| ())
        })
        .await;
    }

    /// How long until the next step should be planned, if one should.
    fn plan_is_due_in(&self) -> Option<Duration> {
        let at = self.loaded.borrow().as_ref()?.engine.wake_at()?;
        Some(Duration::from_micros(at.0.saturating_sub(self.clock.now().0)))
    }

    fn has_news(&self, ready: &rtrb::Consumer<Ready>) -> bool {
        let loaded = self.loaded.borrow();
        self.kicked.get()
            || !ready.is_empty()
            || (self.control.is_draining() && !self.draining.get())
            || loaded.as_ref().is_some_and(|l| l.engine.is_ready() || l.has_worked())
    }

    fn is_busy(&self) -> bool {
        self.loaded.borrow().as_ref().is_some_and(|loaded| loaded.engine.is_busy())
    }

    /// The engine has something to look at.
    fn kick(&self) {
        self.kicked.set(true);
        if let Some(waker) = self.engine_waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// A drain has ended: nothing runs any more, or the time is over.
    fn is_drained(&self) -> bool {
        let elapsed = self.clock.now().seconds_since(self.drain_began.get());
        let over = elapsed >= self.config.drain.as_secs_f64();
        if over && self.exchanges.get() > 0 {
            tracing::warn!(
                "drained for {elapsed:.1} s: {} requests are cut off",
                self.exchanges.get()
            );
        }
        over || self.exchanges.get() == 0
    }

    /// The next pseudo-random number: SplitMix64 over the lane's entropy.
    fn random(&self) -> u64 {
        let state = self.entropy.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.entropy.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Why no request is served now, if so.
    fn unavailable(&self) -> Option<ApiError> {
        if self.draining.get() {
            return Some(ApiError::unavailable("the server is about to end", 5));
        }
        let loading = self.loaded.borrow().is_none();
        loading.then(|| ApiError::unavailable("the model is being loaded", 2))
    }
}

impl Loaded {
    /// A lane has something to give back.
    fn has_worked(&self) -> bool {
        self.prepare.is_ready() || self.embed.as_ref().is_some_and(WorkLink::is_ready)
    }

    fn receive_work(&mut self) {
        let Self { prepare, embed, working, .. } = self;
        let mut receive = || prepare.receive().or_else(|| embed.as_mut()?.receive());
        while let Some(job) = receive() {
            let waiting = working.iter().position(|w| w.ticket == job.ticket);
            let Some(index) = waiting else { continue }; // its client has left
            let slot = working.swap_remove(index).slot;
            let mut state = slot.borrow_mut();
            state.result = job.result;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Sends work to the lane that does it.
    fn send_work(&mut self, work: Work) -> Result<WorkSlot, ApiError> {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let abandoned = Arc::new(AtomicBool::new(false));
        let lane = match (&work, &mut self.embed) {
            (Work::Embed(_), Some(embed)) => embed,
            _ => &mut self.prepare,
        };
        let work = Some(work);
        let job = Job { ticket, work, abandoned: abandoned.clone(), result: None };
        lane.send(Box::new(job)).map_err(|_| {
            ApiError::busy("too many long requests are being worked on; try again soon", 1)
        })?;
        let slot = WorkSlot::default();
        self.working.push(Working { ticket, slot: slot.clone(), abandoned });
        Ok(slot)
    }

    /// Nobody waits for this any more. Does nothing when it is done.
    fn abandon(&mut self, slot: &WorkSlot) {
        let waiting = self.working.iter().position(|w| Rc::ptr_eq(&w.slot, slot));
        if let Some(index) = waiting {
            let working = self.working.swap_remove(index);
            working.abandoned.store(true, Ordering::Relaxed);
        }
    }
}

/// Looks for passed timeouts while there are connections, and for the end of a
/// drain. Without either it costs a wake-up in a second.
async fn sweep(front: Rc<Front>) {
    while !front.closing.get() {
        let idle = front.connections.get() == 0 && !front.draining.get();
        sleep(if idle { Duration::from_secs(1) } else { SWEEP_INTERVAL }).await;
        front.timers.expire(front.clock.now());
        front.watch_step();
        if front.draining.get() {
            front.kick();
        }
    }
}

impl Front {
    /// Gives up a step that takes too long; and if that does not help, ends the
    /// process: a server that accepts and does not answer is worse than none.
    ///
    /// # Panics
    /// When the decode lane is stuck.
    fn watch_step(&self) {
        let began = self.loaded.borrow().as_ref().and_then(|loaded| loaded.engine.step_began());
        let Some(began) = began else { return };
        let (now, limit) = (self.clock.now(), self.config.step_timeout);
        let elapsed = Duration::from_micros(now.since(began));
        if elapsed < limit {
            return;
        }
        // The time from the first look that found it too long counts: this process may
        // have been stopped, too.
        match self.given_up.get() {
            Some((step, at)) if step == began => assert!(
                now.since(at) < limit.as_micros() as u64, // a day at most
                "a step of the model has run for {elapsed:.0?} and cannot be given up"
            ),
            _ => {
                tracing::error!("a step of the model has run for {elapsed:.0?}: it is given up");
                self.given_up.set(Some((began, now)));
                self.control.abort_step.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Lets the other tasks run, and the lane look at its sockets and the decode lane: all
/// that glommio does when no task is left that can run.
async fn look_up() {
    Timer::new(LOOK_UP).await;
}

/// Stores the task's waker, without cloning it again when it is there already.
fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *place = Some(cx.waker().clone()),
    }
}
