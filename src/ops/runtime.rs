//! Starts `may`, the coroutine runtime of the ops lane, once per process, and undoes its side
//! effects on other lanes.

use std::sync::Once;

use crate::limits::OPS_CONNECTIONS_MAX;

/// Stack of each connection of the ops lane. Its pages take memory only when they are used.
const OPS_STACK_BYTES: usize = 256 * 1024;

/// Starts the runtime, unless it is running. Its threads take the calling thread's name, cores and
/// priority.
///
/// **Invariant:** faults (such as SIGSEGV) on other lanes are reported as if there were no runtime.
/// The runtime installs handlers for SIGSEGV and SIGBUS that work for coroutines only; this
/// restores the earlier handlers.
pub fn start() {
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
