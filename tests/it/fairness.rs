//! Fairness of the scheduler, in numbers: no request starves, and each key gets its share of the
//! server and of the queue.

use std::sync::Arc;
use std::time::Duration;

use crate::support::world::{Served, World, capacity};
use corelane::scheduler::tuning::{MAKE_WAY_SHARE, SLOT_KEPT_STEPS};
use corelane::scheduler::{Capacity, NewSequence, Refusal, Scheduler, SequenceId};
use corelane::types::{CacheScope, KeyId, Sampling, TokenId};

/// Two keys of equal weight, one of which offers fifty times as much as the
/// other: they are served alike, as long as both want more than they get.
#[test]
fn keys_of_equal_weight_are_served_alike() {
    let mut world = World::new(Capacity { weights: vec![1.0, 1.0], ..capacity(8, 1024) });
    let ratio = serve_two_keys(&mut world, 8, Duration::from_secs(400));
    assert!((0.9..1.1).contains(&ratio), "the greedy key had {ratio} of the other's tokens");
}

/// With three times the weight, three times the tokens.
#[test]
fn keys_are_served_by_their_weight() {
    let mut world = World::new(Capacity { weights: vec![1.0, 3.0], ..capacity(8, 1024) });
    let ratio = 3.0 * serve_two_keys(&mut world, 24, Duration::from_secs(400));
    assert!((0.9..1.1).contains(&ratio), "the greedy key had {ratio} of its share");
}

/// A key that was alone has no debt afterwards, and a key that was idle has no credit.
#[test]
fn a_key_that_was_idle_is_owed_nothing() {
    for alone in [KeyId::at(0), KeyId::at(1)] {
        let mut world = World::new(Capacity { weights: vec![1.0, 1.0], ..capacity(8, 1024) });
        for _ in 0..100 {
            let new = NewSequence { key: alone, ..world.request(100, 30) };
            world.send(new).unwrap();
        }
        while world.step() {}
        let ratio = serve_two_keys(&mut world, 8, Duration::from_secs(300));
        assert!((0.9..1.1).contains(&ratio), "after {alone:?} alone: {ratio}");
    }
}

/// The first of two keys keeps 400 requests open, the second one keeps `few`. Returns the ratio
/// of their tokens, prompt and generated, as counted from the answers.
fn serve_two_keys(world: &mut World, few: usize, time: Duration) -> f64 {
    const PROMPT: usize = 20;
    world.served.clear();
    let until = world.now + time;
    let mut tokens = [0.0; 2];
    while world.now < until {
        for (key, wanted) in [(KeyId::at(0), 400), (KeyId::at(1), few)] {
            let open = world.served.values().filter(|s| s.key == key && !s.ended).count();
            for _ in open..wanted {
                let new = NewSequence { key, ..world.request(PROMPT, 30) };
                world.send(new);
            }
        }
        world.step();
        world.served.retain(|_, served| {
            if served.ended {
                tokens[served.key.index()] += (PROMPT + served.tokens as usize) as f64;
            }
            !served.ended
        });
    }
    tokens[0] / tokens[1]
}

/// A key has all slots and all cells, with long texts. Another one that comes has its first token
/// a few steps later, and everybody gets the whole text in the end.
#[test]
fn nobody_waits_for_the_texts_of_another_key() {
    for (slots, context, prompt) in [(8, 4096, 20), (8, 1024, 400), (1, 4096, 20)] {
        let weights = vec![1.0, 1.0];
        let mut world = World::new(Capacity { weights, ..capacity(slots, context) });
        for _ in 0..20 {
            let new = world.request(prompt, 300);
            world.send(new).unwrap();
        }
        (0..50).for_each(|_| assert!(world.step()));
        let before = world.scheduler.tally().preemptions;
        let new = NewSequence { key: KeyId::at(1), ..world.request(20, 5) };
        let other = world.send(new).unwrap();
        let came = world.now;
        while world.served[&other].first_token.is_none() {
            assert!(world.step());
        }
        let waited = world.served[&other].first_token.unwrap() - came;
        // With one slot, its claim is all of it, and so is the first key's.
        assert_eq!(waited < Duration::from_secs(3), slots > 1, "it waited {waited:?}");
        let preempted = world.scheduler.tally().preemptions - before;
        assert_eq!(preempted == 0, slots == 1, "{preempted}");
        while world.step() {}
        for served in world.served.values() {
            assert!(
                served.ended && served.tokens == if served.key == KeyId::at(1) { 5 } else { 300 }
            );
        }
    }
}

