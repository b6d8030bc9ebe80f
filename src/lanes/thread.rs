//! Starts a lane's thread, and waits for how that went.

use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, RingBuffer};

use crate::limits::LANE_STACK_BYTES;
use crate::placement::pin_this_thread;

/// Starts a lane that computes: on the thread of its own, pinned to these cores, it
/// first makes what it needs, and says whether that worked.
pub(super) fn start_pinned<T>(
    name: &str,
    cores: Vec<usize>,
    make: impl FnOnce() -> Result<T, String> + Send + 'static,
    run: impl FnOnce(T) + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn(name, LANE_STACK_BYTES, move || {
        // Pinned first, so that the memory it touches is near its core. ggml
        // pins this thread, too, when it makes its pool: to the last core.
        let last = &cores[cores.len() - 1..];
        match pin_this_thread(last).and_then(|()| make()) {
            Ok(made) => {
                let _ = outcome_tx.push(Ok(()));
                drop(outcome_tx);
                run(made);
            }
            Err(error) => {
                let _ = outcome_tx.push(Err(error));
            }
        }
    })?;
    wait_for(&mut outcome, &format!("the {name} lane"))?;
    Ok(handle)
}

/// Starts a thread of this name.
pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
    builder.spawn(run).map_err(|error| format!("cannot start the {name} lane: {error}"))
}

/// Waits, at start-up only, for a new lane to say how its start went.
pub(super) fn wait_for(
    outcome: &mut Consumer<Result<(), String>>,
    lane: &str,
) -> Result<(), String> {
    loop {
        if let Ok(outcome) = outcome.pop() {
            return outcome;
        }
        if outcome.is_abandoned() && outcome.is_empty() {
            return Err(format!("{lane} ended before it began"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
