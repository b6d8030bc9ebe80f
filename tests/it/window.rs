//! Models with a sliding window, whose layers keep only the cells of the window.

use corelane::config::ServeConfig;
use corelane::model::{Backend, DecodeRow, StepError};
use corelane::types::{CacheLayout, Logits, Position, SlotId};
use serde_json::json;

use crate::hybrid::{Model, WINDOW, assert_equal, follow, hybrid};
use crate::support::{Random, TestServer, config};

#[test]
fn a_text_is_the_same_whether_all_cells_are_kept_or_those_of_the_window() {
    let layouts = [false, true].map(|swa_full| CacheLayout { swa_full, ..config().cache });
    let servers = layouts.map(|cache| {
        TestServer::file(hybrid(WINDOW), ServeConfig { cache, parallel: 2, ..config() })
    });
    for number in 0..4 {
        let prompt: Vec<i64> = (0..300).map(|place| 300 + place * (7 + number) % 1000).collect();
        let [window, full] = servers.each_ref().map(|server| follow(server, &prompt, json!({})).0);
        assert_eq!(window, full, "{number}");
    }
}

#[test]
fn a_window_goes_back_over_its_last_step_and_not_much_further() {
    let mut model = Model::new(WINDOW);
    (0..500).for_each(|number| drop(model.add(&[(0, 300 + number), (1, 700 - number)])));
    model.add(&[(0, 1), (1, 2), (0, 3), (0, 4)]);
    assert!(!model.remove(0, 200), "their cells have gone");
    assert!(model.remove(0, 3) && model.remove(1, 1));
    for slot in [0, 1] {
        let text = model.texts[usize::from(slot)].clone();
        assert_equal(&model.add(&[(slot, 5)]), &Model::anew(WINDOW, &text, 5));
    }
    let all = model.texts[0].len();
    assert!(model.remove(0, all));
}

/// llama.cpp may have reused cells of the window, also where all are kept. In a context that is smaller
/// than the windows of all, all are.
#[test]
fn prompts_that_part_from_others_anywhere_are_answered_as_if_alone() {
    for (swa_full, parallel, context_tokens) in [(false, 3, 900), (true, 3, 700), (false, 8, 700)] {
        let cache = CacheLayout { swa_full, ..config().cache };
        let context_tokens = Some(context_tokens);
        let config = ServeConfig { cache, parallel, context_tokens, ..config() };
        let server = TestServer::file(hybrid(WINDOW), config);
        let mut random = Random::new(parallel as u64);
        let mut cached = 0;
        for turn in 0..60 {
            let text = 300 + 50 * random.within(0, 3) as i64;
            let shared = random.within(1, 400) as i64;
            let mut prompt: Vec<i64> = (0..shared).map(|place| text + place * 7 % 1000).collect();
            prompt.extend((0..random.within(1, 20) as i64).map(|place| 600 + turn + place));
            let (said, from_cache) = follow(&server, &prompt, json!({}));
            let (anew, _) = follow(&server, &prompt, json!({"cache_prompt": false}));
            assert_eq!(said, anew, "{swa_full}, {context_tokens:?}, turn {turn}");
            cached += from_cache;
        }
        assert!(cached > 500, "{cached}");
    }
}

#[test]
fn behind_a_step_that_was_given_up_a_window_is_whole_or_refused() {
    let mut model = Model::new(WINDOW);
    (0..300).for_each(|number| drop(model.add(&[(0, 300 + number), (1, 700 - number)])));
    let text = model.texts[0].clone();
    for step in 1..4 {
        let position = Position(text.len() as u32);
        model.model.begin_step(step);
        model.abort.give_up(step);
        let rows = [5, 6, 7].map(|token| {
            let position = Position(position.0 + token - 5);
            DecodeRow { token: token as i32, position, slot: SlotId(0), logits: Logits::Sample }
        });
        assert_eq!(model.model.decode(&rows), Err(StepError::Aborted));
        assert!(model.model.truncate(SlotId(0), position));
    }
    model.model.begin_step(9);
    assert_equal(&model.add(&[(0, 9)]), &Model::anew(WINDOW, &text, 9));
}

