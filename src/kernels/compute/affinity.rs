//! Which cores a thread may run on.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread.
///
/// # Errors
/// If the kernel refuses.
pub fn pin_this_thread(cores: &[usize]) -> rustix::io::Result<()> {
    pin(None, cores)
}

/// Pins a thread of this process, or the calling one, to some cores.
///
/// # Errors
/// As [`pin_this_thread`].
pub fn pin(thread: Option<Pid>, cores: &[usize]) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(thread, &set)
}
