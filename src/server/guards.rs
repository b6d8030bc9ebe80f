//! Guards that clean up when they are dropped, however the request ends.

use std::rc::Rc;

use super::front::Front;
use super::service::WorkSlot;
use crate::engine::exchange::SharedExchange;

/// Counts a request as in progress while it lives.
pub(super) struct ExchangeGuard(Rc<Front>);

impl ExchangeGuard {
    pub fn new(front: &Rc<Front>) -> Self {
        front.exchange_began();
        Self(front.clone())
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.0.exchange_ended();
    }
}

/// Ends the request's sequences when the connection stops serving it, for any reason. So no text is
/// generated for a client that has disconnected.
pub(super) struct CancelGuard {
    pub front: Rc<Front>,
    pub exchange: SharedExchange,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(service) = &mut *self.front.service.borrow_mut() {
            service.engine.cancel(&self.exchange.borrow());
        }
        self.front.kick();
    }
}

/// Abandons a task of another lane when its client has disconnected.
pub(super) struct AbandonGuard {
    pub front: Rc<Front>,
    pub slot: WorkSlot,
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if let Some(service) = &mut *self.front.service.borrow_mut() {
            service.abandon(&self.slot);
        }
    }
}
