//! Says once in the log what requests ask for in vain.

use std::cell::RefCell;
use std::collections::HashSet;

/// Different notes that a lane logs. Clients choose them, so there is a bound.
const NOTES_MAX: usize = 64;

thread_local! {
    static NOTED: RefCell<HashSet<String>> = RefCell::default();
}

/// Logs the notes that this thread has not logged yet.
pub(super) fn log(ignored: &[String]) {
    for note in ignored {
        let is_new = NOTED.with_borrow_mut(|noted| {
            noted.len() < NOTES_MAX && !noted.contains(note) && noted.insert(note.clone())
        });
        if is_new {
            tracing::warn!("a request has {note}, which this server ignores; this is said once");
        }
    }
}
