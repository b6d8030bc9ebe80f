//! The scheduler's promises, in numbers: no stream waits for a long prompt, no step has unused room
//! while a request waits, and no cached prefix is computed again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::world::{World, capacity};
use corelane::model::fake::continuation;
use corelane::ring::message::Batch;
use corelane::scheduler::{Capacity, Event, NewSequence, SequenceId};
use corelane::types::{CacheScope, KeyId, Sampling, TokenId};

/// The promise that this scheduler is for: a long prompt slows the others down
/// to the bound, and no further, and is itself not stopped by them.
#[test]
fn no_stream_waits_for_a_long_prompt() {
    let mut world = World::new(capacity(8, 4096));
    let streams: Vec<SequenceId> = (0..4)
        .map(|_| {
            let new = world.request(16, 2000);
            world.send(new).unwrap()
        })
        .collect();
    for _ in 0..50 {
        world.step();
    }
    let alone = Duration::from_micros(20_000 + 4 * 10_000);
    for id in &streams {
        world.served.get_mut(id).unwrap().longest_gap = Duration::ZERO;
    }
    let new = world.request(2000, 10);
    let long = world.send(new).unwrap();
    while world.served[&long].first_token.is_none() {
        world.step();
    }
    for id in &streams {
        let gap = world.served[id].longest_gap;
        assert!(gap <= alone * 5 / 2, "a stream waited {gap:?}; its step takes {alone:?}");
    }
    let ttft = world.served[&long].first_token.unwrap() - world.served[&long].arrived;
    // Half of each step is the streams'.
    let by_itself = Duration::from_micros(4 * 20_000 + 2000 * 5_000);
    assert!(ttft <= by_itself * 3, "the long prompt took {ttft:?}, by itself {by_itself:?}");
}

/// Where the streams leave a step less room than a prompt likes to have.
#[test]
fn a_prompt_takes_what_room_there_is() {
    let tight = Capacity { step_rows: 8, own_cells: true, ..capacity(8, 4096) };
    let mut world = World::new(tight);
    for _ in 0..7 {
        let new = world.request(2, 2000);
        world.send(new).unwrap();
    }
    for _ in 0..20 {
        world.step();
    }
    let new = world.request(20, 5);
    let prompt = world.send(new).unwrap();
    for _ in 0..40 {
        world.step();
    }
    assert!(world.served[&prompt].first_token.is_some(), "it waits for the streams to end");
}

/// A stream that runs, and a long prompt that has just come.
fn long_prompt_beside_a_stream() -> (World, SequenceId) {
    let mut world = World::new(capacity(8, 8192));
    let new = world.request(16, 4000);
    world.send(new).unwrap();
    for _ in 0..20 {
        world.step();
    }
    let new = world.request(4000, 5);
    let long = world.send(new).unwrap();
    (world, long)
}

/// A short prompt overtakes a long one, and a stream of short ones does not stop it.
#[test]
fn prompts_share_their_part_of_each_step() {
    let (mut world, long) = long_prompt_beside_a_stream();
    for _ in 0..5 {
        world.step();
    }
    let new = world.request(40, 5);
    let short = world.send(new).unwrap();
    let before = world.now;
    while world.served[&short].first_token.is_none() {
        world.step();
    }
    let waited = world.now - before;
    assert!(waited < Duration::from_secs(2), "the short one waited {waited:?}");
    assert!(world.served[&long].first_token.is_none(), "it did overtake");
    // From now on there is always a short one.
    let mut steps = 0;
    while world.served[&long].first_token.is_none() {
        if world.scheduler.running_count() < 6 {
            let new = world.request(40, 5);
            world.send(new);
        }
        world.step();
        steps += 1;
        assert!(steps < 3000, "the long prompt starves");
    }
}

/// However long a long prompt has waited, short ones do not wait until it is done.
#[test]
fn short_prompts_pass_a_long_one_until_its_end() {
    let (mut world, long) = long_prompt_beside_a_stream();
    let mut steps = 0;
    while world.served[&long].first_token.is_none() {
        if steps % 8 == 0 {
            let new = world.request(40, 5);
            world.send(new).unwrap();
        }
        world.step();
        steps += 1;
        assert!(steps < 3000, "the long prompt starves");
    }
    while world.scheduler.running_count() > 1 {
        world.step();
    }
    let short = world.served.iter().filter(|(id, served)| **id != long && served.ended);
    let waits = short.map(|(_, served)| served.first_token.unwrap() - served.arrived);
    let worst = waits.max().unwrap();
    assert!(worst < Duration::from_secs(2), "a short one waited {worst:?}");
}

