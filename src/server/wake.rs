//! Small helpers for tasks of the front lane.

use std::task::{Context, Waker};
use std::time::Duration;

use glommio::timer::Timer;

/// Time for which a task sleeps so that the lane checks its sockets and links. It is as short as
/// possible.
const LOOK_UP: Duration = Duration::from_micros(1);

/// Lets other tasks run, and lets the lane check its sockets and links, which glommio does only
/// when no task can run.
pub(super) async fn poll_sockets() {
    Timer::new(LOOK_UP).await;
}

/// Stores the task's waker. Clones it only if another one was stored.
pub(super) fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *place = Some(cx.waker().clone()),
    }
}
