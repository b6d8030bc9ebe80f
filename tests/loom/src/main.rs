//! Tries all interleavings of the bells that wake lanes, with the server's own `src/ring/bell.rs`.
//!
//! A lost wake-up is a deadlock here, which loom reports with the interleaving that leads to it.
//! The ring is as much of rtrb's as matters: the producer's index, stored with Release and loaded
//! with Acquire.
//!
//! ```sh
//! cargo run --release --manifest-path tests/loom/Cargo.toml
//! ```

#[path = "../../../src/ring/bell.rs"]
#[allow(dead_code)] // the socket bell's socket is not modelled
mod bell;
mod sync;

use std::time::Duration;

use bell::ThreadBell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

fn main() {
    run("a lane gets what is pushed", a_lane_gets_what_is_pushed);
    run("what is pushed before the end is seen", what_is_pushed_before_the_end_is_seen);
    run("a lane that is closed at once ends", a_lane_that_is_closed_at_once_ends);
}

fn run(name: &str, model: fn()) {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = count.clone();
    loom::model(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    println!("{name}: {} interleavings", count.load(std::sync::atomic::Ordering::Relaxed));
}

/// The pushed items, as the consumer sees them.
#[derive(Clone)]
struct Pushed(Arc<AtomicUsize>);

impl Pushed {
    fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    fn set(&self, count: usize) {
        self.0.store(count, Ordering::Release);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

fn a_lane_gets_what_is_pushed() {
    let (bell, pushed) = (Arc::new(ThreadBell::default()), Pushed::new());
    let lane = thread::spawn({
        let (bell, pushed) = (bell.clone(), pushed.clone());
        move || {
            bell.wait(Duration::ZERO, || pushed.count() > 0);
            assert_eq!(pushed.count(), 1);
        }
    });
    pushed.set(1);
    bell.ring();
    lane.join().unwrap();
}

fn what_is_pushed_before_the_end_is_seen() {
    let (bell, pushed) = (Arc::new(ThreadBell::default()), Pushed::new());
    let lane = thread::spawn({
        let (bell, pushed) = (bell.clone(), pushed.clone());
        move || {
            bell.wait(Duration::ZERO, || pushed.count() > 0);
            if bell.is_closed() {
                assert_eq!(pushed.count(), 1);
            }
        }
    });
    pushed.set(1);
    bell.ring();
    bell.close();
    lane.join().unwrap();
}

fn a_lane_that_is_closed_at_once_ends() {
    let bell = Arc::new(ThreadBell::default());
    let lane = thread::spawn({
        let bell = bell.clone();
        move || bell.wait(Duration::ZERO, || false)
    });
    bell.close();
    lane.join().unwrap();
}
