//! The front lane: an executor that owns every socket, on io_uring or epoll ([`io`]).
//!
//! One task for each listening socket accepts connections, one task for each connection reads and
//! writes, one task runs the engine, and one checks timeouts. They share the state in `front`.
//!
//! **Invariant:** nothing here blocks, and no turn of the engine's task is longer than about 1 ms.

mod connection;
mod control;
mod front;
mod guards;
pub mod io;
pub mod kernel;
pub mod listener;
mod origins;
pub mod places;
mod polling;
pub mod responses;
mod service;
pub mod timers;
mod wake;

use std::cell::Cell;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::future;

use crate::clock::Micros;
use crate::constraint::stop_long_work;
use crate::limits::{REFUSING_TIME_MAX, SWEEP_INTERVAL};
use crate::memory::{allocated_bytes_on_this_thread, allocations_on_this_thread};
use crate::metrics::{FrontMetrics, ServerState};
use crate::traces::Span;
pub use control::Control;
use front::Front;
pub use front::{FrontConfig, MetricsPage};
use io::{Alarm, Stream, poll_sockets, sleep, spawn, yield_now};
use listener::{Accepting, Listener};
use places::Places;
use polling::Polling;
use service::Service;
pub use service::{ServiceParts, Workers};
use wake::remember;

/// Interval at which the polling engine task lets the executor check the sockets. On io_uring, operations go
/// to the kernel only then, and each check costs a dozen small allocations in glommio.
const LOOK_UP_EVERY: Duration = Duration::from_micros(50);

/// The front lane's links to clients and to other lanes.
pub struct FrontLinks {
    /// The sockets that it listens on.
    pub listeners: Vec<Listener>,
    /// The socket that becomes readable when another lane rings the front lane's bell.
    pub bell_socket: StdUnixStream,
    /// Receives the loaded model.
    pub ready: rtrb::Consumer<ServiceParts>,
    /// The ring to the lane that sends spans, if there is one.
    pub spans: Option<rtrb::Producer<Span>>,
}

/// Runs the front lane on the calling thread's executor, until drained.
pub async fn run(config: FrontConfig, control: Arc<Control>, links: FrontLinks) {
    let FrontLinks { listeners, bell_socket, ready, spans } = links;
    let front = Front::new(config, control, spans);
    let mut bell_socket = Stream::new(bell_socket.into());
    let (mut listeners, mut accepting) = (listeners, Accepting::default());
    spawn(sweep(front.clone())).detach();
    let polling = Polling::new(front.clock.now());
    let mut turns = EngineTask { front: front.clone(), ready, polling, alarm: Alarm::unset() };
    loop {
        turns.take();
        // On sockets of the service manager, clients wait in the kernel's queue until the model is
        // loaded.
        if !front.config.hands_over || front.service.borrow().is_some() {
            listeners.drain(..).for_each(|listener| accepting.start(&front, listener));
        }
        if front.is_draining() {
            accepting.stop(&front);
            if front.is_drained(front.clock.now()) {
                break;
            }
        }
        turns.wait(&mut bell_socket).await;
    }
    end(&front).await;
}

/// Closes open connections, and releases the other lanes, which then end.
async fn end(front: &Front) {
    front.close();
    front.control.abort.give_up_all(); // no request needs the step that still runs
    let began = front.clock.now();
    while front.connections() > 0 && front.clock.now().seconds_since(began) < 0.5 {
        sleep(Duration::from_millis(1)).await;
    }
    front.service.take();
    front.spans.take();
    count_allocations(front);
}

fn count_allocations(front: &Front) {
    front.counters().allocations.advance_to(allocations_on_this_thread());
    front.counters().allocated_bytes.advance_to(allocated_bytes_on_this_thread());
}

/// The task that runs the engine.
struct EngineTask {
    front: Rc<Front>,
    /// Receives the loaded model.
    ready: rtrb::Consumer<ServiceParts>,
    polling: Polling,
    /// Goes off when the engine must be called.
    alarm: Alarm,
}

impl EngineTask {
    /// Does all work that needs no waiting: takes the news of all lanes, and runs the engine once.
    fn take(&mut self) {
        let front = &self.front;
        front.control.bell.withdraw();
        front.take_kick();
        front.take_keys();
        if let Ok(ready) = self.ready.pop() {
            front.load(ready);
        }
        let now = front.clock.now();
        if let Some(service) = &mut *front.service.borrow_mut() {
            service.receive_work();
            service.engine.pump(now);
            service.answer_slots(now);
        }
        if front.control.is_draining() {
            front.begin_drain(now);
        }
        front.counters().request_bytes.set(front.budget.held() as u64);
        let took_us = front.clock.now().since(now);
        front.counters().tick_us.observe(took_us);
        if let Some(service) = &mut *front.service.borrow_mut() {
            service.engine.ticked(now, took_us);
        }
        count_allocations(front);
    }

    /// Waits until [`EngineTask::take`] has work.
    async fn wait(&mut self, socket: &mut Stream) {
        let front = self.front.clone();
        if front.config.polls {
            // If the lane has its core alone, it polls while the decode lane works, unless other
            // programs need the core. Between polls it lets other tasks run, and checks the
            // sockets.
            let mut looked_up = front.clock.now();
            while front.is_busy() && self.polling.is_fine(front.clock.now()) {
                if self.has_news() || self.plan_is_due_in() == Some(Duration::ZERO) {
                    return;
                }
                let now = front.clock.now();
                if now.since(looked_up) < LOOK_UP_EVERY.as_micros() as u64 {
                    yield_now().await;
                } else {
                    poll_sockets().await;
                    looked_up = now;
                }
            }
        }
        self.alarm.set(self.plan_is_due_in());
        future::poll_fn(|cx| {
            front.control.bell.announce();
            if self.has_news() {
                return Poll::Ready(());
            }
            if self.alarm.poll(cx).is_ready() {
                return Poll::Ready(());
            }
            remember(&mut front.engine_waker.borrow_mut(), cx);
            // Any byte is a wake-up. The socket stays open as long as this lane.
            let mut bytes = [0; 64];
            socket.poll_read(cx, &mut bytes).map(|_| ())
        })
        .await;
    }

