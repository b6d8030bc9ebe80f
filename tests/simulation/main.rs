//! Simulations: everything but sockets and the real model, on one thread, in made-up time.
//!
//! [`world`] drives the whole engine: JSON bodies go in, bytes come out. [`interleavings`] drives
//! the scheduler and the decode lane alone, in more orders than the engine ever uses.
//!
//! A seed that fails prints the line that repeats it. More seeds than the tests run:
//!
//! ```sh
//! SIMULATION_SEEDS=100000 cargo test --release --test simulation whole
//! ```

mod drafter;
mod interleavings;
mod joining;
mod kept;
mod reference;
mod request;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use world::{Fault, Tally, World};

/// The seeds that the tests run.
const SEEDS: u64 = 2_000;

/// Prints how to repeat a seed, when it fails.
struct Repeat(u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "repeat with: SIMULATION_SEED={seed} cargo test --release --test simulation whole"
            );
        }
    }
}

fn run(seed: u64) -> Tally {
    let _repeat = Repeat(seed);
    let (mut tally, left) = World::new(seed, None, None).run();
    if left.is_some() {
        let (again, _) = World::new(seed, None, left).run(); // after a restart
        add(&mut tally, again);
    }
    tally
}

fn add(total: &mut Tally, tally: Tally) {
    for (name, count) in tally {
        *total.entry(name).or_default() += count;
    }
}

/// A number that the environment gives.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; it must be a number")))
}

#[test]
fn the_whole_engine_answers_every_request_as_if_it_were_alone() {
    if let Some(seed) = number("SIMULATION_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let seeds = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return tally;
            }
            add(&mut tally, run(seed));
        }
    };
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            add(&mut total, thread.join().expect("the seed above failed"));
        }
    });
    println!("{total:?}");
    // The mix is worth something only if everything happened often. Counts for 100 seeds:
    for (name, at_least) in [
        ("served", 1_000),
        ("refused", 200),
        ("wrong", 200),
        ("left", 100),
        ("late", 50),
        ("failed", 2),
        ("tokens", 20_000),
        ("failed steps", 50),
        ("hung steps", 20),
        ("retried", 100),
        ("preempted", 25),
        ("guesses", 2_000),
        ("guesses kept", 1_000),
        ("masks", 200),
        ("late masks", 2),
        ("cached", 2_000),
        ("evicted", 10_000),
        ("pages stored", 500),
        ("restored", 500),
        ("states restored", 10),
        ("starts from logits", 0), // once at least
        ("lost windows", 0),
        ("pages written", 100),
        ("pages read", 20),
        ("fetched", 50),
        ("states written", 5),
        ("states read", 1),
        ("files removed", 20),
        ("failed file jobs", 20),
        ("slot tasks", 50),
        ("pages saved", 50),
        ("files of slots listed", 3),
        ("keys changed", 40),
        ("removed", 40),
        ("ended with its key", 30),
        ("kept", 100),
        ("continued", 20),
        ("not found", 20),
        ("dismissed", 20),
        ("without a place", 5),
    ] {
        assert!(100 * total[name] > at_least * seeds, "{name}: {total:?}");
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// The first of some seeds in which a broken rule is noticed, and the words.
fn noticed(fault: Fault) -> String {
    for seed in 0..200 {
        let run = || World::new(seed, Some(fault), None).run();
        let Err(panic) = std::panic::catch_unwind(run) else { continue };
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        return words.expect("a panic has words");
    }
    panic!("200 seeds, and nobody noticed: {fault:?}");
}

#[test]
fn a_lost_wake_up_is_noticed() {
    let words = noticed(Fault::LostWakeUp);
    assert!(words.contains("nobody wakes the client"), "{words}");
}

#[test]
fn a_stop_string_cut_in_two_is_noticed() {
    let words = noticed(Fault::StopStringCutInTwo);
    assert!(words.contains("left == right"), "{words}");
}

#[test]
fn a_slot_freed_twice_is_noticed() {
    noticed(Fault::SlotFreedTwice);
}

#[test]
fn an_ignored_deadline_is_noticed() {
    let words = noticed(Fault::DeadlineIgnored);
    assert!(words.contains("timeout"), "{words}");
}

#[test]
fn a_response_with_the_turns_of_another_is_noticed() {
    let words = noticed(Fault::OtherTurnKept);
    assert!(words.contains("left == right") || words.contains("the prompt's own"), "{words}");
}

#[test]
fn a_key_that_is_only_its_place_is_noticed() {
    let words = noticed(Fault::KeyIsItsPlace);
    assert!(words.contains("its own"), "{words}");
}

#[test]
fn a_miscounted_usage_is_noticed() {
    let words = noticed(Fault::UsageMiscounted);
    assert!(words.contains("left == right"), "{words}");
}
