//! Models with a sliding window, whose layers keep only the cells of the window.

use corelane::config::ServeConfig;
use corelane::model::Backend;
use corelane::types::{CacheLayout, Position, SlotId};
use serde_json::json;

use crate::hybrid::{Model, WINDOW, assert_equal, follow, hybrid};
use crate::support::{TestServer, config};

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

/// Each has a window of its own, although all share the other cells.
#[test]
fn a_small_context_has_room_for_the_windows_of_all() {
    let context_tokens = Some(256);
    let server =
        TestServer::file(hybrid(WINDOW), ServeConfig { parallel: 8, context_tokens, ..config() });
    let complete = |prompts: &[Vec<i64>]| {
        let body =
            json!({"prompt": prompts, "max_tokens": 8, "temperature": 0, "ignore_eos": true});
        let answer = server.post("/v1/completions", &body.to_string()).json();
        let texts = answer["choices"].as_array().unwrap_or_else(|| panic!("{answer}"));
        texts.iter().map(|choice| choice["text"].to_string()).collect::<Vec<_>>()
    };
    let beginning: Vec<i64> = (0..120).map(|number| 300 + number * 7 % 1000).collect();
    let prompts: Vec<Vec<i64>> =
        (0..8).map(|number| [&beginning[..], &[600 + number; 3]].concat()).collect();
    let alone: Vec<_> = prompts.chunks(1).flat_map(complete).collect();
    for _ in 0..3 {
        assert_eq!(complete(&prompts), alone);
    }
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
