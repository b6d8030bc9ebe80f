//! The listening sockets, TCP and Unix. They are bound before the model loads. No other process can
//! bind the same address.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::sockopt::socket_acceptconn;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::front::Front;
use super::io::{self as front_io, Stream, Task};
use super::{connection, kernel};
use crate::clock::Micros;

/// The time until the listener tries again after it could not accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// Interval of the log's lines about that.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections that the kernel queues before `accept`.
const LISTEN_BACKLOG: i32 = 1024;

/// A bound socket, not yet accepting.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
    /// True if the service manager opened the socket. It keeps the socket open when this server
    /// ends.
    is_inherited: bool,
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and its port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "http://{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Listener {
    /// The address, with the port that the kernel chose for port 0.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// True for a `--host` that is the path of a Unix socket. As in llama-server, it ends in `.sock`.
pub fn is_unix(host: &str) -> bool {
    host.ends_with(".sock")
}

/// Makes listeners from sockets that the service manager has opened.
///
/// # Errors
/// A sentence for the user.
pub fn inherit(sockets: Vec<OwnedFd>) -> Result<Vec<Listener>, String> {
    let listener = |socket: OwnedFd| {
        let wrong = |what: &str| format!("a socket of the service manager {what}");
        let unusable = |error: io::Error| wrong(&format!("is unusable: {error}"));
        if SockRef::from(&socket).r#type().map_err(unusable)? != Type::STREAM {
            return Err(wrong("is not a stream socket: use ListenStream="));
        }
        if !socket_acceptconn(&socket).map_err(|error| unusable(error.into()))? {
            return Err(wrong("does not listen: use Accept=no"));
        }
        let address = match SockRef::from(&socket).local_addr().map_err(unusable)?.as_socket() {
            Some(address) => Address::Tcp(address),
            None => {
                let unix = UnixListener::from(socket.try_clone().map_err(unusable)?);
                let address = unix.local_addr().map_err(unusable)?;
                let path = address.as_pathname();
                Address::Unix(path.ok_or_else(|| wrong("has no address"))?.to_owned())
            }
        };
        Ok(Listener { socket, address, is_inherited: true })
    };
    sockets.into_iter().map(listener).collect()
}

/// Binds the addresses that clients connect to. If `port` is 0, all share the port that the kernel
/// chooses for the first one.
///
/// # Errors
/// A sentence for the user.
pub fn bind(hosts: &[String], mut port: u16) -> Result<Vec<Listener>, String> {
    let mut listeners: Vec<Listener> = Vec::with_capacity(hosts.len());
    let several = hosts.iter().filter(|host| !is_unix(host)).count() > 1;
    for host in hosts {
        let listener = if is_unix(host) {
            bind_unix(Path::new(host))?
        } else {
            bind_tcp(host, port, several)?
        };
        if let Address::Tcp(address) = listener.address {
            port = address.port();
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Binds a TCP address without `SO_REUSEPORT`. glommio's own `bind` sets it, so that a second
/// server could start on the same port and take half of the connections.
fn bind_tcp(host: &str, port: u16, beside_others: bool) -> Result<Listener, String> {
    let unknown = || format!("--host {host} is not an address of this machine");
    let resolved =
        (host, port).to_socket_addrs().map_err(|error| format!("{}: {error}", unknown()))?;
    // A name such as localhost may have several addresses. Most clients use IPv4.
    let mut addresses: Vec<SocketAddr> = resolved.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let address = *addresses.first().ok_or_else(unknown)?;
    let bound = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?; // do not wait for old connections to time out
        if address.is_ipv6() && beside_others {
            socket.set_only_v6(true)?; // another --host may be the same address of IPv4
        }
        listen(socket, &address.into())
    };
    let socket = bound().map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => format!(
            "port {port} of {host} is in use by another program; choose another with --port, \
             or 0 for any free one"
        ),
        ErrorKind::PermissionDenied => format!(
            "no permission to listen on port {port}; ports below 1024 need the capability \
             CAP_NET_BIND_SERVICE"
        ),
        ErrorKind::AddrNotAvailable => unknown(),
        _ => format!("cannot listen on {host}:{port}: {error}"),
    })?;
    let address = SockRef::from(&socket).local_addr().map_err(|e| e.to_string())?.as_socket();
    let address = Address::Tcp(address.expect("it is bound to an IP address"));
    Ok(Listener { socket, address, is_inherited: false })
}

