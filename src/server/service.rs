//! The loaded model, as the front lane serves it: the engine, and the links to the lanes that
//! prepare requests.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use super::kernel;
use crate::api::asked::Request;
use crate::api::error::ApiError;
use crate::api::llama::slots;
use crate::clock::Micros;
use crate::engine::{Engine, SlotAnswer};
use crate::fair::Quota;
use crate::limits::{SLOT_TASKS_MAX, WORK_MAX};
use crate::metrics::Metrics;
use crate::prepare::lane::PrepareTask;
use crate::prepare::worker::{Answer, Work, WorkerLink};
use crate::prepare::{Lane, Prepared, ServedModel, Step, Texts};
use crate::ring::FrontLink;
use crate::ring::files::FileTask;
use crate::ring::message::{Batch, MaskTask};
use crate::scheduler::{Capacity, SlotTask};
use crate::types::{CacheScope, KeyId, SlotAction, SlotId};

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
    /// The link to the disk lane, if there is one.
    pub files: Option<FrontLink<FileTask>>,
    /// The links to the worker lanes.
    pub workers: Workers,
}

/// The links to the worker lanes.
pub struct Workers {
    /// To the prepare lane for short texts.
    pub short: WorkerLink<PrepareTask>,
    /// To the prepare lane for long texts.
    pub long: WorkerLink<PrepareTask>,
    /// To the prepare lane that compiles cheap constraints.
    pub compile: WorkerLink<PrepareTask>,
    /// To the prepare lane that tries and compiles all other constraints.
    pub trial: WorkerLink<PrepareTask>,
    /// To the embed lane, if there is one.
    pub embed: Option<WorkerLink<Box<Texts>>>,
}

impl Workers {
    fn prepare_lanes(&mut self) -> [&mut WorkerLink<PrepareTask>; 4] {
        let Self { short, long, compile, trial, embed: _ } = self;
        [short, long, compile, trial]
    }

    /// Whether a lane has sent something back.
    fn is_ready(&mut self) -> bool {
        self.prepare_lanes().iter().any(|lane| lane.link.is_ready())
            || self.embed.as_ref().is_some_and(|lane| lane.link.is_ready())
    }

    /// Takes the next task that came back: its ticket, its key, and its answer unless it was
    /// abandoned.
    fn receive(&mut self) -> Option<(u64, KeyId, Option<Answer>)> {
        let prepared = self.prepare_lanes().into_iter().find_map(|lane| lane.link.receive());
        if let Some(work) = prepared {
            return Some((work.ticket, work.key, work.result));
        }
        let work = self.embed.as_mut()?.link.receive()?;
        Some((work.ticket, work.key, work.result))
    }

    /// The tickets of the tasks that must be given up; see [`WorkerLink::watch`].
    fn watch(&mut self, now: Micros, passed: Duration) -> impl Iterator<Item = u64> {
        let prepare = self.prepare_lanes().map(|lane| lane.watch(now, passed, kernel::look_at));
        let embed = self.embed.as_mut().and_then(|lane| lane.watch(now, passed, kernel::look_at));
        prepare.into_iter().chain([embed]).flatten()
    }
}

/// The loaded model, with the engine and the lanes' links.
pub(super) struct Service {
    pub model: Arc<ServedModel>,
    pub engine: Engine,
    workers: Workers,
    /// The number of tasks of each key at all worker lanes together.
    places: Quota,
    waiting: Vec<Waiting>,
    last_ticket: u64,
    /// The tasks with slots that the engine has, and those that each key may have.
    slots: Vec<SlotAsked>,
    slot_places: Quota,
}

/// A client's task with a slot.
struct SlotAsked {
    ticket: u64,
    key: KeyId,
    slot: SlotId,
    action: SlotAction,
    filename: String,
    began: Micros,
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
    pub result: Option<Answer>,
    pub waker: Option<Waker>,
}