/// llama.cpp reuses no cell that two sequences share.
#[test]
fn a_copy_has_cells_of_its_own() {
    let mut model = Model::new(WINDOW);
    for turn in 0..8 {
        (0..100).for_each(|number| drop(model.add(&[(0, 300 + turn + number)])));
        let text = model.texts[0].clone();
        let tokens = Position(text.len() as u32); // some hundreds
        assert_eq!(model.model.start(SlotId(1), SlotId(0), tokens, None), tokens);
        model.texts[1] = text.clone();
        let expected = Model::anew(WINDOW, &text, 7);
        assert_equal(&model.add(&[(1, 7)]), &expected);
        assert_equal(&model.add(&[(0, 7)]), &expected);
    }
}

/// The cells of the window are reused while other sequences grow.
#[test]
fn a_slot_can_be_cut_or_copied_as_far_as_its_window_reaches() {
    let mut model = Model::new(WINDOW);
    let cuts = |model: &Model| model.model.least_left(SlotId(0)).unwrap().index();
    (0..100).for_each(|number| drop(model.add(&[(0, 300 + number)])));
    assert_eq!(cuts(&model), 0, "nothing was reused");
    let text = model.texts[0].clone();
    let start = |model: &mut Model, slot: u16, tokens: usize| {
        let tokens = Position(tokens as u32); // at most 100
        model.model.start(SlotId(slot), SlotId(0), tokens, None).index()
    };
    for tokens in [1, 40, 99] {
        assert_eq!(start(&mut model, 1, tokens), tokens);
        model.texts[1] = text[..tokens].to_vec();
        assert_equal(&model.add(&[(1, 7)]), &Model::anew(WINDOW, &text[..tokens], 7));
    }
    let mut others = 0;
    while cuts(&model) == 0 {
        model.add(&[(1, 300 + others)]);
        others += 1;
    }
    let least = cuts(&model);
    assert!((2..=100).contains(&least), "{least}");
    assert_eq!(start(&mut model, 1, least - 1), 0, "refused");
    assert_eq!(start(&mut model, 1, least), least);
    model.texts[1] = text[..least].to_vec();
    let expected = Model::anew(WINDOW, &text[..least], 7);
    assert_equal(&model.add(&[(1, 7)]), &expected);
    let least = cuts(&model); // the copy has taken cells
    assert_eq!(start(&mut model, 0, least), least, "in place");
    model.texts[0].truncate(least);
    assert_equal(&model.add(&[(0, 7)]), &Model::anew(WINDOW, &text[..least], 7));
}

/// Without a saved state at that place.
#[test]
fn a_prompt_starts_where_it_parts_from_another_one() {
    let config = ServeConfig { parallel: 4, context_tokens: Some(4096), ..config() };
    let [server, other] = [(); 2].map(|()| TestServer::file(hybrid(WINDOW), config.clone()));
    let text = |shared: i64, last: i64| -> Vec<i64> {
        let place = |place| if place < shared { 300 + place * 7 % 1000 } else { last + place };
        (0..300).map(place).collect()
    };
    follow(&server, &text(300, 0), json!({}));
    for shared in [299, 203, 97] {
        let prompt = text(shared, 5 * shared);
        let (said, cached) = follow(&server, &prompt, json!({}));
        assert_eq!(cached as i64, shared);
        assert_eq!(said, follow(&other, &prompt, json!({"cache_prompt": false})).0, "{shared}");
    }
}

#[test]
fn a_saved_window_takes_as_much_as_its_text() {
    let mut model = Model::new(WINDOW);
    (0..200).for_each(|number| drop(model.add(&[(0, 300 + number)])));
    let mut state = vec![0; 1 << 20];
    let long = model.model.save(SlotId(0), &mut state);
    model.add(&[(1, 5)]);
    let short = model.model.save(SlotId(1), &mut state);
    assert!(short > 0 && short < long / 32, "{short} of {long}");
    let text = model.texts[1].clone();
    let state = Some(&state[..short]);
    assert_eq!(model.model.start(SlotId(1), SlotId(1), Position(1), state), Position(1));
    assert_equal(&model.add(&[(1, 7)]), &Model::anew(WINDOW, &text, 7));
}
