//! Starts the front lane.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement as GlommioPlacement};
use rtrb::RingBuffer;

use super::size::spin;
use super::thread::{spawn, wait_for};
use crate::config::ServeConfig;
use crate::limits::LANE_STACK_BYTES;
use crate::metrics::Metrics;
use crate::server::{self, Control, FrontConfig, FrontLinks};
use crate::systemd::Watchdog;
use crate::{ops, page};

/// Memory of the front lane's ring for buffers of files, which the lane does not use: glommio's
/// least. Its own choice, 10 MiB, exceeds the 8 MiB that users may usually lock.
const IO_MEMORY_BYTES: usize = 64 * 1024;

/// Interval at which glommio interrupts tasks of the front lane: as good as never. If its timer
/// expires before any task has run, glommio 0.9 believes that there is nothing to do, and sleeps
/// (its pull request 53 fixes that, and is in no release yet). Long tasks yield by themselves.
const PREEMPT_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The front lane's settings in a server of `config`.
pub(super) fn front_config(
    config: &ServeConfig,
    request_bytes: usize,
    hands_over: bool,
    metrics: &Arc<Metrics>,
) -> FrontConfig {
    FrontConfig {
        connections: config.connections,
        ping_interval: config.ping_interval,
        metrics_page: config.metrics.then_some(ops::page_of),
        page: if config.ui { page::files() } else { &[] },
        cors_origins: config.cors_origins.clone(),
        allowed_hosts: config.allowed_hosts.clone(),
        request_bytes,
        weights: config.weights(),
        share_cache: config.share_cache,
        request_timeout: config.request_timeout,
        step_timeout: config.step_timeout,
        drain: config.drain,
        hands_over,
        saves_slots: config.slot_save.is_some(),
        watchdog: Watchdog::of_environment(),
        polls: !config.placement.is_shared(),
        seed: config.seed,
        entropy: config.entropy,
        metrics: metrics.clone(),
    }
}

/// Starts the lane, and waits until its executor is made.
///
/// # Errors
/// A sentence for the user.
pub(super) fn start_front(
    config: &ServeConfig,
    front_config: FrontConfig,
    control: &Arc<Control>,
    links: FrontLinks,
) -> Result<JoinHandle<()>, String> {
    let (core, pinned) = (config.placement.front_core, config.placement.pinned);
    // A polling lane yields its core to look at its sockets. If it slept for that, glommio would
    // interrupt all other cores of the process each time (`membarrier`), also those of the model.
    let spin = spin(config);
    let control = control.clone();
    // The executor is made on its own thread, which reports the result.
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn("front", LANE_STACK_BYTES, move || {
        let place = if pinned { GlommioPlacement::Fixed(core) } else { GlommioPlacement::Unbound };
        let executor = LocalExecutorBuilder::new(place)
            .preempt_timer(PREEMPT_EVERY)
            .io_memory(IO_MEMORY_BYTES)
            .spin_before_park(spin)
            .make();
        match executor {
            Ok(executor) => {
                let _ = outcome_tx.push(Ok(()));
                drop(outcome_tx);
                executor.run(server::run(front_config, control, links))
            }
            Err(error) => {
                let _ = outcome_tx.push(Err(format!("cannot start the front lane: {error}")));
            }
        }
    })?;
    wait_for(&mut outcome, "the front lane")?;
    Ok(handle)
}