/// While somebody waits for a slot, all slots are taken; while a prompt is to be
/// computed, a step has at least as many prompt rows as the bound allows.
#[test]
fn no_step_is_emptier_than_it_must_be() {
    let mut world = World::new(capacity(6, 2048));
    for i in 0..60 {
        let new = world.request(30 + 20 * (i % 10), 40);
        world.send(new).unwrap();
    }
    let mut steps = 0;
    while world.step() {
        steps += 1;
        let planned = world.last;
        assert!(planned.waiting == 0 || planned.running == 6, "a slot is free: {planned:?}");
        assert_eq!(planned.idle, 0, "somebody could have decoded: {planned:?}");
        // Half of the bound is for prompt rows, 5 ms each. The scheduler leaves a part of it unused
        // because steps may take longer than expected, and more before it knows the model.
        let bound = 2 * (20 + 10 * planned.decode_rows);
        let left = bound.saturating_sub(20 + 10 * planned.decode_rows + 5 * planned.prefill_rows);
        if steps > 200 && planned.decode_rows > 0 && planned.prompts_left > 0 {
            assert!(left <= bound / 4, "{left} ms of {bound} are left: {planned:?}");
        }
        assert!(steps < 10_000);
    }
    assert!(world.served.values().all(|served| served.ended && served.tokens == 40));
}

/// A kept prefix is evicted when no slot is empty, and not before, also if its slot is a neighbour of
/// running ones.
#[test]
fn an_empty_slot_goes_before_a_kept_one() {
    let mut world = World::new(Capacity { own_cells: true, ..capacity(8, 1024) });
    let stream = world.request(16, 900);
    world.send(stream).unwrap();
    let chat = world.text(400);
    world.send(NewSequence::new(chat.clone(), 5, Sampling::greedy())).unwrap();
    for _ in 0..100 {
        world.step();
    }
    for _ in 0..6 {
        let other = world.request(100, 5);
        world.send(other).unwrap();
        for _ in 0..40 {
            world.step();
        }
    }
    let before = world.scheduler.tally();
    world.send(NewSequence::new(chat, 5, Sampling::greedy())).unwrap();
    world.step();
    world.step();
    let tally = world.scheduler.tally();
    assert_eq!((before.evicted_tokens, tally.cached_tokens - before.cached_tokens), (0, 399));
}

/// Where each prompt's rows are a pass of their own, a step beside streams has one.
#[test]
fn prompts_take_turns_beside_streams() {
    let mut world = World::new(Capacity { own_cells: true, ..capacity(8, 1024) });
    for _ in 0..3 {
        let new = world.request(16, 900);
        world.send(new).unwrap();
    }
    for _ in 0..30 {
        world.step();
    }
    let mut steps = 0;
    for round in 0..20 {
        for _ in 0..5 {
            let new = world.request(20 + round, 2);
            world.send(new).unwrap();
        }
        while world.scheduler.waiting_count() + world.scheduler.running_count() > 3 {
            world.step();
            assert!(world.last.decode_rows >= 3 && world.last.prompts <= 1, "{:?}", world.last);
            steps += world.last.prompts;
        }
    }
    assert!(steps > 100, "{steps} steps had a prompt");
}

/// A copy that takes longer than streams may wait is made once, to learn that.
#[test]
fn a_copy_that_takes_too_long_is_not_made_beside_streams() {
    let mut world = World::new(Capacity { own_cells: true, ..capacity(8, 1024) });
    world.copy = Duration::from_millis(500);
    let shared = world.text(300);
    for _ in 0..4 {
        let new = world.request(16, 900);
        world.send(new).unwrap();
    }
    for _ in 0..30 {
        world.step();
    }
    let mut copies = 0;
    for _ in 0..6 {
        let own = world.text(400);
        let prompt: Arc<[TokenId]> = shared.iter().chain(own.iter()).copied().collect();
        let id = world.send(NewSequence::new(prompt, 2, Sampling::greedy())).unwrap();
        while !world.served[&id].ended {
            world.step();
            copies += world.last.copies;
        }
    }
    assert_eq!(copies, 1);
}

