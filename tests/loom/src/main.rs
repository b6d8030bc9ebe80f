//! Tries all interleavings of the lanes at their links and bells, and of the compute threads at their
//! barrier, with the server's own `src/ring/link.rs`, `src/ring/bell.rs`, `src/kernels/compute/gate.rs` and
//! `src/kernels/compute/barrier.rs`.
//!
//! A lost wake-up is a deadlock here, on which loom panics. With `LOOM_LOCATION=1`, it names the
//! lines at which the lanes wait. The rings and the socket are stand-ins, in [`sync`]. Lanes sleep
//! without polling first.
//!
//! The largest models would take minutes to hours. Of these, loom tries only interleavings with a
//! limited number of preemptions (`Some(n)` below). `LOOM_MAX_PREEMPTIONS` sets one limit for all
//! models.
//!
//! ```sh
//! cargo run --release --manifest-path tests/loom/Cargo.toml
//! ```

#[path = "../../../src/kernels/compute/barrier.rs"]
mod barrier;
#[path = "../../../src/ring/bell.rs"]
mod bell;
#[path = "../../../src/kernels/compute/board.rs"]
#[allow(dead_code)] // the models do not need every item
mod board;
#[path = "../../../src/kernels/compute/gate.rs"]
mod gate;
#[path = "../../../src/ring/link.rs"]
#[allow(dead_code)] // the models do not need every method
mod link;
mod sync;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic;
use std::time::{Duration, Instant};

use barrier::Barrier;
use bell::{SocketBell, ThreadBell};
use board::{Board, Task};
use gate::Gate;
use link::link;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sync::UnixStream;

fn main() {
    try_all("a lane gets what is pushed", None, a_lane_gets_what_is_pushed);
    try_all("what is pushed before the end is seen", None, what_is_pushed_before_the_end_is_seen);
    try_all("two lanes wake the front lane", Some(3), two_lanes_wake_the_front_lane);
    try_all("an item comes back, and its place is reused", Some(3), || items_come_back(1, 2));
    try_all("two items in flight come back", Some(4), || items_come_back(2, 2));
    try_all("two items in flight, and a third", Some(2), || items_come_back(2, 3));
    try_all("the front lane ends at once", None, || the_front_lane_ends(0));
    try_all("the front lane ends with an item in flight", None, || the_front_lane_ends(1));
    try_all("the front lane ends with two items in flight", Some(4), || the_front_lane_ends(2));
    try_all("a gate publishes earlier writes", None, a_gate_publishes_earlier_writes);
    try_all("a leader and a helper at a board", Some(3), || tasks_are_done(1, 2));
    try_all("a leader and a helper, and slots used again", Some(2), || tasks_are_done(1, 4));
    try_all("a leader and two helpers at a board", Some(2), || tasks_are_done(2, 1));
    try_all("two threads at a barrier, twice", Some(4), || threads_pass_a_barrier(2, 2));
    try_all("three threads at a barrier, twice", Some(2), || threads_pass_a_barrier(3, 2));
}

/// Tries the interleavings of a model: all of them, or those with at most `preemptions` preemptions.
fn try_all(name: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    print!("{name}: ");
    std::io::stdout().flush().unwrap();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    let limit = builder.preemption_bound.map_or("any".into(), |most| format!("up to {most}"));
    let start = Instant::now();
    let count = Arc::new(atomic::AtomicUsize::new(0));
    builder.check({
        let count = count.clone();
        move || {
            count.fetch_add(1, Ordering::Relaxed);
            model();
        }
    });
    let count = count.load(Ordering::Relaxed);
    println!("{count} interleavings, {limit} preemptions, {:.1?}", start.elapsed());
}

/// Two numbers are written, each before the gate is set. A thread that waits at the gate sees them.
fn a_gate_publishes_earlier_writes() {
    let (gate, written) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let waiting = thread::spawn({
        let (gate, written) = (gate.clone(), written.clone());
        move || {
            let mut seen = 0;
            while seen < 2 {
                gate.wait(seen, Duration::ZERO);
                seen = gate.number();
                assert!(written.load(Ordering::Relaxed) >= seen as usize);
            }
        }
    });
    for number in 1..=2 {
        written.store(number as usize, Ordering::Relaxed);
        gate.set(number);
    }
    waiting.join().unwrap();
}

/// A task of two pieces, which adds its number to a result of two.
#[derive(Clone, Copy)]
struct Add {
    number: usize,
    results: *const [loom::cell::UnsafeCell<usize>; 2],
}

// SAFETY: the results outlive the model's threads.
unsafe impl Send for Add {}
// SAFETY: as above.
unsafe impl Sync for Add {}

// SAFETY: `compute` writes the piece's result.
unsafe impl Task for Add {
    type Aside = usize;

    fn pieces(&self) -> usize {
        2
    }

    unsafe fn compute(&self, piece: usize) {
        // SAFETY: the results are alive; loom finds two threads that write at once.
        unsafe { (*self.results)[piece].with_mut(|result| *result = self.number) };
    }

    unsafe fn compute_aside(&self, _piece: usize, aside: &mut usize) {
        *aside = self.number;
    }

    unsafe fn write(&self, piece: usize, aside: &usize) {
        // SAFETY: as above.
        unsafe { (*self.results)[piece].with_mut(|result| *result = *aside) };
    }
}

