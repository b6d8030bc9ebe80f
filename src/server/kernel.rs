//! Checks that the kernel has what the executor needs. Without the check, glommio would panic
//! instead of giving a clear error.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::io_uring::{io_uring_params, io_uring_setup};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::DESCRIPTORS_RESERVED;

/// Checks for io_uring and for lockable memory.
///
/// # Errors
/// A sentence that says what is missing and what to change.
pub fn check() -> Result<(), String> {
    check_memlock()?;
    check_io_uring()
}

/// Raises the soft limit on open files, often 1,024, to the hard limit, because each connection is
/// a file. If the kernel refuses, the limit stays.
pub fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Whether the descriptors after this one, which is new, are to be kept for other lanes and for
/// health checks. New descriptors have the lowest free number.
pub(super) fn are_descriptors_short(new: &impl AsRawFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return false };
    let reserved = (DESCRIPTORS_RESERVED as u64).min(limit / 4);
    new.as_raw_fd() as u64 >= limit - reserved // descriptors are not negative
}

/// Whether a socket has something to read or to accept.
pub(super) fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let mut look = [PollFd::new(&socket, PollFlags::IN)];
    poll(&mut look, Some(&Timespec::default())).is_ok_and(|count| count > 0)
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
    let mut params = io_uring_params::default();
    // SAFETY: no flags are set, so no other ring is attached to. The ring is
    // closed when the descriptor is dropped.
    match unsafe { io_uring_setup(2, &mut params) } {
        Ok(_ring) => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert_eq!(version_of("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.10.223+"), Some((5, 10)));
        assert!(version_of("5.4.0").unwrap() < KERNEL_VERSION_MIN);
        assert!(version_of("5.10").unwrap() > KERNEL_VERSION_MIN);
        assert_eq!(version_of("unknown"), None);
    }
}
