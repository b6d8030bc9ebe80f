//! Models whose slots have states: with recurrent layers, or with a sliding window.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use corelane::abort::StepAbort;
use corelane::config::ServeConfig;
use corelane::kernels::KernelChoice;
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::{Source, load};
use corelane::model::{Backend, DecodeRow, StepError};
use corelane::types::{Logits, Position, SlotId, TokenId};
use corelane_bench::synth::{Quant, Request, Shape, synth};
use serde_json::{Value, json};

use crate::support::{TestServer, config, context};

/// Small models: with a short convolution, with a gated delta net, and with a sliding window of 64
/// tokens.
pub const SHAPES: [&str; 3] = ["tiny-hybrid", "tiny-delta", WINDOW];

/// The one with a sliding window.
pub const WINDOW: &str = "tiny-window";

/// The small models, and one without states.
const ALL: [&str; 4] = [SHAPES[0], SHAPES[1], SHAPES[2], "tiny"];

/// Those with recurrent layers.
const RECURRENT: [&str; 2] = [SHAPES[0], SHAPES[1]];

fn server(shape: &str) -> TestServer {
    TestServer::file(hybrid(shape), ServeConfig { parallel: 2, ..config() })
}

fn servers() -> impl Iterator<Item = TestServer> {
    SHAPES.into_iter().map(server)
}

/// The file of a small model.
pub fn hybrid(shape: &str) -> PathBuf {
    static MADE: OnceLock<[PathBuf; 4]> = OnceLock::new();
    let place = ALL.iter().position(|known| *known == shape).unwrap();
    MADE.get_or_init(|| ALL.map(model))[place].clone()
}

fn model(shape: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hybrid");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{shape}.gguf"));
    // With quantised weights, activations are rounded to 8 bits. Over the hundreds of tokens of the tests
    // of windows, the smallest differences of sums would then become large ones.
    let quant = if shape == WINDOW { "f16" } else { "q8_0" };
    let quant = Quant::named(quant).unwrap();
    let shape = Shape::named(shape).unwrap().clone();
    let request = Request { shape, quant, seed: 0, out: path.clone(), force: true, threads: 2 };
    synth(&request, |_| ()).unwrap();
    path
}

/// 48 tokens that follow a prompt, and how many of the prompt's were in the cache.
pub fn follow(server: &TestServer, prompt: &[i64], more: Value) -> (Vec<i64>, u64) {
    let mut body = json!({"prompt": prompt, "n_predict": 48, "temperature": 0, "ignore_eos": true,
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
    for server in servers() {
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
    }
}

/// Tokens that begin a prompt.
fn beginning(count: usize) -> Vec<i64> {
    (0..count).map(|number| 300 + number as i64 * 7 % 1000).collect()
}

#[test]
fn an_answer_written_again_computes_at_most_the_end_of_its_prompt() {
    for shape in ALL {
        let server = server(shape);
        let prompt = beginning(200);
        let (said, cached) = follow(&server, &prompt, json!({}));
        assert_eq!(cached, 0);
        // A recurrent state was saved before the last token, where another one may follow.
        let kept = 200 - u64::from(RECURRENT.contains(&shape));
        assert_eq!(follow(&server, &prompt, json!({})), (said, kept), "{shape}");
        // No step ends before the last of few new tokens, but the logits behind it are kept.
        let next = [prompt, vec![700; 20]].concat();
        let (said, cached) = follow(&server, &next, json!({}));
        assert_eq!(cached, kept, "{shape}");
        assert_eq!(follow(&server, &next, json!({})), (said, 220), "{shape}");
    }
}

/// The first token comes from kept logits, whatever the options were, and whatever a text was to do.
#[test]
fn kept_logits_are_those_of_the_model() {
    [SHAPES[0], WINDOW, "tiny"].into_iter().for_each(compare_kept_logits);
}

fn compare_kept_logits(shape: &str) {
    let server = TestServer::file(hybrid(shape), config());
    follow(&server, &beginning(200), json!({}));
    let prompt = [beginning(200), vec![700; 20]].concat();
    let complete = |options: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 6, "logprobs": 5});
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body.to_string()).json();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        (answer["choices"].clone(), cached.unwrap_or_else(|| panic!("{answer}")))
    };
    let kinds = [
        json!({"temperature": 0, "logit_bias": {"300": 5, "301": -5}}),
        json!({"temperature": 0}),
        json!({"temperature": 1.5, "seed": 3, "presence_penalty": 1.5}),
        json!({"temperature": 1, "top_k": 0, "top_p": 1, "seed": 4, "max_tokens": 1}),
        json!({"temperature": 0.7, "mirostat": 2, "seed": 5}),
        json!({"temperature": 0, "n": 3, "best_of": 3}),
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        let mut alone = kind.clone();
        alone["cache_prompt"] = json!(false);
        let (choices, cached) = complete(kind.clone());
        assert_alike(&choices, &complete(alone).0);
        let first = 200 - u64::from(RECURRENT.contains(&shape));
        assert_eq!(cached, if number > 0 { 220 } else { first }, "{shape}: {kind}");
    }
    // These need the last row.
    for mut kind in [json!({"grammar": "root ::= [a-z]+"}), json!({"echo": true})] {
        kind["temperature"] = json!(0);
        let mut alone = kind.clone();
        alone["cache_prompt"] = json!(false);
        let (choices, cached) = complete(kind);
        assert_alike(&choices, &complete(alone).0);
        assert!(cached < 220, "{cached}");
    }
}

