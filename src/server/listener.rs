//! The listening socket. It is bound before the model loads, and shares its port with no other
//! process.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, RawFd};
use std::rc::Rc;

use glommio::Task;
use glommio::net::{TcpListener, TcpStream};
use glommio::timer::sleep;

use super::front::Front;
use super::{connection, kernel};
use crate::limits::{ACCEPT_AGAIN, LISTEN_BACKLOG};

/// Binds the address that clients connect to.
///
/// glommio's own `bind` shares the port (`SO_REUSEPORT`), so a second server could start and take
/// half of the connections. This one does not share it.
///
/// # Errors
/// A sentence for the user.
pub fn bind(host: &str, port: u16) -> Result<std::net::TcpListener, String> {
    let unknown = || format!("--host {host} is not an address of this machine");
    let resolved =
        (host, port).to_socket_addrs().map_err(|error| format!("{}: {error}", unknown()))?;
    // A name such as localhost may have several addresses. Clients mostly try IPv4.
    let mut addresses: Vec<SocketAddr> = resolved.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let address = *addresses.first().ok_or_else(unknown)?;
    bind_socket(address).map_err(|error| match error.kind() {
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
    })
}

fn bind_socket(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // do not wait for old connections to time out
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Starts to accept. Dropping the task stops it and closes the socket.
pub(super) fn start(front: &Rc<Front>, listener: std::net::TcpListener) -> Task<()> {
    let descriptor = listener.into_raw_fd();
    // SAFETY: the descriptor is a listening socket, and its ownership moves.
    let listener = unsafe { TcpListener::from_raw_fd(descriptor) };
    glommio::spawn_local(accept(front.clone(), listener, descriptor))
}

async fn accept(front: Rc<Front>, listener: TcpListener, descriptor: RawFd) {
    loop {
        match listener.accept().await {
            Ok(stream) => admit(&front, stream),
            Err(error) => {
                // Probably no descriptors are left. `accept` needs one even if no connection waits.
                // SAFETY: `listener` holds the descriptor open. (It has no `AsFd`.)
                let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
                let someone_waits = kernel::is_readable(socket);
                if someone_waits && !front.places.dismiss_one(front.clock.now()) {
                    tracing::warn!(%error, "cannot accept connections");
                }
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Serves a connection, if there is a place for it. Otherwise closes it.
fn admit(front: &Rc<Front>, stream: TcpStream) {
    let Ok(peer) = stream.peer_addr() else { return }; // it has left already
    let timer = front.timers.add();
    let is_short = kernel::are_descriptors_short(&stream);
    match front.places.take(peer.ip(), timer.clone(), is_short, front.clock.now()) {
        Some(place) => {
            let _ = stream.set_nodelay(true); // only latency suffers without it
            front.opened();
            glommio::spawn_local(connection::serve(front.clone(), stream, place, timer)).detach();
        }
        None => front.counters().connections_dropped.increment(),
    }
}
