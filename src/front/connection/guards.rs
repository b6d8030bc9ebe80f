//! What must be undone whichever way a request ends, each as a value that does
//! so when it is dropped.

use std::rc::Rc;

use crate::api::error::ApiError;
use crate::front::exchange::SharedExchange;
use crate::front::{Front, WorkSlot};
use crate::limits::BODIES_BYTES_MAX;

/// Counts a request as in progress while it lives.
pub(super) struct ExchangeGuard {
    pub(super) front: Rc<Front>,
}

impl ExchangeGuard {
    pub(super) fn new(front: &Rc<Front>) -> Self {
        front.exchanges.set(front.exchanges.get() + 1);
        Self { front: front.clone() }
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.front.exchanges.set(self.front.exchanges.get() - 1);
        if self.front.draining.get() {
            self.front.kick();
        }
    }
}

/// Ends the request's sequences when the connection is done with it, for
/// whatever reason: a client that has left is not generated for.
pub(super) struct CancelGuard {
    pub(super) front: Rc<Front>,
    pub(super) exchange: SharedExchange,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(loaded) = &mut *self.front.loaded.borrow_mut() {
            loaded.engine.cancel(&self.exchange.borrow());
        }
        self.front.kick();
    }
}

/// Gives up what is being prepared when its client has left.
pub(super) struct AbandonGuard {
    pub(super) front: Rc<Front>,
    pub(super) slot: WorkSlot,
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if let Some(loaded) = &mut *self.front.loaded.borrow_mut() {
            loaded.abandon(&self.slot);
        }
    }
}

/// The room that a body takes of what all bodies may.
pub(super) struct BodyPermit {
    pub(super) front: Rc<Front>,
    pub(super) bytes: usize,
}

impl BodyPermit {
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let more = bytes.saturating_sub(self.bytes);
        let total = self.front.body_bytes.get() + more;
        if total > BODIES_BYTES_MAX {
            let message = format!(
                "request bodies fill all of their {BODIES_BYTES_MAX} bytes; try again soon"
            );
            return Err(ApiError::unavailable(message, 1));
        }
        self.front.body_bytes.set(total);
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.front.body_bytes.set(self.front.body_bytes.get() - self.bytes);
    }
}
