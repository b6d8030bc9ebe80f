//! The built-in model through the whole server. Its texts equal those of a plain loop over the
//! model.

use std::collections::HashMap;
use std::sync::Arc;

use crate::support::{Client, TestServer, config, logits_if, post_bytes};
use corelane::config::ServeConfig;
use corelane::decode::advanced::{Asked, Limits};
use corelane::decode::sampler::{History, Sampler};
use corelane::kernels::KernelChoice;
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::{Source, load};
use corelane::model::{Backend, DecodeRow};
use corelane::sampling::AdvancedSampling;
use corelane::types::{CacheLayout, Position, Sampling, SlotId, TokenId};
use serde_json::{Value, json};

/// With llama.cpp's kernels, two logits closer than this may change places. A batch of 32 rows
/// takes other kernels than a batch of 1, which add in another order, and the 8-bit rounding
/// of activations between the layers makes that visible: the same sequence's logits were seen
/// 0.21 apart, so the difference of two may move by 0.42.
const LLAMA_TIE: f32 = 0.42;

/// A text that the server generated.
struct Text {
    prompt: Vec<TokenId>,
    said: Vec<TokenId>,
    /// An end-of-generation token came after that.
    ended: bool,
}

/// Feeds the server's text to a plain loop over the model, one token at a time. Returns for each
/// token how far the best logit lies above the logit of the server's token. 0 is agreement.
fn leads_over(backend: &mut LlamaDecoder, text: &Text, end_tokens: &[TokenId]) -> Vec<f32> {
    let slot = SlotId(0);
    backend.truncate(slot, Position(0));
    let mut position = 0;
    let mut next = text.prompt.clone();
    let mut leads = Vec::new();
    let said = text.said.iter().map(|token| vec![*token]);
    // Any of the end tokens is an end.
    for chosen in said.chain(text.ended.then(|| end_tokens.to_vec())) {
        let last = next.len() - 1;
        let row = |(i, token): (usize, &TokenId)| {
            let position = Position(position + i as u32);
            DecodeRow { token: *token, position, slot, logits: logits_if(i == last) }
        };
        let rows: Vec<DecodeRow> = next.iter().enumerate().map(row).collect();
        backend.decode(&rows).unwrap();
        position += rows.len() as u32;
        let logits = backend.logits(last);
        let best = logits.iter().copied().fold(f32::MIN, f32::max);
        let logit = |token: &TokenId| logits[*token as usize];
        leads.push(best - chosen.iter().map(logit).fold(f32::MIN, f32::max));
        next = chosen;
    }
    leads
}

#[test]
fn thirty_two_concurrent_greedy_texts_equal_those_of_a_plain_loop() {
    compare_greedy_texts(KernelChoice::Auto, CacheLayout::default());
}

#[test]
fn thirty_two_concurrent_greedy_texts_equal_those_of_a_plain_loop_with_caches_of_their_own() {
    compare_greedy_texts(
        KernelChoice::Auto,
        CacheLayout { unified: false, ..CacheLayout::default() },
    );
}

#[test]
fn thirty_two_concurrent_greedy_texts_equal_those_of_a_plain_loop_with_llama_kernels() {
    compare_greedy_texts(KernelChoice::Llama, CacheLayout::default());
}

