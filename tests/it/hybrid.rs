//! Models with attention and with recurrent layers.

use std::path::Path;

use corelane::config::ServeConfig;
use corelane_bench::synth::{Quant, Request, Shape, synth};
use serde_json::{Value, json};

use crate::support::{TestServer, config};

fn server() -> TestServer {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hybrid");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tiny-hybrid.gguf");
    let shape = Shape::named("tiny-hybrid").unwrap().clone();
    let quant = Quant::named("q8_0").unwrap();
    let request = Request { shape, quant, seed: 0, out: path.clone(), force: true, threads: 2 };
    synth(&request, |_| ()).unwrap();
    TestServer::file(path, ServeConfig { parallel: 2, ..config() })
}

/// The tokens that follow a prompt, and how many of the prompt's were in the cache.
fn follow(server: &TestServer, prompt: &[i64], more: Value) -> (Vec<i64>, u64) {
    let mut body = json!({"prompt": prompt, "n_predict": 24, "temperature": 0, "ignore_eos": true,
        "return_tokens": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.post("/completion", &body.to_string()).json();
    let tokens = answer["tokens"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let tokens = tokens.iter().map(|token| token.as_i64().unwrap()).collect();
    (tokens, answer["tokens_cached"].as_u64().unwrap())
}

/// The state is that behind the last token, so a text goes on only where nothing of it is dropped.
#[test]
fn the_next_turn_of_a_chat_computes_only_what_is_new() {
    let server = server();
    let mut prompt: Vec<i64> = (0..200).map(|number| 300 + number * 7 % 1000).collect();
    for turn in 0..4 {
        let (anew, cached) = follow(&server, &prompt, json!({"cache_prompt": false}));
        assert_eq!(cached, 0, "turn {turn}");
        let (said, cached) = follow(&server, &prompt, json!({}));
        // The last token of an answer has not been computed.
        let kept = if turn == 0 { 0 } else { prompt.len() as u64 - 31 };
        assert_eq!((said.clone(), cached), (anew, kept), "turn {turn}");
        prompt.extend(&said);
        prompt.extend((0..30).map(|number| 400 + turn + number * 11));
    }
    // A prompt that leaves the text is computed again.
    let other = [&prompt[..150], &[777; 50]].concat();
    let (anew, _) = follow(&server, &other, json!({"cache_prompt": false}));
    assert_eq!(follow(&server, &other, json!({})), (anew, 0));
}
