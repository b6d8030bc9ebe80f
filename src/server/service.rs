//! The loaded model, as the front lane serves it: the engine, and the links to the lanes that
//! prepare requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use super::kernel;
use crate::api::asked::Request;
use crate::api::error::ApiError;
use crate::clock::Micros;
use crate::engine::Engine;
use crate::fair::Quota;
use crate::limits::WORK_MAX;
use crate::metrics::Metrics;
use crate::prepare::lane::{Task, Work, WorkerLink};
use crate::prepare::{Lane, Prepared, ServedModel};
use crate::ring::FrontLink;
use crate::ring::message::{Batch, MaskTask};
use crate::scheduler::Capacity;
use crate::types::KeyId;

/// The loaded model, with all parts that the front lane needs to serve it.
pub struct ServiceParts {
    /// The model.
    pub model: Arc<ServedModel>,
    /// The capacity of the decode lane.
    pub capacity: Capacity,
    /// The link to the decode lane.
    pub decode: FrontLink<Batch>,
    /// The link to the mask lane.
    pub masks: FrontLink<MaskTask>,
    /// The links to the worker lanes.
    pub workers: Workers,
}

/// The links to the worker lanes.
pub struct Workers {
    /// To the prepare lane for short texts.
    pub short: WorkerLink,
    /// To the prepare lane for long texts.
    pub long: WorkerLink,
    /// To the prepare lane that compiles cheap constraints.
    pub compile: WorkerLink,
    /// To the prepare lane that tries and compiles all other constraints.
    pub trial: WorkerLink,
    /// To the embed lane, if there is one.
    pub embed: Option<WorkerLink>,
}

impl Workers {
    fn all(&mut self) -> impl Iterator<Item = &mut WorkerLink> {
        let Self { short, long, compile, trial, embed } = self;
        [short, long, compile, trial].into_iter().chain(embed)
    }
}

/// The loaded model, with the engine and the lanes' links.
pub(super) struct Service {
    pub model: Arc<ServedModel>,
    pub engine: Engine,
    workers: Workers,
    /// The keys' places at all worker lanes together.
    places: Quota,
    waiting: Vec<Waiting>,
    last_ticket: u64,
}

/// A connection that waits for a worker lane.
struct Waiting {
    ticket: u64,
    key: KeyId,
    slot: WorkSlot,
    abandoned: Arc<AtomicBool>,
}

/// The cell in which a connection finds a lane's answer.
pub(super) type WorkSlot = Rc<RefCell<WorkState>>;

#[derive(Default)]
pub(super) struct WorkState {
    pub result: Option<Result<Prepared, ApiError>>,
    pub waker: Option<Waker>,
}

