//! Constrained texts whose masks take long: they wait for their masks, and nobody else does.

use std::time::Duration;

use corelane::constraint::{Compiler, Constraint};
use corelane::decode::mask_lane;
use corelane::limits::WALK_TOKENS_MAX;
use corelane::metrics::Metrics;
use corelane::model::vocab::Vocab;
use corelane::ring::message::MaskTask;
use corelane::scheduler::{Capacity, NewSequence, SequenceId};
use corelane::types::{KeyId, TokenId};
use serde_json::json;

use crate::support::world::{World, capacity};
use crate::support::{TestServer, config, mask_lane as link};

/// A stream of the first key beside `count` constrained texts of the second, whose masks take
/// `mask_us`.
fn stream_beside_masks(count: usize, mask_us: u32) -> (World, SequenceId, Vec<SequenceId>) {
    let mut world = World::new(Capacity { weights: vec![1.0, 1.0], ..capacity(8, 1000) });
    world.masks.insert(KeyId::at(1), mask_us);
    let new = world.request(10, 900);
    let stream = world.send(new).unwrap();
    let advanced = Some(World::endless());
    let send = |_| {
        let advanced = advanced.clone();
        let new = NewSequence { key: KeyId::at(1), advanced, ..world.request(10, 900) };
        world.send(new).unwrap()
    };
    let masked = (0..count).map(send).collect();
    for _ in 0..20 {
        world.step(); // the first masks are a surprise
    }
    (world, stream, masked)
}

fn tokens(world: &World, texts: &[SequenceId]) -> Vec<u32> {
    texts.iter().map(|id| world.served[id].tokens).collect()
}

#[test]
fn no_step_waits_for_a_slow_mask() {
    let (mut world, stream, masked) = stream_beside_masks(4, 200_000);
    let (began, before) = (world.now, world.served[&stream].tokens);
    world.served.get_mut(&stream).unwrap().longest_gap = Duration::ZERO;
    for _ in 0..400 {
        world.step();
    }
    // 20 ms for a step and 10 ms for a row. One mask ends in seven steps.
    let gap = world.served[&stream].longest_gap;
    assert!(gap <= Duration::from_millis(40), "two rows: {gap:?}");
    let mean = (world.now - began) / (world.served[&stream].tokens - before);
    assert!(mean < Duration::from_millis(35), "{mean:?}");
    let counts = tokens(&world, &masked);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 5 && most - least <= 2, "they take turns: {counts:?}");
    assert!(world.scheduler.served_tokens(KeyId::at(1)) > 4.0 * f64::from(*most * 4), "they pay");
}

/// Half of a step's time in masks is half of a step's price, and not nothing.
#[test]
fn masks_shorter_than_a_step_are_charged() {
    let mut served = Vec::new();
    for mask_us in [0, 14_000] {
        let (mut world, stream, masked) = stream_beside_masks(1, mask_us);
        world.scheduler.cancel(stream);
        let (before, began) =
            (world.served[&masked[0]].tokens, world.scheduler.served_tokens(KeyId::at(1)));
        for _ in 0..100 {
            world.step();
        }
        let tokens = world.served[&masked[0]].tokens - before;
        served.push((world.scheduler.served_tokens(KeyId::at(1)) - began) / f64::from(tokens));
    }
    assert!(served[0] < 1.1 && served[1] > 1.3, "for a token: {served:?}");
}

#[test]
fn slow_masks_alone_wait_for_nobody() {
    let (mut world, stream, masked) = stream_beside_masks(2, 200_000);
    world.scheduler.cancel(stream);
    let (began, before) = (world.now, tokens(&world, &masked).iter().sum::<u32>());
    for _ in 0..20 {
        assert!(world.step());
        assert_eq!(world.last.decode_rows, 1);
    }
    let sum = tokens(&world, &masked).iter().sum::<u32>();
    assert!(sum - before >= 19, "{sum} after {before}");
    // The lane computes the one's mask while the other's row runs.
    let mean = (world.now - began) / 20;
    assert!(mean <= Duration::from_millis(205), "{mean:?}");
}

#[test]
fn masks_shorter_than_the_step_are_in_every_step() {
    // Four rows take 60 ms, so their masks may take 30.
    for mask_us in [900, 4000] {
        for is_alone in [false, true] {
            let (mut world, stream, _) = stream_beside_masks(4, mask_us);
            if is_alone {
                world.scheduler.cancel(stream);
                world.step();
            }
            for _ in 0..50 {
                world.step();
                assert_eq!(world.last.decode_rows, if is_alone { 4 } else { 5 }, "{mask_us}");
            }
        }
    }
}

#[test]
fn masks_that_do_not_fit_into_half_of_a_step_leave_it() {
    let (mut world, stream, masked) = stream_beside_masks(7, 11_000);
    world.served.get_mut(&stream).unwrap().longest_gap = Duration::ZERO;
    let before = tokens(&world, &masked);
    for _ in 0..100 {
        world.step();
    }
    // Eight rows take 100 ms. Seven masks would take 77 ms more.
    let gap = world.served[&stream].longest_gap;
    assert!(gap <= Duration::from_millis(150), "{gap:?}");
    for (before, after) in before.iter().zip(tokens(&world, &masked)) {
        assert!(after - before >= 30, "every text goes on: {before} to {after}");
    }
}

