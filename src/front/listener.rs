//! The listening socket: bound early and exclusively, accepted from on the
//! front lane.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::AsyncWriteExt;
use glommio::Task;
use glommio::net::{TcpListener, TcpStream};
use glommio::timer::sleep;

use super::{Front, connection};
use crate::limits::{CONNECTIONS_MAX, LISTEN_BACKLOG};

/// Binds the address that clients connect to.
///
/// Not with glommio's own `bind`: it shares the port with whoever else asks
/// (`SO_REUSEPORT`), so a second server would start and take half of the
/// connections.
///
/// # Errors
/// A sentence for the user.
pub fn bind(host: &str, port: u16) -> Result<std::net::TcpListener, String> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("--host {host} is not an address of this machine: {error}"))?;
    let address: SocketAddr = addresses
        .into_iter()
        .next()
        .ok_or_else(|| format!("--host {host} is not an address of this machine"))?;
    bind_socket(address).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => format!(
            "port {port} of {host} is in use by another program; choose another with --port, \
             or 0 for any free one"
        ),
        ErrorKind::PermissionDenied => format!(
            "no permission to listen on port {port}; ports below 1024 need the capability \
             CAP_NET_BIND_SERVICE"
        ),
        ErrorKind::AddrNotAvailable => {
            format!("--host {host} is not an address of this machine")
        }
        _ => format!("cannot listen on {host}:{port}: {error}"),
    })
}

fn bind_socket(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // no wait for the last server's connections
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Starts to accept. Dropping the task stops it and closes the socket.
pub(super) fn start(front: &Rc<Front>, listener: std::net::TcpListener) -> Task<()> {
    // SAFETY: the descriptor is a listening socket, and its ownership moves.
    let listener = unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) };
    glommio::spawn_local(accept(front.clone(), listener))
}

async fn accept(front: Rc<Front>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok(stream) if front.connections.get() < CONNECTIONS_MAX => {
                let _ = stream.set_nodelay(true); // only latency suffers without it
                front.connections.set(front.connections.get() + 1);
                glommio::spawn_local(connection::serve(front.clone(), stream)).detach();
            }
            Ok(stream) => {
                tracing::warn!("refused a connection: {CONNECTIONS_MAX} are open");
                glommio::spawn_local(turn_away(stream)).detach();
            }
            Err(error) => {
                // Out of descriptors, most likely: wait for some to be closed.
                tracing::warn!(%error, "cannot accept connections");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn turn_away(mut stream: TcpStream) {
    const BODY: &str = "{\"error\":{\"message\":\"too many connections are open\",\
                        \"type\":\"unavailable_error\",\"param\":null,\"code\":null}}";
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let _ = stream.write_all(response.as_bytes()).await; // it is gone, or it is not
}
