//! The service manager. Takes the sockets that it has opened for this server, and tells it the
//! server's state. Without one, nothing here has an effect.
//!
//! The protocol is that of `sd_listen_fds(3)` and `sd_notify(3)`.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

/// The listening sockets that the service manager has opened. Call it once, before other threads
/// exist.
///
/// # Errors
/// A sentence for the user.
pub fn take_sockets() -> Result<Vec<OwnedFd>, String> {
    let descriptors = sd_notify::listen_fds()
        .map_err(|error| format!("cannot take the service manager's sockets: {error}"))?;
    // SAFETY: the service manager has opened these for this process, and nobody else takes them.
    let owned = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(descriptors.map(owned).collect())
}

/// Says that the server is ready. `status` is a line for `systemctl status`.
pub fn tell_ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that the start goes on, and may take this much longer. It counts from now, and matters only
/// if the manager would give up before.
pub fn tell_starting(longer: Duration) {
    let longer = u32::try_from(longer.as_micros()).unwrap_or(u32::MAX);
    let status = NotifyState::Status("downloading the model");
    tell(&[NotifyState::ExtendTimeoutUsec(longer), status]);
}

/// Says that the server reads its keys again, until [`tell_ready`].
pub fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot tell the service manager"),
    }
}

/// Says that the server drains.
pub fn tell_stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining: no new requests")]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

/// Feeds the service manager's watchdog, from a lane that must not block.
#[derive(Debug)]
pub struct Watchdog {
    socket: UnixDatagram,
    /// The longest time between two messages to it.
    pub every: Duration,
}

impl Watchdog {
    /// The watchdog, if the service manager has one for this process.
    pub fn of_environment() -> Option<Self> {
        let timeout = sd_notify::watchdog_enabled()?;
        let path = std::env::var_os("NOTIFY_SOCKET")?;
        match connect(path.to_str()?) {
            Ok(socket) => Some(Self { socket, every: timeout / 3 }),
            Err(error) => {
                tracing::warn!(%error, "cannot feed the service manager's watchdog");
                None
            }
        }
    }

    /// Says that the lane runs. If the service manager does not read, nothing is said.
    pub fn feed(&self) {
        let _ = self.socket.send(NotifyState::Watchdog.to_string().as_bytes());
    }
}

/// A socket that never blocks, connected to a path or to an abstract name, which begins with `@`.
fn connect(path: &str) -> std::io::Result<UnixDatagram> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_without_waiting() {
        let name = format!("@corelane-watchdog-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let watchdog = Watchdog { socket: connect(&name).unwrap(), every: Duration::ZERO };
        watchdog.feed();
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"WATCHDOG=1");
        for _ in 0..100_000 {
            watchdog.feed(); // nobody reads
        }
    }
}
