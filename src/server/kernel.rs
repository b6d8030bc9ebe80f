//! Questions to the kernel: the state of threads, sockets and clients, and whether it has
//! everything that glommio needs. Without that check, glommio would panic instead of giving a clear
//! error.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, IoringRegisterOp, io_uring_enter, io_uring_params, io_uring_register,
    io_uring_setup,
};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::DESCRIPTORS_RESERVED;
use crate::prepare::worker::ThreadView;
use crate::types::{Io, IoChoice};

/// Chooses the way in which the front lane asks the kernel. Without io_uring, also says why, and what to
/// change.
///
/// # Errors
/// Why there is no io_uring, if nothing else may be used.
pub fn choose_io(choice: IoChoice) -> Result<(Io, Option<String>), String> {
    match choice {
        IoChoice::Only(Io::Epoll) => Ok((Io::Epoll, None)),
        IoChoice::Only(Io::Uring) => check().map(|()| (Io::Uring, None)),
        IoChoice::Auto => Ok(match check() {
            Ok(()) => (Io::Uring, None),
            Err(missing) => (Io::Epoll, Some(missing)),
        }),
    }
}

/// Checks for io_uring and for lockable memory.
///
/// # Errors
/// A sentence that says what is missing and what to change.
pub fn check() -> Result<(), String> {
    check_memlock()?;
    check_sysfs()?;
    check_io_uring()
}

/// Raises the soft limit on open files, often 1,024, to the hard limit, because each connection is
/// a file. If the kernel refuses, the limit stays.
pub fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Whether file descriptors run short: only those reserved for other lanes and health checks are
/// left. `new` is the newest descriptor. The kernel gives the lowest free number, so the number of
/// `new` shows how many are open.
pub(super) fn are_descriptors_short(new: BorrowedFd<'_>) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return false };
    let reserved = (DESCRIPTORS_RESERVED as u64).min(limit / 4);
    new.as_raw_fd() as u64 >= limit - reserved // descriptors are not negative
}

/// The state and processor time of a thread of this process. `None` if it has ended.
pub(super) fn look_at(thread: i32) -> Option<ThreadView> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The thread's name comes first, and may have spaces and parentheses. See proc_pid_stat(5).
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let cpu = Duration::from_millis(1000 * ticks / clock_ticks_per_second());
    Some(ThreadView { is_runnable: fields[0] == "R", cpu })
}

/// Whether a socket has something to read or to accept.
pub(super) fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let mut look = [PollFd::new(&socket, PollFlags::IN)];
    poll(&mut look, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// The state of a connection's client, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Client {
    /// The connection is open.
    IsThere,
    /// It has closed its half of the connection, or the whole connection.
    SendsNoMore,
    /// It has closed the whole connection, and takes no bytes.
    IsGone,
}

/// Looks at the client of a connection without reading.
pub(super) fn look_at_client(socket: BorrowedFd<'_>) -> Client {
    let mut look = [PollFd::new(&socket, PollFlags::RDHUP)];
    if poll(&mut look, Some(&Timespec::default())).is_err() {
        return Client::IsThere; // nothing else is known
    }
    let seen = look[0].revents();
    if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
        Client::IsGone
    } else if seen.contains(PollFlags::RDHUP) {
        Client::SendsNoMore
    } else {
        Client::IsThere
    }
}

/// The first Linux version whose io_uring has everything that glommio uses.
const KERNEL_VERSION_MIN: (u32, u32) = (5, 8);

/// Major and minor of a release such as `6.1.0-13-amd64`.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn check_memlock() -> Result<(), String> {
    const NEEDED_KIB: u64 = 512; // glommio asks for this much
    match getrlimit(Resource::Memlock).current {
        Some(bytes) if bytes / 1024 < NEEDED_KIB => Err(format!(
            "the limit on locked memory is {} KiB, and io_uring needs {NEEDED_KIB}; raise it with \
             \"ulimit -l {NEEDED_KIB}\", LimitMEMLOCK= in a systemd unit, or --ulimit memlock= \
             for a container",
            bytes / 1024
        )),
        _ => Ok(()),
    }
}

