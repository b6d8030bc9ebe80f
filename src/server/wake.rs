//! A helper for tasks of the front lane.

use std::task::{Context, Waker};

/// Stores the task's waker. Clones it only if another one was stored.
pub(super) fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *place = Some(cx.waker().clone()),
    }
}