/// Compares answers, whose logarithms of probabilities depend a little on the rows of a step.
fn assert_alike(found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() => {
            let [a, b] = [a, b].map(|number| number.as_f64().unwrap());
            assert!((a - b).abs() < 0.02, "{a}, {b}");
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).for_each(|(a, b)| assert_alike(a, b));
        }
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.values().zip(b.values()).for_each(|(a, b)| assert_alike(a, b));
        }
        _ => assert_eq!(found, expected),
    }
}

#[test]
fn prompts_that_part_from_another_start_where_they_part_from_the_second_on() {
    for (shape, server) in SHAPES.into_iter().zip(servers()) {
        follow(&server, &beginning(300), json!({}));
        for turn in 0..4 {
            let prompt = [beginning(150), vec![500 + turn; 70]].concat();
            let (anew, _) = follow(&server, &prompt, json!({"cache_prompt": false}));
            // The first one had to learn the place, unless a window reaches it.
            let cached = if turn == 0 && shape != WINDOW { 0 } else { 150 };
            let found = follow(&server, &prompt, json!({}));
            assert_eq!(found, (anew, cached), "{shape}, turn {turn}");
        }
    }
}

#[test]
fn requests_at_once_compute_their_common_beginning_once() {
    for server in servers() {
        let prompts: Vec<Vec<i64>> =
            (0..4).map(|number| [beginning(400), vec![600 + number; 20]].concat()).collect();
        let complete = |prompts: &[Vec<i64>], cache: bool| {
            let body = json!({"prompt": prompts, "max_tokens": 16, "temperature": 0,
                "ignore_eos": true, "cache_prompt": cache});
            let answer = server.post("/v1/completions", &body.to_string()).json();
            let choices = answer["choices"].as_array().unwrap_or_else(|| panic!("{answer}"));
            let texts: Vec<Value> = choices.iter().map(|choice| choice["text"].clone()).collect();
            (texts, answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap())
        };
        let alone: Vec<Value> =
            prompts.chunks(1).flat_map(|prompt| complete(prompt, false).0).collect();
        // All but the first wait for the first.
        assert_eq!(complete(&prompts, true), (alone, 3 * 400));
    }
}

#[test]
fn one_request_may_use_the_context_of_all() {
    let context_tokens = Some(1024);
    for shape in SHAPES {
        let config = ServeConfig { parallel: 2, context_tokens, ..config() };
        let server = TestServer::file(hybrid(shape), config);
        follow(&server, &beginning(900), json!({}));
    }
}

/// A chat's prompt says where others will part from it.
#[test]
fn another_question_starts_behind_the_turns_before_it() {
    for server in servers() {
        let ask = |system: &str, question: &str| {
            let body = json!({"messages": [{"role": "system", "content": system},
                {"role": "user", "content": question}], "max_tokens": 8, "temperature": 0});
            let answer = server.post("/v1/chat/completions", &body.to_string()).json();
            answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or_else(|| panic!("{answer}"))
        };
        let system = "You are careful and say little. ".repeat(20);
        assert_eq!(ask(&system, "What is the tallest mountain of them all?"), 0);
        let cached = ask(&system, "Name a river.");
        assert!(cached > 100, "{cached}");
        assert!(ask("Another one. ".repeat(60).as_str(), "Name a river.") < 10);
    }
}

/// Texts of three tokens repeat themselves often, and not always in the same way.
#[test]
fn guesses_change_no_text() {
    for server in servers() {
        for number in 0..6 {
            let unit = (0..12).map(|place| 300 + number * 7 + place * 13 % 50);
            let prompt: Vec<i64> = unit.cycle().take(60 + number as usize).collect();
            let text = |most: u8| {
                let body = json!({"prompt": prompt, "n_predict": 150, "temperature": 0,
                    "ignore_eos": true, "return_tokens": true, "speculative.n_max": most,
                    "logit_bias": [[300, 30], [301, 30], [302, 30]]});
                let answer = server.post("/completion", &body.to_string()).json();
                answer["tokens"].clone()
            };
            assert_eq!(text(16), text(0), "{prompt:?}");
        }
        let guesses = &server.metrics.decode.guesses;
        let kept: u64 = guesses.kept.iter().map(|kept| kept.get()).sum();
        assert!(guesses.made.get() > kept && kept > 20, "{} and {kept}", guesses.made.get());
    }
}

/// A model of two slots whose states can go back by three tokens, or by a step's.
pub struct Model {
    pub model: LlamaDecoder,
    pub abort: Arc<StepAbort>,
    pub texts: [Vec<TokenId>; 2],
}

