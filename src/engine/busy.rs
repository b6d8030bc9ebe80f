//! Logs when other programs begin to slow the model, and when they have ended.

use std::time::Duration;

use crate::clock::Micros;
use crate::types::Threads;

/// The log has at most one line in this time.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// What the log said last.
#[derive(Debug, Default)]
pub(super) struct BusyLog {
    said_busy: bool,
    /// When; zero before the first line.
    at: Micros,
}

impl BusyLog {
    /// Takes note of the machine's state after a step.
    pub fn note(&mut self, is_busy: bool, threads: Threads, slowdown: f64, now: Micros) {
        if is_busy == self.said_busy || now < self.at + LINE_EVERY && self.at > Micros(0) {
            return;
        }
        (self.said_busy, self.at) = (is_busy, now);
        match is_busy {
            true => tracing::info!(
                "the machine is busy: a step takes {slowdown:.1} times as long as alone (compute threads: {threads}); \
                 corelane doctor says who else uses it"
            ),
            false => tracing::info!("the machine is free again (compute threads: {threads})"),
        }
    }
}
