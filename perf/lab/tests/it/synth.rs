//! Synthetic models load, generate text and have the shape that was asked for. A shape that is
//! impossible is refused with one sentence.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use crate::support::{Client, config, logits_if};
use corelane::config::ServeConfig;
use corelane::kernels::KernelChoice;
use corelane::lanes::Server;
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::{Loaded, Source, load};
use corelane::model::{Backend, DecodeRow};
use corelane::types::{Position, SlotId, TokenId};
use corelane_bench::synth::{Made, Progress, QUANTS, Quant, Request, Shape, Stage, synth};

/// A folder of one test's own.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("synth-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn tiny() -> Shape {
    Shape::named("tiny").unwrap().clone()
}

fn request(out: PathBuf, shape: Shape, quant: &str) -> Request {
    let quant = Quant::named(quant).unwrap();
    Request { shape, quant, seed: 0, out, force: false, threads: 2 }
}

fn make(out: &Path, shape: Shape, quant: &str) -> Made {
    synth(&request(out.to_owned(), shape, quant), |_| ()).unwrap()
}

fn open(path: &Path) -> Loaded {
    load(&Source::File(path.to_owned()), KernelChoice::Auto, |_| true).unwrap()
}

/// Whether this process has mapped a file.
fn is_mapped(path: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(path.canonicalize().unwrap().to_str().unwrap())
}