/// A burst that shares its beginning computes it once.
#[test]
fn a_shared_beginning_is_computed_once() {
    let mut world = World::new(capacity(8, 2048));
    let shared = world.text(500);
    let new = NewSequence::new(shared.clone(), 5, Sampling::greedy());
    let alone = {
        let mut world = World::new(capacity(8, 2048));
        let id = world.send(new).unwrap();
        while world.step() {}
        world.served[&id].first_token.unwrap()
    };
    for _ in 0..8 {
        let own = world.text(20);
        let prompt: Arc<[TokenId]> = shared.iter().chain(own.iter()).copied().collect();
        world.send(NewSequence::new(prompt, 5, Sampling::greedy())).unwrap();
    }
    while world.step() {}
    let last = world.served.values().map(|served| served.first_token.unwrap()).max().unwrap();
    assert!(last < alone * 8 / 5, "the last first token after {last:?}, alone {alone:?}");
    let tally = world.scheduler.tally();
    assert!(tally.cached_tokens >= 7 * 500, "{tally:?}");
    assert!(tally.prefilled_tokens <= 500 + 8 * 20, "{tally:?}");
}

/// When the sequence that computes a shared prefix leaves halfway, the next one continues from there,
/// and the others follow it.
#[test]
fn a_shared_beginning_is_computed_once_though_its_first_reader_leaves() {
    let mut world = World::new(capacity(12, 2048));
    for _ in 0..4 {
        let new = world.request(16, 1500);
        world.send(new).unwrap();
    }
    for _ in 0..30 {
        world.step();
    }
    let shared = world.text(500);
    let before = world.scheduler.tally();
    let ids: Vec<SequenceId> = (0..8)
        .map(|_| {
            let own = world.text(20);
            let prompt: Arc<[TokenId]> = shared.iter().chain(own.iter()).copied().collect();
            world.send(NewSequence::new(prompt, 5, Sampling::greedy())).unwrap()
        })
        .collect();
    let prefilled =
        |world: &World| world.scheduler.tally().prefilled_tokens - before.prefilled_tokens;
    while prefilled(&world) < 250 {
        world.step();
    }
    assert!(prefilled(&world) < 400, "one of them computes");
    world.scheduler.cancel(ids[0]);
    world.served.get_mut(&ids[0]).unwrap().ended = true;
    while ids.iter().any(|id| !world.served[id].ended) {
        world.step();
    }
    assert!(prefilled(&world) <= 500 + 8 * 20, "{} tokens", prefilled(&world));
}

/// The default context of a model that was trained with 32,768 tokens: an agent's text may fill all
/// of them, and seven small requests still run at once.
#[test]
fn small_requests_run_beside_an_agent_with_a_long_text() {
    let (trained, small) = (32_768, 2048);
    let context_tokens = trained + 7 * small;
    let mut world = World::new(Capacity { context_tokens, ..capacity(8, trained) });
    let new = world.request(19_000, trained - 19_000);
    let agent = world.send(new).unwrap();
    while world.served[&agent].tokens < 10_000 {
        world.step();
    }
    let new: Vec<_> = (0..7).map(|_| world.request(1000, small - 1000)).collect();
    let others = new.into_iter().map(|new| world.send(new).unwrap()).collect::<Vec<_>>();
    while others.iter().any(|id| !world.served[id].ended) {
        world.step();
        assert_eq!(world.last.waiting, 0, "all have slots");
    }
    assert!(!world.served[&agent].ended);
    while world.step() {}
    assert_eq!(world.served[&agent].tokens, trained - 19_000);
    assert_eq!(world.scheduler.tally().preemptions, 0);
}

/// Most chats do not say how long their answer may be.
#[test]
fn a_request_without_a_maximum_starts_beside_an_agent_with_a_long_text() {
    let trained = 131_072;
    let context_tokens = trained + 7 * 2048;
    let mut world = World::new(Capacity { context_tokens, ..capacity(8, trained) });
    let new = world.request(120_000, trained - 120_000);
    let agent = world.send(new).unwrap();
    while world.served[&agent].tokens < 100 {
        world.step();
    }
    let new = world.request(1000, trained - 1000);
    let chat = world.send(new).unwrap();
    while world.served[&chat].tokens < 100 {
        world.step();
    }
    assert!(!world.served[&agent].ended);
}