/// The number of steps from the arrival of a request to its end.
fn steps_of(world: &mut World, new: NewSequence) -> usize {
    let id = world.send(new).unwrap();
    let mut steps = 0;
    while !world.served[&id].ended {
        assert!(world.step());
        steps += 1;
    }
    steps
}

/// One request after another: the slot of the first stays free for the next. So it does beside
/// long texts of the same key.
#[test]
fn a_key_that_comes_again_and_again_preempts_once() {
    for texts in 0..3 {
        let weights = vec![1.0, 1.0];
        let mut world = World::new(Capacity { weights, ..capacity(8, 4096) });
        for _ in 0..texts {
            let new = NewSequence { key: KeyId::at(1), ..world.request(20, 1000) };
            world.send(new).unwrap();
        }
        for _ in 0..100 {
            let new = world.request(20, 100);
            world.send(new).unwrap();
        }
        (0..20).for_each(|_| assert!(world.step()));
        for _ in 0..50 {
            let new = NewSequence { key: KeyId::at(1), ..world.request(20, 2) };
            let steps = steps_of(&mut world, new);
            assert!(steps < 20, "{steps} steps beside {texts} texts"); // beside others' prompts
            world.step();
        }
        assert_eq!(world.scheduler.tally().preemptions, 1);
    }
}

/// The slot that stays free is the one with the key's prefix. It stays free for 20 long steps, and
/// for 200 short ones.
#[test]
fn a_key_that_comes_again_finds_its_prefix() {
    comes_again(1, 20);
    comes_again(1000, 200);
}

fn comes_again(faster: u32, steps: usize) {
    let weights = vec![1.0, 1.0];
    let mut world = World::new(Capacity { weights, ..capacity(4, 4096) });
    world.faster = faster;
    let prompt = world.text(200);
    for turn in 0..40 {
        let key = KeyId::at(1);
        let cache = Some(CacheScope { key, ..CacheScope::default() });
        let new = NewSequence::new(prompt.clone(), 2, Sampling::greedy());
        let came = world.now;
        steps_of(&mut world, NewSequence { key, cache, ..new });
        // Each row of its prompt takes 5 ms.
        let took = world.now - came;
        let bound = Duration::from_millis(800) / faster;
        assert!(turn == 0 || took < bound, "turn {turn}: {took:?}");
        for _ in 0..steps {
            while world.scheduler.waiting_count() < 40 {
                let new = world.request(20, 3);
                world.send(new).unwrap();
            }
            assert!(world.step());
        }
    }
}

/// What a client came again with outlives what came once, though that came later.
#[test]
fn a_prefix_that_was_reused_outlives_one_that_was_not() {
    let mut world = World::new(capacity(2, 4096));
    let chat = world.text(200);
    let mut cached = 0;
    for turn in 0..20 {
        let cache = Some(CacheScope::default());
        let new = NewSequence::new(chat.clone(), 2, Sampling::greedy());
        steps_of(&mut world, NewSequence { cache, ..new });
        let all = world.scheduler.tally().cached_tokens;
        let expected = if turn == 0 { 0 } else { 199 };
        assert_eq!(all - cached, expected, "turn {turn}");
        cached = all;
        for _ in 0..if turn == 0 { 0 } else { 3 } {
            let new = NewSequence { cache, ..world.request(20, 2) };
            steps_of(&mut world, new);
        }
    }
}

