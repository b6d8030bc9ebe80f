//! Requests that a benchmark feeds to the scheduler.

use corelane::clock::Micros;
use corelane::scheduler::{Event, Scheduler};

/// Requests that arrive and finish.
pub trait Requests {
    /// Admits those that begin now.
    fn fill(&mut self, scheduler: &mut Scheduler);
    /// Handles an event of a sequence.
    fn on_event(&mut self, event: Event, now: Micros);
    /// Returns whether every request has ended.
    fn is_done(&self) -> bool;
}
