//! Prefixes that the KV cache has no room for, and that come back from memory.

use corelane::config::ServeConfig;
use serde_json::json;

use crate::hybrid::{SHAPES, WINDOW, follow, hybrid};
use crate::support::{Random, TestServer, config, post_bytes};

/// Servers with one slot, so that each other text evicts the one before: of the built-in model, and
/// of hybrid ones.
fn servers(config: &ServeConfig) -> Vec<(&'static str, TestServer)> {
    let config = ServeConfig { parallel: 1, ..config.clone() };
    let hybrids = SHAPES.map(|shape| (shape, TestServer::file(hybrid(shape), config.clone())));
    let builtin = ("built-in", TestServer::builtin(config.clone()));
    hybrids.into_iter().chain([builtin]).collect()
}

/// Tokens of a text of its own.
fn text(number: i64, count: i64) -> Vec<i64> {
    (0..count).map(|place| 260 + number * 17 + place * 7 % 40).collect()
}

#[test]
fn a_chat_goes_on_where_it_was_after_others_have_pushed_it_out() {
    for (name, server) in servers(&config()) {
        let mut chats: Vec<Vec<i64>> = (0..4).map(|number| text(number, 300)).collect();
        for turn in 0..3 {
            for chat in &mut chats {
                let (said, cached) = follow(&server, chat, json!({}));
                // The last token of an answer has not been computed.
                let kept = if turn == 0 { 0 } else { chat.len() as u64 - 11 };
                assert_eq!(cached, kept, "{name}, turn {turn}");
                let (anew, _) = follow(&server, chat, json!({"cache_prompt": false}));
                assert_eq!(said, anew, "{name}, turn {turn}");
                chat.extend(&said);
                chat.extend(text(turn, 10));
            }
        }
        let restored = server.metrics.front.restored_tokens.get();
        assert!(restored >= 2 * 4 * 300, "{name}: {restored}");
        // The client is told where they came from.
        let told = |chat: &[i64]| {
            let body = json!({"prompt": chat, "max_tokens": 4});
            server.post("/v1/completions", &body.to_string()).json()["timings"].clone()
        };
        let timings = told(&chats[0]);
        assert!(timings["cache_store_n"].as_u64() > Some(300), "{name}: {timings}");
        let timings = told(&chats[0]);
        assert_eq!(timings["cache_store_n"].as_u64(), None, "{name}: {timings}");
    }
}

#[test]
fn another_end_of_a_text_that_was_pushed_out_begins_with_it() {
    for (name, server) in servers(&config()) {
        let chat = text(1, 300);
        follow(&server, &chat, json!({}));
        follow(&server, &text(2, 300), json!({}));
        let other = [&chat[..250], &text(9, 40)[..]].concat();
        let (anew, _) = follow(&server, &other, json!({"cache_prompt": false}));
        let (said, cached) = follow(&server, &other, json!({}));
        assert_eq!(said, anew, "{name}");
        // A hybrid one has no state in the middle.
        assert_eq!(cached, if name == "built-in" { 250 } else { 0 }, "{name}");
    }
}

#[test]
fn without_a_store_it_computes_all_again() {
    let config = ServeConfig { cache_ram: Some(0), ..config() };
    for (name, server) in servers(&config) {
        let chat = text(1, 300);
        follow(&server, &chat, json!({}));
        follow(&server, &text(2, 300), json!({}));
        assert_eq!(follow(&server, &chat, json!({})).1, 0, "{name}");
    }
}

#[test]
fn a_key_or_a_salt_finds_only_what_is_its_own() {
    for (name, server) in servers(&config()) {
        let chat = text(1, 300);
        follow(&server, &chat, json!({"cache_salt": "a"}));
        follow(&server, &text(2, 300), json!({}));
        assert_eq!(follow(&server, &chat, json!({"cache_salt": "b"})).1, 0, "{name}");
        follow(&server, &text(3, 300), json!({}));
        assert!(follow(&server, &chat, json!({"cache_salt": "a"})).1 > 290, "{name}");
    }
}

/// Copies from the store never take the cells that texts need to go on: sequences would put each
/// other out again and again.
#[test]
fn texts_go_on_while_stored_ones_come_back_to_a_full_cache() {
    const CLIENTS: usize = 12;
    const ROUNDS: usize = 20;
    let config = ServeConfig { parallel: 8, context_tokens: Some(512), ..config() };
    // The windows of eight texts need more, so that one has no store here.
    for shape in SHAPES.into_iter().filter(|shape| *shape != WINDOW) {
        let server = TestServer::file(hybrid(shape), config.clone());
        let texts: Vec<Vec<i64>> = (0..5).map(|number| text(number, 60 + 80 * number)).collect();
        let mut random = Random::new(1);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for _ in 0..ROUNDS {
            for client in &mut clients {
                let text = &texts[random.within(0, texts.len() - 1)];
                let mut prompt = text[..random.within(20, text.len())].to_vec();
                prompt.extend(self::text(random.within(10, 20) as i64, 3));
                let body = json!({"prompt": prompt, "n_predict": 24, "ignore_eos": true});
                client.send(post_bytes("/completion", &body.to_string()).as_bytes());
            }
            for client in &mut clients {
                assert_eq!(client.response().status, 200);
            }
        }
        let front = &server.metrics.front;
        assert!(front.restored_tokens.get() > 1_000, "{shape}");
        let preempted = front.preemptions.get() as usize;
        assert!(preempted < CLIENTS * ROUNDS, "{shape}: {preempted}");
    }
}
