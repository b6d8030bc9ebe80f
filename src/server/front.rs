//! The state that the tasks of the front lane share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rtrb::Producer;

use super::control::Control;
use super::origins::Origins;
use super::places::Places;
use super::responses::Responses;
use super::service::{Service, ServiceParts};
use super::timers::Timers;
use crate::api::error::ApiError;
use crate::clock::{Clock, Micros};
use crate::engine::budget::Budget;
use crate::keys::Keys;
use crate::limits::{READ_BYTES, RESPONSES_SHARE};
use crate::metrics::{FrontMetrics, Metrics, ServerState};
use crate::page::File;
use crate::random::SplitMix64;
use crate::systemd::Watchdog;
use crate::traces::Span;
use crate::types::Io;

/// If the next server takes over the listening sockets, a drain waits this long for requests on
/// open connections. The time counts from a connection's last response, but not before the drain
/// began.
const HAND_OVER_TIME: Duration = Duration::from_millis(500);

/// The settings of the front lane.
pub struct FrontConfig {
    /// How it reads and writes its sockets.
    pub io: Io,
    /// Most open connections.
    pub connections: usize,
    /// Silence of a stream after which a comment (a ping) is sent; `None` sends none.
    pub ping_interval: Option<Duration>,
    /// Writes the content of `/metrics`, if this port shows it.
    pub metrics_page: Option<MetricsPage>,
    /// The files of the web page; none if it is off.
    pub page: &'static [File],
    /// Origins of web pages that may use the server, besides those of this machine; `*` is all.
    pub cors_origins: Vec<String>,
    /// Names to which a server without keys answers, besides `localhost`; `*` is all.
    pub allowed_hosts: Vec<String>,
    /// The memory for requests outside the KV cache.
    pub request_bytes: usize,
    /// The weight of each key.
    pub weights: Vec<f64>,
    /// Whether requests of all keys share the prefix cache.
    pub share_cache: bool,
    /// The longest time of a request. A request can set only a shorter one.
    pub request_timeout: Option<Duration>,
    /// The longest time of a step. A longer one is aborted.
    pub step_timeout: Duration,
    /// The time after the start of a drain in which running requests may finish.
    pub drain: Duration,
    /// The service manager keeps the listening sockets, and starts the next server on them.
    /// Connections that were accepted before a drain can then still send requests.
    pub hands_over: bool,
    /// Clients may save the texts of slots in files.
    pub saves_slots: bool,
    /// The service manager's watchdog.
    pub watchdog: Option<Watchdog>,
    /// Poll the rings while there is work, instead of sleeping between events.
    pub polls: bool,
    /// The seed of requests without one; `None` draws a seed for each of them.
    pub seed: Option<u64>,
    /// The seed of the generator that draws request ids and seeds.
    pub entropy: u64,
    /// The metrics, and the clock.
    pub metrics: Arc<Metrics>,
}

/// Writes the metrics in the text format of OpenMetrics.
pub type MetricsPage = fn(&Arc<Metrics>) -> String;

/// The state that the tasks of the front lane share, through `Rc`. Nothing in it is locked.
pub(super) struct Front {
    pub config: FrontConfig,
    pub control: Arc<Control>,
    /// The keys that this lane accepts. See [`Front::take_keys`].
    pub keys: RefCell<Arc<Keys>>,
    pub clock: Clock,
    pub timers: Timers,
    /// The loaded model; `None` while it loads.
    pub service: RefCell<Option<Service>>,
    /// A buffer that every connection reads into.
    pub read_buffer: RefCell<Box<[u8]>>,
    stage: Cell<Stage>,
    connections: Cell<usize>,
    /// The last time at which a connection began to wait for a request.
    rested: Cell<Micros>,
    /// Listening sockets on which connections are accepted.
    pub listening: Cell<usize>,
    /// Requests between their head and the last byte of their response.
    exchanges: Cell<usize>,
    /// The web pages that may use the server.
    pub origins: Origins,
    /// The places for connections.
    pub places: Rc<Places>,
    /// The memory of requests.
    pub budget: Rc<Budget>,
    /// The stored responses of the Responses API.
    pub responses: RefCell<Responses>,
    /// The ring to the lane that sends spans to a collector, if there is one.
    pub spans: RefCell<Option<Producer<Span>>>,
    entropy: Cell<u64>,
    /// Whether the engine's task must look at the engine.
    kicked: Cell<bool>,
    pub engine_waker: RefCell<Option<Waker>>,
}

/// The stages of the server: open, draining, closing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// It accepts requests.
    Open,
    /// It finishes running requests. The drain began at this time.
    Draining(Micros),
    /// The drain is over, and all connections end.
    Closing,
}

