//! Starts the front lane.

use std::sync::Arc;
use std::thread::JoinHandle;

use rtrb::RingBuffer;

use super::size::spin;
use super::thread::{spawn, wait_for};
use crate::config::ServeConfig;
use crate::limits::LANE_STACK_BYTES;
use crate::metrics::Metrics;
use crate::placement::pin_this_thread;
use crate::server::io::Executor;
use crate::server::{self, Control, FrontConfig, FrontLinks};
use crate::systemd::Watchdog;
use crate::types::{Io, IoChoice};
use crate::{ops, page};

/// The front lane's settings in a server of `config`.
pub(super) fn front_config(
    config: &ServeConfig,
    request_bytes: usize,
    hands_over: bool,
    io: Io,
    metrics: &Arc<Metrics>,
) -> FrontConfig {
    FrontConfig {
        io,
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
    mut front_config: FrontConfig,
    control: &Arc<Control>,
    links: FrontLinks,
) -> Result<JoinHandle<()>, String> {
    let (core, pinned) = (config.placement.front_core, config.placement.pinned);
    // A polling lane yields its core to look at its sockets. If it slept for that, glommio would
    // interrupt all other cores of the process each time (`membarrier`), also those of the model.
    let spin = spin(config);
    let control = control.clone();
    let choice = config.io;
    // The executor is made on its own thread, which reports the result.
    let (mut outcome_tx, mut outcome) = RingBuffer::<Result<(), String>>::new(1);
    let handle = spawn("front", LANE_STACK_BYTES, move || {
        let is_pinned = if pinned { pin_this_thread(&[core]) } else { Ok(()) };
        let made = is_pinned.and_then(|()| Executor::new(front_config.io, spin));
        let made = made.or_else(|error| match choice {
            IoChoice::Only(_) => Err(error),
            IoChoice::Auto => {
                tracing::info!("the front lane uses epoll, because of io_uring: {error}");
                front_config.io = Io::Epoll;
                Executor::new(Io::Epoll, spin)
            }
        });
        match made {
            Ok(executor) => {
                front_config.metrics.set_io(front_config.io);
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