/// corelane's kernels compute a row independently of its neighbours, so no token may differ.
fn compare_greedy_texts(kernels: KernelChoice, cache: CacheLayout) {
    let tie = if kernels.instruction_set().is_some() { 0.0 } else { LLAMA_TIE };
    const MAX_TOKENS: usize = 80;
    let prompts: Vec<String> = (0..32)
        .map(|i| match i % 4 {
            0 => "Once upon a time".to_owned() + &" there was a fox".repeat(i / 8),
            1 => format!("<|im_start|>user\nWhat is {i} plus 4?<|im_end|>\n<|im_start|>assistant\n"),
            2 => format!("<|im_start|>user\nTell me a story about a dog number {i}<|im_end|>\n<|im_start|>assistant\n"),
            _ => "Mia had a red kite. She loved it very much. ".repeat(i / 3 + 1),
        })
        .collect();
    let server = TestServer::builtin(ServeConfig { parallel: 32, kernels, cache, ..config() });
    let address = server.address;
    // Streamed, so that each token's text is seen: two texts may be the same and their tokens not.
    let texts: Vec<(Vec<String>, bool)> = std::thread::scope(|scope| {
        let ask = |prompt: &String| {
            let body = serde_json::json!({
                "prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0, "stream": true
            });
            let mut client = Client::connect(address);
            scope.spawn(move || token_texts(&client.post("/v1/completions", &body.to_string())))
        };
        let asked: Vec<_> = prompts.iter().map(ask).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    let loaded = load(&Source::BuiltIn, kernels, |_| true).unwrap();
    let context = ContextConfig {
        context_tokens: 1024,
        slots: 1,
        step_rows: 512,
        ubatch_rows: 512,
        decode_cores: vec![0],
        state_bytes: 0,
        rollback: 0,
        window: 0,
        stores_pages: false,
        cache: CacheLayout::default(),
        attention: loaded.kernels,
        pinned: true,
        abort: Arc::default(),
        poll: 0,
    };
    // Every token has other bytes, so its text tells which it is.
    let by_bytes: HashMap<&[u8], TokenId> = (0..loaded.vocab.n_tokens() as TokenId)
        .map(|token| (loaded.vocab.bytes_of(token), token))
        .collect();
    let model = loaded.model.clone();
    let end_tokens = loaded.vocab.end_tokens().to_vec();
    let chosen: Vec<Text> = prompts
        .iter()
        .zip(&texts)
        .map(|(prompt, (texts, ended))| {
            let token = |text: &String| by_bytes[text.as_bytes()];
            // The end token has no text and is the last, if it came.
            let said: Vec<_> = texts.iter().filter(|text| !text.is_empty()).map(token).collect();
            assert!(*ended || said.len() == MAX_TOKENS, "{prompt:?} was cut off: {texts:?}");
            Text { prompt: loaded.vocab.tokenize(prompt, true, true).unwrap(), said, ended: *ended }
        })
        .collect();
    // The thread that makes a context is pinned: not this one, which others use.
    let leads: Vec<Vec<f32>> = std::thread::spawn(move || {
        let mut backend = LlamaDecoder::new(model, &context).unwrap();
        chosen.iter().map(|text| leads_over(&mut backend, text, &end_tokens)).collect()
    })
    .join()
    .unwrap();
    for (index, leads) in leads.iter().enumerate() {
        let worst = leads.iter().copied().fold(0.0, f32::max);
        assert!(
            worst <= tie,
            "{:?}: the loop prefers another token by {worst}; server: {:?}",
            prompts[index],
            texts[index]
        );
    }
    let compared = leads.iter().map(Vec::len).sum::<usize>();
    let ties = leads.iter().flatten().filter(|lead| **lead > 0.0).count();
    let worst = leads.iter().flatten().copied().fold(0.0, f32::max);
    println!(
        "32 texts, worst {worst}, {compared} tokens compared, {ties} chosen at a tie of at most {tie}"
    );
    assert!(compared > 500, "{compared} tokens compared");
    assert!(ties * 50 < compared, "{ties} ties in {compared} tokens: too many to be chance");
}

/// The text of each token of a streamed completion, one event a token, and
/// whether the model ended it.
fn token_texts(response: &crate::support::Response) -> (Vec<String>, bool) {
    let events = response.events();
    let event = |event: &String| serde_json::from_str(event).unwrap();
    let events: Vec<serde_json::Value> = events[..events.len() - 1].iter().map(event).collect();
    let text = |event: &serde_json::Value| event["choices"][0]["text"].as_str().unwrap().to_owned();
    let ended = events.last().unwrap()["choices"][0]["finish_reason"] == "stop";
    (events.iter().map(text).collect(), ended)
}

#[test]
fn three_plus_four_is_seven() {
    let server = TestServer::builtin(config());
    let prompt = "<|im_start|>user\nWhat is 3 plus 4?<|im_end|>\n<|im_start|>assistant\n";
    let body = serde_json::json!({"prompt": prompt, "max_tokens": 30, "temperature": 0});
    let answer = server.post("/v1/completions", &body.to_string()).json();
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(text.contains('7'), "{text:?}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

/// A client that waits for the role does not take it for the first token.
#[test]
fn the_opening_events_leave_with_the_first_token() {
    let server = TestServer::builtin(config());
    let text = r#""delta":{"content":""#;
    for (path, text) in [("/v1/chat/completions", text), ("/v1/messages", "text_delta")] {
        let body = r#"{"messages":[{"role":"user","content":"What is 3 plus 4?"}],"stream":true,
            "max_tokens":5,"temperature":0}"#;
        let mut client = server.connect();
        client.send(post_bytes(path, body).as_bytes());
        assert_eq!(client.head().unwrap().0, 200);
        let first = String::from_utf8(client.chunk().unwrap()).unwrap();
        let events: Vec<&str> = first.split_terminator("\n\n").collect();
        assert!(events[0].contains("assistant") && !events[0].contains(text), "{first}");
        assert!(events[1..].concat().contains(text), "{first}");
    }
}

/// A constraint holds for the answer. If the template opens a block of reasoning, it is closed
/// before the constrained text.
#[test]
fn a_constrained_answer_is_no_thought() {
    let template = "{{ messages[0].content }}<think>\n".to_owned();
    let server = TestServer::builtin(ServeConfig { chat_template: Some(template), ..config() });
    let messages = serde_json::json!([{"role": "user", "content": "Yes or no? "}]);
    let body = serde_json::json!({"messages": messages, "max_tokens": 20, "regex": "yes|no"});
    let answer = server.post("/v1/chat/completions", &body.to_string()).json();
    let message = &answer["choices"][0]["message"];
    assert!(message["content"] == "yes" || message["content"] == "no", "{answer}");
    assert!(message.get("reasoning_content").is_none(), "{answer}");
    let body = serde_json::json!({"messages": messages, "max_tokens": 5});
    let answer = server.post("/v1/chat/completions", &body.to_string()).json();
    assert!(answer["choices"][0]["message"].get("reasoning_content").is_some(), "{answer}");
}

/// The reasoning and the text of an answer to a chat, which begins with reasoning.
fn thought_and_said(server: &TestServer, more: Value) -> (String, String) {
    let mut body = json!({"messages": [{"role": "user", "content": "What is 3 plus 4?"}],
        "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.post("/v1/chat/completions", &body.to_string()).json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(answer["usage"]["completion_tokens"], 24, "{answer}");
    let text = |field: &str| message[field].as_str().unwrap_or_default().to_owned();
    (text("reasoning_content"), text("content"))
}

#[test]
fn reasoning_ends_at_its_budget() {
    let template = Some("{{ messages[0].content }}<think>\n".to_owned());
    let config = ServeConfig { chat_template: template, ..config() };
    let server = TestServer::builtin(config.clone());
    let (whole, said) = thought_and_said(&server, json!({}));
    assert!(!whole.is_empty() && said.is_empty(), "{whole:?} {said:?}");
    let mut longest = 0;
    for budget in [0, 1, 2, 5] {
        for name in ["reasoning_budget", "thinking_budget_tokens", "thinking_token_budget"] {
            let (thought, said) = thought_and_said(&server, json!({name: budget}));
            assert!(whole.starts_with(thought.trim_end()), "{budget}: {thought:?} of {whole:?}");
            assert!(!said.is_empty() && !said.contains("think>"), "{budget}: {said:?}");
            assert!(thought.len() >= longest, "{budget}: {thought:?}");
            longest = thought.len();
        }
    }
    // Guesses change nothing, also where some of them are wrong.
    for budget in [0, 1, 7, 13] {
        let guesses = |most: u32| json!({"reasoning_budget": budget, "speculative.n_max": most});
        let [with, without] = [16, 0].map(|most| thought_and_said(&server, guesses(most)));
        assert_eq!(with, without, "{budget}");
    }
    let two = json!({"messages": [{"role": "user", "content": "a"}], "reasoning_budget": 5,
        "thinking_token_budget": 6});
    let refused = server.post("/v1/chat/completions", &two.to_string());
    assert_eq!(refused.status, 400, "two different budgets");
    let unlimited = (whole, String::new());
    assert_eq!(thought_and_said(&server, json!({"reasoning_budget": -1})), unlimited);
    assert_eq!(thought_and_said(&server, json!({"reasoning_budget": 1000})), unlimited);
    assert_eq!(thought_and_said(&server, json!({"reasoning_effort": "low"})), unlimited);
    assert_eq!(thought_and_said(&server, json!({"reasoning_effort": "none"})).0, "");

    let tokens = |budget: u32| {
        let body = json!({"input": "What is 3 plus 4?", "max_output_tokens": 24, "temperature": 0,
            "reasoning_budget": budget});
        let answer = server.post("/v1/responses", &body.to_string()).json();
        answer["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens(5) - tokens(0), 5);

    let body = json!({"messages": [{"role": "user", "content": "What is 3 plus 4?"}],
        "max_tokens": 24, "temperature": 0, "ignore_eos": true,
        "thinking": {"type": "enabled", "budget_tokens": 2}});
    let answer = server.post("/v1/messages", &body.to_string()).json();
    let kinds: Vec<&str> = answer["content"].as_array().unwrap().iter().map(kind_of).collect();
    assert_eq!(kinds, ["thinking", "text"], "{answer}");

    let server = TestServer::builtin(ServeConfig { reasoning_budget: Some(0), ..config });
    assert_eq!(thought_and_said(&server, json!({})).0, "");
    assert_eq!(thought_and_said(&server, json!({"reasoning_budget": -1})), unlimited);
}

fn kind_of(block: &Value) -> &str {
    block["type"].as_str().unwrap()
}

/// The answer to a request with guesses, and without.
fn with_and_without_guesses(server: &TestServer, path: &str, body: &Value) -> [Value; 2] {
    [16, 0].map(|most| {
        let mut body = body.clone();
        body["speculative.n_max"] = most.into();
        let response = server.post(path, &body.to_string());
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    })
}

#[test]
fn a_text_with_tokens_named_by_their_ids_is_the_same_with_guesses_and_without() {
    let server = TestServer::builtin(config());
    let grammar = "root ::= \"abc\" <[300]> \"x\" [yz] <[301]> \"def\"";
    let body = json!({"prompt": "Once", "n_predict": 20, "temperature": 0, "grammar": grammar});
    for _ in 0..3 {
        let [guessed, plain] = with_and_without_guesses(&server, "/completion", &body);
        assert_eq!(guessed["content"], plain["content"]);
        let text = guessed["content"].as_str().unwrap();
        assert!(text.starts_with("abc") && text.ends_with("def"), "{text}");
    }
}

#[test]
fn a_required_call_is_made_at_once_and_is_the_same_with_guesses_and_without() {
    let server = TestServer::builtin(config());
    let parameters = json!({"type": "object", "required": ["city"], "additionalProperties": false,
        "properties": {"city": {"enum": ["Oslo", "Rome", "Lima"]}}});
    let tool = json!({"type": "function",
        "function": {"name": "get_weather", "parameters": parameters}});
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    for choice in [json!("required"), named] {
        for prompt in ["What is the weather in Oslo?", "Think about it first.", "[THINK] <think>"] {
            let body = json!({"messages": [{"role": "user", "content": prompt}], "tools": [tool],
                "tool_choice": choice, "temperature": 0, "max_tokens": 100,
                "parallel_tool_calls": false});
            let path = "/v1/chat/completions";
            let [guessed, plain] = with_and_without_guesses(&server, path, &body);
            let message = |answer: &Value| answer["choices"][0]["message"].clone();
            let call = |answer: &Value| message(answer)["tool_calls"][0]["function"].clone();
            assert_eq!(call(&guessed), call(&plain), "{guessed} {plain}");
            assert_eq!(call(&guessed)["name"], "get_weather", "{guessed}");
            // Its template has no markers for reasoning.
            assert!(message(&guessed).get("reasoning_content").is_none(), "{guessed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_text_beside_others_and_alone() {
    let server = TestServer::builtin(config());
    let body = |seed: u64| {
        format!(r#"{{"prompt":"Once upon a time","max_tokens":30,"temperature":1,"seed":{seed}}}"#)
    };
    let text = |seed| {
        let answer = server.post("/v1/completions", &body(seed)).json();
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let first = text(7);
    assert_eq!(first, text(7));
    let others: Vec<String> = (0..10).map(text).collect();
    assert_eq!(first, others[7]);
    assert!(others.iter().any(|other| *other != first), "other seeds, other texts");
}

#[test]
fn log_probabilities_are_the_models_own() {
    let loaded = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap();
    let context = ContextConfig {
        context_tokens: 256,
        slots: 1,
        step_rows: 64,
        ubatch_rows: 64,
        decode_cores: vec![0],
        state_bytes: 0,
        rollback: 0,
        window: 0,
        stores_pages: false,
        cache: CacheLayout::default(),
        attention: loaded.kernels,
        pinned: true,
        abort: Arc::default(),
        poll: 0,
    };
    let prompt = loaded.vocab.tokenize("Once upon a time there was a fox", true, true).unwrap();
    let model = loaded.model.clone();
    // Biases, penalties and truncation must not change them.
    let advanced = AdvancedSampling {
        logit_bias: Box::new([(prompt[0], 9.0), (prompt[1], f32::NEG_INFINITY)]),
        logprobs: Some(20),
        ..AdvancedSampling::default()
    };
    let sampling = Sampling { repeat_penalty: 1.3, top_k: 5, seed: 3, ..Sampling::default() };
    // The thread that makes a context is pinned: not this one, which others use.
    let compare = move || {
        let mut backend = LlamaDecoder::new(model, &context).unwrap();
        let mut sampler = Sampler::new(backend.n_vocab(), Box::new([]));
        let (mut tokens, mut run) = (prompt.clone(), 0);
        for _ in 0..50 {
            let row = |index: usize| DecodeRow {
                token: tokens[index],
                position: Position(index as u32),
                slot: SlotId(0),
                logits: logits_if(index + 1 == tokens.len()),
            };
            let rows: Vec<DecodeRow> = (run..tokens.len()).map(row).collect();
            backend.decode(&rows).unwrap();
            run = tokens.len();
            let logits = backend.logits(rows.len() - 1);
            let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            let log_softmax = |logit: &f32| f64::from(*logit) - total.ln();
            let exact: Vec<f64> = logits.iter().map(log_softmax).collect();
            let mut order = exact.clone();
            order.sort_unstable_by(|a, b| b.total_cmp(a));
            let history = History { tokens: &tokens, prompt_tokens: prompt.len() };
            let asked = Asked { sampling: &sampling, advanced: &advanced };
            let (token, found) =
                sampler.sample_with(logits, asked, Limits::default(), &mut 0.0, history);
            let found = found.expect("they were asked for");
            assert!((f64::from(found.logprob) - exact[token as usize]).abs() < 1e-4);
            assert_eq!(found.top.len(), 20);
            for ((token, logprob), rank) in found.top.iter().zip(&order) {
                assert_eq!(exact[*token as usize], *rank, "the largest first");
                assert!((f64::from(*logprob) - rank).abs() < 1e-4);
            }
            tokens.push(token);
        }
    };
    std::thread::spawn(compare).join().unwrap();
}

#[test]
fn any_text_survives_the_vocabulary() {
    let loaded = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap();
    let vocab = &loaded.vocab;
    for text in ["plain", " two  spaces\n\n\ttab", "é漢字🦀\u{0}\u{7f}", "12345 67", "don't I'LL"]
    {
        let tokens = vocab.tokenize(text, false, false).unwrap();
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| vocab.bytes_of(*t).to_vec()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
    // Control tokens are read as such only in prompts.
    assert_eq!(vocab.tokenize("<|im_end|>", false, true).unwrap().len(), 1);
    assert!(vocab.tokenize("<|im_end|>", false, false).unwrap().len() > 1);
    assert_eq!(vocab.bytes_of(vocab.tokenize("<|im_end|>", false, true).unwrap()[0]), b"");
    assert!(vocab.end_tokens().len() >= 2, "both end tokens are known");
}