/// A text that made way three times makes way again, once it has gone on for a while.
#[test]
fn no_text_is_safe_from_claims_for_ever() {
    let weights = vec![1.0, 1.0];
    let mut world = World::new(Capacity { weights, ..capacity(4, 4096) });
    let texts: Vec<_> = (0..4)
        .map(|_| {
            let new = world.request(20, 4000);
            world.send(new).unwrap()
        })
        .collect();
    (0..50).for_each(|_| assert!(world.step()));
    for turn in 0..40 {
        let new = NewSequence { key: KeyId::at(1), ..world.request(20, 2) };
        let steps = steps_of(&mut world, new);
        assert!(steps < 4000 / MAKE_WAY_SHARE + 50, "turn {turn}: {steps} steps");
        // Longer than its slot is kept.
        (0..SLOT_KEPT_STEPS + 10).for_each(|_| assert!(world.step()));
    }
    assert!(texts.iter().all(|id| !world.served[id].ended));
    assert!(world.scheduler.tally().preemptions > 12, "more than three times for each text");
}

/// A key runs a long text, and has a prompt that does not fit beside it. Nobody else waits for that.
#[test]
fn a_prompt_that_does_not_fit_holds_up_its_own_key_alone() {
    let weights = vec![1.0, 1.0];
    let capacity = Capacity { weights, context_tokens: 4096, ..capacity(8, 4096) };
    let mut world = World::new(capacity);
    let stream = world.request(20, 2000);
    world.send(stream).unwrap();
    (0..200).for_each(|_| assert!(world.step()));
    let large = world.request(4000, 50);
    let large = world.send(large).unwrap();
    for turn in 0..20 {
        let new = NewSequence { key: KeyId::at(1), ..world.request(30, 5) };
        let id = world.send(new).unwrap();
        let came = world.now;
        while !world.served[&id].ended {
            assert!(world.step());
        }
        let waited = world.served[&id].first_token.unwrap() - came;
        assert!(waited < Duration::from_secs(1), "turn {turn}: {waited:?}");
    }
    assert!(world.served[&large].first_token.is_none());
    // Once nothing of its own key is in its way, it starts although others come without end.
    let mut steps = 0;
    while world.served[&large].first_token.is_none() {
        let waits = world.served.values().any(|one| one.key == KeyId::at(1) && !one.ended);
        if !waits {
            let new = NewSequence { key: KeyId::at(1), ..world.request(300, 100) };
            world.send(new).unwrap();
        }
        assert!(world.step());
        steps += 1;
        assert!(steps < 20_000, "it starves");
    }
}

/// One request of many choices with a long prompt leaves room in the queue for the tokens of others.
#[test]
fn the_choices_of_one_request_do_not_fill_the_queue() {
    let capacity = Capacity { weights: vec![1.0, 1.0], queue_tokens: 10_000, ..capacity(2, 2000) };
    let mut scheduler = Scheduler::new(capacity);
    let mut send = |key, choices| {
        let prompt: Arc<[TokenId]> = vec![1; 1000].into();
        let new = NewSequence { key, ..NewSequence::new(prompt, 10, Sampling::greedy()) };
        scheduler.admit(vec![new; choices], |_, _| {})
    };
    assert_eq!(
        send(KeyId::at(0), 14),
        Err(Refusal::TooManyTokens { tokens: 11_000, limit: 10_000 })
    );
    assert_eq!(send(KeyId::at(0), 11), Err(Refusal::TokensFull { waiting: 0, limit: 7_500 }));
    assert_eq!(send(KeyId::at(0), 9), Ok(()), "two of them start at once");
    assert_eq!(send(KeyId::at(1), 1), Ok(()));
}

/// One key cannot fill the queue so that another one finds no place in it.
#[test]
fn a_full_queue_has_room_for_the_other_keys() {
    let weights = vec![1.0, 1.0];
    let mut world = World::new(Capacity { weights, queue_sequences: 64, ..capacity(8, 1024) });
    let mut send = |key| {
        let new = NewSequence { key, ..world.request(20, 30) };
        world.send(new).is_some()
    };
    let greedy = (0..200).filter(|_| send(KeyId::at(0))).count();
    assert_eq!(greedy, 8 + 64 - 16, "a quarter is set aside for the other one");
    let other = (0..200).filter(|_| send(KeyId::at(1))).count();
    assert_eq!(other, 16);
}