impl Front {
    pub fn new(
        config: FrontConfig,
        control: Arc<Control>,
        spans: Option<Producer<Span>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            entropy: Cell::new(config.entropy),
            origins: Origins::new(&config.cors_origins, &config.allowed_hosts),
            places: Places::new(config.connections),
            budget: Budget::new(config.request_bytes, &config.weights),
            responses: RefCell::new(Responses::new(
                config.request_bytes / RESPONSES_SHARE,
                &config.weights,
            )),
            spans: RefCell::new(spans),
            clock: config.metrics.clock,
            config,
            keys: RefCell::new(control.keys().clone()),
            control,
            timers: Timers::default(),
            service: RefCell::new(None),
            read_buffer: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            stage: Cell::new(Stage::Open),
            connections: Cell::new(0),
            rested: Cell::new(Micros(0)),
            listening: Cell::new(0),
            exchanges: Cell::new(0),
            kicked: Cell::new(false),
            engine_waker: RefCell::new(None),
        })
    }

    /// The counters of this lane.
    pub fn counters(&self) -> &FrontMetrics {
        &self.config.metrics.front
    }

    /// Stores the loaded model.
    pub fn load(&self, parts: ServiceParts) {
        self.service.replace(Some(Service::new(
            parts,
            self.config.metrics.clone(),
            &self.config.weights,
        )));
        if !self.is_draining() {
            self.counters().set_state(ServerState::Ready);
        }
    }

    /// Whether the keys have changed since [`Front::take_keys`].
    pub fn has_new_keys(&self) -> bool {
        !Arc::ptr_eq(&self.control.keys(), &self.keys.borrow())
    }

    /// Takes over changed keys. The data of removed keys is dropped before a request with a new key
    /// is accepted.
    pub fn take_keys(&self) {
        if !self.has_new_keys() {
            return;
        }
        let keys = self.control.keys().clone();
        let removed = keys.removed_since(&self.keys.replace(keys.clone()));
        removed.iter().for_each(|key| self.responses.borrow_mut().forget(*key));
        if let Some(service) = &mut *self.service.borrow_mut() {
            service.forget_keys(&removed, !self.config.share_cache, self.clock.now());
        }
        self.kick();
    }

    /// Whether each key may see the activity of all keys: there never was more than one tenant, or
    /// the operator has set `--share-cache`.
    pub fn shows_all(&self) -> bool {
        self.config.share_cache || self.keys.borrow().tenants() == 1
    }

    /// The error for all requests while the model loads, or during a drain if no other server takes
    /// over the sockets.
    pub fn unavailable(&self) -> Option<ApiError> {
        if self.is_draining() && !self.config.hands_over {
            return Some(ApiError::unavailable("the server is about to end", 5));
        }
        let loading = self.service.borrow().is_none();
        loading.then(|| ApiError::unavailable("the model is being loaded", 2))
    }

    /// Makes the engine's task look at the engine.
    pub fn kick(&self) {
        self.kicked.set(true);
        if let Some(waker) = self.engine_waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether [`Front::kick`] was called since the last call.
    pub fn take_kick(&self) -> bool {
        self.kicked.take()
    }

    /// Whether [`Front::kick`] was called.
    pub fn is_kicked(&self) -> bool {
        self.kicked.get()
    }

    /// Whether the engine has work.
    pub fn is_busy(&self) -> bool {
        self.service.borrow().as_ref().is_some_and(|service| service.engine.is_busy())
    }

    /// Whether texts still have to be written to the prefix store's files.
    fn has_to_write(&self, now: Micros) -> bool {
        self.service.borrow().as_ref().is_some_and(|service| service.engine.has_to_write(now))
    }

    /// Whether a drain has begun.
    pub fn is_draining(&self) -> bool {
        self.stage.get() != Stage::Open
    }

    /// Whether all connections must end at once.
    pub fn is_closing(&self) -> bool {
        self.stage.get() == Stage::Closing
    }

    /// Starts the drain, unless it has started already.
    pub fn begin_drain(&self, now: Micros) {
        if self.is_draining() {
            return;
        }
        tracing::info!("draining: no new requests");
        self.stage.set(Stage::Draining(now));
        self.counters().set_state(ServerState::Draining);
        self.timers.wake_all(); // idle connections close
    }

    /// Whether a drain is over: no request runs and nothing has to be written to the prefix store's
    /// files, or its time has passed.
    pub fn is_drained(&self, now: Micros) -> bool {
        let Stage::Draining(began) = self.stage.get() else { return false };
        let (elapsed, running) = (now.seconds_since(began), self.exchanges.get());
        let over = elapsed >= self.config.drain.as_secs_f64();
        let since_last = now.seconds_since(self.rested.get().max(began));
        if self.config.hands_over
            && (self.listening.get() > 0 || since_last < HAND_OVER_TIME.as_secs_f64())
        {
            return over; // requests may be on their way
        }
        if over && running > 0 {
            tracing::warn!("drained for {elapsed:.1} s: {running} requests are cut off");
        }
        over || (running == 0 && !self.has_to_write(now))
    }

    /// Ends every connection.
    pub fn close(&self) {
        self.stage.set(Stage::Closing);
        self.timers.wake_all();
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Notes that a connection begins to wait for a request.
    pub fn rests(&self, now: Micros) {
        self.rested.set(now);
    }

    /// Counts a new connection.
    pub fn opened(&self) {
        self.connections.set(self.connections.get() + 1);
        self.rests(self.clock.now());
        self.counters().connections.set(self.connections.get() as u64);
    }

    /// Counts the end of a connection.
    pub fn closed(&self) {
        let open = self.connections.get().checked_sub(1);
        self.connections.set(open.expect("one of 0 connections ended"));
        self.counters().connections.set(self.connections.get() as u64);
    }

    /// Counts a new request.
    pub fn exchange_began(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
    }

    /// Counts the end of a request.
    pub fn exchange_ended(&self) {
        let running = self.exchanges.get().checked_sub(1);
        self.exchanges.set(running.expect("one of 0 requests ended"));
        if self.is_draining() {
            self.kick();
        }
    }

    /// The next pseudo-random number: SplitMix64 over the lane's entropy.
    pub fn random(&self) -> u64 {
        let mut random = SplitMix64(self.entropy.get());
        let number = random.next_u64();
        self.entropy.set(random.0);
        number
    }

    /// A new request id.
    pub fn request_id(&self) -> String {
        format!("req-{:016x}", self.random())
    }
}
