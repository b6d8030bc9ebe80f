//! The connections of the ops lane: their number and time are bounded.
//!
//! `may_minihttp` accepts every connection and waits for its client forever. But it asks us for a
//! [`Service`] for each connection, and passes the socket's descriptor, which we duplicate. Through
//! this second handle, the watching thread shuts down a connection that takes too long to send a
//! whole request or sends too much. The service shuts down a connection after its last allowed
//! request.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

use may_minihttp::HttpServiceFactory;
use rtrb::{Consumer, Producer, RingBuffer};
use socket2::SockRef;

use super::service::Service;
use super::shared::{Connection, Shared};
use super::workarounds::second_handle;
use crate::limits::{OPS_CONNECTIONS_MAX, OPS_PAGE_BYTES, OPS_WATCH_INTERVAL};
use crate::metrics::Metrics;

/// Makes a service for each connection. Lives on the accepting coroutine.
pub(super) struct ServiceFactory {
    shared: Arc<Shared>,
    opened: RefCell<Producer<Arc<Connection>>>,
    watcher: Thread,
}

/// Watches the connections. Lives on the calling thread.
pub(super) struct Watch {
    shared: Arc<Shared>,
    opened: Consumer<Arc<Connection>>,
    connections: Vec<Arc<Connection>>, // at most OPS_CONNECTIONS_MAX are open
}

/// Makes a factory and a watch for an address. The calling thread must run the watch.
pub(super) fn watched(
    address: SocketAddr,
    metrics: Arc<Metrics>,
    profiling: bool,
) -> (ServiceFactory, Watch) {
    let (open, is_profiling) = (AtomicUsize::new(0), AtomicBool::new(false));
    let shared = Arc::new(Shared { metrics, address, open, profiling, is_profiling });
    // The ring is larger than the number of connections, because ended ones may still be in it.
    let (opened_tx, opened_rx) = RingBuffer::new(2 * OPS_CONNECTIONS_MAX);
    let opened = RefCell::new(opened_tx);
    let services =
        ServiceFactory { shared: shared.clone(), opened, watcher: std::thread::current() };
    let connections = Vec::with_capacity(4 * OPS_CONNECTIONS_MAX);
    (services, Watch { shared, opened: opened_rx, connections })
}

impl HttpServiceFactory for ServiceFactory {
    type Service = Service;

    fn new_service(&self, descriptor: usize) -> Service {
        let full = self.shared.open.fetch_add(1, Ordering::Relaxed) >= OPS_CONNECTIONS_MAX;
        let stream = second_handle(descriptor, self.shared.address.port());
        let connection = stream.and_then(|stream| self.watch(stream, full));
        Service::new(self.shared.clone(), connection)
    }
}

impl ServiceFactory {
    /// Starts to watch a new connection. If that fails, or if too many are open, closes it and
    /// returns `None`.
    fn watch(&self, stream: TcpStream, full: bool) -> Option<Arc<Connection>> {
        let _ = stream.set_nodelay(true); // a page may need several writes
        // Room for a whole page: after the last request, `may_minihttp` drops unsent bytes.
        let _ = SockRef::from(&stream).set_send_buffer_size(OPS_PAGE_BYTES);
        let active = AtomicU64::new(self.shared.now().0);
        let connection = Arc::new(Connection { stream, active, ended: AtomicBool::new(false) });
        if full || self.opened.borrow_mut().push(connection.clone()).is_err() {
            connection.end();
            return None;
        }
        self.watcher.unpark();
        Some(connection)
    }
}

impl Watch {
    /// Watches until `stop` is set and this thread is unparked.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.look();
            if self.connections.is_empty() {
                std::thread::park(); // a new connection unparks this thread
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

    /// Removes connections that have ended. Ends connections that are silent or send too much.
    fn look(&mut self) {
        while let Ok(connection) = self.opened.pop() {
            self.connections.push(connection);
        }
        let now = self.shared.now();
        self.connections.retain(|connection| {
            if !connection.ended.load(Ordering::Relaxed) && connection.is_over_limits(now) {
                connection.end();
            }
            !connection.ended.load(Ordering::Relaxed)
        });
    }
}
