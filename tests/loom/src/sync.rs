//! `src/ring/sync.rs` and `src/kernels/compute/sync.rs`, by loom.

pub use loom::sync::atomic::{Ordering, fence};
pub use loom::thread::{Thread, current, park};

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::AtomicUsize;
use loom::sync::{Condvar, Mutex, Notify};

/// loom's `AtomicBool`, with swaps for stores.
///
/// No store can come between a swap and the store that it read. loom 0.7 does not enforce this rule
/// against plain stores, only between swaps. It finds a false deadlock with plain stores: a ringer's
/// swap reads the `false` of a withdrawal, the sleeper announces sleep again, and the ringer's next
/// load still returns the `false` of its own older swap.
#[derive(Debug, Default)]
pub struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub fn load(&self, ordering: Ordering) -> bool {
        self.0.load(ordering)
    }

    pub fn store(&self, value: bool, ordering: Ordering) {
        self.0.swap(value, ordering);
    }

    pub fn swap(&self, value: bool, ordering: Ordering) -> bool {
        self.0.swap(value, ordering)
    }
}

/// loom's `AtomicU32`, with swaps for stores as above, and with the kernel's queue of the threads that
/// sleep at it.
#[derive(Debug, Default)]
pub struct AtomicU32 {
    value: loom::sync::atomic::AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl AtomicU32 {
    pub fn load(&self, ordering: Ordering) -> u32 {
        self.value.load(ordering)
    }

    pub fn store(&self, value: u32, ordering: Ordering) {
        self.value.swap(value, ordering);
    }

    pub fn fetch_add(&self, value: u32, ordering: Ordering) -> u32 {
        self.value.fetch_add(value, ordering)
    }

    pub fn fetch_sub(&self, value: u32, ordering: Ordering) -> u32 {
        self.value.fetch_sub(value, ordering)
    }
}

pub use loom::sync::atomic::AtomicU64;

/// loom's cell, which finds accesses at once.
#[derive(Debug)]
pub struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.0.with(read)
    }

    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(write)
    }
}

/// Lets other threads run.
pub fn give_way() {
    loom::thread::yield_now();
}

/// A futex: the kernel compares the number while it holds the lock of the queue.
pub fn sleep_while(word: &AtomicU32, number: u32) {
    let queue = word.queue.lock().unwrap();
    if word.load(Ordering::Relaxed) == number {
        drop(word.woken.wait(queue).unwrap());
    }
}

/// Wakes the threads in the queue of a futex.
pub fn wake_all(word: &AtomicU32) {
    let _queue = word.queue.lock().unwrap();
    word.woken.notify_all();
}

/// Pieces of a task on a board.
pub const PIECES_MAX: usize = 2;

/// Nobody polls.
pub const POLLS: u32 = 0;

/// Polling lets other threads run.
pub fn relax() {
    loom::thread::yield_now();
}

/// A watch on which no time passes.
pub struct Stopwatch;

impl Stopwatch {
    pub fn start() -> Self {
        Self
    }

    pub fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// As much of the standard library's `OnceLock` as bells use, for one thread that initialises it.
/// Like that one, it shows its value to whoever sees, with Acquire, that it is there.
#[derive(Debug)]
pub struct OnceLock<T> {
    made: Cell<bool>, // for the thread that initialises it
    is_set: AtomicBool,
    value: loom::cell::UnsafeCell<Option<T>>,
}

// SAFETY: loom's threads are coroutines on one thread, and loom checks the accesses to `value`.
unsafe impl<T> Sync for OnceLock<T> {}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self {
            made: Cell::new(false),
            is_set: AtomicBool::default(),
            value: loom::cell::UnsafeCell::new(None),
        }
    }
}

impl<T> OnceLock<T> {
    pub fn get(&self) -> Option<&T> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: it was written before `is_set`, and is never written again.
        self.value.with(|value| unsafe { (*value).as_ref() })
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) {
        if !self.made.replace(true) {
            // SAFETY: only one thread initialises it, and nobody reads it before `is_set`.
            self.value.with_mut(|value| unsafe { *value = Some(make()) });
            self.is_set.store(true, Ordering::Release);
        }
    }
}

/// Both ends of a socket. Bytes that have not been read are one wake-up, as for an executor that
/// reads them all.
#[derive(Debug)]
pub struct UnixStream(Arc<Notify>);

impl UnixStream {
    pub fn pair() -> io::Result<(Self, Self)> {
        let wake_up = Arc::new(Notify::new());
        Ok((Self(wake_up.clone()), Self(wake_up)))
    }

    pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// Sleeps until the socket is readable, and empties it. Once, it also wakes up for no reason, as
    /// an executor does for another socket.
    pub fn sleep(&self) {
        self.0.wait();
    }
}

impl Write for &UnixStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.notify();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As much of rtrb 0.4 as links use, with the same memory orderings. Each side stores its own index
/// with Release. It loads the other side's index with Acquire, and only if its copy does not do.
///
/// loom checks that no slot is read and written at once.
pub struct RingBuffer<T> {
    /// Items ever popped.
    head: AtomicUsize,
    /// Items ever pushed.
    tail: AtomicUsize,
    slots: Box<[loom::cell::UnsafeCell<Option<T>>]>,
}

impl<T> RingBuffer<T> {
    #[allow(clippy::new_ret_no_self)] // like rtrb's
    pub fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
        let ring = Arc::new(Self {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: (0..capacity).map(|_| loom::cell::UnsafeCell::new(None)).collect(),
        });
        (
            Producer { ring: ring.clone(), head: 0, tail: 0 },
            Consumer { ring, head: 0, tail: Cell::new(0) },
        )
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, index: usize) -> &loom::cell::UnsafeCell<Option<T>> {
        &self.slots[index % self.slots.len()]
    }
}

/// The producer's side of a ring.
pub struct Producer<T> {
    ring: Arc<RingBuffer<T>>,
    head: usize,
    tail: usize,
}

impl<T> Producer<T> {
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.tail - self.head == self.ring.capacity() {
            self.head = self.ring.head.load(Ordering::Acquire);
            if self.tail - self.head == self.ring.capacity() {
                return Err(item);
            }
        }
        // SAFETY: the consumer reads the slot only between the new `tail` and the new `head`.
        self.ring.slot(self.tail).with_mut(|slot| unsafe { *slot = Some(item) });
        self.tail += 1;
        self.ring.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    pub fn buffer(&self) -> &RingBuffer<T> {
        &self.ring
    }
}

/// The consumer's side of a ring.
pub struct Consumer<T> {
    ring: Arc<RingBuffer<T>>,
    head: usize,
    tail: Cell<usize>,
}

impl<T> Consumer<T> {
    pub fn is_empty(&self) -> bool {
        if self.head == self.tail.get() {
            self.tail.set(self.ring.tail.load(Ordering::Acquire));
        }
        self.head == self.tail.get()
    }

    pub fn pop(&mut self) -> Result<T, Empty> {
        if self.is_empty() {
            return Err(Empty);
        }
        // SAFETY: the producer writes the slot only before the new `tail` and after the new `head`.
        let item = self.ring.slot(self.head).with_mut(|slot| unsafe { (*slot).take() });
        self.head += 1;
        self.ring.head.store(self.head, Ordering::Release);
        Ok(item.expect("the producer has filled it"))
    }
}

/// The ring is empty.
#[derive(Debug)]
pub struct Empty;
