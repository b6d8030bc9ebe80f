//! A step allocates nothing on the lanes once it is running evenly. The allocator counts, on the
//! lanes themselves.

mod support;

use std::sync::Arc;
use std::time::Duration;

use corelane::chat::prompt::ChatModel;
use corelane::clock::Micros;
use corelane::config::ServeConfig;
use corelane::decode::draft::DraftModel;
use corelane::decode::{self, DecodeLane};
use corelane::engine::Engine;
use corelane::kernels::KernelChoice;
use corelane::limits::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, MESSAGES_MAX, PREPARE_INLINE_BYTES_MAX, RING_CAPACITY,
};
use corelane::memory::{CountingAllocator, allocations_on_this_thread};
use corelane::metrics::Metrics;
use corelane::model::fake::{FakeModel, FakeOptions};
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::{Source, load};
use corelane::model::vocab::Vocab;
use corelane::prepare::ServedModel;
use corelane::ring;
use corelane::ring::bell::SocketBell;
use corelane::ring::message::{Batch, GuessSource};
use corelane::sampling::AdvancedSampling;
use corelane::scheduler::{Capacity, NewSequence, Pages, Scheduler};
use corelane::types::ItlTarget;
use corelane::types::chain::{Chain, DryOptions, Mirostat};
use corelane::types::reasoning::ReasoningLimit;
use corelane::types::{Guessing, Sampling};
use serde_json::{Value, json};
use support::{Client, TestServer, config, eventually, hold, job, mask_lane, served_model};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The real model, on a decode lane of its own, fed as the front lane feeds it.
#[test]
fn a_thousand_steady_steps_of_the_decode_lane_allocate_nothing() {
    const SEQUENCES: usize = 8;
    let loaded = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap();
    let draft = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap();
    let capacity = Capacity {
        slots: SEQUENCES,
        step_rows: 64,
        itl_target: ItlTarget::Chosen,
        context_tokens: 16 * 1024,
        sequence_tokens: 2048,
        queue_sequences: 8,
        queue_tokens: 1 << 20,
        reuse: false,
        states: None,
        logits: 0,
        pages: Pages::default(),
        files: None,
        own_cells: false,
        looks_up: true,
        drafts: true,
        weights: vec![1.0],
    };
    let context = ContextConfig {
        context_tokens: capacity.context_tokens,
        slots: SEQUENCES as u32,
        step_rows: 64,
        ubatch_rows: 64,
        decode_cores: config().placement.decode_cores,
        state_bytes: 0,
        rollback: 0,
        window: 0,
        stores_pages: false,
        cache: corelane::types::CacheLayout::default(),
        attention: loaded.kernels,
        pinned: true,
        abort: Arc::default(),
        poll: 0,
    };
    let (bell, _socket) = SocketBell::new().unwrap();
    let (mut front, link) = ring::link(RING_CAPACITY, Arc::new(bell), std::time::Duration::ZERO);
    let model = loaded.model.clone();
    let end_tokens: Box<[i32]> = loaded.vocab.end_tokens().into();
    let metrics = Arc::new(Metrics::default());
    let counted_by_lane = metrics.clone();
    let lane = std::thread::spawn(move || {
        let backend = LlamaDecoder::new(model, &context).unwrap();
        let beside = backend.beside(draft.model, &context).unwrap();
        let drafter = DraftModel::new(beside, draft.info.n_vocab, SEQUENCES, 2048, 64);
        let lane = DecodeLane::new(backend, SEQUENCES, 2048, end_tokens, metrics);
        decode::run(lane.with_guesses(true, Some(Box::new(drafter))), link);
    });

    let mut scheduler = Scheduler::new(capacity);
    // Every way to choose a token has its turn.
    let base = Sampling { ignore_eos: true, repeat_penalty: 1.1, ..Sampling::default() };
    let narrow = Sampling { top_k: 500, top_p: 0.95, min_p: 0.01, ..base };
    let ways: [(Sampling, Option<AdvancedSampling>); SEQUENCES] = [
        (Sampling { temperature: 0.0, ..base }, None),
        (Sampling { top_k: 40, top_p: 0.95, ..base }, None),
        (Sampling { top_p: 0.9, presence_penalty: 0.1, frequency_penalty: 0.1, ..base }, None),
        (Sampling { top_k: 1500, min_p: 0.01, ..base }, None),
        (
            base,
            Some(AdvancedSampling {
                logit_bias: Box::new([(5, 1.0), (6, f32::NEG_INFINITY)]),
                min_tokens: 100,
                logprobs: Some(20),
                reasoning: Some(ReasoningLimit {
                    tokens: 60,
                    is_open: true,
                    opener: "<think>",
                    closer: "</think>",
                    anywhere: false,
                    end: Box::new([5, 7]),
                    next_end: Box::new([5, 7]),
                    texts: loaded.vocab.texts().clone(),
                    control: Box::default(),
                }),
                ..AdvancedSampling::default()
            }),
        ),
        (narrow, Some(all_samplers(None, &loaded.vocab))),
        (narrow, Some(all_samplers(Some(1), &loaded.vocab))),
        (base, Some(all_samplers(Some(2), &loaded.vocab))),
    ];
    let sequences = ways.into_iter().enumerate().map(|(i, (sampling, advanced))| {
        let text = format!("Story {i}: Once upon a time");
        let prompt = loaded.vocab.tokenize(&text, true, true).unwrap().into();
        let sampling = Sampling { seed: i as u64, ..sampling };
        // With a guess in each step, it has at most 2,000 tokens.
        let guessing = Guessing { most: 1, ..Guessing::default() };
        let advanced = advanced.map(Arc::new);
        NewSequence { advanced, guessing, ..NewSequence::new(prompt, 2_020, sampling) }
    });
    scheduler.admit(sequences.collect(), |_, _| ()).unwrap();
    let mut batch = Box::<Batch>::default();
    let mut counted = 0;
    let mut warm = 0;
    let mut drafted = 0;
    for step in 0..1_000 {
        batch.clear();
        assert!(scheduler.schedule(&mut batch));
        assert!(front.send(batch).is_ok());
        batch = loop {
            match front.receive() {
                Some(batch) => break batch,
                None => std::thread::yield_now(),
            }
        };
        // As if guesses took no time, so that there are some, whatever this machine is.
        (batch.guess_us, batch.decode_us, batch.sample_us) = (0, 1_000, 0);
        drafted += batch.rows.iter().filter(|row| row.guesses.source == GuessSource::Draft).count();
        scheduler.complete(&mut batch, |_| ());
        if step == 199 {
            warm = counted_by_lane.decode.allocations.get();
        }
        if step >= 200 {
            assert!(batch.samples.len() >= SEQUENCES && !batch.logprobs.is_empty());
            assert_eq!(batch.allocations, 0, "step {step} allocated");
            counted += 1;
        }
    }
    assert_eq!(counted, 800);
    drop(front);
    lane.join().unwrap();
    // The counters say the same, and writing them allocated nothing either.
    assert_eq!(counted_by_lane.decode.allocations.get(), warm);
    assert_eq!(counted_by_lane.decode.step_us.count(), 1000);
    assert!(counted_by_lane.decode.guesses.made.get() > 100, "steps had guesses");
    assert!(drafted > 100, "{drafted} rows had guesses of the draft model");
}

