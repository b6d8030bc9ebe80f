//! The signals that other lanes give the front lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abort::StepAbort;
use crate::ring::bell::SocketBell;

/// The signals that other lanes give the front lane.
pub struct Control {
    /// Wakes the front lane.
    pub bell: Arc<SocketBell>,
    /// Makes the decode lane give up steps.
    pub abort: Arc<StepAbort>,
    draining: AtomicBool,
}

impl Control {
    /// A control over the front lane that `bell` wakes.
    pub fn new(bell: Arc<SocketBell>) -> Self {
        Self { bell, abort: Arc::default(), draining: AtomicBool::new(false) }
    }

    /// Makes the front lane stop accepting, finish the running requests and end.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether [`Control::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