impl Model {
    pub fn new(shape: &str) -> Self {
        let loaded = load(&Source::File(hybrid(shape)), KernelChoice::Auto, |_| true).unwrap();
        let window = loaded.info.window;
        let context = ContextConfig { rollback: 3, window, ..context(&loaded, 2, 2048, 16) };
        let abort = context.abort.clone();
        let model = LlamaDecoder::new(loaded.model, &context).unwrap();
        Self { model, abort, texts: Default::default() }
    }

    /// Computes tokens of several slots in one step, and returns the logits behind the last.
    pub fn add(&mut self, tokens: &[(u16, TokenId)]) -> Vec<f32> {
        let mut rows = Vec::new();
        for (slot, token) in tokens {
            let text = &mut self.texts[usize::from(*slot)];
            let position = Position(text.len() as u32);
            let (token, slot) = (*token, SlotId(*slot));
            rows.push(DecodeRow { token, position, slot, logits: Logits::Sample });
            text.push(token);
        }
        self.model.decode(&rows).unwrap();
        self.model.logits(rows.len() - 1).to_vec()
    }

    /// Removes the last tokens of a slot.
    pub fn remove(&mut self, slot: u16, count: usize) -> bool {
        let text = &mut self.texts[usize::from(slot)];
        let left = text.len() - count;
        let is_done = self.model.truncate(SlotId(slot), Position(left as u32));
        if is_done {
            text.truncate(left);
        }
        is_done
    }

    /// The logits behind one more token, of a text that was computed token by token.
    pub fn anew(shape: &str, text: &[TokenId], token: TokenId) -> Vec<f32> {
        let mut other = Self::new(shape);
        text.iter().for_each(|token| drop(other.add(&[(0, *token)])));
        other.add(&[(0, token)])
    }
}

/// Compares logits, whose deviation is 5, except for the order of sums in steps of other rows.
pub fn assert_equal(found: &[f32], expected: &[f32]) {
    let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 0.1, "{largest}");
}

#[test]
fn a_state_goes_back_by_fewer_tokens_than_its_step_had() {
    for shape in RECURRENT {
        let mut model = Model::new(shape);
        (0..20).for_each(|number| drop(model.add(&[(0, 300 + number)])));
        assert!(!model.remove(0, 1), "behind a step of one token there is no state before it");
        model.add(&[(0, 1), (0, 2), (0, 3), (0, 4)]);
        assert!(!model.remove(0, 4), "all of the step");
        assert!(model.remove(0, 2));
        assert!(!model.remove(0, 1), "once");
        let text = model.texts[0].clone();
        assert_equal(&model.add(&[(0, 5)]), &Model::anew(shape, &text, 5));
        // Beside another sequence, llama.cpp may move the state.
        model.add(&[(0, 6), (0, 7), (1, 8)]);
        assert!(!model.remove(0, 1));
        model.add(&[(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6)]);
        assert!(!model.remove(0, 4), "more than it keeps");
        assert!(model.remove(0, 3));
        let text = model.texts[0].clone();
        assert_equal(&model.add(&[(1, 9), (0, 9)]), &Model::anew(shape, &text, 9));
    }
}

/// llama.cpp then goes back by itself, to a state that the step has not written.
#[test]
fn behind_a_step_that_was_given_up_no_state_is_left() {
    for shape in RECURRENT {
        let mut model = Model::new(shape);
        (0..20).for_each(|number| drop(model.add(&[(0, 300 + number)])));
        model.add(&[(0, 1), (0, 2), (0, 3)]);
        let position = Position(model.texts[0].len() as u32);
        model.model.begin_step(7);
        model.abort.give_up(7);
        let row = DecodeRow { token: 5, position, slot: SlotId(0), logits: Logits::Sample };
        assert_eq!(model.model.decode(&[row]), Err(StepError::Aborted));
        assert!(!model.model.truncate(SlotId(0), position), "{shape}");
        assert!(model.model.truncate(SlotId(0), Position(0)), "{shape}");
        model.model.begin_step(8);
        model.texts[0].clear();
        assert_equal(&model.add(&[(0, 9)]), &Model::anew(shape, &[], 9));
    }
}

#[test]
fn a_copy_of_a_state_that_went_back_is_that_state() {
    for shape in RECURRENT {
        let mut model = Model::new(shape);
        model.add(&[(1, 40), (1, 41)]);
        (0..20).for_each(|number| drop(model.add(&[(0, 300 + number)])));
        model.add(&[(0, 1), (0, 2), (0, 3)]);
        assert!(model.remove(0, 2));
        let text = model.texts[0].clone();
        assert!(model.remove(1, 2));
        model.model.copy(SlotId(0), SlotId(1), Position(text.len() as u32), true);
        model.texts[1] = text.clone();
        let expected = Model::anew(shape, &text, 7);
        assert_equal(&model.add(&[(1, 7)]), &expected);
        assert_equal(&model.add(&[(0, 7)]), &expected);
    }
}
