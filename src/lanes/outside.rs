//! Starts the lanes that show the server to others: the ops lane and the lane that sends spans.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rtrb::{Producer, RingBuffer};

use super::thread::{spawn, wait_for};
use crate::config::ServeConfig;
use crate::limits::{LANE_STACK_BYTES, SPANS_QUEUED_MAX};
use crate::metrics::Metrics;
use crate::ops;
use crate::placement::{LAST, Topology, pin_this_thread, yield_to_others};
use crate::traces::{self, Collector, Span};

/// The ops lane. It runs until it is stopped.
pub(super) struct OpsLane {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl OpsLane {
    /// Stops the lane and waits for its end.
    pub fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("a lane that panics ends the process");
    }
}

/// Starts the ops lane on the cores that no other lane has.
///
/// # Errors
/// A sentence for the user.
pub(super) fn start_ops(
    config: &ServeConfig,
    bound: ops::Bound,
    metrics: &Arc<Metrics>,
) -> Result<OpsLane, String> {
    let cores = Topology::read()?.housekeeping(&config.placement);
    let (address, metrics) = (bound.address(), metrics.clone());
    let (pinned, profiling) = (config.placement.pinned, config.profiling);
    let stop = Arc::new(AtomicBool::new(false));
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let thread = spawn("ops", LANE_STACK_BYTES, {
        let stop = stop.clone();
        move || {
            // Threads that this one starts inherit the cores and the priority.
            let started = (if pinned { pin_this_thread(&cores) } else { Ok(()) }).and_then(|()| {
                yield_to_others(LAST);
                ops::start(bound, metrics, profiling)
            });
            match started {
                Ok(lane) => {
                    let _ = outcome_tx.push(Ok(()));
                    drop(outcome_tx);
                    lane.run(&stop);
                }
                Err(error) => {
                    let _ = outcome_tx.push(Err(error));
                }
            }
        }
    })?;
    wait_for(&mut outcome, "the ops lane")?;
    Ok(OpsLane { address, stop, thread })
}

/// Starts the lane that sends spans, if there is a collector for them.
///
/// # Errors
/// A sentence for the user.
pub(super) fn start_spans(
    config: &ServeConfig,
    metrics: &Arc<Metrics>,
    started: &mut Vec<JoinHandle<()>>,
) -> Result<Option<Producer<Span>>, String> {
    let Some(endpoint) = &config.otlp else { return Ok(None) };
    let cores = Topology::read()?.housekeeping(&config.placement);
    let pinned = config.placement.pinned;
    let collector = Collector::new(endpoint.clone(), metrics.clone());
    let (spans, ended) = RingBuffer::new(SPANS_QUEUED_MAX);
    started.push(spawn("spans", LANE_STACK_BYTES, move || {
        // On other cores, it would only be sooner.
        let _ = if pinned { pin_this_thread(&cores) } else { Ok(()) };
        yield_to_others(LAST);
        traces::run(ended, collector);
    })?);
    Ok(Some(spans))
}
