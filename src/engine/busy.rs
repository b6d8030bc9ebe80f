//! Logs when other programs begin to slow the model, and when they have ended.

use std::time::Duration;

use crate::clock::Micros;
use crate::types::Threads;

/// The least time between two lines of the log.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// The state that the log stated last.
#[derive(Debug, Default)]
pub(super) struct BusyLog {
    said_busy: bool,
    /// The time of that line; zero before the first one.
    at: Micros,
}

impl BusyLog {
    /// Logs the machine's state after a step, if it has changed.
    pub fn note(&mut self, is_busy: bool, threads: Threads, slowdown: f64, now: Micros) {
        if !self.has_news(is_busy, now) {
            return;
        }
        match is_busy {
            true => tracing::info!(
                "the machine is busy: a step takes {slowdown:.1} times as long as alone (compute threads: {threads}); \
                 corelane doctor says who else uses it"
            ),
            false => tracing::info!("the machine is free again (compute threads: {threads})"),
        }
    }

    /// Whether the state must be logged. If so, it counts as logged.
    fn has_news(&mut self, is_busy: bool, now: Micros) -> bool {
        let is_soon = self.at > Micros(0) && now < self.at + LINE_EVERY;
        let has_news = is_busy != self.said_busy && !is_soon;
        if has_news {
            (self.said_busy, self.at) = (is_busy, now);
        }
        has_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_flickers_does_not_fill_the_log() {
        let mut log = BusyLog::default();
        let mut said =
            |is_busy, seconds| log.has_news(is_busy, Micros(1) + Duration::from_secs(seconds));
        assert!(!said(false, 0), "a free machine is nothing new");
        assert!(said(true, 1) && !said(true, 2));
        assert!(!said(false, 10) && !said(true, 20), "soon after");
        assert!(said(false, 31) && !said(false, 99));
    }
}
