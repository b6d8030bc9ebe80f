//! A timer for each connection. One task checks all of them, so setting a timeout is only a store,
//! and an idle server needs no timer of the kernel.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use super::wake::remember;
use crate::clock::Micros;

/// A connection's timer.
#[derive(Default)]
pub struct Timer {
    deadline: Cell<Option<Micros>>,
    expired: Cell<bool>,
    at_sweep: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Timer {
    /// Sets the timer to `timeout` from now.
    pub fn set(&self, now: Micros, timeout: Duration) {
        self.expired.set(false);
        // Timeouts are at most minutes.
        self.deadline.set(Some(Micros(now.0 + timeout.as_micros() as u64)));
    }

    /// Sets the timer to a moment, or to none.
    pub fn set_deadline(&self, deadline: Option<Micros>) {
        self.expired.set(false);
        self.deadline.set(deadline);
    }

    /// Whether the time has passed.
    pub fn is_expired(&self) -> bool {
        self.expired.get()
    }

    /// Wakes this task when the time has passed.
    pub fn register(&self, cx: &Context<'_>) {
        remember(&mut self.waker.borrow_mut(), cx);
    }

    /// Also wakes the task at the next check of all timers.
    pub fn wake_at_sweep(&self) {
        self.at_sweep.set(true);
    }

    /// Wakes the task that waits for the timer.
    pub fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// The timers of all connections.
#[derive(Default)]
pub(super) struct Timers {
    timers: RefCell<Vec<Weak<Timer>>>,
}

impl Timers {
    /// A timer for a new connection. Dropping the timer removes it.
    pub fn add(&self) -> Rc<Timer> {
        let timer = Rc::new(Timer::default());
        self.timers.borrow_mut().push(Rc::downgrade(&timer));
        timer
    }

    /// Wakes every task whose time has passed, and those that called [`Timer::wake_at_sweep`].
    pub fn expire(&self, now: Micros) {
        self.for_each(|timer| {
            if timer.at_sweep.take() {
                timer.wake();
            }
            if timer.deadline.get().is_some_and(|deadline| deadline <= now) {
                timer.deadline.set(None);
                timer.expired.set(true);
                timer.wake();
            }
        });
    }

    /// Wakes every task.
    pub fn wake_all(&self) {
        self.for_each(Timer::wake);
    }

    fn for_each(&self, act: impl Fn(&Timer)) {
        self.timers.borrow_mut().retain(|timer| {
            let timer = timer.upgrade();
            if let Some(timer) = &timer {
                act(timer);
            }
            timer.is_some()
        });
    }
}