impl WorkState {
    fn answer(&mut self, result: Result<Prepared, ApiError>) {
        self.result = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Service {
    pub fn new(parts: ServiceParts, metrics: Arc<Metrics>, weights: &[f64]) -> Self {
        let ServiceParts { model, capacity, decode, masks, workers } = parts;
        let mut engine = Engine::new(model.vocab.clone(), capacity, decode, masks, metrics);
        engine.calibrate(&model.calibration);
        let places = Quota::new(WORK_MAX, weights);
        Self { engine, model, workers, places, waiting: Vec::new(), last_ticket: 0 }
    }

    /// Whether a lane has sent something back.
    pub fn has_news(&mut self) -> bool {
        self.engine.is_ready() || self.workers.all().any(|worker| worker.link.is_ready())
    }

    /// Passes the answers of the worker lanes to their connections.
    pub fn receive_work(&mut self) {
        let Self { workers, places, waiting, .. } = self;
        let mut unwanted = Vec::new();
        let receive = || workers.all().find_map(|worker| worker.link.receive());
        for work in std::iter::from_fn(receive) {
            places.give(work.key, 1);
            let Some(result) = work.result else { continue }; // it was abandoned
            if let Some(index) = waiting.iter().position(|one| one.ticket == work.ticket) {
                waiting.swap_remove(index).slot.borrow_mut().answer(result);
            } else if let Ok(Prepared::Request(transfer)) = result {
                unwanted.push((transfer.request, work.key));
            }
        }
        for (request, key) in unwanted {
            self.discard(request, key);
        }
    }

    /// Sends a task to a prepare lane, or texts to the embed lane. After the deadline the lane does
    /// not begin it.
    ///
    /// # Errors
    /// 429 if the key has as many tasks at the lanes as it may. The refused request is freed on a
    /// lane.
    pub fn send_task(
        &mut self,
        task: Task,
        lane: Lane,
        key: KeyId,
        deadline: Option<Micros>,
    ) -> Result<WorkSlot, ApiError> {
        if !self.places.has_room(key, 1) {
            let (held, limit) = (self.places.held_by(key), self.places.most(key));
            let message = format!(
                "{held} requests of this key are being prepared; at most {limit} may while other \
                 keys leave room; try again soon"
            );
            if let Task::Request(_, request) = task {
                self.discard(request, key);
            }
            return Err(ApiError::busy(message, 1));
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let abandoned = Arc::new(AtomicBool::new(false));
        let Workers { short, long, compile, trial, embed } = &mut self.workers;
        let worker = match (&task, lane) {
            (Task::Embed(_), _) => embed.as_mut().expect("texts are prepared only for it"),
            (_, Lane::Short) => short,
            (_, Lane::Long) => long,
            (_, Lane::Compile) => compile,
            (_, Lane::Trial) => trial,
        };
        let abandoned_there = abandoned.clone();
        let task = Some(task);
        let work = Work { ticket, key, deadline, task, abandoned: abandoned_there, result: None };
        assert!(worker.link.send(Box::new(work)).is_ok(), "a link has as many places");
        self.places.take(key, 1);
        let slot = WorkSlot::default();
        self.waiting.push(Waiting { ticket, key, slot: slot.clone(), abandoned });
        Ok(slot)
    }

    /// Frees an unwanted request on a lane: its memory may be a million allocations, too many for
    /// the front lane.
    pub fn discard(&mut self, request: Box<Request>, key: KeyId) {
        let work = Work {
            ticket: 0,
            key,
            deadline: None,
            task: Some(Task::Waste(request)),
            abandoned: Arc::default(),
            result: None,
        };
        // Without a place on the link, it is freed here.
        if self.workers.long.link.send(Box::new(work)).is_ok() {
            self.places.take(key, 1);
        }
    }

    /// Abandons a task whose client no longer waits. Does nothing if the task is done.
    pub fn abandon(&mut self, slot: &WorkSlot) {
        let index = self.waiting.iter().position(|waiting| Rc::ptr_eq(&waiting.slot, slot));
        if let Some(index) = index {
            let waiting = self.waiting.swap_remove(index);
            waiting.abandoned.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the requests of removed keys that are being prepared, and forgets the keys in the
    /// engine. See [`Engine::forget_keys`].
    pub fn forget_keys(&mut self, keys: &[KeyId], has_own_cache: bool, now: Micros) {
        for gone in self.waiting.extract_if(.., |waiting| keys.contains(&waiting.key)) {
            gone.abandoned.store(true, Ordering::Relaxed);
            gone.slot.borrow_mut().answer(Err(ApiError::key_removed()));
        }
        self.engine.forget_keys(keys, has_own_cache, now);
    }

    /// Gives up tasks that have run for too long: their clients get an error, and the lane stops at
    /// its next check. `passed` is the time since the last call.
    ///
    /// # Panics
    /// If a lane does not stop; see [`WorkerLink::watch`].
    pub fn watch_work(&mut self, now: Micros, passed: Duration) {
        let Self { workers, waiting, .. } = self;
        for ticket in workers.all().filter_map(|worker| worker.watch(now, passed, kernel::look_at))
        {
            let Some(index) = waiting.iter().position(|one| one.ticket == ticket) else { continue };
            let waiting = waiting.swap_remove(index);
            waiting.abandoned.store(true, Ordering::Relaxed);
            let message = "preparing the request took too long; send less at once";
            waiting.slot.borrow_mut().answer(Err(ApiError::internal(message)));
        }
    }
}