/// The leader sees all results of each task, whatever the helpers do.
fn tasks_are_done(helpers: usize, tasks: usize) {
    let board = Arc::new(Board::<Add>::new(helpers));
    let results = Arc::new([loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)]);
    let helping: Vec<_> = (0..helpers)
        .map(|helper| {
            let (board, results) = (board.clone(), results.clone());
            thread::spawn(move || {
                // SAFETY: each helper has its number.
                (0..2).for_each(|_| unsafe { board.help(helper, &mut 0) });
                drop(results); // alive until here
            })
        })
        .collect();
    for number in 1..=tasks {
        let task = Add { number, results: Arc::as_ptr(&results) };
        // SAFETY: this thread is the leader, and the results are alive.
        unsafe {
            match board.free_slot() {
                Some(slot) => {
                    board.post(slot, task);
                    board.finish(&task);
                }
                None => (0..2).for_each(|piece| task.compute(piece)),
            }
            for result in results.iter() {
                assert_eq!(result.with(|result| *result), number);
            }
        }
    }
    helping.into_iter().for_each(|helper| helper.join().unwrap());
}

/// Each thread writes before the barrier. Behind it, each sees the writes of all.
fn threads_pass_a_barrier(threads: usize, times: usize) {
    let barrier = Arc::new(Barrier::default());
    let written: Arc<Vec<AtomicUsize>> =
        Arc::new((0..threads).map(|_| AtomicUsize::new(0)).collect());
    let run = move |index: usize| {
        for time in 1..=times {
            written[index].store(time, Ordering::Relaxed);
            barrier.wait(threads as u32, Duration::ZERO);
            assert!(written.iter().all(|number| number.load(Ordering::Relaxed) >= time));
        }
    };
    let others: Vec<_> = (1..threads)
        .map(|index| {
            let run = run.clone();
            thread::spawn(move || run(index))
        })
        .collect();
    run(0);
    others.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two pushes and rings, without a link.
fn a_lane_gets_what_is_pushed() {
    let bell = Arc::new(ThreadBell::default());
    let pushed = Pushed::default();
    let lane = thread::spawn({
        let (bell, pushed) = (bell.clone(), pushed.clone());
        move || {
            for received in 0..2 {
                bell.wait(Duration::ZERO, || pushed.count() > received);
                assert!(pushed.count() > received);
            }
        }
    });
    for count in 1..=2 {
        pushed.set(count);
        bell.ring();
    }
    lane.join().unwrap();
}

/// A push without a ring. The closed bell alone makes it visible.
fn what_is_pushed_before_the_end_is_seen() {
    let bell = Arc::new(ThreadBell::default());
    let pushed = Pushed::default();
    let lane = thread::spawn({
        let (bell, pushed) = (bell.clone(), pushed.clone());
        move || {
            bell.wait(Duration::ZERO, || false);
            assert!(bell.is_closed());
            assert_eq!(pushed.count(), 1);
        }
    });
    pushed.set(1);
    bell.close();
    lane.join().unwrap();
}

/// Two lanes push, each into its own ring, and ring the front lane's bell.
fn two_lanes_wake_the_front_lane() {
    let (bell, socket) = SocketBell::new().unwrap();
    let bell = Arc::new(bell);
    let lanes = [(); 2].map(|()| {
        let pushed = Pushed::default();
        let lane = thread::spawn({
            let (bell, pushed) = (bell.clone(), pushed.clone());
            move || {
                pushed.set(1);
                bell.ring();
            }
        });
        (lane, pushed)
    });
    for (_, pushed) in &lanes {
        front_lane_waits(&bell, &socket, || pushed.count() == 1);
    }
    for (lane, _) in lanes {
        lane.join().unwrap();
    }
}

/// The front lane sends `items` and gets them back. The lane works like the decode lane.
fn items_come_back(capacity: usize, items: usize) {
    let (bell, socket) = SocketBell::new().unwrap();
    let bell = Arc::new(bell);
    let (mut front, mut lane) = link(capacity, bell.clone(), Duration::ZERO);
    let lane = thread::spawn(move || {
        let mut received = 0;
        while let Some(item) = lane.receive() {
            assert_eq!(*item, received, "in order");
            received += 1;
            lane.send(item);
        }
        assert_eq!(received, items);
    });
    let (mut sent, mut received) = (0, 0);
    while received < items {
        while sent < items && front.send(Box::new(sent)).is_ok() {
            sent += 1;
        }
        front_lane_waits(&bell, &socket, || front.is_ready());
        while let Some(item) = front.receive() {
            assert_eq!(*item, received, "in order");
            received += 1;
        }
    }
    drop(front);
    lane.join().unwrap();
}

/// The front lane sends `items` and ends. The lane gets them all, then it ends.
fn the_front_lane_ends(items: usize) {
    let (bell, _socket) = SocketBell::new().unwrap();
    let (mut front, mut lane) = link(items.max(1), Arc::new(bell), Duration::ZERO);
    let lane = thread::spawn(move || {
        for expected in 0..items {
            let item = lane.receive().expect("it was sent before the end");
            assert_eq!(*item, expected, "in order");
            lane.send(item);
        }
        assert!(lane.receive().is_none());
        assert!(lane.is_closed());
        assert!(lane.try_receive().is_none());
    });
    for item in 0..items {
        assert!(front.send(Box::new(item)).is_ok(), "the link has room for every item");
    }
    drop(front);
    lane.join().unwrap();
}

/// The front lane sleeps until `is_ready`, as `src/server/mod.rs` does.
fn front_lane_waits(bell: &SocketBell, socket: &UnixStream, is_ready: impl Fn() -> bool) {
    while !is_ready() {
        bell.announce();
        if !is_ready() {
            socket.sleep();
        }
        bell.withdraw();
    }
}

/// A ring reduced to the number of pushed items.
#[derive(Clone, Default)]
struct Pushed(Arc<AtomicUsize>);

impl Pushed {
    fn set(&self, count: usize) {
        self.0.store(count, Ordering::Release);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}
