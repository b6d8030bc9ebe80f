//! The log-probabilities of a prompt's tokens, as evaluation harnesses ask for them: `echo` with
//! `logprobs`.

use std::time::Duration;

use crate::support::{TestServer, config, context, post_bytes};
use corelane::kernels::KernelChoice;
use corelane::limits::SCORED_ROWS_MAX;
use corelane::model::fake::FakeOptions;
use corelane::model::llama::LlamaDecoder;
use corelane::model::load::{Source, load};
use corelane::model::{Backend, DecodeRow};
use corelane::types::{Logits, Position, SlotId, TokenId};
use serde_json::{Value, json};

const TEXT: &str = "Once upon a time there was a little fox who lived near the river. Every day \
                    she went down to the water and counted the stones, one after another, until \
                    the sun was gone.";

/// The scores of a prompt that the server gives, `None` for the first token.
fn scores(answer: &Value, choice: usize) -> Vec<Option<f64>> {
    let scores = &answer["choices"][choice]["logprobs"]["token_logprobs"];
    scores.as_array().unwrap().iter().map(Value::as_f64).collect()
}

fn ask(server: &TestServer, more: Value) -> Value {
    let mut body = json!({"prompt": TEXT, "echo": true, "logprobs": 1, "max_tokens": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let response = server.post("/v1/completions", &body.to_string());
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

/// The log-probability of each token but the first, by a plain loop over the model.
fn direct(tokens: Vec<TokenId>) -> Vec<f64> {
    let loaded = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap();
    let context = context(&loaded, 1, 256, 256);
    let compute = move || {
        let mut backend = LlamaDecoder::new(loaded.model, &context).unwrap();
        let place = tokens.windows(2).enumerate();
        let score = |(index, pair): (usize, &[TokenId])| {
            let row = DecodeRow {
                token: pair[0],
                position: Position(index as u32),
                slot: SlotId(0),
                logits: Logits::Sample,
            };
            backend.decode(&[row]).unwrap();
            let logits = backend.logits(0);
            let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            f64::from(logits[pair[1] as usize]) - total.ln()
        };
        place.map(score).collect()
    };
    // The thread that makes a context is pinned: not this one, which others use.
    std::thread::spawn(compute).join().unwrap()
}

#[test]
fn they_are_those_of_a_plain_loop() {
    let server = TestServer::builtin(config());
    let tokens =
        server.post("/tokenize", &json!({"content": TEXT, "add_special": true}).to_string());
    let tokens: Vec<TokenId> = serde_json::from_value(tokens.json()["tokens"].clone()).unwrap();
    assert!(tokens.len() > SCORED_ROWS_MAX, "it takes several steps");
    let expected = direct(tokens.clone());
    for more in [json!({}), json!({"prompt": tokens}), json!({"max_tokens": 3, "temperature": 0})] {
        let answer = ask(&server, more.clone());
        let found = scores(&answer, 0);
        let generated = more["max_tokens"].as_u64().unwrap_or(0) as usize;
        assert_eq!((found[0], found.len()), (None, tokens.len() + generated));
        for (found, expected) in found[1..].iter().zip(&expected) {
            assert!((found.unwrap() - expected).abs() < 1e-3, "{found:?} {expected}");
        }
        let choice = &answer["choices"][0];
        assert!(choice["text"].as_str().unwrap().starts_with(TEXT));
        assert_eq!(choice["finish_reason"], "length");
        let logprobs = &choice["logprobs"];
        assert!(logprobs["top_logprobs"][0].is_null());
        assert_eq!(logprobs["text_offset"][0], 0);
        let texts: Vec<&str> =
            logprobs["tokens"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(texts.concat(), choice["text"].as_str().unwrap());
        assert_eq!(
            answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0,
            "all are computed"
        );
    }
}

#[test]
fn a_stream_has_the_same_scores_as_a_whole_answer() {
    let server = TestServer::builtin(config());
    let more = json!({"max_tokens": 4, "n": 2, "temperature": 0});
    let whole = ask(&server, more.clone());
    let mut body = json!({"prompt": TEXT, "echo": true, "logprobs": 1, "stream": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let events = server.post("/v1/completions", &body.to_string()).events();
    for choice in 0..2 {
        let (mut text, mut streamed) = (String::new(), Vec::new());
        for event in events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok()) {
            if event["choices"][0]["index"] == choice {
                text.push_str(event["choices"][0]["text"].as_str().unwrap());
                streamed.extend(scores(&event, 0));
            }
        }
        assert_eq!(text, whole["choices"][choice]["text"].as_str().unwrap());
        assert_eq!(streamed, scores(&whole, choice));
    }
}

/// A prompt of one token has no score, and its cells serve the next request.
#[test]
fn what_is_scored_once_is_in_the_cache_for_others() {
    let server = TestServer::fake(config(), 0);
    assert_eq!(scores(&ask(&server, json!({"prompt": "a"})), 0), [None]);
    let prompt = "p".repeat(300);
    let answer = ask(&server, json!({"prompt": prompt}));
    assert_eq!(scores(&answer, 0).len(), 300);
    let body = json!({"prompt": prompt, "max_tokens": 1}).to_string();
    let answer = server.post("/v1/completions", &body).json();
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 299);
    let again = ask(&server, json!({"prompt": prompt}));
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

/// Scores take rows of many steps; a stream beside them gets its row in each.
#[test]
fn a_stream_runs_on_beside_scores() {
    // The stream takes 4 s, and the scores a tenth of that.
    let options = FakeOptions { step: Duration::from_millis(1), ..FakeOptions::default() };
    let server = TestServer::fake_with(config(), options);
    let mut stream = server.connect();
    let body = json!({"prompt": "s", "max_tokens": 4000, "stream": true, "temperature": 0});
    stream.send(post_bytes("/v1/completions", &body.to_string()).as_bytes());
    stream.head().unwrap();
    let counts = || {
        let metrics = &server.metrics;
        (metrics.decode.step_us.count(), metrics.front.generation_tokens.get())
    };
    let (steps, tokens) = counts();
    let prompts: Vec<String> = (0..8).map(|n| n.to_string().repeat(400)).collect();
    let answer = ask(&server, json!({"prompt": prompts}));
    for choice in 0..8 {
        assert_eq!(scores(&answer, choice).len(), 400);
    }
    // Only the stream generates tokens. It may be a step or two behind what the decode lane counts.
    let (after, streamed) = counts();
    let (steps, streamed) = (after - steps, streamed - tokens);
    assert!(steps >= (8 * 399 / SCORED_ROWS_MAX) as u64, "{steps} steps");
    assert!(streamed + 4 >= steps, "{streamed} tokens in {steps} steps");
}
