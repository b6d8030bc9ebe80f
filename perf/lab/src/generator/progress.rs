//! A progress bar on standard error, drawn only when that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws per second: enough to look steady, at almost no cost to the client's core.
const DRAWS_PER_S: u8 = 4;

/// A progress bar that may be hidden.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates a bar for `total` requests with the label `what`. The bar is hidden when `shown` is
    /// false or standard error is not a terminal.
    pub fn start(shown: bool, total: usize, what: &str) -> Self {
        let bar = shown.then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S);
            let bar = ProgressBar::with_draw_target(Some(total as u64), target);
            let template = "{msg} {wide_bar} {pos} of {len} requests, {elapsed}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            bar
        });
        Self { bar }
    }

    /// Sets the number of completed requests.
    pub fn set(&self, completed: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(completed as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
