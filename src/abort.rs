//! Gives up steps of the model from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the running step, and of the last one to give up.
///
/// Steps have numbers, so an order that comes late hits no later step, and one that comes between
/// the two calls of a step still holds for the second.
#[derive(Debug, Default)]
pub struct StepAbort {
    running: AtomicU64,
    last: AtomicU64,
}

impl StepAbort {
    /// For the thread that computes: this step begins. Numbers grow, from 1.
    pub fn begin(&self, step: u64) {
        self.running.store(step, Ordering::Relaxed);
    }

    /// Gives up this step, and all before it.
    pub fn give_up(&self, step: u64) {
        self.last.fetch_max(step, Ordering::Relaxed);
    }

    /// Gives up every step, also those to come.
    pub fn give_up_all(&self) {
        self.give_up(u64::MAX);
    }

    /// For the thread that computes: whether to stop.
    pub fn is_given_up(&self) -> bool {
        let running = self.running.load(Ordering::Relaxed);
        running > 0 && running <= self.last.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_hits_its_step_and_none_after_it() {
        let abort = StepAbort::default();
        assert!(!abort.is_given_up());
        abort.begin(1);
        abort.give_up(2); // while the step before it runs
        assert!(abort.is_given_up());
        abort.begin(2);
        assert!(abort.is_given_up(), "an order from before the step holds");
        abort.begin(3);
        assert!(!abort.is_given_up());
        abort.give_up(1); // too late
        assert!(!abort.is_given_up());
        abort.give_up_all();
        abort.begin(4);
        assert!(abort.is_given_up());
    }
}
