//! A draft model beside the served one: which ones are refused, and that it changes no text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::world::capacity;
use crate::support::{TestServer, config, context};
use corelane::config::ServeConfig;
use corelane::decode::DecodeLane;
use corelane::decode::draft::DraftModel;
use corelane::kernels::KernelChoice;
use corelane::lanes::Server;
use corelane::model::llama::LlamaDecoder;
use corelane::model::load::{Source, load};
use corelane::ring::message::Batch;
use corelane::scheduler::{Capacity, Event, NewSequence, Scheduler};
use corelane::types::{Guessing, Sampling, Speculation, TokenId};
use corelane_bench::synth::{Quant, Request, Shape, synth};
use serde_json::{Value, json};

/// The built-in model as a file.
fn builtin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model/builtin/builtin.gguf")
}

fn with_draft(path: PathBuf) -> ServeConfig {
    ServeConfig { speculation: Speculation::Draft, model_draft: Some(path), ..config() }
}

/// A file of this test's own.
fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("draft");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// The reason why a server does not start with this draft model.
fn refusal(path: PathBuf) -> String {
    let mut server = Server::start(with_draft(path)).unwrap();
    let served = server.load(&Source::BuiltIn, |_| ());
    server.control().drain();
    server.join().unwrap();
    served.err().expect("it is refused")
}

#[test]
fn a_model_with_another_vocabulary_is_refused() {
    let larger = file("larger.gguf");
    let shape = Shape { vocab: 9001, ..Shape::named("tiny").unwrap().clone() };
    let quant = Quant::named("q8_0").unwrap();
    let request = Request { shape, quant, seed: 0, out: larger.clone(), force: true, threads: 2 };
    synth(&request, |_| ()).unwrap();
    let builtin_tokens = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap().info.n_vocab;
    let sizes =
        format!("its vocabulary has 9001 tokens and that of the served model {builtin_tokens}");
    assert!(refusal(larger).contains(&sizes));

    let mut bytes = std::fs::read(builtin()).unwrap();
    // GGUF writes the length of a text before it. The vocabulary has Ġ for a space.
    let text = "Ġnight";
    let token = [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let at = bytes.windows(token.len()).position(|at| at == token).expect("a token of its own");
    bytes[at + 8..][..text.len()].copy_from_slice("Ġnigth".as_bytes());
    let other = file("other.gguf");
    std::fs::write(&other, bytes).unwrap();
    let reason = refusal(other);
    assert!(reason.contains(r#"is " nigth" and that of the served model " night""#), "{reason}");

    let reason = refusal(file("none.gguf"));
    assert!(reason.starts_with("--model-draft: cannot read the model file"), "{reason}");
}

#[test]
fn a_draft_model_and_its_flags_go_together() {
    let check = |speculation, model_draft: Option<PathBuf>| {
        ServeConfig { speculation, model_draft, ..config() }.check().err()
    };
    let file = Some(builtin());
    assert_eq!(check(Speculation::Auto, file.clone()), None);
    assert_eq!(check(Speculation::Draft, file.clone()), None);
    let reason = check(Speculation::Draft, None).unwrap();
    assert_eq!(reason, "--spec draft needs a draft model; --model-draft names its file");
    for speculation in [Speculation::Off, Speculation::Lookup] {
        let reason = check(speculation, file.clone()).unwrap();
        assert!(reason.starts_with("--model-draft has no use with this --spec"), "{reason}");
    }
    let guessing = Guessing { p_min: 1.5, ..config().guessing };
    let reason = ServeConfig { guessing, ..config() }.check().unwrap_err();
    assert_eq!(reason, "--draft-p-min is 1.5; it must be from 0 to 1");
}

#[test]
fn a_server_with_a_draft_model_says_the_same() {
    let with = TestServer::builtin(with_draft(builtin()));
    let without = TestServer::builtin(ServeConfig { speculation: Speculation::Off, ..config() });
    let mut drafted = 0;
    for body in [
        json!({"prompt": "One day the", "max_tokens": 80, "temperature": 0}),
        json!({"prompt": "Once upon a time there was", "max_tokens": 60, "temperature": 0}),
        json!({"prompt": "My name is", "regex": "( [a-z]+){1,9}", "temperature": 0}),
    ] {
        let answer = |server: &TestServer| -> Value {
            server.post("/v1/completions", &body.to_string()).json()
        };
        let [with, without] = [&with, &without].map(answer);
        assert_eq!(with["choices"][0]["text"], without["choices"][0]["text"], "{body}");
        assert_eq!(with["usage"], without["usage"]);
        drafted += with["timings"]["draft_n"].as_u64().unwrap_or(0);
    }
    assert!(drafted > 0, "the first guess is made to see what it costs");
}

/// Greedy texts behind some prompts, by a lane whose draft model is as good as the served one and
/// seems to take a twentieth of its time. Also returns how many guesses came true.
fn texts(drafts: bool) -> (Vec<Vec<TokenId>>, u64) {
    const SLOTS: usize = 4;
    const TOKENS: usize = 50;
    let served = load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap();
    let draft = load(&Source::File(builtin()), KernelChoice::Auto, |_| true).unwrap();
    let prompts = ["One day the", "Once upon a time there was a girl", "The sun", "My name is"];
    let prompts = prompts.map(|prompt| served.vocab.tokenize(prompt, true, true).unwrap());
    let context = context(&served, SLOTS as u32, 1024, 128);
    let n_vocab = served.info.n_vocab;
    let model = LlamaDecoder::new(served.model, &context).unwrap();
    let beside = model.beside(draft.model, &context).unwrap();
    let drafter = drafts.then(|| Box::new(DraftModel::new(beside, n_vocab, SLOTS, 256, 128)) as _);
    let mut lane = DecodeLane::new(model, SLOTS, 256, Box::new([]), Arc::default())
        .with_guesses(false, drafter);
    let mut scheduler = Scheduler::new(Capacity { drafts, ..capacity(SLOTS, 1024) });
    let mut texts = vec![Vec::new(); SLOTS];
    let mut places = Vec::new();
    let new = prompts.map(|prompt| NewSequence {
        guessing: Guessing { most: 8, ..Guessing::default() },
        ..NewSequence::new(prompt.into(), TOKENS as u32, Sampling::greedy())
    });
    scheduler.admit(new.into(), |_, id| places.push(id)).unwrap();
    let (mut batch, mut came_true) = (Batch::default(), 0);
    while scheduler.schedule(&mut batch) {
        lane.step(&mut batch);
        let made: u32 = batch.rows.iter().map(|row| u32::from(row.guesses.made)).sum();
        (batch.decode_us, batch.sample_us, batch.guess_us) = (20_000, 0, 1_000 * made);
        scheduler.complete(&mut batch, |event| match event {
            Event::Token { id, token, .. } => {
                let place = places.iter().position(|place| *place == id).unwrap();
                texts[place].push(token);
            }
            Event::Guessed { kept, .. } => came_true += u64::from(kept),
            Event::Finished(..) | Event::Score { .. } => panic!("{event:?}"),
        });
        batch.clear();
    }
    assert!(texts.iter().all(|text| text.len() == TOKENS));
    (texts, came_true)
}

#[test]
fn the_tokens_are_those_of_the_served_model() {
    // The thread that makes a context is pinned: not this one, which others use.
    let run = |drafts| std::thread::spawn(move || texts(drafts)).join().unwrap();
    let ((with, came_true), (without, _)) = (run(true), run(false));
    assert_eq!(with, without);
    assert!(came_true > 100, "of 200 tokens {came_true} were guessed");
}