/// Short texts that come without end do not overtake one that waits for its mask.
#[test]
fn new_slow_masks_do_not_overtake_old_ones() {
    let (mut world, _, masked) = stream_beside_masks(1, 200_000);
    let advanced = Some(World::endless());
    let before = world.served[&masked[0]].tokens;
    for _ in 0..800 {
        while world.scheduler.free_slots() > 0 && world.scheduler.waiting_count() == 0 {
            let advanced = advanced.clone();
            let new = NewSequence { key: KeyId::at(1), advanced, ..world.request(10, 3) };
            world.send(new).unwrap();
            world.step();
        }
        world.step();
    }
    let tokens = world.served[&masked[0]].tokens - before;
    assert!(tokens > 10, "one mask in seven: {tokens}");
}

/// A key that had slow masks makes new constraints without end, each with a slow mask.
#[test]
fn new_constraints_of_a_key_with_slow_masks_do_not_surprise_again() {
    let (mut world, stream, masked) = stream_beside_masks(1, 200_000);
    world.scheduler.cancel(masked[0]);
    world.served.get_mut(&stream).unwrap().longest_gap = Duration::ZERO;
    for _ in 0..20 {
        let advanced = Some(World::endless()); // compiled anew
        let new = NewSequence { key: KeyId::at(1), advanced, ..world.request(10, 3) };
        let id = world.send(new).unwrap();
        while !world.served[&id].ended {
            world.step();
        }
    }
    let gap = world.served[&stream].longest_gap;
    assert!(gap <= Duration::from_millis(100), "no mask of 200 ms in a step: {gap:?}");
}

#[test]
fn the_mask_lane_follows_a_text_and_frees_its_state() {
    let (mut front, lane) = link();
    let lane = std::thread::spawn(move || mask_lane::run(lane, &[1.0], &Metrics::default()));
    let mut compiler = Compiler::new(&Vocab::of_fake()).unwrap();
    let constraint = compiler.compile(&Constraint::Regex("ab|cd".into())).unwrap();
    let mut task = Box::new(MaskTask {
        sequence: Some(SequenceId { index: 0, serial: 0 }),
        constraint: Some(constraint),
        ..MaskTask::default()
    });
    let mut answer = |task: Box<MaskTask>| {
        assert!(front.send(task).is_ok());
        loop {
            if let Some(task) = front.receive() {
                return task;
            }
            std::thread::yield_now();
        }
    };
    let allowed = |task: &MaskTask| {
        let mut logits = vec![0.0; 257];
        task.allowed.as_ref().unwrap().apply(&mut logits);
        let is_left = |token: &TokenId| logits[*token as usize] == 0.0;
        (0..257).filter(is_left).collect::<Vec<TokenId>>()
    };
    task = answer(task);
    assert_eq!(allowed(&task), [i32::from(b'a'), i32::from(b'c')]);
    assert!(task.cost.bytes > 0);
    task.generated.push(b'c'.into());
    task = answer(task);
    assert_eq!(allowed(&task), [i32::from(b'd')]);
    task.generated.push(b'x'.into());
    task = answer(task);
    assert!(task.broken.is_some() && allowed(&task) == [256], "only an end may follow");
    task.sequence = None;
    task = answer(task);
    assert!(task.walk.is_none() && task.constraint.is_none() && task.generated.is_empty());
    drop(front);
    lane.join().unwrap();
}

/// A text that was preempted is followed from its start, in pieces: nobody's mask waits for all of
/// it.
#[test]
fn a_long_text_is_followed_in_pieces() {
    let mut compiler = Compiler::new(&Vocab::of_fake()).unwrap();
    let constraint = compiler.compile(&Constraint::Regex("[ -~]{3000}".into())).unwrap();
    let mut task = MaskTask {
        sequence: Some(SequenceId { index: 0, serial: 0 }),
        constraint: Some(constraint),
        generated: vec![b'a'.into(); 10 * WALK_TOKENS_MAX],
        ..MaskTask::default()
    };
    let mut pieces = 1;
    while !mask_lane::compute(&mut task) {
        assert!(task.allowed.is_none());
        pieces += 1;
    }
    assert!(pieces == 10 && task.allowed.is_some(), "{pieces}");
    task.generated.push(b'b'.into());
    assert!(mask_lane::compute(&mut task), "one more token is one piece");
}

/// With a real model: the grammar has more ways to go on with each letter, so its masks get slow,
/// and after some twenty tokens it is given up.
#[test]
fn a_text_with_slow_masks_keeps_to_its_grammar() {
    let server = TestServer::builtin(config());
    let grammar = "root ::= (a | b)* \na ::= [a-z ]* b? [a-z ]* \nb ::= [a-z ]* a? [a-z ]*";
    let body = json!({"prompt": "Once", "n_predict": 10, "grammar": grammar, "ignore_eos": true});
    for _ in 0..3 {
        let answer = server.post("/completion", &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.json());
        let text = answer.json()["content"].as_str().unwrap().to_owned();
        assert!(text.len() > 20, "{text}");
        assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()), "{text}");
    }
    // After the first text the constraint is known to be slow.
    let masks = server.metrics.masks.time_us.count();
    assert!(masks >= 20, "{masks} masks are the mask lane's");
}
