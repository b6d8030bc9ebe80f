//! What the front lane asks of the kernel: to accept, to read and to write, and to wait. There are two
//! ways, and all code above them is the same:
//!
//! - **io_uring**, by glommio. One system call hands over many operations.
//! - **epoll**, by tokio's runtime for one thread, where the kernel or a sandbox refuses io_uring.
//!
//! A thread runs one [`Executor`]. The functions here ask it which way is meant.

mod epoll;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite, future};
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement};
use rustix::net::Shutdown;
use socket2::SockRef;

use crate::types::Io;

/// Memory of glommio's ring for buffers of files, which the lane does not use: glommio's least. Its own
/// choice, 10 MiB, exceeds the 8 MiB that users may usually lock.
const IO_MEMORY_BYTES: usize = 64 * 1024;

/// Interval at which glommio interrupts tasks: as good as never. If its timer expires before any task
/// has run, glommio 0.9 believes that there is nothing to do, and sleeps (its pull request 53 fixes that,
/// and is in no release yet). Long tasks yield by themselves.
const PREEMPT_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Time for which a task on io_uring sleeps so that the lane checks its sockets and links. It is as short
/// as possible.
const LOOK_UP: Duration = Duration::from_micros(1);

/// What a lane cannot start without.
const WATCHED: &str = "the kernel watches the few sockets and timers with which a server starts";

thread_local! {
    /// The way of this thread's executor.
    static WAY: Cell<Io> = const { Cell::new(Io::Uring) };
}

/// Runs the tasks of a lane on its thread.
pub enum Executor {
    /// By io_uring.
    Uring(LocalExecutor),
    /// By epoll.
    Epoll(epoll::Executor),
}

impl Executor {
    /// Makes an executor for the calling thread. On io_uring, it polls for `spin` before it sleeps.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn new(way: Io, spin: Duration) -> Result<Self, String> {
        WAY.set(way);
        match way {
            Io::Uring => {
                // The lane has pinned its thread.
                let executor = LocalExecutorBuilder::new(Placement::Unbound)
                    .preempt_timer(PREEMPT_EVERY)
                    .io_memory(IO_MEMORY_BYTES)
                    .spin_before_park(spin)
                    .make();
                executor.map(Self::Uring).map_err(|error| error.to_string())
            }
            Io::Epoll => epoll::Executor::new().map(Self::Epoll).map_err(|error| error.to_string()),
        }
    }

    /// Runs a lane to its end. Tasks that still run are dropped.
    pub fn run(self, lane: impl Future<Output = ()>) {
        match self {
            Self::Uring(executor) => executor.run(lane),
            Self::Epoll(executor) => executor.run(lane),
        }
    }
}

/// A task. Dropping it cancels the task.
pub enum Task {
    /// On io_uring.
    Uring(glommio::Task<()>),
    /// On epoll.
    Epoll(epoll::Task),
}

/// Starts a task on this thread.
pub fn spawn(task: impl Future<Output = ()> + 'static) -> Task {
    match WAY.get() {
        Io::Uring => Task::Uring(glommio::spawn_local(task)),
        Io::Epoll => Task::Epoll(epoll::spawn(task)),
    }
}

impl Task {
    /// Lets the task run to its end.
    pub fn detach(self) {
        match self {
            Self::Uring(task) => drop(task.detach()),
            Self::Epoll(task) => task.detach(),
        }
    }
}

/// Waits for a while. On epoll, it is rounded up to milliseconds.
pub async fn sleep(time: Duration) {
    match WAY.get() {
        Io::Uring => glommio::timer::sleep(time).await,
        Io::Epoll => tokio::time::sleep(time).await,
    }
}

/// Lets other tasks run.
pub async fn yield_now() {
    match WAY.get() {
        Io::Uring => glommio::executor().yield_task_queue_now().await,
        Io::Epoll => future::yield_now().await,
    }
}

/// Lets other tasks run, and lets the lane check its sockets and links, which both executors do only when no
/// task can run.
pub async fn poll_sockets() {
    match WAY.get() {
        Io::Uring => drop(glommio::timer::Timer::new(LOOK_UP).await),
        Io::Epoll => tokio::task::yield_now().await,
    }
}

