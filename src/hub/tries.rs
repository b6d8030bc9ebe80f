//! The retries of a request, and the delays between them.

use std::thread;
use std::time::Duration;

use super::error::HubError;
use crate::limits::HUB_TRIES_MAX;

/// The longest time that a hub may ask to wait. huggingface.co limits requests in windows of 5
/// minutes.
const HUB_RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The tries of one request.
pub(super) struct Tries {
    first_delay: Duration,
    /// The number of tries in a row without progress.
    failed: u32,
}

impl Tries {
    /// Before the first try. The second one comes after `first_delay`, and the delay doubles for
    /// each further one.
    pub fn new(first_delay: Duration) -> Self {
        Self { first_delay, failed: 0 }
    }

    /// Waits until the next try.
    ///
    /// # Errors
    /// The error of the last try, if a further one would be useless, if the wait would be longer
    /// than [`HUB_RETRY_AFTER_MAX`], or after [`HUB_TRIES_MAX`] tries in a row.
    pub fn wait_after(&mut self, error: HubError) -> Result<(), HubError> {
        self.failed += 1;
        let delay = error.after().unwrap_or(self.first_delay * (1 << (self.failed - 1)));
        if !error.is_passing() || self.failed >= HUB_TRIES_MAX || delay > HUB_RETRY_AFTER_MAX {
            return Err(error);
        }
        tracing::warn!("{error}; trying again in {} s", delay.as_secs_f32());
        thread::sleep(delay);
        Ok(())
    }

    /// Notes that the last try made progress, so the count begins again.
    pub fn progress(&mut self) {
        self.failed = 0;
    }
}
