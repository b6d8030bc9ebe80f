//! Helpers of the fuzz targets.
//!
//! A target is a program in `targets/`. libFuzzer calls it with bytes, and keeps those that reach
//! new code. A panic, a failed check, a hang or too much memory ends it, and the bytes stay in a
//! file.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use corelane::api::llama::slots;
use corelane::api::route;
use corelane::clock::cpu_time;
use corelane::config::ServeConfig;
use corelane::constraint::{Compiled, Compiler, Constraint, Matcher};
use corelane::http::head::Method;
use corelane::lanes::Server;
use corelane::model::fake::{END, FakeOptions};
use corelane::model::vocab::Vocab;
use corelane::placement::{Topology, Wishes};
use corelane::prepare::{self, Embeds, Envelope, Lane, Prepared, ServedModel, Step};
use corelane::random::SplitMix64;
use corelane::types::{CacheScope, Calibration, KeyId, ModelInfo, Pooling, TokenId};

/// Makes a function the target. libFuzzer's own macro would end the process at every panic, those
/// that corelane catches in minijinja and llguidance included.
#[macro_export]
macro_rules! target {
    ($run:expr) => {
        #[unsafe(export_name = "rust_fuzzer_test_input")]
        extern "C" fn input(bytes: &[u8]) -> i32 {
            // It has `main`.
            use libfuzzer_sys as _;
            $run(bytes);
            0
        }
    };
}

/// The numbers of a vector in these tests.
const VECTOR_NUMBERS: usize = 4;

/// The tokens of a sequence in these tests.
pub const SEQUENCE_TOKENS: u32 = 4096;

/// A served model with the fake model's vocabulary: a token for each byte.
pub fn served() -> ServedModel {
    ServedModel {
        vocab: Arc::new(Vocab::of_fake()),
        info: ModelInfo { n_embd_out: VECTOR_NUMBERS, ..ModelInfo::default() },
        name: "fake".into(),
        aliases: Vec::new(),
        tags: Vec::new(),
        path: None,
        chat: None,
        context_tokens: 4 * SEQUENCE_TOKENS,
        store_bytes: 0,
        sequence_tokens: SEQUENCE_TOKENS,
        slots: 4,
        calibration: Calibration::default(),
        embeds: Some(Embeds::new(Pooling::Mean, 512)),
        spm_infill: false,
        guessing: corelane::types::Guessing::default(),
        n_predict: None,
        sampling: corelane::types::defaults::SamplingDefaults::default(),
        system_prompt: None,
    }
}

/// A compiler for [`served`]'s vocabulary.
pub fn compiler() -> Compiler {
    Compiler::new(&Vocab::of_fake()).expect("the fake vocabulary has an end token")
}

/// Bytes of a constraint that is compiled though it is not known to be cheap. The server tries those
/// in a process of its own, because a longer one may take minutes.
const UNTRIED_BYTES_MAX: usize = 256;

/// Compiles a constraint. One that counts as cheap must not take long.
pub fn compile(compiler: &mut Compiler, constraint: &Constraint) -> Option<Arc<Compiled>> {
    let is_cheap = constraint.is_cheap();
    if !is_cheap && constraint.source_bytes() > UNTRIED_BYTES_MAX {
        return None;
    }
    let began = cpu_time();
    let compiled = compiler.compile(constraint);
    let took = cpu_time() - began;
    assert!(!is_cheap || took < CHEAP_TIME_MAX, "it took {took:.1?}");
    compiled.ok()
}

/// Processor time to compile a cheap constraint, with the fuzzer's counters in the code.
const CHEAP_TIME_MAX: Duration = Duration::from_secs(2);

/// Starts a server with the fake model, for as long as this process lives. At most so many
/// connections have a place. A panic of the server ends the process.
pub fn serve(connections: usize) -> SocketAddr {
    // SAFETY: no handler runs. Rust's own `main`, which libFuzzer replaces, does the same: otherwise
    // writing to a client that has left would end the process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        // Panics of minijinja and llguidance are caught, and end one request.
        if panic.location().is_none_or(|location| location.file().starts_with("src/")) {
            std::process::abort();
        }
    }));
    let placement = Topology::read().and_then(|topology| topology.place(&Wishes::default()));
    let config = ServeConfig {
        batch_rows: 512,
        ubatch_rows: 512,
        entropy: 1,
        placement: placement.expect("two lanes have a place"),
        poll: 0,
        allowed_hosts: vec!["*".into()],
        connections,
        ..ServeConfig::default()
    };
    let mut server = Server::start(config).expect("a free port on loopback");
    server.load_fake(FakeOptions { end_one_in: 20, ..FakeOptions::default() }).expect("it is fake");
    let address = server.address();
    std::mem::forget(server);
    address
}