/// Runs `prompt` and then the likeliest token after it, again and again. All
/// logits on the way are finite.
fn speak(loaded: &Loaded, prompt: &[TokenId], count: usize) -> Vec<TokenId> {
    let context = ContextConfig {
        context_tokens: 256,
        slots: 1,
        step_rows: 256,
        ubatch_rows: 256,
        decode_cores: vec![0],
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
    let (model, prompt) = (loaded.model.clone(), prompt.to_owned());
    // The thread that makes a context is pinned: not this one.
    let speak = move || {
        let mut backend = LlamaDecoder::new(model, &context).unwrap();
        let (mut said, mut next, mut position) = (Vec::new(), prompt, 0);
        while said.len() < count {
            let last = next.len() - 1;
            let row = |(i, token): (usize, &TokenId)| {
                let position = Position(position + i as u32);
                DecodeRow { token: *token, position, slot: SlotId(0), logits: logits_if(i == last) }
            };
            let rows: Vec<DecodeRow> = next.iter().enumerate().map(row).collect();
            backend.decode(&rows).unwrap();
            position += rows.len() as u32;
            let logits = backend.logits(last);
            assert!(logits.iter().all(|logit| logit.is_finite()), "all logits are finite");
            let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            said.push(best.0 as TokenId);
            next = vec![best.0 as TokenId];
        }
        said
    };
    std::thread::spawn(speak).join().unwrap()
}

#[test]
fn every_quantisation_makes_a_model_that_loads_and_speaks() {
    let folder = folder("quants");
    let mut sizes = Vec::new();
    let mut heard = std::collections::HashSet::new();
    for quant in QUANTS {
        let path = folder.join(format!("{}.gguf", quant.name));
        let made = make(&path, tiny(), quant.name);
        assert_eq!(made.bytes, path.metadata().unwrap().len());
        assert_eq!(made.tensors.len(), 2 + 2 * 11);
        sizes.push(made.bytes);
        let loaded = open(&path);
        assert!(!is_mapped(&path), "its pages could leave memory in the middle of a step");
        assert_eq!(loaded.info.name, "synthetic tiny");
        assert_eq!((loaded.info.n_vocab, loaded.vocab.n_tokens()), (8192, 8192));
        assert_eq!((loaded.info.n_embd, loaded.info.context_trained), (256, 2048));
        let prompt = loaded.vocab.tokenize("Once upon a time", true, true).unwrap();
        let said = speak(&loaded, &prompt, 12);
        assert!(said.iter().all(|token| (0..8192).contains(token)), "{said:?}");
        heard.extend(said);
    }
    assert!(heard.len() > QUANTS.len(), "they do not say one thing each: {heard:?}");
    // f16, bf16, q8_0, q6_k.
    assert!(
        sizes[0] == sizes[1] && sizes[1..4].is_sorted_by(|a, b| a > b),
        "fewer bits, smaller files: {sizes:?}"
    );
    // Nothing but the files is left.
    assert_eq!(names_in(&folder).len(), QUANTS.len());
}

#[test]
fn a_seed_gives_the_same_bytes_whatever_the_threads_and_another_gives_others() {
    let folder = folder("seeds");
    let bytes = |name: &str, seed: u64, threads: usize| {
        let out = folder.join(name);
        synth(&Request { seed, threads, ..request(out.clone(), tiny(), "q4_k_m") }, |_| ())
            .unwrap();
        std::fs::read(out).unwrap()
    };
    let first = bytes("a", 5, 1);
    assert!(first == bytes("b", 5, 3), "the same seed, the same file");
    assert!(first != bytes("c", 6, 1), "another seed, another file");
}

#[test]
fn tensors_have_the_types_that_llama_cpp_gives_a_real_model() {
    let folder = folder("types");
    let types = |name: &str, shape: Shape| {
        let made = make(&folder.join(name), shape, "q4_k_m");
        let typed = made.tensors.into_iter().map(|tensor| (tensor.name, tensor.type_name));
        typed.collect::<std::collections::HashMap<_, _>>()
    };
    // Eight layers: the first, the last and every third have wider values.
    let tied = types("tied", Shape { layers: 8, ..tiny() });
    assert_eq!(tied["token_embd.weight"], "q6_K", "it is also the output");
    assert!(!tied.contains_key("output.weight"));
    for (layer, wide) in [true, false, false, true, false, false, true, true].iter().enumerate() {
        let expected = if *wide { "q6_K" } else { "q4_K" };
        for name in ["attn_v", "ffn_down"] {
            assert_eq!(tied[&format!("blk.{layer}.{name}.weight")], expected, "{layer} {name}");
        }
        for name in ["attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"] {
            assert_eq!(tied[&format!("blk.{layer}.{name}.weight")], "q4_K", "{layer} {name}");
        }
        for name in ["attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"] {
            assert_eq!(tied[&format!("blk.{layer}.{name}.weight")], "f32", "{layer} {name}");
        }
    }
    let untied = types("untied", Shape { tied: false, ..tiny() });
    assert_eq!(untied["token_embd.weight"], "q4_K");
    assert_eq!(untied["output.weight"], "q6_K");
}

#[test]
fn text_is_tokenised_as_by_the_built_in_model() {
    let folder = folder("text");
    let path = folder.join("f16.gguf");
    let made = make(&path, Shape { vocab: 9001, ..tiny() }, "f16");
    assert!(made.tensors.iter().all(|tensor| ["f16", "f32"].contains(&&*tensor.type_name)));
    let (synthetic, builtin) =
        (open(&path).vocab, load(&Source::BuiltIn, KernelChoice::Auto, |_| true).unwrap().vocab);
    assert_eq!(synthetic.n_tokens(), 9001);
    // llama.cpp counts the tokens for repositories and files to those that end a text.
    let ends: Vec<&[u8]> =
        synthetic.end_tokens().iter().map(|token| synthetic.spelling_of(*token)).collect();
    let builtin_ends = builtin.end_tokens().iter().map(|token| builtin.spelling_of(*token));
    let expected: Vec<&[u8]> =
        builtin_ends.chain([&b"<|repo_name|>"[..], b"<|file_sep|>"]).collect();
    assert_eq!(ends, expected);
    assert!(synthetic.fill_in().is_some() && builtin.fill_in().is_none());
    for text in [
        "Once upon a time",
        "<|im_start|>user\nHi<|im_end|>\n",
        "é漢字🦀\u{0} two  spaces",
        // The texts of the filler tokens.
        " t8000 t8001t9000",
    ] {
        let tokens = synthetic.tokenize(text, true, true).unwrap();
        assert_eq!(tokens, builtin.tokenize(text, true, true).unwrap(), "{text:?}");
        let plain = synthetic.tokenize(text, false, false).unwrap();
        let bytes: Vec<u8> = plain.iter().flat_map(|t| synthetic.bytes_of(*t).to_vec()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
    // Each filler is ordinary text, and its own.
    let known = builtin.n_tokens() + 5; // with those for a gap
    let fillers = known as TokenId..9001;
    let texts: std::collections::HashSet<_> = fillers.map(|t| synthetic.bytes_of(t)).collect();
    assert_eq!(texts.len(), 9001 - known);
    assert!(texts.iter().all(|text| text.starts_with(b" t")));
}

#[test]
fn other_architectures_and_odd_shapes_speak() {
    let folder = folder("shapes");
    let small = |name: &str| Shape {
        layers: 2,
        width: 256,
        ffn: 512,
        heads: 4,
        kv_heads: 2,
        vocab: 4096,
        ..Shape::named(name).unwrap().clone()
    };
    let odd = Shape { width: 250, ffn: 333, heads: 3, kv_heads: 1, head_size: 34, ..tiny() };
    for (name, shape, quant) in [
        ("llama", small("llama-3.2-1b"), "q4_k_m"),
        ("untied", small("qwen3-8b"), "q8_0"),
        ("odd", odd, "f16"),
    ] {
        let path = folder.join(name);
        make(&path, shape.clone(), quant);
        let loaded = open(&path);
        assert!(loaded.info.name.ends_with(", modified"), "{}", loaded.info.name);
        let said = speak(&loaded, &[5, 6, 7], 4);
        assert_eq!(said.len(), 4);
    }
}

#[test]
fn progress_runs_through_both_stages_to_the_end() {
    let folder = folder("progress");
    let (sender, mut seen) = rtrb::RingBuffer::new(1000);
    let mut sender = sender;
    let request = request(folder.join("a.gguf"), tiny(), "q8_0");
    synth(&request, move |progress| sender.push(progress).unwrap()).unwrap();
    let mut all: Vec<Progress> = Vec::new();
    while let Ok(progress) = seen.pop() {
        assert!(progress.done <= progress.total);
        all.push(progress);
    }
    let drawn = all.iter().filter(|progress| progress.stage == Stage::Drawing);
    assert_eq!(drawn.map(|progress| progress.done).max(), Some(all[0].total));
    assert_eq!(all.iter().filter(|progress| progress.stage == Stage::Quantising).count(), 24);
}

#[test]
fn it_is_served_like_any_model() {
    let folder = folder("serve");
    let path = folder.join("tiny.gguf");
    make(&path, tiny(), "q4_k_m");
    let mut server = Server::start(ServeConfig { ..config() }).unwrap();
    let served = server.load(&Source::File(path), |_| ()).unwrap().unwrap();
    assert_eq!(served.name, "synthetic tiny");
    let body = r#"{"prompt":"Once upon","max_tokens":40,"ignore_eos":true,"temperature":0}"#;
    let address = server.address();
    let texts: Vec<String> = std::thread::scope(|scope| {
        let ask = || {
            let answer = Client::connect(address).post("/v1/completions", body).json();
            assert_eq!(answer["usage"]["completion_tokens"], 40);
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
            answer["choices"][0]["text"].as_str().unwrap().to_owned()
        };
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(texts.iter().all(|text| !text.is_empty()));
    server.control().drain();
    server.join().unwrap();
}

fn command(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane-bench"));
    command.args(["synth", "--shape", "tiny"]).args(args).output().unwrap()
}

/// The one line on standard error of a command that fails.
fn refusal(args: &[&str]) -> String {
    let output = command(args);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {line}");
    assert_eq!(line.lines().count(), 1, "{args:?}: {line}");
    assert!(output.stdout.is_empty(), "{args:?}");
    line.strip_prefix("corelane-bench: ")
        .unwrap_or_else(|| panic!("{args:?}: {line}"))
        .trim()
        .to_owned()
}

#[test]
fn what_is_no_model_is_refused_in_one_sentence() {
    let folder = folder("refused");
    let out = folder.join("a.gguf").into_os_string().into_string().unwrap();
    for (args, sentence) in [
        (
            &["--width", "1000"][..],
            "--width is 1000, and q4_k_m packs numbers in blocks of 256: it must be a multiple \
             of 256",
        ),
        (
            &["--ffn", "600", "--quant", "q6_k"],
            "--ffn is 600, and q6_k packs numbers in blocks of 256: it must be a multiple of 256",
        ),
        (
            &["--ffn", "600", "--quant", "q8_0"],
            "--ffn is 600, and q8_0 packs numbers in blocks of 32: it must be a multiple of 32",
        ),
        (
            &["--heads", "3", "--kv-heads", "1"],
            "--heads times --head-size is 192, and q4_k_m packs numbers in blocks of 256: it \
             must be a multiple of 256",
        ),
        (
            // The embedding is always Q6_K.
            &["--width", "288", "--quant", "q4_0"],
            "--width is 288, and q4_0 packs numbers in blocks of 256: it must be a multiple of \
             256",
        ),
        (
            &["--heads", "4", "--kv-heads", "3"],
            "4 heads cannot share 3 key-value heads evenly; --heads must be a multiple of \
             --kv-heads",
        ),
        (&["--heads", "0"], "--heads is 0; it must be from 1 to 512"),
        (&["--kv-heads", "8"], "--kv-heads is 8; it must be from 1 to 4"),
        (&["--layers", "0"], "--layers is 0; it must be from 1 to 512"),
        (&["--rope-base", "nan"], "--rope-base is NaN; it must be above 1"),
        (
            &["--head-size", "33", "--quant", "f16"],
            "--head-size is 33; it must be even, since numbers are rotated in pairs",
        ),
    ] {
        assert_eq!(refusal(&[args, &[&out]].concat()), sentence, "{args:?}");
    }
    let line = refusal(&["--vocab", "100", &out]);
    assert!(line.starts_with("--vocab is 100; it must be from "), "{line}");
    let line = refusal(&["--layers", "512", "--width", "65536", "--ffn", "262144", &out]);
    assert!(line.contains("making it takes ") && line.contains(" MB are free there"), "{line}");
    assert_eq!(names_in(&folder), Vec::<String>::new(), "nothing was written");
    // clap's own: the names that there are.
    let output = command(&["--quant", "q9", &out]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("q4_k_m"));
}

#[test]
fn a_file_that_exists_is_replaced_only_by_force() {
    let folder = folder("exists");
    let path = folder.join("a.gguf");
    std::fs::write(&path, "mine").unwrap();
    let out = path.to_str().unwrap();
    assert_eq!(refusal(&[out]), format!("{out} exists already; --force replaces it"));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");

    let output = command(&["--force", out]);
    assert!(output.status.success());
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("synthetic tiny") && stdout.contains("q4_K"), "{stdout}");
    assert!(open(&path).info.n_params > 0);
    assert_eq!(names_in(&folder), ["a.gguf"]);

    let line = refusal(&[folder.to_str().unwrap()]);
    assert!(line.ends_with("it is a folder; name a file, such as model.gguf"), "{line}");
    let line = refusal(&[folder.join("no/such/a.gguf").to_str().unwrap()]);
    assert!(line.starts_with("cannot write ") && line.contains("No such file"), "{line}");
    let line = refusal(&["/proc/a.gguf"]);
    assert!(line.starts_with("cannot write /proc/a.gguf: "), "{line}");
}