/// Under 90 % load, for hours, with random arrivals of two priorities, every request gets its
/// first token within a bounded time.
#[test]
fn nobody_starves() {
    let request = |world: &mut World, i: usize| {
        let new = world.request(10 + 37 * (i % 9), 5 + (i % 20) as u32);
        NewSequence { priority: i32::from(i.is_multiple_of(4)), ..new }
    };
    let mut world = World::new(capacity(4, 1024));
    for i in 0..400 {
        let new = request(&mut world, i);
        world.send(new).expect("the queue has room");
    }
    while world.step() {}
    let gap = world.now.as_secs_f64() / 400.0 / 0.9;
    world.served.clear();

    let (mut next, mut hash, mut worst) = (world.now, 1u64, Duration::ZERO);
    for i in 0..6_000 {
        hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let uniform = (hash >> 11) as f64 / (1u64 << 53) as f64;
        next += Duration::from_secs_f64(-gap * (1.0 - uniform).ln());
        while world.now < next && world.step() {}
        world.now = world.now.max(next);
        let new = request(&mut world, i);
        world.send(new).expect("the queue has room");
        world.served.retain(|_, served| {
            let first = served.first_token.unwrap_or(world.now);
            worst = worst.max(first - served.arrived);
            !served.ended
        });
    }
    let service = Duration::from_secs_f64(gap);
    assert!(worst < 60 * service, "somebody waited {worst:?}; one is served each {service:?}");
}

/// Of prompts that are equally long, the first to come is the first to be computed, however
/// long they have waited.
#[test]
fn equal_prompts_are_computed_in_the_order_they_came() {
    let mut world = World::new(capacity(8, 1024));
    let mut sent = Vec::new();
    while sent.len() < 40 {
        let open = world.served.values().filter(|served| !served.ended).count();
        for _ in open..8 {
            let new = world.request(500, 30);
            sent.push(world.send(new).unwrap());
        }
        world.step();
    }
    while world.step() {}
    let first = sent.iter().map(|id| world.served[id].first_token.unwrap());
    assert!(first.is_sorted(), "somebody was overtaken");
}

/// Beside short prompts of another key that are more urgent and never end, the oldest prompt of each key
/// takes at most 4 times as long for each key as it would without them.
#[test]
fn no_prompt_starves_beside_urgent_ones_of_another_key() {
    const KEYS: u16 = 3;
    const PROMPT: usize = 3_000;
    let time_of_longest = |with_urgent: bool| {
        let mut world =
            World::new(Capacity { weights: vec![1.0; usize::from(KEYS)], ..capacity(12, 4096) });
        let stream = NewSequence { priority: -1, ..world.request(16, 4_000) };
        world.send(stream).unwrap();
        (0..20).for_each(|_| assert!(world.step()));
        let began = world.now;
        let keys = if with_urgent { 1..KEYS } else { 1..2 };
        let long: Vec<SequenceId> = keys
            .map(|key| {
                let new = world.request(PROMPT, 5);
                world.send(NewSequence { key: KeyId::at(key), ..new }).unwrap()
            })
            .collect();
        let is_open = |world: &World| long.iter().any(|id| world.served[id].first_token.is_none());
        while is_open(&world) {
            while with_urgent
                && world.scheduler.running_count() + world.scheduler.waiting_count() < 8
            {
                let new = world.request(300, 1);
                world.send(NewSequence { priority: -1000, ..new }).unwrap();
            }
            assert!(world.step());
            assert!(world.now < began + Duration::from_secs(4_000), "a prompt starves");
        }
        world.now - began
    };
    let (alone, beside) = (time_of_longest(false), time_of_longest(true));
    let bound = alone * 4 * u32::from(KEYS);
    assert!(beside > alone * 2 && beside < bound, "{beside:?}, and {alone:?} alone");
}