/// An alarm that is exact to some microseconds.
pub enum Alarm {
    /// On io_uring.
    Uring(Option<glommio::timer::Timer>),
    /// On epoll.
    Epoll(epoll::Alarm),
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Panics
    /// If the process has no file descriptors left.
    pub fn unset() -> Self {
        match WAY.get() {
            Io::Uring => Self::Uring(None),
            Io::Epoll => Self::Epoll(epoll::Alarm::new().expect(WATCHED)),
        }
    }

    /// Sets the alarm, or unsets it.
    pub fn set(&mut self, after: Option<Duration>) {
        match self {
            Self::Uring(timer) => *timer = after.map(glommio::timer::Timer::new),
            Self::Epoll(alarm) => alarm.set(after),
        }
    }

    /// Ready when the alarm goes off. The task is woken then.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Uring(None) => Poll::Pending,
            Self::Uring(Some(timer)) => Pin::new(timer).poll(cx).map(drop),
            Self::Epoll(alarm) => alarm.poll(cx),
        }
    }
}

/// A listening socket, TCP or Unix.
pub enum Listener {
    /// On io_uring, with its descriptor, which glommio does not tell.
    Uring(glommio::net::TcpListener, RawFd),
    /// On epoll.
    Epoll(epoll::Socket),
}

impl Listener {
    /// Takes a socket that listens.
    ///
    /// # Panics
    /// As for [`Stream::new`].
    pub fn new(socket: OwnedFd) -> Self {
        match WAY.get() {
            Io::Uring => {
                let descriptor = socket.into_raw_fd();
                // SAFETY: the ownership of the descriptor moves. glommio's TcpListener accepts on any
                // stream socket, and its TcpStream reads and writes any.
                let listener = unsafe { glommio::net::TcpListener::from_raw_fd(descriptor) };
                Self::Uring(listener, descriptor)
            }
            Io::Epoll => Self::Epoll(epoll::Socket::new(socket).expect(WATCHED)),
        }
    }

    /// The socket itself.
    pub fn socket(&self) -> BorrowedFd<'_> {
        let descriptor = match self {
            Self::Uring(_, descriptor) => *descriptor,
            Self::Epoll(socket) => socket.descriptor(),
        };
        // SAFETY: `self` holds the descriptor open.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The kernel's error.
    pub async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Uring(listener, _) => Ok(Stream::Uring(listener.accept().await?)),
            Self::Epoll(listener) => Ok(Stream::Epoll(listener.accept().await?)),
        }
    }
}

/// A connected socket, TCP or Unix.
pub enum Stream {
    /// On io_uring.
    Uring(glommio::net::TcpStream),
    /// On epoll.
    Epoll(epoll::Socket),
}

impl Stream {
    /// Takes a connected socket of this server's own, before it serves anybody.
    ///
    /// # Panics
    /// If the kernel has no memory to watch it.
    pub fn new(socket: OwnedFd) -> Self {
        match WAY.get() {
            // glommio can wrap an existing socket only in a TcpStream. Its reads work for any stream
            // socket.
            Io::Uring => Self::Uring(glommio::net::TcpStream::from(socket2::Socket::from(
                std::net::TcpStream::from(socket),
            ))),
            Io::Epoll => Self::Epoll(epoll::Socket::new(socket).expect(WATCHED)),
        }
    }

    /// Reads what has arrived; 0 bytes at the end. If nothing has, the task is woken when something does.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Uring(stream) => Pin::new(stream).poll_read(cx, to),
            Self::Epoll(socket) => socket.poll_read(cx, to),
        }
    }

    /// Writes as much as the kernel takes. If it takes nothing, the task is woken when it does.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Uring(stream) => Pin::new(stream).poll_write(cx, from),
            Self::Epoll(socket) => socket.poll_write(cx, from),
        }
    }

    /// Tells the client that nothing more comes.
    ///
    /// # Errors
    /// If the client has left.
    pub fn end_writing(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.socket(), Shutdown::Write)?)
    }

    /// Sends each piece at once, without waiting for more.
    pub fn send_at_once(&self) {
        let _ = SockRef::from(&self.socket()).set_nodelay(true); // without it, only latency suffers
    }

    /// The client's address; `None` if it has left, or on a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        SockRef::from(&self.socket()).peer_addr().ok()?.as_socket()
    }

    /// The socket itself.
    pub fn socket(&self) -> BorrowedFd<'_> {
        let descriptor = match self {
            Self::Uring(stream) => stream.as_raw_fd(),
            Self::Epoll(socket) => socket.descriptor(),
        };
        // SAFETY: as for a listener. (glommio's streams have no `AsFd`.)
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}