    /// The time until the engine must be called; `None` if it need not be.
    fn plan_is_due_in(&self) -> Option<Duration> {
        let at = self.front.service.borrow().as_ref()?.engine.wake_at()?;
        Some(Duration::from_micros(at.0.saturating_sub(self.front.clock.now().0)))
    }

    fn has_news(&self) -> bool {
        let front = &self.front;
        front.is_kicked()
            || !self.ready.is_empty()
            || front.has_new_keys()
            || (front.control.is_draining() && !front.is_draining())
            || front.service.borrow_mut().as_mut().is_some_and(Service::has_news)
    }
}

/// Checks timeouts, the end of a drain, and faults, every [`SWEEP_INTERVAL`]. Without connections
/// and without a drain, it wakes up once a second.
///
/// # Panics
/// If the books of connections are wrong, or if a lane is stuck.
async fn sweep(front: Rc<Front>) {
    let (given_up, mut fed) = (Cell::new(None), Micros(0));
    while !front.is_closing() {
        let idle = front.connections() == 0 && !front.is_draining();
        sleep(if idle { Duration::from_secs(1) } else { SWEEP_INTERVAL }).await;
        front.timers.expire(front.clock.now());
        front.places.check(front.connections());
        let is_stuck = watch_places(&front.places, front.counters());
        front.counters().request_bytes.set(front.budget.held() as u64);
        watch_step(&front, &given_up);
        if let Some(watchdog) = &front.config.watchdog {
            let now = front.clock.now();
            if !is_stuck && now.since(fed) >= watchdog.every.as_micros() as u64 {
                watchdog.feed();
                fed = now;
            }
        }
        if let Some(service) = &mut *front.service.borrow_mut() {
            service.watch_work(front.clock.now(), SWEEP_INTERVAL);
            service.engine.watch_masks(SWEEP_INTERVAL);
            stop_long_work(|thread| Some(kernel::look_at(thread)?.cpu));
        }
        if front.is_draining() {
            front.kick();
        }
    }
}

/// Returns whether every request is refused because no place is free. Such a server reports that it
/// is not healthy, and does not feed its watchdog, so that a supervisor restarts it.
fn watch_places(places: &Places, counters: &FrontMetrics) -> bool {
    let is_stuck = places.is_stuck();
    match (is_stuck, counters.state()) {
        (true, ServerState::Ready) => {
            counters.set_state(ServerState::Stuck);
            tracing::error!(
                "no request runs, and for {REFUSING_TIME_MAX:.0?} every request has been refused \
                 because no connection gets a place"
            );
        }
        (false, ServerState::Stuck) => counters.set_state(ServerState::Ready),
        _ => {}
    }
    is_stuck
}

/// Aborts a step that takes too long. If that does not help, ends the process: a server that
/// accepts requests and never answers is worse than none. `given_up` holds the number of the
/// aborted step and the time of the abort.
///
/// # Panics
/// If the decode lane is stuck.
fn watch_step(front: &Front, given_up: &Cell<Option<(u64, Micros)>>) {
    let step = front.service.borrow().as_ref().and_then(|service| service.engine.running_step());
    let Some((step, began)) = step else { return };
    let (now, limit) = (front.clock.now(), front.config.step_timeout);
    let elapsed = Duration::from_micros(now.since(began));
    if elapsed < limit {
        return;
    }
    // The time for the abort counts from the first check that found the step too long, not from the
    // step's start: the whole process may have been stopped meanwhile.
    match given_up.get() {
        Some((given_up, at)) if given_up == step => assert!(
            now.since(at) < limit.as_micros() as u64, // limits are at most a day
            "a step of the model has run for {elapsed:.0?} and cannot be given up"
        ),
        _ => {
            tracing::error!("a step of the model has run for {elapsed:.0?}: it is given up");
            given_up.set(Some((step, now)));
            front.control.abort.give_up(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::metrics::Metrics;

    #[test]
    fn a_server_that_refuses_everything_is_not_healthy() {
        let (places, metrics) = (Places::new(1), Metrics::new(Clock::start(), []));
        let counters = &metrics.front;
        counters.set_state(ServerState::Ready);
        let busy = places.take([127, 0, 0, 1].into(), Default::default(), false, Micros(0));
        let busy = busy.expect("there is a place");
        assert!(busy.work());
        for now in [Micros(0), Micros(0) + REFUSING_TIME_MAX] {
            places.refused(now);
            assert!(!watch_places(&places, counters), "it is only busy");
        }
        drop(busy);
        for (now, is_stuck) in [(Micros(0), false), (Micros(0) + REFUSING_TIME_MAX, true)] {
            places.refused(now);
            assert_eq!(watch_places(&places, counters), is_stuck);
        }
        assert_eq!(counters.state(), ServerState::Stuck);
        let _new = places.take([127, 0, 0, 1].into(), Default::default(), false, Micros(0));
        assert!(!watch_places(&places, counters));
        assert_eq!(counters.state(), ServerState::Ready);
    }
}