/// When the cells run out, the youngest of the lowest priority goes back to the
/// queue, says the same later, and nobody else is touched.
#[test]
fn the_youngest_of_the_lowest_priority_gives_way() {
    // Room for two of them, and for 83 tokens of each of three.
    let mut world = World::new(Capacity { context_tokens: 250, ..capacity(3, 190) });
    let mut expected = Vec::new();
    for priority in [1, 0, 1] {
        let new = NewSequence { priority, ..world.request(20, 100) };
        expected.push(continuation(&new.prompt, 100, 0));
        world.send(new).unwrap();
    }
    let mut ids: Vec<SequenceId> = world.served.keys().copied().collect();
    ids.sort();
    let mut said: HashMap<SequenceId, Vec<TokenId>> = HashMap::new();
    let mut ended = Vec::new();
    let mut batch = Batch::default();
    loop {
        batch.clear();
        if !world.scheduler.schedule(&mut batch) {
            break;
        }
        world.lane.step(&mut batch);
        world.scheduler.complete(&mut batch, |event| match event {
            Event::Token { id, token, is_last, .. } => {
                said.entry(id).or_default().push(token);
                if is_last {
                    ended.push(id);
                }
            }
            Event::Score { .. } | Event::Guessed { .. } => unreachable!("none was asked for"),
            Event::Finished(id, _) => ended.push(id),
        });
        world.scheduler.check();
    }
    assert_eq!(world.scheduler.tally().preemptions, 1);
    assert_eq!(ended, [ids[1], ids[0], ids[2]], "the urgent one first, the preempted one last");
    for (id, tokens) in ids.iter().zip(expected) {
        assert_eq!(said[id], tokens);
    }
}

/// The second turn of a conversation computes only what is new.
#[test]
fn a_second_turn_begins_where_the_first_ended() {
    let mut world = World::new(capacity(2, 4096));
    let mut prompt = world.text(1000).to_vec();
    let first = world.send(NewSequence::new(prompt.clone().into(), 20, Sampling::greedy()));
    let first = first.unwrap();
    let mut said = Vec::new();
    loop {
        let mut batch = Batch::default();
        if !world.scheduler.schedule(&mut batch) {
            break;
        }
        world.lane.step(&mut batch);
        world.scheduler.complete(&mut batch, |event| {
            if let Event::Token { id, token, .. } = event {
                assert_eq!(id, first);
                said.push(token);
            }
        });
    }
    let before = world.scheduler.tally();
    prompt.extend(&said);
    prompt.extend(world.text(10).iter());
    world.send(NewSequence::new(prompt.into(), 5, Sampling::greedy())).unwrap();
    while world.step() {}
    let after = world.scheduler.tally();
    // The last token of the first turn was never run: nothing came after it.
    assert_eq!(after.prefilled_tokens - before.prefilled_tokens, 11);
    assert_eq!(after.cached_tokens - before.cached_tokens, 1019);
}

/// Without a scope, a sequence neither takes nor leaves anything.
#[test]
fn without_the_cache_nothing_is_reused() {
    let mut world = World::new(capacity(4, 2048));
    let text = world.text(300);
    for cache in [None, Some(CacheScope::default()), None] {
        let new = NewSequence { cache, ..NewSequence::new(text.clone(), 5, Sampling::greedy()) };
        world.send(new).unwrap();
        while world.step() {}
    }
    let tally = world.scheduler.tally();
    assert_eq!((tally.cached_tokens, tally.prefilled_tokens), (0, 900), "{tally:?}");
}

/// Neither a key nor a salt learns from the cache of another.
#[test]
fn a_prefix_is_reused_only_within_its_scope() {
    let mut world = World::new(capacity(4, 4096));
    let text = world.text(300);
    let scope = |key, salt| Some(CacheScope { key: KeyId::at(key), salt, tenant: 0 });
    // The same text by one key twice, by another key, with a salt, and with the salt again.
    for cache in [scope(0, 0), scope(0, 0), scope(1, 0), scope(0, 7), scope(0, 7)] {
        let new = NewSequence { cache, ..NewSequence::new(text.clone(), 5, Sampling::greedy()) };
        world.send(new).unwrap();
        while world.step() {}
    }
    let tally = world.scheduler.tally();
    assert_eq!((tally.cached_tokens, tally.prefilled_tokens), (598, 902), "{tally:?}");
    // At the same time, too: the second one does not wait for the first.
    let text = world.text(300);
    for cache in [scope(0, 0), scope(1, 0)] {
        let new = NewSequence { cache, ..NewSequence::new(text.clone(), 5, Sampling::greedy()) };
        world.send(new).unwrap();
    }
    while world.step() {}
    assert_eq!(world.scheduler.tally().cached_tokens, 598);
}