/// Prepares a request and checks what comes of it. Paths that take no body are left out.
pub fn prepare(path: &str, body: &[u8], model: &ServedModel, compiler: &mut Compiler) {
    let Ok(route) = route::find(Method::Post, path) else { return };
    if let route::Action::Slot = route.action {
        let _ = slots::read_file(&mut body.to_vec());
    }
    let Some(read) = route.action.read_body() else { return };
    let envelope = Envelope {
        route,
        number: 1,
        seed: 1,
        key: KeyId::at(0),
        priority_min: 0,
        cache: CacheScope::default(),
        timeout: None,
        received: Default::default(),
        created: 0,
    };
    let now = time::OffsetDateTime::UNIX_EPOCH;
    let finish = |mut request| loop {
        if Lane::of(&request) == Lane::Trial && body.len() > UNTRIED_BYTES_MAX {
            return Ok(Step::Done(Prepared::Answer(b"{}".to_vec())));
        }
        let compiler = Some(&mut *compiler);
        match prepare::advance(request, &envelope, model, compiler, 64, &|| true, now)? {
            Step::More(rest) => request = rest,
            done => return Ok(done),
        }
    };
    match read(&mut body.to_vec()).and_then(finish) {
        Ok(Step::Done(Prepared::Job(job))) => {
            assert!(!job.sequences.is_empty());
            for sequence in &job.sequences {
                let tokens = sequence.prompt.len() as u64 + u64::from(sequence.max_tokens);
                assert!(tokens <= u64::from(model.sequence_tokens), "{tokens} tokens");
            }
        }
        Ok(Step::Embed(texts)) => {
            let vector = vec![f32::NAN; VECTOR_NUMBERS];
            let mut answer = Vec::new();
            (texts.answer)(vec![vector; texts.texts.len()], &mut answer);
            serde_json::from_slice::<serde_json::Value>(&answer).expect("an answer is JSON");
        }
        Ok(Step::Done(Prepared::Answer(answer))) => {
            serde_json::from_slice::<serde_json::Value>(&answer).expect("an answer is JSON");
        }
        Ok(Step::More(_)) => unreachable!("it is prepared to its end"),
        Err(error) => {
            assert!((400..500).contains(&error.status), "{}: {}", error.status, error.message);
            let mut answer = Vec::new();
            (route::dialect(path).push_error)(&mut answer, &error);
            serde_json::from_slice::<serde_json::Value>(&answer).expect("an error is JSON");
        }
    }
}

/// Processor time for a constrained text.
const TEXT_TIME_MAX: Duration = Duration::from_secs(2);

/// Writes a text as a model with random weights would, under a constraint. Returns it if it came to
/// its end within 200 tokens and [`TEXT_TIME_MAX`].
pub fn constrained_text(compiled: &Compiled) -> Option<Vec<u8>> {
    let mut matcher = Matcher::new(compiled);
    let mut random = SplitMix64(1);
    let mut text = Vec::new();
    let began = cpu_time();
    for _ in 0..200 {
        if cpu_time() - began > TEXT_TIME_MAX {
            return None; // many slow masks; one that hangs is found
        }
        let mut logits = [0.0; END as usize + 1];
        matcher.mask(&mut logits);
        let allowed: Vec<TokenId> =
            (0..=END).filter(|token| logits[*token as usize] == 0.0).collect();
        assert!(!allowed.is_empty(), "every token is forbidden");
        let token = allowed[random.next_u64() as usize % allowed.len()];
        // Texts end as soon as they may, or they seldom would.
        let token = if allowed.contains(&END) { END } else { token };
        if token == END {
            return matcher.error().is_none().then_some(text);
        }
        if let Err(error) = matcher.push(token) {
            // A limit may be reached: items of a row, work or states of the lexer.
            let is_limit = ["max", "limit", "fuel"].iter().any(|word| error.contains(word));
            assert!(is_limit, "token {token} was allowed, and then refused: {error}");
            return None;
        }
        text.push(token as u8);
    }
    None
}
