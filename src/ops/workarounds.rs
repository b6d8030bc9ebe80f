//! Work-arounds for `may_minihttp` and its runtime `may`, so that they can serve untrusted clients
//! in one process with other lanes. All `unsafe` of the ops lane is here. There are five:
//!
//! | behaviour of the libraries | work-around |
//! |---|---|
//! | `may` installs handlers of SIGSEGV and SIGBUS for the whole process | [`start_runtime`] restores the earlier ones |
//! | `may_minihttp` keeps a connection's socket to itself, and never closes a silent one | [`second_handle`] duplicates its descriptor, so that the watching thread can shut it down |
//! | it does not count what a client sends | [`bytes_received`] asks the kernel (`TCP_INFO`) |
//! | it makes its own listener with `SO_REUSEPORT`, does not report its port, and so hides that the port is taken | [`listen_first`] makes a first listener without that option, which fails then |
//! | it ends a connection only by a panic, and cannot stop accepting | [`end_connection`] and [`cancel`] unwind a coroutine; [`is_on_a_connection`] tells the panic hook |

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::Once;
use std::time::Duration;

use may::coroutine::JoinHandle;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::limits::OPS_CONNECTIONS_MAX;

/// Stack of each connection of the ops lane. Its pages take memory only when they are used.
const OPS_STACK_BYTES: usize = 256 * 1024;

/// Starts the runtime, once per process. Its threads take the calling thread's name, cores and
/// priority.
///
/// **Invariant:** faults (such as SIGSEGV) on other lanes are reported as if there were no runtime.
pub(super) fn start_runtime() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        may::config()
            .set_workers(1)
            .set_pool_capacity(OPS_CONNECTIONS_MAX)
            .set_stack_size(OPS_STACK_BYTES / size_of::<usize>())
            .set_worker_pin(false); // pinning would use the first core, which is the front lane's
        let before = [libc::SIGSEGV, libc::SIGBUS].map(|signal| (signal, handler(signal)));
        // The first coroutine to run installs the handlers. SAFETY: the coroutine does nothing.
        let first = unsafe { may::coroutine::spawn(|| ()) };
        first.join().expect("it does not panic");
        for (signal, handler) in before {
            // SAFETY: this handler was installed a moment ago.
            unsafe { libc::sigaction(signal, &raw const handler, std::ptr::null_mut()) };
        }
    });
}

/// The current handler of a signal.
fn handler(signal: i32) -> libc::sigaction {
    // SAFETY: zeroed bytes are a valid value, and get overwritten. Without a new action, the call
    // only reads the old one. It fails for no valid signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action
    }
}

/// Listens on an address. Fails if another program listens there. Afterwards `may_minihttp` can
/// listen on the same address.
pub(super) fn listen_first(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // do not wait for old connections to time out
    socket.bind(&address.into())?;
    socket.listen(1)?;
    socket.set_reuse_port(true)?; // from now on, `may_minihttp` may share the port
    Ok(socket.into())
}

/// A second handle to a new connection, from the number that `may_minihttp` passes. `None` if the
/// number is not a connection on our port. Also `None` if no descriptors are left: then the
/// connection is closed, because nobody could watch it.
///
/// Only the library's source shows that the number is the connection's descriptor. If this changes,
/// the check of the port prevents access to another file.
pub(super) fn second_handle(number: usize, port: u16) -> Option<TcpStream> {
    // SAFETY: `may_minihttp` passes the descriptor of the connection that it has just accepted, and
    // holds the connection open during the call of `new_service`, which calls this.
    let descriptor = unsafe { BorrowedFd::borrow_raw(i32::try_from(number).ok()?) };
    let socket = SockRef::from(&descriptor);
    if socket.local_addr().ok()?.as_socket()?.port() != port {
        return None;
    }
    let second = descriptor.try_clone_to_owned();
    if second.is_err() {
        let _ = socket.shutdown(Shutdown::Both);
    }
    second.ok().map(TcpStream::from)
}

/// The bytes that a connection's client has sent; 0 if the kernel does not report them.
pub(super) fn bytes_received(stream: &TcpStream) -> u64 {
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

/// Ends the calling coroutine and its connection. Unlike a panic, this prints no message and does
/// not run the panic hook.
pub(super) fn end_connection(why: &'static str) -> ! {
    resume_unwind(Box::new(why))
}

/// Stops the coroutine that accepts connections.
pub(super) fn cancel(accepting: &JoinHandle<()>) {
    // SAFETY: a cancelled coroutine unwinds at its next wait. This one waits in `accept`, and holds
    // a listener and the factory of services. Both may be dropped at any time.
    unsafe { accepting.coroutine().cancel() };
    // Give up after a second: a leaked coroutine is better than a shutdown that hangs.
    for _ in 0..1000 {
        if accepting.is_done() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether this thread is on a coroutine of the ops lane. A panic there ends one connection and must
/// not end the process.
pub fn is_on_a_connection() -> bool {
    may::coroutine::is_coroutine()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn the_handlers_of_faults_stay() {
        let before = [libc::SIGSEGV, libc::SIGBUS].map(|signal| handler(signal).sa_sigaction);
        start_runtime();
        start_runtime();
        let after = [libc::SIGSEGV, libc::SIGBUS].map(|signal| handler(signal).sa_sigaction);
        assert_eq!(before, after);
    }

    #[test]
    fn a_coroutine_knows_that_it_is_one() {
        start_runtime();
        assert!(!is_on_a_connection());
        // SAFETY: the coroutine uses no thread-local storage of corelane.
        let coroutine = unsafe { may::coroutine::spawn(is_on_a_connection) };
        assert!(coroutine.join().unwrap());
    }

    #[test]
    fn the_kernel_counts_what_a_client_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(bytes_received(&server), 0);
        client.write_all(&[b'x'; 70_000]).unwrap();
        server.read_exact(&mut [0; 70_000]).unwrap();
        assert_eq!(bytes_received(&server), 70_000);
    }

    #[test]
    fn only_connections_of_our_port_get_a_second_handle() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, client) = listener.accept().unwrap();
        let number = server.as_raw_fd() as usize;
        assert_eq!(second_handle(number, port).unwrap().peer_addr().unwrap(), client);
        assert!(second_handle(number, port.wrapping_add(1)).is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(second_handle(file.as_raw_fd() as usize, port).is_none());
        assert!(second_handle(usize::MAX, port).is_none());
    }
}