fn check_sysfs() -> Result<(), String> {
    const FOLDER: &str = "/sys/devices/system/cpu"; // glommio reads which processors there are
    std::fs::read_dir(FOLDER).map(drop).map_err(|error| {
        format!("cannot read {FOLDER}: {error}; mount /sys (mount -t sysfs sysfs /sys)")
    })
}

fn check_io_uring() -> Result<(), String> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    if version_of(&release).is_some_and(|version| version < KERNEL_VERSION_MIN) {
        let (major, minor) = KERNEL_VERSION_MIN;
        return Err(format!(
            "this is Linux {release}, whose io_uring is too old: corelane needs {major}.{minor} \
             or later"
        ));
    }
    match make_a_ring() {
        Ok(()) => Ok(()),
        Err(Errno::NOSYS) => Err("this kernel has no io_uring, or a seccomp profile hides it: \
                                  corelane needs Linux 5.8 or later, and in a container a profile \
                                  that allows the io_uring system calls"
            .into()),
        Err(Errno::PERM | Errno::ACCESS) => {
            Err("io_uring is forbidden: in a container, allow the \
                                                 io_uring system calls in the seccomp profile; \
                                                 elsewhere, set the sysctl \
                                                 kernel.io_uring_disabled to 0"
                .into())
        }
        Err(error) => Err(format!("io_uring does not work here: {error}")),
    }
}

/// Makes each of io_uring's three calls, because a sandbox may forbid any of them.
fn make_a_ring() -> Result<(), Errno> {
    let mut params = io_uring_params::default();
    // SAFETY: no flags are set, so no other ring is attached to. The ring is closed when the descriptor is
    // dropped. Nothing is submitted, and no files are registered that the last call could remove.
    unsafe {
        let ring = io_uring_setup(2, &mut params)?;
        io_uring_enter(&ring, 0, 0, IoringEnterFlags::empty())?;
        match io_uring_register(&ring, IoringRegisterOp::UnregisterFiles, ptr::null(), 0) {
            Ok(_) | Err(Errno::NXIO) => Ok(()), // there are none
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;

    #[test]
    fn a_thread_that_waits_is_not_runnable() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let look = || look_at(own).unwrap();
        while look().cpu < Duration::from_millis(20) {}
        assert!(look().is_runnable);
        let id = AtomicI32::new(0);
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| {
                id.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
                std::thread::park();
            });
            let look = || look_at(id.load(Ordering::Relaxed)); // `None` until the thread has begun
            while look().is_none_or(|thread| thread.is_runnable) {
                std::thread::yield_now();
            }
            parked.thread().unpark();
        });
        assert_eq!(look_at(0), None);
    }

    /// A client that closes the whole connection rejects bytes.
    #[test]
    fn a_client_that_left_and_one_that_closed_its_half_differ() {
        use std::io::Write;
        use std::net::{Shutdown, TcpListener, TcpStream};
        use std::os::fd::AsFd;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for leaves in [false, true] {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            assert_eq!(look_at_client(server.as_fd()), Client::IsThere);
            let eventually = |expected| {
                let began = std::time::Instant::now();
                while look_at_client(server.as_fd()) != expected {
                    assert!(began.elapsed() < Duration::from_secs(10), "never {expected:?}");
                    std::thread::yield_now();
                }
            };
            client.shutdown(Shutdown::Write).unwrap();
            let client = (!leaves).then_some(client);
            eventually(Client::SendsNoMore);
            (&server).write_all(b"H").unwrap();
            eventually(if leaves { Client::IsGone } else { Client::SendsNoMore });
            server.flush().unwrap();
            drop(client);
        }
    }

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert_eq!(version_of("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.10.223+"), Some((5, 10)));
        assert!(version_of("5.4.0").unwrap() < KERNEL_VERSION_MIN);
        assert!(version_of("5.10").unwrap() > KERNEL_VERSION_MIN);
        assert_eq!(version_of("unknown"), None);
    }
}
