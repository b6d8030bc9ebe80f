//! The ops lane serves the metrics of all lanes, on its own port.
//!
//! In: `GET /metrics`, `/health`, `/ready`, `POST /debug/flamegraph`. Out: OpenMetrics text, short
//! sentences and flamegraphs. The lane reads the other lanes' atomics. It runs on a core that the
//! model does not use, or with low priority if the model uses all cores.
//!
//! The HTTP server is `may_minihttp`: a coroutine for each connection, all on one thread. It was
//! written for benchmarks and trusts its clients. So the lane listens on the loopback address by
//! default, and this module limits what clients can do:
//!
//! **Invariant:** a client can end at most its own connection. A request that `may_minihttp` cannot
//! read ends its coroutine. A malformed `Content-Length` would make it panic, so that is checked
//! first. A panic on a coroutine is caught at its bottom and ends nothing else (see
//! [`is_on_a_connection`]). **Invariant:** a client can take neither much memory nor much of the
//! lane's time. The number of connections, the requests and bytes of each, and the time without a
//! whole request are bounded (`OPS_*` in [`crate::limits`]).
//!
//! Known limits: an endless header line is noticed only after a tenth of a second, and buffered
//! until then. A head that drips is parsed again at each byte, on this lane's low priority.
//! Unreadable requests are closed without an answer, and reported on standard error rather than in
//! the log. A HEAD request gets a `Content-Length` of 0. Without free file descriptors, accepting
//! is retried without a pause. The front lane leaves some free for this lane
//! ([`DESCRIPTORS_RESERVED`](crate::limits::DESCRIPTORS_RESERVED)).

mod connections;
mod exposition;
mod flamegraph;
mod process;
mod service;
mod shared;
mod workarounds;
mod writer;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use may::coroutine::JoinHandle;
use may_minihttp::HttpServiceFactory;

use crate::metrics::Metrics;
use connections::Watch;
pub use workarounds::is_on_a_connection;

/// The content of `/metrics` in the text format of OpenMetrics.
pub fn page_of(metrics: &Arc<Metrics>) -> String {
    let mut text = String::new();
    exposition::write(metrics, &mut text);
    text
}

/// An address that no other program can listen on any more.
pub struct Bound {
    address: SocketAddr,
    listener: TcpListener,
}

impl Bound {
    /// The address, with the port that the kernel chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Reserves the address `addr`, `HOST:PORT`.
///
/// # Errors
/// A sentence for the user.
pub fn bind(addr: &str) -> Result<Bound, String> {
    let wrong = |error: std::io::Error| {
        format!("--ops-addr {addr} is not an address such as 127.0.0.1:9090, or none: {error}")
    };
    let mut addresses: Vec<SocketAddr> = addr.to_socket_addrs().map_err(wrong)?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6); // IPv4 first, as for --host
    let unknown = || format!("--ops-addr {addr} is not an address of this machine");
    let address = *addresses.first().ok_or_else(unknown)?;
    let bound = workarounds::listen_first(address).and_then(|listener| {
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

/// The running lane.
pub struct OpsLane {
    accepting: JoinHandle<()>,
    watch: Watch,
}

/// Starts to serve, with profiles if `profiling` is set. The calling thread must then call
/// [`OpsLane::run`]. The coroutines' threads inherit its cores and priority.
///
/// # Errors
/// A sentence for the user.
pub fn start(bound: Bound, metrics: Arc<Metrics>, profiling: bool) -> Result<OpsLane, String> {
    workarounds::start_runtime();
    let (services, watch) = connections::watched(bound.address, metrics, profiling);
    let failed = |error| format!("cannot listen on {} (--ops-addr): {error}", bound.address);
    let accepting = services.start(bound.address).map_err(failed)?;
    drop(bound.listener);
    Ok(OpsLane { accepting, watch })
}

impl OpsLane {
    /// Watches the connections until `stop` is set and this thread is unparked.
    pub fn run(mut self, stop: &AtomicBool) {
        self.watch.run(stop);
        workarounds::cancel(&self.accepting);
        self.watch.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