impl WorkState {
    fn answer(&mut self, result: Answer) {
        self.result = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Service {
    pub fn new(parts: ServiceParts, metrics: Arc<Metrics>, weights: &[f64]) -> Self {
        let ServiceParts { model, capacity, decode, masks, files, workers } = parts;
        let mut engine = Engine::new(model.vocab.clone(), capacity, decode, masks, metrics);
        if let Some(files) = files {
            engine = engine.with_files(files);
        }
        engine.calibrate(&model.calibration);
        let places = Quota::new(WORK_MAX, weights);
        let slot_places = Quota::new(SLOT_TASKS_MAX, weights);
        let (waiting, slots) = (Vec::new(), Vec::new());
        Self { engine, model, workers, places, waiting, last_ticket: 0, slots, slot_places }
    }

    /// Whether a lane has sent something back.
    pub fn has_news(&mut self) -> bool {
        self.engine.is_ready() || self.workers.is_ready()
    }

    /// Passes the answers of the worker lanes to their connections.
    pub fn receive_work(&mut self) {
        let Self { workers, places, waiting, .. } = self;
        let mut unwanted = Vec::new();
        while let Some((ticket, key, result)) = workers.receive() {
            places.give(key, 1);
            let Some(result) = result else { continue }; // it was abandoned
            if let Some(index) = waiting.iter().position(|one| one.ticket == ticket) {
                waiting.swap_remove(index).slot.borrow_mut().answer(result);
            } else if let Ok(Step::More(transfer)) = result {
                unwanted.push((transfer.request, key));
            }
        }
        for (request, key) in unwanted {
            self.discard(request, key);
        }
    }

    /// Sends a task to a prepare lane. After the deadline the lane does not begin it.
    ///
    /// # Errors
    /// 429 if the key may have no further task at the lanes. The refused request is freed on a
    /// lane.
    pub fn send_task(
        &mut self,
        task: PrepareTask,
        lane: Lane,
        key: KeyId,
        deadline: Option<Micros>,
    ) -> Result<WorkSlot, ApiError> {
        if let Err(error) = self.check_room(key) {
            if let PrepareTask::Request(_, request) = task {
                self.discard(request, key);
            }
            return Err(error);
        }
        let (work, slot) = self.work(task, key, deadline);
        let Workers { short, long, compile, trial, embed: _ } = &mut self.workers;
        let worker = match lane {
            Lane::Short => short,
            Lane::Long => long,
            Lane::Compile => compile,
            Lane::Trial => trial,
        };
        assert!(worker.link.send(work).is_ok(), "a link holds every task");
        Ok(slot)
    }

    /// Sends texts to the embed lane. After the deadline the lane does not begin them.
    ///
    /// # Errors
    /// 429 if the key may have no further task at the lanes.
    pub fn send_texts(
        &mut self,
        texts: Box<Texts>,
        key: KeyId,
        deadline: Option<Micros>,
    ) -> Result<WorkSlot, ApiError> {
        self.check_room(key)?;
        let (work, slot) = self.work(texts, key, deadline);
        let embed = self.workers.embed.as_mut().expect("texts are prepared only for it");
        assert!(embed.link.send(work).is_ok(), "a link holds every task");
        Ok(slot)
    }

    /// Asks the engine to save, restore or erase the text of a slot.
    ///
    /// # Errors
    /// 429 if the key may have no further task.
    pub fn ask_slot(
        &mut self,
        (slot, action): (SlotId, SlotAction),
        (filename, path): (String, PathBuf),
        scope: CacheScope,
        key: KeyId,
        now: Micros,
    ) -> Result<WorkSlot, ApiError> {
        self.check_room(key)?;
        if !self.slot_places.has_room(key, 1) {
            let message = "too many texts are being saved or restored; try again soon";
            return Err(ApiError::busy(message, 1));
        }
        self.slot_places.take(key, 1);
        let (ticket, abandoned, answer) = self.wait(key);
        self.slots.push(SlotAsked { ticket, key, slot, action, filename, began: now });
        self.engine.ask_slot(SlotTask { ticket, action, slot, scope, path, abandoned });
        Ok(answer)
    }

    /// Passes the outcomes of tasks with slots to their connections.
    pub fn answer_slots(&mut self, now: Micros) {
        for SlotAnswer { ticket, done } in self.engine.slot_answers() {
            let index = self.slots.iter().position(|asked| asked.ticket == ticket);
            let asked = self.slots.swap_remove(index.expect("it was asked"));
            let SlotAsked { key, slot, action, filename, began, .. } = asked;
            self.places.give(key, 1);
            self.slot_places.give(key, 1);
            let Some(index) = self.waiting.iter().position(|one| one.ticket == ticket) else {
                continue; // its client has left
            };
            let answer = done.map(|done| {
                let mut body = Vec::new();
                let ms = now.seconds_since(began) * 1e3;
                slots::push_done(&mut body, (slot, action), &filename, done, ms);
                Step::Done(Prepared::Answer(body))
            });
            self.waiting.swap_remove(index).slot.borrow_mut().answer(answer);
        }
    }

    fn check_room(&self, key: KeyId) -> Result<(), ApiError> {
        if self.places.has_room(key, 1) {
            return Ok(());
        }
        let (held, limit) = (self.places.held_by(key), self.places.most(key));
        let message = format!(
            "{held} requests of this key are being prepared; at most {limit} may while other keys \
             leave room; try again soon"
        );
        Err(ApiError::busy(message, 1))
    }

    /// Makes a task, which counts for its key, and the slot for its answer.
    fn work<T>(
        &mut self,
        task: T,
        key: KeyId,
        deadline: Option<Micros>,
    ) -> (Box<Work<T>>, WorkSlot) {
        let (ticket, abandoned, slot) = self.wait(key);
        (Box::new(Work { ticket, key, deadline, task: Some(task), abandoned, result: None }), slot)
    }

    /// Makes the slot for the answer to a task, which counts for its key.
    fn wait(&mut self, key: KeyId) -> (u64, Arc<AtomicBool>, WorkSlot) {
        self.places.take(key, 1);
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let abandoned = Arc::new(AtomicBool::new(false));
        let (slot, abandoned_here) = (WorkSlot::default(), abandoned.clone());
        self.waiting.push(Waiting { ticket, key, slot: slot.clone(), abandoned: abandoned_here });
        (ticket, abandoned, slot)
    }

    /// Frees an unwanted request on a lane. It may have a million allocations, which take too long
    /// for the front lane.
    pub fn discard(&mut self, request: Box<Request>, key: KeyId) {
        let work = Work {
            ticket: 0,
            key,
            deadline: None,
            task: Some(PrepareTask::Waste(request)),
            abandoned: Arc::default(),
            result: None,
        };
        // If the link is full, the request is freed here.
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
    /// its next check. `passed` is the interval of the calls.
    ///
    /// # Panics
    /// If a lane does not stop; see [`WorkerLink::watch`].
    pub fn watch_work(&mut self, now: Micros, passed: Duration) {
        let Self { workers, waiting, .. } = self;
        for ticket in workers.watch(now, passed) {
            let Some(index) = waiting.iter().position(|one| one.ticket == ticket) else { continue };
            let waiting = waiting.swap_remove(index);
            waiting.abandoned.store(true, Ordering::Relaxed);
            let message = "preparing the request took too long; send less at once";
            waiting.slot.borrow_mut().answer(Err(ApiError::internal(message)));
        }
    }
}