/// Keys take turns with their prompts, also if one's are shorter.
#[test]
fn keys_share_the_rows_of_prompts() {
    let mut world = World::new(Capacity { weights: vec![1.0; 2], ..capacity(8, 4096) });
    let new = NewSequence { key: KeyId::at(1), ..world.request(3_000, 2) };
    let long = world.send(new).unwrap();
    let mut rows = [0_usize; 2];
    while world.served[&long].first_token.is_none() {
        while world.scheduler.running_count() + world.scheduler.waiting_count() < 5 {
            let new = world.request(500, 1);
            world.send(new).unwrap();
        }
        assert!(world.step());
        rows = [0, 1].map(|key| world.scheduler.served_tokens(KeyId::at(key)) as usize);
    }
    assert!(
        rows[0].abs_diff(rows[1]) < 1_100,
        "{rows:?}: at most a step of 512 rows and its prompt"
    );
}

fn two_keys() -> World {
    World::new(Capacity { weights: vec![1.0; 2], ..capacity(8, 4096) })
}

fn prompt(world: &mut World, key: u16, priority: i32, tokens: usize) -> SequenceId {
    let new = NewSequence { key: KeyId::at(key), priority, ..world.request(tokens, 1) };
    world.send(new).unwrap()
}

/// Sends prompts of a key until so many have not ended.
fn fill(world: &mut World, key: u16, priority: i32, tokens: usize, count: usize) {
    let is_open = |one: &&Served| !one.ended && one.key == KeyId::at(key);
    let open = world.served.values().filter(is_open).count();
    (open..count).for_each(|_| {
        prompt(world, key, priority, tokens);
    });
}

/// The steps until the first token of a prompt, while the second key always has three long ones.
fn steps_beside_long_prompts(world: &mut World, id: SequenceId) -> usize {
    let mut steps = 0;
    while world.served[&id].first_token.is_none() {
        fill(world, 1, 0, 2_000, 3);
        assert!(world.step());
        steps += 1;
    }
    steps
}

/// A key computes prompts alone for a while. When it comes back, another one is there.
#[test]
fn rows_that_a_key_got_alone_are_no_debt() {
    let mut world = two_keys();
    for _ in 0..10 {
        prompt(&mut world, 0, 0, 4_000);
        while world.step() {}
    }
    prompt(&mut world, 1, 0, 3_000);
    assert!(world.step());
    let back = prompt(&mut world, 0, 0, 600);
    let steps = steps_beside_long_prompts(&mut world, back);
    assert!(steps < 12, "{steps} steps");
}

/// A key sends a tiny prompt in each step while another one sends long ones, or it waits behind the other's
/// urgent ones. Afterwards, the other key's next prompt does not pay for that.
#[test]
fn no_key_saves_up_rows_of_prompts() {
    for (priority, tokens, most) in [(0, 3, 20), (-1000, 2_000, 40)] {
        let mut world = two_keys();
        for _ in 0..200 {
            fill(&mut world, 0, priority, 2_000, 3);
            fill(&mut world, 1, 0, tokens, 3);
            assert!(world.step());
        }
        let victim = prompt(&mut world, 0, 0, 300);
        let steps = steps_beside_long_prompts(&mut world, victim);
        assert!(steps < most, "{steps} steps");
    }
}

/// A key always keeps tiny requests in the queue. It has its part of the slots, and gets fewer tokens in them
/// than the other key.
#[test]
fn a_key_that_always_waits_saves_up_little() {
    let mut world = two_keys();
    for _ in 0..400 {
        fill(&mut world, 0, 0, 2_000, 20);
        fill(&mut world, 1, 0, 3, 20);
        assert!(world.step());
    }
    let [long, tiny] = [0, 1].map(|key| world.scheduler.served_tokens(KeyId::at(key)));
    let most = f64::from(8 * 4096 + 512); // the KV cache, and the step after the last look
    assert!(long > most && long - tiny < most, "{long} and {tiny}");
}
