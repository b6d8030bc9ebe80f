//! The signals that other lanes give the front lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};

use crate::abort::StepAbort;
use crate::keys::{ApiKey, Keys};
use crate::ring::bell::SocketBell;

/// The signals that other lanes give the front lane.
pub struct Control {
    /// Wakes the front lane.
    pub bell: Arc<SocketBell>,
    /// Makes the decode lane give up steps.
    pub abort: Arc<StepAbort>,
    draining: AtomicBool,
    keys: ArcSwap<Keys>,
}

impl Control {
    /// Signals for a front lane that `bell` wakes and that accepts these keys.
    pub fn new(bell: Arc<SocketBell>, keys: Vec<ApiKey>) -> Self {
        let keys = ArcSwap::from_pointee(Keys::new(keys));
        Self { bell, abort: Arc::default(), draining: AtomicBool::new(false), keys }
    }

    /// The API keys.
    pub fn keys(&self) -> Guard<Arc<Keys>> {
        self.keys.load()
    }

    /// Replaces the keys, for all requests from now on. See [`Keys::changed`].
    ///
    /// # Errors
    /// A sentence without secrets. The keys then stay as they were.
    pub fn set_keys(&self, keys: Vec<ApiKey>) -> Result<(), String> {
        self.keys.store(Arc::new(self.keys().changed(keys)?));
        self.bell.ring(); // the front lane then drops the data of removed keys
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_refused_change_nothing() {
        let (bell, _) = SocketBell::new().unwrap();
        let control = Control::new(Arc::new(bell), vec![ApiKey::plain("old")]);
        control.set_keys(vec![ApiKey::plain("new")]).unwrap();
        assert!(control.set_keys(Vec::new()).is_err());
        assert!(control.keys().find(b"new").is_some() && control.keys().find(b"old").is_none());
    }
}