/// llama.cpp's samplers, every one of them at work.
fn all_samplers(mirostat: Option<u8>, vocab: &Vocab) -> AdvancedSampling {
    let dry = DryOptions {
        multiplier: 0.8,
        last_n: u32::MAX,
        breakers: vocab.default_breakers().clone(),
        ..DryOptions::default()
    };
    let chain = Chain {
        min_keep: 2,
        typical_p: 0.9,
        top_n_sigma: 4.0,
        xtc_probability: 0.5,
        dynatemp_range: 0.3,
        dry,
        mirostat: mirostat.map(|version| Mirostat { version, tau: 5.0, eta: 0.1 }),
        ..Chain::default()
    };
    AdvancedSampling { chain: Some(chain), ..AdvancedSampling::default() }
}

/// The front lane's own code, without its executor: tokens in, events out.
#[test]
fn a_token_allocates_nothing_on_its_way_to_an_event() {
    for (path, fields) in [
        ("/v1/completions", r#""prompt":"p","stop":["never said"]"#),
        ("/v1/chat/completions", MESSAGES),
        ("/v1/messages", MESSAGES),
        ("/completion", r#""prompt":"p""#),
        ("/generate", r#""prompt":"p""#),
        ("/v1/responses", r#""input":"p","max_output_tokens":1500"#),
        ("/api/chat", MESSAGES),
        ("/api/generate", r#""prompt":"p""#),
    ] {
        let length = r#""model":"m","max_tokens":1500,"options":{"num_predict":1500}"#;
        let body = format!(r#"{{{length},"stream":true,{fields}}}"#);
        // A response repeats its text at the end, so the text is kept: in memory that doubles.
        let most = if path == "/v1/responses" { 8 * 4 } else { 0 };
        let allocations = allocations_in_8000_tokens(path, body.as_bytes());
        assert!(allocations <= most, "{path}: {allocations}");
    }
}

const MESSAGES: &str = r#""messages":[{"role":"user","content":"p"}]"#;

fn allocations_in_8000_tokens(path: &str, body: &[u8]) -> u64 {
    const STREAMS: usize = 8;
    let template = "{{ messages[0].content }}";
    let chat = Some(ChatModel::new(template, "", "").unwrap());
    let model = Arc::new(ServedModel { chat, ..served_model(2048) });
    let capacity = Capacity {
        slots: STREAMS,
        step_rows: 64,
        itl_target: ItlTarget::Chosen,
        context_tokens: 64 * 1024,
        sequence_tokens: 2048,
        queue_sequences: 8,
        queue_tokens: 1 << 20,
        reuse: false,
        states: None,
        logits: 0,
        pages: Pages::default(),
        files: None,
        own_cells: false,
        looks_up: true,
        drafts: false,
        weights: vec![1.0],
    };
    let (bell, _socket) = SocketBell::new().unwrap();
    let (front, link) = ring::link(RING_CAPACITY, Arc::new(bell), std::time::Duration::ZERO);
    let lane = std::thread::spawn(move || {
        let backend = FakeModel::new(STREAMS, 64 * 1024, 64, FakeOptions::default());
        decode::run(DecodeLane::new(backend, STREAMS, 2048, Box::new([]), Arc::default()), link);
    });
    let metrics = Arc::new(Metrics::default());
    let mut engine =
        Engine::new(model.vocab.clone(), capacity, front, mask_lane().0, metrics.clone());
    let exchanges: Vec<_> = (0..STREAMS)
        .map(|_| engine.submit(job(path, body, &model, Micros(0)), hold(), Micros(0)).unwrap())
        .collect();
    // Room for the events of several steps, as a stream has after a while.
    exchanges.iter().for_each(|exchange| exchange.borrow_mut().out.reserve(4096));
    let mut pump_until = |tokens: u64| {
        while metrics.front.generation_tokens.get() < tokens {
            engine.pump(Micros(1));
            for exchange in &exchanges {
                exchange.borrow_mut().out.clear(); // as the connection takes it
            }
            std::thread::yield_now();
        }
    };
    pump_until(1_000);
    let before = allocations_on_this_thread();
    pump_until(9_000);
    let allocations = allocations_on_this_thread() - before;
    drop(engine);
    lane.join().unwrap();
    allocations
}

/// The whole front lane with its executor, whose sockets and timers allocate
/// when it goes to sleep and wakes: once a step, not once a token.
#[test]
fn the_front_lane_allocates_within_its_budget() {
    for (clients, per_token_max) in [(1, 8.0), (8, 4.0)] {
        for stream in [false, true] {
            let short = requests_allocate(clients, 10, stream);
            let long = requests_allocate(clients, 510, stream);
            let per_token = (long - short) / 500.0;
            let per_request = short - 10.0 * per_token;
            println!(
                "{clients} clients, stream {stream}: {per_request:.1} allocations per request, \
                 {per_token:.2} per token"
            );
            assert!(per_token < per_token_max, "{per_token:.2} allocations per token");
            assert!(per_request < 120.0, "{per_request:.1} allocations per request");
        }
    }
}

/// The front lane serves everybody, so no request may make it work for long. What it copies, it
/// allocates; so its allocations count its work: their number, and their bytes beside the request's
/// own and the answer's own.
#[test]
fn no_request_gives_the_front_lane_much_work() {
    const TIMES: usize = 8;
    /// The buffers of a body and of an answer grow. All sizes together are this many times the last.
    const GROWS: usize = 5;
    let server = TestServer::fake(with_messages(), 0);
    let metrics = server.metrics.clone();
    let count = || {
        // The lane writes its counters when the engine runs.
        let before = metrics.front.responses.total();
        assert_eq!(server.post("/v1/completions", r#"{"prompt":"a","max_tokens":2}"#).status, 200);
        eventually("it is counted", || metrics.front.responses.total() > before);
        let front = &metrics.front;
        (front.allocations.get(), front.allocated_bytes.get())
    };
    let check = |name: &str, own_bytes: usize, act: &mut dyn FnMut()| {
        let before = count();
        (0..TIMES).for_each(|_| act());
        let after = count();
        let allocations = (after.0 - before.0) as usize / TIMES;
        let bytes = ((after.1 - before.1) as usize / TIMES).saturating_sub(own_bytes);
        println!("{name}: {allocations} allocations, {bytes} bytes beside {own_bytes} of its own");
        // Each read and each write of a socket makes a few.
        assert!(allocations < 1000 + own_bytes / 8192, "{name}: {allocations} allocations");
        assert!(bytes < 512 * 1024, "{name}: {bytes} bytes beside {own_bytes}");
    };

    // The largest response that is kept: its conversation has as many bytes as a body may have.
    let thought = |text: String| json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]});
    let user = |text: &str| json!({"role": "user", "content": text});
    let largest = json!([user("a"), thought("x".repeat(BODY_BYTES_MAX - 2048)), user("b")]);
    let many = (0..MESSAGES_MAX - 1).map(|n| user(&n.to_string())).collect::<Vec<Value>>();
    let keep = |items: &Value| {
        let body = json!({"input": items, "max_output_tokens": 1}).to_string();
        let answer = server.post("/v1/responses", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    for (name, items) in [("the largest", &largest), ("the most items", &many.into())] {
        let id = keep(items);
        let path = format!("/v1/responses/{id}");
        let head = |path: &str| {
            let mut client = server.connect();
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
            assert_eq!(client.head().unwrap().0, 200);
        };
        let page = format!("{path}/input_items?limit=100");
        check(&format!("{name}: HEAD of a page"), 0, &mut || head(&page));
        let last = format!("{path}/input_items?limit=1&order=asc&after=nothing");
        check(&format!("{name}: after what is not there"), 0, &mut || {
            assert_eq!(server.get(&last).status, 400);
        });
        check(&format!("{name}: GET"), 0, &mut || assert_eq!(server.get(&path).status, 200));
        let whole = server.get(&page).body.len();
        check(&format!("{name}: GET of a page"), whole, &mut || {
            assert_eq!(server.get(&page).status, 200);
        });
        let body = json!({"input": "c", "previous_response_id": id, "max_output_tokens": 1, "store": false});
        check(&format!("{name}: continued"), 0, &mut || {
            let answer = server.post("/v1/responses", &body.to_string());
            assert!(answer.status == 200 || answer.body.contains("it may have"), "{}", answer.body);
        });
        let (own, mut kept) = (items.to_string().len(), Vec::new());
        check(&format!("{name}: kept"), GROWS * own, &mut || kept.push(keep(items)));
        check(&format!("{name}: DELETE"), 0, &mut || {
            let path = format!("/v1/responses/{}", kept.pop().unwrap());
            let mut client = server.connect();
            client.send(format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
            let status = client.response().status; // it may have had to make room
            assert!([200, 404].contains(&status), "{status}");
        });
    }

    // The longest id, in a body as long as one may be.
    let long = "\u{200b}".repeat((BODY_BYTES_MAX - 1024) / 3);
    let body = json!({"input": "a", "previous_response_id": long}).to_string();
    check("the longest id", GROWS * body.len(), &mut || {
        assert_eq!(server.post("/v1/responses", &body).status, 400);
    });
    let path = format!("/v1/responses/{}", "x".repeat(HEAD_BYTES_MAX - 1024));
    check("the longest path", path.len(), &mut || assert_eq!(server.get(&path).status, 404));

    // The largest bodies that are read in place.
    let fill = |begin: &str, piece: &str, end: &str| {
        let pieces = (PREPARE_INLINE_BYTES_MAX - begin.len() - end.len()) / piece.len();
        format!("{begin}{}{end}", piece.repeat(pieces))
    };
    for path in [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
        "/completion",
        "/infill",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/v1/embeddings",
        "/v1/rerank",
        "/generate",
        "/api/chat",
        "/api/generate",
        "/v1/messages/count_tokens",
    ] {
        for body in [
            fill("[", "[", ""),
            fill(r#"{"prompt":""#, "<", r#"","max_tokens":1}"#),
            fill(r#"{"prompt":[1,"#, "1,", r#"1],"max_tokens":1}"#),
            fill(r#"{"max_tokens":1,"prompt":["#, r#""","#, r#"""]}"#),
            fill(r#"{"input":["#, r#""a","#, r#""a"]}"#),
            fill(r#"{"content":""#, r"\u00e9", r#""}"#),
            fill(r#"{"max_tokens":1,"messages":["#, MESSAGE, r#"{"role":"user","content":"a"}]}"#),
            fill(r#"{"query":"a","documents":["#, r#""a","#, r#""a"]}"#),
            fill(r#"{"prompt":"a","max_tokens":1,"stop":["#, r#""ab","#, r#""a"]}"#),
            fill(
                r#"{"prompt":"a","max_tokens":1,"n":128,"logit_bias":{"#,
                r#""7":1,"#,
                r#""8":1}}"#,
            ),
            fill(r#"{"input":"a","max_output_tokens":1,"instructions":""#, "{{", r#""}"#),
            fill(r#"{"prompt":"a","max_tokens":1,"regex":""#, "[!-\u{10ffff}]", r#""}"#),
            fill(r#"{"prompt":"a","max_tokens":1,"grammar":""#, "&", r#""}"#),
        ] {
            let name = format!("{path} {:.40}", body);
            let answer = server.post(path, &body).body.len();
            check(&name, GROWS * answer, &mut || drop(server.post(path, &body)));
        }
    }

    // Bytes that come one by one, with time between them for the lane to read each. On a busy machine
    // they take longer, so the lane reads more often: about a hundred times, and not a thousand.
    const AS_MANY_READS: usize = 16 << 20;
    let drip = |head: String, body: &str| {
        let mut client = server.connect();
        for byte in format!("{head}\r\n{body}").bytes() {
            client.send(&[byte]);
            std::thread::sleep(Duration::from_micros(50));
        }
        client.response().status
    };
    check("a head, byte by byte", AS_MANY_READS, &mut || {
        let line = format!("X: {}\r\n", "x".repeat(1000));
        assert_eq!(drip(format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{line}"), ""), 200);
    });
    check("a body, byte by byte", AS_MANY_READS, &mut || {
        let body = format!(r#"{{"prompt":"a","max_tokens":1}}{}"#, " ".repeat(1000));
        let length = format!("Content-Length: {}\r\n", body.len());
        let head = format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{length}");
        assert_eq!(drip(head, &body), 200);
    });

    // The most connections.
    let mut idle: Vec<Client> = (0..1000).map(|_| server.connect()).collect();
    eventually("all are accepted", || metrics.front.connections.get() >= 1000);
    check("beside 1,000 connections", 0, &mut || assert_eq!(server.get("/health").status, 200));
    check("an answer on each connection", 0, &mut || {
        for client in idle.iter_mut().take(10) {
            assert_eq!(client.get("/health").status, 200);
        }
    });
}

const MESSAGE: &str = r#"{"role":"user","content":"a"},"#;

/// A server whose template shows messages in few tokens.
fn with_messages() -> ServeConfig {
    ServeConfig { chat_template: Some("{{ messages | length }}".into()), ..config() }
}

/// Allocations of the front lane for one request, the mean of many.
fn requests_allocate(clients: usize, max_tokens: usize, stream: bool) -> f64 {
    const REQUESTS: usize = 100;
    let server = TestServer::fake(config(), 0);
    let metrics = server.metrics.clone();
    let before = metrics.front.allocations.get();
    let address = server.address;
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for i in 0..REQUESTS {
                    let body = format!(
                        r#"{{"prompt":"request {i}","max_tokens":{max_tokens},"stream":{stream}}}"#
                    );
                    assert_eq!(client.post("/v1/completions", &body).status, 200);
                }
            });
        }
    });
    server.drain();
    server.join();
    let requests = (clients * REQUESTS) as u64;
    assert_eq!(metrics.front.responses.total(), requests);
    assert_eq!(metrics.front.generation_tokens.get(), requests * max_tokens as u64);
    (metrics.front.allocations.get() - before) as f64 / requests as f64
}
