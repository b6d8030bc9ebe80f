//! The loaded model, as the front lane serves it: the engine, and the links to the lanes that
//! prepare requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::api::error::ApiError;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::prepare::lane::{Task, Work};
use crate::prepare::{Prepared, ServedModel};
use crate::ring::FrontLink;
use crate::ring::message::Batch;
use crate::scheduler::Capacity;

/// The message that the model is loaded, with all parts that the front lane needs to serve it.
pub struct ServiceParts {
    /// The model.
    pub model: Arc<ServedModel>,
    /// The capacity of the decode lane.
    pub capacity: Capacity,
    /// The link to the decode lane.
    pub decode: FrontLink<Batch>,
    /// The link to the prepare lane.
    pub prepare: FrontLink<Work>,
    /// The link to the embed lane, if there is one.
    pub embed: Option<FrontLink<Work>>,
}

/// The loaded model, with the engine and the lanes' links.
pub(super) struct Service {
    pub model: Arc<ServedModel>,
    pub engine: Engine,
    prepare: FrontLink<Work>,
    embed: Option<FrontLink<Work>>,
    waiting: Vec<Waiting>,
    next_ticket: u64,
}

/// A connection that waits for the prepare lane or the embed lane.
struct Waiting {
    ticket: u64,
    slot: WorkSlot,
    abandoned: Arc<AtomicBool>,
}

/// The place where a connection finds a lane's answer.
pub(super) type WorkSlot = Rc<RefCell<WorkState>>;

#[derive(Default)]
pub(super) struct WorkState {
    pub result: Option<Result<Prepared, ApiError>>,
    pub waker: Option<Waker>,
}

impl Service {
    pub fn new(parts: ServiceParts, metrics: Arc<Metrics>) -> Self {
        let ServiceParts { model, capacity, decode, prepare, embed } = parts;
        let engine = Engine::new(model.vocab.clone(), capacity, decode, metrics);
        Self { engine, model, prepare, embed, waiting: Vec::new(), next_ticket: 0 }
    }

    /// Whether a lane has sent something back.
    pub fn has_news(&self) -> bool {
        self.engine.is_ready()
            || self.prepare.is_ready()
            || self.embed.as_ref().is_some_and(FrontLink::is_ready)
    }

    /// Passes the answers of the prepare lane and the embed lane to their connections.
    pub fn receive_work(&mut self) {
        let Self { prepare, embed, waiting, .. } = self;
        let mut receive = || prepare.receive().or_else(|| embed.as_mut()?.receive());
        while let Some(work) = receive() {
            let index = waiting.iter().position(|waiting| waiting.ticket == work.ticket);
            let Some(index) = index else { continue }; // its client has disconnected
            let slot = waiting.swap_remove(index).slot;
            let mut state = slot.borrow_mut();
            state.result = work.result;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Sends a task to its lane.
    ///
    /// # Errors
    /// 429 if the lane's queue is full.
    pub fn send_task(&mut self, task: Task) -> Result<WorkSlot, ApiError> {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let abandoned = Arc::new(AtomicBool::new(false));
        let lane = match (&task, &mut self.embed) {
            (Task::Embed(_), Some(embed)) => embed,
            _ => &mut self.prepare,
        };
        let work = Work { ticket, task: Some(task), abandoned: abandoned.clone(), result: None };
        lane.send(Box::new(work)).map_err(|_| {
            ApiError::busy("too many long requests are being worked on; try again soon", 1)
        })?;
        let slot = WorkSlot::default();
        self.waiting.push(Waiting { ticket, slot: slot.clone(), abandoned });
        Ok(slot)
    }

    /// Abandons a task whose client has disconnected. Does nothing if it is done.
    pub fn abandon(&mut self, slot: &WorkSlot) {
        let index = self.waiting.iter().position(|waiting| Rc::ptr_eq(&waiting.slot, slot));
        if let Some(index) = index {
            let waiting = self.waiting.swap_remove(index);
            waiting.abandoned.store(true, Ordering::Relaxed);
        }
    }
}
