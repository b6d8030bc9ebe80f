//! Starts a lane's thread and waits for its result.

use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, RingBuffer};

use crate::limits::LANE_STACK_BYTES;
use crate::placement::{Placement, by_speed, pin_this_thread};

/// The cores of a lane's compute threads, its own last; none if they are not pinned.
pub(super) fn pins(placement: &Placement) -> Vec<usize> {
    if placement.pinned { by_speed(&placement.decode_cores) } else { Vec::new() }
}

/// Starts a lane on a thread of its own, pinned to the last of `cores` if there are any. The lane
/// first makes what it needs and reports whether that worked.
pub(super) fn start_pinned<T>(
    name: &str,
    cores: Vec<usize>,
    make: impl FnOnce() -> Result<T, String> + Send + 'static,
    run: impl FnOnce(T) + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn(name, LANE_STACK_BYTES, move || {
        // Pinned first, so that the memory it touches is near its core. Its pool of compute threads pins
        // it to the same one.
        let pinned = cores.last().map_or(Ok(()), |last| pin_this_thread(&[*last]));
        match pinned.and_then(|()| make()) {
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

/// Waits, at start-up only, for the result of a lane's start.
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
