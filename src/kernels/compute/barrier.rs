//! A barrier for the threads of a team.

use std::time::Duration;

use super::gate::Gate;
use super::sync::{AtomicU32, Ordering};

/// Threads wait here for each other, any number of times.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    arrived: Arrived,
    /// The number of times that all threads have passed.
    passed: Gate,
}

/// On a cache line of its own: threads write it while others poll the gate.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Arrived(AtomicU32);

impl Barrier {
    /// Waits until `threads` threads are here: polls for `patience`, then sleeps. All writes before
    /// the barrier are then visible to all of them.
    pub fn wait(&self, threads: u32, patience: Duration) {
        // No thread passes before this one has arrived, so the number cannot change in between.
        let passed = self.passed.number();
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.0.store(0, Ordering::Relaxed); // seen by all that pass the gate
            self.passed.set(passed.wrapping_add(1));
        } else {
            self.passed.wait(passed, patience);
        }
    }
}
