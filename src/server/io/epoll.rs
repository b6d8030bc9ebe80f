//! The operations by epoll. tokio, because it is the runtime that most programs use, has one for a single
//! thread, and watches any descriptor.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// See [`super::Executor`].
pub struct Executor {
    runtime: Runtime,
    tasks: LocalSet,
}

impl Executor {
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { runtime, tasks: LocalSet::new() })
    }

    pub(super) fn run(self, lane: impl Future<Output = ()>) {
        self.tasks.block_on(&self.runtime, lane);
    }
}

/// See [`super::Task`].
pub struct Task(Option<JoinHandle<()>>);

pub(super) fn spawn(task: impl Future<Output = ()> + 'static) -> Task {
    Task(Some(spawn_local(task)))
}

impl Task {
    pub(super) fn detach(mut self) {
        self.0.take();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Lets the executor of this thread watch a descriptor.
fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is open, and stays the same until it is dropped.
    Ok(unsafe { AsyncFd::register(descriptor) }?)
}

/// A socket that listens or is connected.
pub struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        watch(socket).map(Self)
    }

    pub(super) async fn accept(&self) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(accepted) = ready.try_io(|socket| Ok(accept_with(socket.get_ref(), flags)?)) {
                return watch(accepted?).map(Self);
            }
        }
    }

    pub(super) fn poll_read(&self, cx: &mut Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let read =
                ready.try_io(|socket| Ok(recv(socket.get_ref(), &mut *to, RecvFlags::empty())?.0));
            if let Ok(read) = read {
                return Poll::Ready(read);
            }
        }
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            let written =
                ready.try_io(|socket| Ok(send(socket.get_ref(), from, SendFlags::NOSIGNAL)?));
            if let Ok(written) = written {
                return Poll::Ready(written);
            }
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// See [`super::Alarm`]. tokio's own timers are exact to a millisecond, and steps of small models are
/// shorter.
pub struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        watch(timerfd_create(TimerfdClockId::Monotonic, flags)?).map(Self)
    }

    pub(super) fn set(&mut self, after: Option<Duration>) {
        // A time of zero would unset it.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let it_value = Timespec {
            tv_sec: after.as_secs() as i64, // hours at most
            tv_nsec: after.subsec_nanos().into(),
        };
        let it_interval = Timespec::default();
        let set = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &set).expect("a valid time");
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut ready) = ready!(self.0.poll_read_ready(cx)) else { return Poll::Pending };
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0; 8])?));
            if read.is_ok() {
                return Poll::Ready(());
            }
        }
    }
}
