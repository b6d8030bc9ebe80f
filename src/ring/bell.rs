//! Bells: they wake a lane that sleeps beside an empty ring.
//!
//! `rtrb` cannot wake a thread, so each lane has a bell. While the lane is awake, ringing it
//! costs one fence and one relaxed load.
//!
//! The sleeper announces that it will sleep, and then looks at the ring once more. The ringer
//! pushes, and then looks for the announcement. Both sides have a sequentially consistent fence
//! between the two. So at least one of them sees the other (Dekker's algorithm), and no wake-up is
//! lost.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::sync::{AtomicBool, OnceLock, Ordering, Thread, UnixStream, current, fence, park};

/// The announcement that a lane sleeps. Both kinds of bell have one.
#[derive(Debug, Default)]
struct Asleep(AtomicBool);

impl Asleep {
    /// For the sleeper: announces sleep. It must look at the ring once more before it sleeps.
    fn announce(&self) {
        // Release: a ringer that sees the announcement also sees the thread registered before it.
        self.0.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// For the sleeper: it is awake.
    fn withdraw(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// For the ringer, after its push: true if it must wake the sleeper. Only one of several
    /// ringers gets true.
    fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

/// Wakes a plain thread, such as the decode lane or the prepare lane, with `unpark`.
#[derive(Debug, Default)]
pub struct ThreadBell {
    asleep: Asleep,
    closed: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl ThreadBell {
    /// Wakes the sleeper, if it sleeps. Call after the push.
    pub fn ring(&self) {
        if self.asleep.take() {
            self.sleeper.get().expect("a sleeper registers before it sleeps").unpark();
        }
    }

    /// Closes the bell: nothing more will be pushed. The sleeper wakes and never waits again.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ring();
    }

    /// True after [`ThreadBell::close`]. Everything pushed before is visible.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until `ready` returns true or the bell is closed: polls for `spin`, then parks. Always
    /// called by the same thread.
    pub fn wait(&self, spin: Duration, ready: impl Fn() -> bool) {
        let ready = || ready() || self.is_closed();
        let start = Instant::now();
        while !ready() {
            if start.elapsed() < spin {
                std::hint::spin_loop();
                continue;
            }
            self.sleeper.get_or_init(current);
            self.asleep.announce();
            if !ready() {
                park();
            }
            self.asleep.withdraw();
        }
    }
}

/// Wakes the front lane, whose executor sleeps in the kernel: makes a socket readable that the
/// executor waits for.
///
/// glommio's own waker between threads would allocate on the ringer's side, because it sends
/// through an unbounded channel.
#[derive(Debug)]
pub struct SocketBell {
    asleep: Asleep,
    socket: UnixStream,
}

impl SocketBell {
    /// Makes the bell, and the socket that becomes readable when it rings.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    pub fn new() -> io::Result<(Self, UnixStream)> {
        let (socket, sleeper) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        sleeper.set_nonblocking(true)?;
        Ok((Self { asleep: Asleep::default(), socket }, sleeper))
    }

    /// Wakes the front lane, if it sleeps. Call after the push.
    pub fn ring(&self) {
        if self.asleep.take() {
            // If the socket is full, a wake-up is on its way already. If it is closed, the front
            // lane has ended. In both cases this byte is not needed.
            let _ = (&self.socket).write(&[1]);
        }
    }

    /// For the front lane: announces sleep. It must look at the rings once more, and sleep only if
    /// they are still empty.
    pub fn announce(&self) {
        self.asleep.announce();
    }

    /// For the front lane: it is awake.
    pub fn withdraw(&self) {
        self.asleep.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn no_wake_up_is_lost() {
        let bell = Arc::new(ThreadBell::default());
        let (mut tx, mut rx) = rtrb::RingBuffer::<u32>::new(2);
        let sleeper = std::thread::spawn({
            let bell = bell.clone();
            move || {
                let mut received = 0;
                while received < 20_000 {
                    bell.wait(Duration::ZERO, || !rx.is_empty());
                    while let Ok(value) = rx.pop() {
                        assert_eq!(value, received);
                        received += 1;
                    }
                }
            }
        });
        for value in 0..20_000 {
            while tx.push(value).is_err() {
                std::thread::yield_now();
            }
            bell.ring();
        }
        sleeper.join().unwrap();
    }

    #[test]
    fn closing_ends_the_wait() {
        let bell = Arc::new(ThreadBell::default());
        let sleeper = std::thread::spawn({
            let bell = bell.clone();
            move || bell.wait(Duration::ZERO, || false)
        });
        bell.close();
        sleeper.join().unwrap();
    }
}
