//! The connections of the ops lane, bounded and watched over.
//!
//! `may_minihttp` accepts everybody and waits for ever. But it asks for a
//! [`Service`] for each connection, and tells the descriptor: here a second
//! handle is made of it, with which the watching thread shuts down a connection
//! that has not sent a whole request for too long or has sent too much, and the
//! service one that has sent enough requests.

use std::cell::RefCell;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

use may_minihttp::HttpServiceFactory;
use prometheus_client::registry::Registry;
use rtrb::{Consumer, Producer, RingBuffer};
use socket2::SockRef;

use super::exposition::Exposition;
use super::service::Service;
use crate::clock::Micros;
use crate::limits::{
    OPS_CONNECTIONS_MAX, OPS_IDLE_TIMEOUT, OPS_PAGE_BYTES, OPS_RECEIVED_BYTES_MAX,
    OPS_WATCH_INTERVAL,
};
use crate::metrics::Metrics;

/// What the connections share.
pub(super) struct Shared {
    pub metrics: Arc<Metrics>,
    /// What `/metrics` shows.
    pub registry: Registry,
    address: SocketAddr,
    open: AtomicUsize,
}

/// An open connection, as its service and the watching thread see it.
pub(super) struct Connection {
    stream: TcpStream,
    /// When it was opened or had its last whole request, in microseconds.
    active: AtomicU64,
    ended: AtomicBool,
}

/// Makes a service for each connection; lives on the accepting coroutine.
pub(super) struct Door {
    shared: Arc<Shared>,
    opened: RefCell<Producer<Arc<Connection>>>,
    watcher: Thread,
}

/// The watching side; lives on the calling thread.
pub(super) struct Watch {
    shared: Arc<Shared>,
    opened: Consumer<Arc<Connection>>,
    connections: Vec<Arc<Connection>>, // at most OPS_CONNECTIONS_MAX that are open
}

/// A door for the address, watched over by the calling thread.
pub(super) fn watched(address: SocketAddr, metrics: Arc<Metrics>) -> (Door, Watch) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition::new(metrics.clone())));
    let open = AtomicUsize::new(0);
    let shared = Arc::new(Shared { metrics, registry, address, open });
    // A connection that has ended may still be in the ring.
    let (opened_tx, opened_rx) = RingBuffer::new(2 * OPS_CONNECTIONS_MAX);
    let opened = RefCell::new(opened_tx);
    let door = Door { shared: shared.clone(), opened, watcher: std::thread::current() };
    let connections = Vec::with_capacity(4 * OPS_CONNECTIONS_MAX);
    (door, Watch { shared, opened: opened_rx, connections })
}

impl HttpServiceFactory for Door {
    type Service = Service;

    fn new_service(&self, descriptor: usize) -> Service {
        let full = self.shared.open.fetch_add(1, Ordering::Relaxed) >= OPS_CONNECTIONS_MAX;
        // SAFETY: `may_minihttp` calls with the descriptor of the connection
        // that it has just accepted and holds open during this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor as i32) }; // it was an i32
        Service::new(self.shared.clone(), self.watch(descriptor, full))
    }
}

impl Door {
    /// Has a new connection watched over. `None`, and closed, when that cannot
    /// be done.
    fn watch(&self, descriptor: BorrowedFd<'_>, full: bool) -> Option<Arc<Connection>> {
        let socket = SockRef::from(&descriptor);
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        // That the number is a descriptor stands in the library's source alone.
        // Were it another one day, this would be none of our business.
        if address?.port() != self.shared.address.port() {
            return None;
        }
        let connection = if full { None } else { self.hand_over(descriptor) };
        if connection.is_none() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        connection
    }

    fn hand_over(&self, descriptor: BorrowedFd<'_>) -> Option<Arc<Connection>> {
        let stream = TcpStream::from(descriptor.try_clone_to_owned().ok()?);
        let _ = stream.set_nodelay(true); // a page may take several writes
        // Room for a whole page: what is left to write when the last request has been read,
        // `may_minihttp` drops.
        let _ = SockRef::from(&stream).set_send_buffer_size(OPS_PAGE_BYTES);
        let active = AtomicU64::new(self.shared.now().0);
        let connection = Arc::new(Connection { stream, active, ended: AtomicBool::new(false) });
        self.opened.borrow_mut().push(connection.clone()).ok()?;
        self.watcher.unpark();
        Some(connection)
    }
}

impl Shared {
    fn now(&self) -> Micros {
        self.metrics.clock.now()
    }

    /// A connection has had a whole request.
    pub fn touch(&self, connection: &Connection) {
        connection.active.store(self.now().0, Ordering::Relaxed);
    }

    /// A connection is closed, or about to be.
    pub fn left(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    fn is_tiresome(&self, now: Micros) -> bool {
        let silence_us = now.since(Micros(self.active.load(Ordering::Relaxed)));
        // What has come and was not read yet is not the client's fault: this lane comes
        // last where processors are busy.
        let is_read = || rustix::io::ioctl_fionread(&self.stream).is_ok_and(|unread| unread == 0);
        (silence_us > OPS_IDLE_TIMEOUT.as_micros() as u64 && is_read()) // seconds
            || received(&self.stream) > OPS_RECEIVED_BYTES_MAX
    }

    /// What has not been read will not be: the connection closes when what has
    /// been is answered.
    pub fn stop_reading(&self) {
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// Closes it, however its coroutine ends.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Watch {
    /// Watches until told to stop.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.look();
            if self.connections.is_empty() {
                std::thread::park(); // the next connection unparks
            } else {
                std::thread::park_timeout(OPS_WATCH_INTERVAL);
            }
        }
    }

    /// Ends all connections.
    pub fn end(&mut self) {
        self.look();
        self.connections.iter().for_each(|connection| connection.end());
    }

    /// Lets go of connections that have ended; ends those that say nothing, or
    /// too much.
    fn look(&mut self) {
        while let Ok(connection) = self.opened.pop() {
            self.connections.push(connection);
        }
        let now = self.shared.now();
        self.connections.retain(|connection| {
            if !connection.ended.load(Ordering::Relaxed) && connection.is_tiresome(now) {
                connection.end();
            }
            !connection.ended.load(Ordering::Relaxed)
        });
    }
}

/// Bytes that a connection's client has sent; 0 when the kernel does not tell.
fn received(stream: &TcpStream) -> u64 {
    // SAFETY: all bytes zero is a valid value. The call writes at most `size`
    // bytes into it, for a descriptor that is open.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut size = size_of_val(&info) as libc::socklen_t; // some hundred
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        );
        info.tcpi_bytes_received
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_counts_what_a_client_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(received(&server), 0);
        client.write_all(&[b'x'; 70_000]).unwrap();
        server.read_exact(&mut [0; 70_000]).unwrap();
        assert_eq!(received(&server), 70_000);
    }
}
