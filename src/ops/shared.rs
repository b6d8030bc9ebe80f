//! A connection of the ops lane, and the state that all connections share.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::workarounds::bytes_received;
use crate::clock::Micros;
use crate::limits::OPS_IDLE_TIMEOUT;
use crate::metrics::Metrics;

/// Most bytes that a client may send on a connection. A request has about a kilobyte.
const OPS_RECEIVED_BYTES_MAX: u64 = 1024 * 1024;

/// The header of an answer in plain text.
pub(super) const TEXT: &str = "Content-Type: text/plain; charset=utf-8";

/// The state that the connections share.
pub(super) struct Shared {
    pub metrics: Arc<Metrics>,
    pub address: SocketAddr,
    pub open: AtomicUsize,
    /// Whether profiles may be taken.
    pub profiling: bool,
    /// Whether a profile is being taken.
    pub is_profiling: AtomicBool,
}

/// An open connection, shared by its service and the watching thread.
pub(super) struct Connection {
    pub stream: TcpStream,
    /// When it was opened or last sent a whole request, in microseconds.
    pub active: AtomicU64,
    pub ended: AtomicBool,
}

impl Shared {
    pub fn now(&self) -> Micros {
        self.metrics.clock.now()
    }

    /// Notes that a connection has sent a whole request.
    pub fn touch(&self, connection: &Connection) {
        connection.active.store(self.now().0, Ordering::Relaxed);
    }

    /// Notes that a connection is closed or about to be.
    pub fn left(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    pub fn is_over_limits(&self, now: Micros) -> bool {
        let silence_us = now.since(Micros(self.active.load(Ordering::Relaxed)));
        // If bytes are unread, the client is not silent. This lane is late, because it has the
        // lowest priority on a busy processor.
        let is_read = || rustix::io::ioctl_fionread(&self.stream).is_ok_and(|unread| unread == 0);
        (silence_us > OPS_IDLE_TIMEOUT.as_micros() as u64 && is_read()) // a few seconds
            || bytes_received(&self.stream) > OPS_RECEIVED_BYTES_MAX
    }

    /// Lets the client be silent until this time, and for [`OPS_IDLE_TIMEOUT`] after it.
    pub fn reads_until(&self, time: Micros) {
        self.active.store(time.0, Ordering::Relaxed);
    }

    /// Stops reading. The connection closes after the requests already read are answered.
    pub fn stop_reading(&self) {
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Closes the connection. Does nothing if it is closed already.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
