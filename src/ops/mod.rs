//! The ops lane: shows what the other lanes count, on a listener of its own.
//!
//! In: `GET /metrics`, `/health`, `/ready`. Out: OpenMetrics text and short
//! sentences. It reads atomics, and runs where the model does not, or behind
//! everybody else where the model runs everywhere.
//!
//! The HTTP server is `may_minihttp`, one coroutine for each connection, all on
//! one thread. It was made for benchmarks and trusts its clients, so it faces
//! the loopback address by default, and is fenced in here:
//!
//! **Invariant:** whatever a client of this lane sends ends at most its own
//! connection. A request that `may_minihttp` cannot read ends its coroutine;
//! what would make it panic (a malformed `Content-Length`) is looked at before
//! it is asked; and a panic on a coroutine is caught at its bottom and ends
//! nothing else (see [`is_on_a_connection`]).
//! **Invariant:** a client can take neither much memory nor this lane for long:
//! connections, the requests and bytes of each, and the time without a whole
//! request are bounded (`OPS_*` in [`crate::limits`]).
//!
//! What cannot be fenced in: an endless header line is noticed a tenth of a
//! second later only, and buffered until then; unreadable requests are closed
//! without an answer and reported on standard error, beside the log; a HEAD
//! request is told a `Content-Length` of 0; and without file descriptors
//! accepting is retried without a pause.

mod connections;
mod exposition;
mod page;
mod runtime;
mod service;
mod shared;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use may::coroutine::JoinHandle;
use may_minihttp::HttpServiceFactory;

use crate::metrics::Metrics;
use connections::Watch;

/// An address that nobody else listens on.
pub struct Bound {
    address: SocketAddr,
    listener: TcpListener,
}

impl Bound {
    /// The address, with the port that the kernel chose if the user did not.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Takes the address `host:port`.
///
/// `may_minihttp` makes its own listener, which shares its port with whoever
/// asks (`SO_REUSEPORT`), and does not tell which port it has. So one that does
/// not share is made here, and stands aside when the other one is there.
///
/// # Errors
/// A sentence for the user.
pub fn bind(addr: &str) -> Result<Bound, String> {
    let wrong = |error: std::io::Error| {
        format!("--ops-addr {addr} is not an address such as 127.0.0.1:9090, or none: {error}")
    };
    let mut addresses: Vec<SocketAddr> = addr.to_socket_addrs().map_err(wrong)?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6); // as --host does
    let unknown = || format!("--ops-addr {addr} is not an address of this machine");
    let address = *addresses.first().ok_or_else(unknown)?;
    let bound = bind_socket(address).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok(Bound { address, listener })
    });
    bound.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => format!(
            "the address {addr} of --ops-addr is in use by another program; choose another, \
             port 0 for any free one, or none to show no metrics"
        ),
        ErrorKind::AddrNotAvailable => unknown(),
        _ => format!("cannot listen on {addr} (--ops-addr): {error}"),
    })
}

fn bind_socket(address: SocketAddr) -> std::io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // no wait for the last server's connections
    socket.bind(&address.into())?;
    socket.listen(1)?;
    socket.set_reuse_port(true)?; // from now on, with the one to come
    Ok(socket.into())
}

/// The lane, answering.
pub struct OpsLane {
    accepting: JoinHandle<()>,
    watch: Watch,
}

/// Starts to answer. The calling thread, on which [`OpsLane::run`] is to be
/// called, hands its cores and its priority down to the coroutines' threads.
///
/// # Errors
/// A sentence for the user.
pub fn start(bound: Bound, metrics: Arc<Metrics>) -> Result<OpsLane, String> {
    runtime::start();
    let (door, watch) = connections::watched(bound.address, metrics);
    let failed = |error| format!("cannot listen on {} (--ops-addr): {error}", bound.address);
    let accepting = door.start(bound.address).map_err(failed)?;
    drop(bound.listener);
    Ok(OpsLane { accepting, watch })
}

impl OpsLane {
    /// Watches over the connections until told to stop, by the flag and an
    /// `unpark`.
    pub fn run(mut self, stop: &AtomicBool) {
        self.watch.run(stop);
        // SAFETY: a cancelled coroutine unwinds when it next waits. This one
        // waits in `accept`, and holds a listener and the door, both of which
        // may be dropped at any time.
        unsafe { self.accepting.coroutine().cancel() };
        // In vain would be a leak, and no reason to hang.
        for _ in 0..1000 {
            if self.accepting.is_done() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.watch.end();
    }
}

/// True on a coroutine of this lane: a panic here unwinds one connection, and
/// must not end the process.
pub fn is_on_a_connection() -> bool {
    may::coroutine::is_coroutine()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coroutine_knows_that_it_is_one() {
        runtime::start();
        assert!(!is_on_a_connection());
        // SAFETY: the coroutine touches no thread-local storage of ours.
        let coroutine = unsafe { may::coroutine::spawn(is_on_a_connection) };
        assert!(coroutine.join().unwrap());
    }

    #[test]
    fn an_address_is_taken_once_and_said_in_a_sentence() {
        let bound = bind("127.0.0.1:0").unwrap();
        let address = bound.address().to_string();
        assert!(bind(&address).err().unwrap().contains("is in use by another program"));
        drop(bound);
        bind(&address).unwrap();
        assert!(bind("9090").err().unwrap().contains("such as 127.0.0.1:9090"));
        assert!(bind("203.0.113.1:9090").err().unwrap().contains("of this machine"));
    }
}