/// Binds a Unix socket. Replaces a socket file on which no server listens any more.
fn bind_unix(path: &Path) -> Result<Listener, String> {
    let shown = path.display();
    let unusable = |error: io::Error| format!("cannot listen on {shown}: {error}");
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(format!("--host {shown} is a file and no socket; choose another path"));
        }
        // The kernel refuses a connection only if no process listens. Other errors (a full queue,
        // another user's socket) mean that the socket is in use.
        let refused = knock(&SockAddr::unix(path).map_err(unusable)?)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if !refused {
            return Err(format!("the socket {shown} is in use by another program"));
        }
        std::fs::remove_file(path)
            .map_err(|error| format!("cannot replace the socket {shown}: {error}"))?;
    }
    let bound = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        listen(socket, &SockAddr::unix(path)?)
    };
    let socket = bound().map_err(unusable)?;
    Ok(Listener { socket, address: Address::Unix(path.to_owned()), is_inherited: false })
}

/// Connects to a listening socket without waiting, and closes the connection at once.
fn knock(address: &SockAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::from(i32::from(address.family())), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(address)
}

fn listen(socket: Socket, address: &SockAddr) -> io::Result<OwnedFd> {
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(std::net::TcpListener::from(socket).into()) // through a type that both libraries know
}

/// The tasks that accept connections.
#[derive(Default)]
pub(super) struct Accepting {
    tasks: Vec<Task>,
    /// The addresses of their sockets.
    addresses: Vec<SockAddr>,
}

impl Accepting {
    /// Starts to accept.
    pub fn start(&mut self, front: &Rc<Front>, listener: Listener) {
        let Listener { socket, address, is_inherited } = listener;
        self.addresses.extend(SockRef::from(&socket).local_addr());
        let (peer, file) = match address {
            Address::Tcp(_) => (None, None),
            Address::Unix(path) => {
                let file = (!is_inherited).then_some(SocketFile(path));
                (Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), file)
            }
        };
        let listening = Listening::new(front.clone(), file);
        let listener = front_io::Listener::new(socket);
        self.tasks.push(front_io::spawn(accept(listening, listener, peer)));
    }

    /// Stops accepting, because a drain has begun.
    ///
    /// The sockets close, unless the next server takes them over. In that case a waiting task must
    /// not be cancelled, because the kernel may just have given it a connection. Instead, we
    /// connect to the socket. This ends the wait, and the task accepts no further connection.
    pub fn stop(&mut self, front: &Front) {
        let addresses = std::mem::take(&mut self.addresses);
        if !front.config.hands_over {
            return self.tasks.clear();
        }
        for address in &addresses {
            // If this fails, connections of clients are waiting. They end the task's wait, too.
            let _ = knock(address);
        }
    }
}

/// Counts a listening socket while it lives. Dropping it removes the file of a Unix socket.
struct Listening {
    front: Rc<Front>,
    _file: Option<SocketFile>,
}

impl Listening {
    fn new(front: Rc<Front>, file: Option<SocketFile>) -> Self {
        front.listening.set(front.listening.get() + 1);
        Self { front, _file: file }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let listening = self.front.listening.get().checked_sub(1);
        self.front.listening.set(listening.expect("one of 0 listening sockets closed"));
        self.front.kick(); // a drain may be over
    }
}

/// The file of a Unix socket. Dropping it removes the file.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the next start replaces what is left
    }
}

/// Accepts connections until a drain begins. For a Unix socket, `peer` is the address that stands
/// for all of its clients.
async fn accept(listening: Listening, listener: front_io::Listener, peer: Option<IpAddr>) {
    let front = &listening.front;
    let mut logged: Option<Micros> = None;
    while !front.is_draining() {
        match listener.accept().await {
            Ok(stream) => {
                admit(front, stream, peer);
                // A process that connects and leaves in a loop must not keep the lane from those that stay.
                front_io::poll_sockets().await;
            }
            Err(error) => {
                // Probably no descriptors are left. `accept` needs one even if no connection waits.
                let someone_waits = kernel::is_readable(listener.socket());
                let now = front.clock.now();
                if someone_waits
                    && !front.places.dismiss_one(now)
                    && logged.is_none_or(|at| now >= at + ACCEPT_LOG_INTERVAL)
                {
                    tracing::warn!(%error, "cannot accept connections");
                    logged = Some(now);
                }
                front_io::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Serves a connection, if there is a place for it. Otherwise closes it.
fn admit(front: &Rc<Front>, stream: Stream, peer: Option<IpAddr>) {
    let is_unix = peer.is_some();
    let Some(peer) = peer.or_else(|| Some(stream.peer()?.ip())) else {
        return; // it has left already
    };
    let timer = front.timers.add();
    let is_short = kernel::are_descriptors_short(stream.socket());
    match front.places.take(peer, timer.clone(), is_short, front.clock.now()) {
        Some(place) => {
            stream.send_at_once();
            front.opened();
            let shown = (!is_unix).then_some(peer);
            front_io::spawn(connection::serve(front.clone(), stream, place, timer, shown)).detach();
        }
        None => front.counters().connections_dropped.increment(),
    }
}
