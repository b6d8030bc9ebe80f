//! Waking a lane that has gone to sleep beside an empty ring.
//!
//! `rtrb` cannot wake anybody. Each ring is paired with a bell, which costs
//! its ringer one fence and one relaxed load while the other side is awake.
//!
//! The sleeper announces that it sleeps and then looks at the ring once more;
//! the ringer pushes and then looks for the announcement. With a sequentially
//! consistent fence between the two halves on both sides, at least one of
//! them sees the other (Dekker), so no wake-up is lost.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The announcement, shared by both kinds of bell.
#[derive(Debug, Default)]
struct Asleep(AtomicBool);

impl Asleep {
    /// Sleeper: announce, then look again before really sleeping.
    fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeper: awake.
    fn withdraw(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Ringer, after the push: true when the sleeper must be woken, to one
    /// ringer only.
    fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Wakes a plain thread (the decode lane, the prepare lane) by `unpark`.
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

    /// Nothing more will be pushed. The sleeper wakes for good.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ring();
    }

    /// True after [`ThreadBell::close`]; what was pushed before it is visible.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits on the calling thread, always the same one, until `ready` or
    /// closed: polls for `spin`, then parks.
    pub fn wait(&self, spin: Duration, ready: impl Fn() -> bool) {
        let ready = || ready() || self.is_closed();
        let start = Instant::now();
        while !ready() {
            if start.elapsed() < spin {
                std::hint::spin_loop();
                continue;
            }
            self.sleeper.get_or_init(std::thread::current);
            self.asleep.announce();
            if !ready() {
                std::thread::park();
            }
            self.asleep.withdraw();
        }
    }
}

/// Wakes the front lane, whose executor sleeps in the kernel on its sockets:
/// one of them is the other end of this one.
///
/// Not glommio's own cross-thread waker: that one sends through an unbounded
/// channel, which allocates on the ringer's side.
#[derive(Debug)]
pub struct SocketBell {
    asleep: Asleep,
    socket: UnixStream,
}

impl SocketBell {
    /// The bell, and the socket that becomes readable when it rings.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> io::Result<(Self, UnixStream)> {
        let (socket, sleeper) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        sleeper.set_nonblocking(true)?;
        Ok((Self { asleep: Asleep::default(), socket }, sleeper))
    }

    /// Wakes the front lane, if it sleeps. Call after the push.
    pub fn ring(&self) {
        if self.asleep.take() {
            // A full socket means that a wake-up is already on its way; a
            // closed one, that the front lane has ended. Neither needs this byte.
            let _ = (&self.socket).write(&[1]);
        }
    }

    /// Front lane: announce sleep; then look at the rings again, and sleep
    /// only if they are still empty.
    pub fn announce(&self) {
        self.asleep.announce();
    }

    /// Front lane: awake.
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
