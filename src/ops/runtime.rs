//! `may`, the coroutine runtime under the ops lane: started once in a process,
//! and kept to itself.

use std::sync::Once;

use crate::limits::{OPS_CONNECTIONS_MAX, OPS_STACK_BYTES};

/// Starts the runtime, if it has not been. Its threads take the calling
/// thread's name, cores and priority.
///
/// **Invariant:** a fault of another lane is reported as if the runtime were
/// not there: it installs handlers for SIGSEGV and SIGBUS that know coroutines
/// only, and the ones from before are put back.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        may::config()
            .set_workers(1)
            .set_pool_capacity(OPS_CONNECTIONS_MAX)
            .set_stack_size(OPS_STACK_BYTES / size_of::<usize>())
            .set_worker_pin(false); // it would go to the first core, the front lane's
        let before = [libc::SIGSEGV, libc::SIGBUS].map(|signal| (signal, handler(signal)));
        // The first coroutine to run installs them.
        // SAFETY: it does nothing.
        let first = unsafe { may::coroutine::spawn(|| ()) };
        first.join().expect("it does not panic");
        for (signal, handler) in before {
            // SAFETY: this handler was installed until a moment ago.
            unsafe { libc::sigaction(signal, &raw const handler, std::ptr::null_mut()) };
        }
    });
}

/// How a signal is handled now.
fn handler(signal: i32) -> libc::sigaction {
    // SAFETY: all bytes zero is a valid value, and is overwritten: without a
    // new action, the call only reads the old one. It fails for no real signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handlers_of_faults_stay() {
        let before = [libc::SIGSEGV, libc::SIGBUS].map(|signal| handler(signal).sa_sigaction);
        start();
        start();
        let after = [libc::SIGSEGV, libc::SIGBUS].map(|signal| handler(signal).sa_sigaction);
        assert_eq!(before, after);
    }
}
