//! What a panic ends.

use crate::{chat, ops, profile};

/// Makes a lane that panics end the process: a server that accepts requests and never answers is
/// worse than none. (`panic = "abort"` would do the same, but would build every dependency a second
/// time for the tests.)
///
/// **Invariant:** a panic on a connection of the ops lane ends only that connection. It is reported
/// without a backtrace, because a coroutine's stack is too small for one.
pub fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if chat::is_rendering() {
            return; // it ends one request, which says so
        }
        if profile::is_on_its_thread() {
            let reason = panic.payload_as_str().unwrap_or_default();
            tracing::error!(reason, at = ?panic.location(), "a profile failed");
            return;
        }
        if ops::is_on_a_connection() {
            let reason = panic.payload_as_str().unwrap_or_default();
            tracing::error!(reason, at = ?panic.location(), "a connection of the ops lane failed");
            return;
        }
        report(panic);
        std::process::abort();
    }));
}
