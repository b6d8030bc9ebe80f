//! Models that are made for embeddings: a small BERT with random weights, whose vectors
//! are held against the same model computed here, in f64.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::support::{Client, Random, config};
use corelane::lanes::Server;
use corelane::model::load::Source;
use serde_json::{Value, json};

const EMBD: usize = 32;
const FF: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const CONTEXT: usize = 48;
const EPSILON: f64 = 1e-5;

/// The first of them are special.
const TOKENS: &[&str] = &[
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁dog", "▁sat", "▁ran", "s",
    "▁on", "▁a", "▁mat", "▁.",
];
const UNKNOWN: usize = 1;
const CLS: usize = 2;
const SEP: usize = 3;

/// The tokens of a text of these words.
fn tokens(text: &str) -> Vec<usize> {
    let token = |word: &str| TOKENS.iter().position(|token| *token == format!("▁{word}"));
    let words = text.split(' ').map(|word| token(word).unwrap_or(UNKNOWN));
    [CLS].into_iter().chain(words).chain([SEP]).collect()
}

/// Weights by name, each `[outputs][inputs]`.
struct Bert(BTreeMap<String, (usize, Vec<f32>)>);

impl Bert {
    fn new(seed: u64) -> Self {
        let mut shapes: Vec<(String, usize, usize)> = vec![
            ("token_embd.weight".into(), EMBD, TOKENS.len()),
            ("token_types.weight".into(), EMBD, 2),
            ("position_embd.weight".into(), EMBD, CONTEXT),
        ];
        let norm = |shapes: &mut Vec<_>, name: String| {
            shapes.push((format!("{name}.weight"), EMBD, 1));
            shapes.push((format!("{name}.bias"), EMBD, 1));
        };
        norm(&mut shapes, "token_embd_norm".into());
        for layer in 0..LAYERS {
            let maps = [("attn_q", EMBD, EMBD), ("attn_k", EMBD, EMBD), ("attn_v", EMBD, EMBD)];
            let more = [("attn_output", EMBD, EMBD), ("ffn_up", EMBD, FF), ("ffn_down", FF, EMBD)];
            for (name, inputs, outputs) in maps.into_iter().chain(more) {
                shapes.push((format!("blk.{layer}.{name}.weight"), inputs, outputs));
                shapes.push((format!("blk.{layer}.{name}.bias"), outputs, 1));
            }
            norm(&mut shapes, format!("blk.{layer}.attn_output_norm"));
            norm(&mut shapes, format!("blk.{layer}.layer_output_norm"));
        }
        let mut random = Random::new(seed);
        let mut number = |scale: f32| scale * (random.next() as f32 / u64::MAX as f32 - 0.5);
        let weight = |(name, inputs, outputs): (String, usize, usize)| {
            let centre = if name.contains("norm.weight") { 1.0 } else { 0.0 };
            let numbers = (0..inputs * outputs).map(|_| centre + number(1.0)).collect();
            (name, (inputs, numbers))
        };
        Self(shapes.into_iter().map(weight).collect())
    }

    fn row(&self, name: &str, row: usize) -> Vec<f64> {
        let (inputs, numbers) = &self.0[name];
        numbers[row * inputs..][..*inputs].iter().map(|x| f64::from(*x)).collect()
    }

    fn map(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let bias = self.row(&format!("{name}.bias"), 0);
        let output = |(row, bias): (usize, &f64)| {
            let weights = self.row(&format!("{name}.weight"), row);
            bias + weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()
        };
        bias.iter().enumerate().map(output).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let (weight, bias) =
            (self.row(&format!("{name}.weight"), 0), self.row(&format!("{name}.bias"), 0));
        let scaled = x.iter().map(|x| (x - mean) / (variance + EPSILON).sqrt());
        scaled.zip(weight).zip(bias).map(|((x, weight), bias)| x * weight + bias).collect()
    }

    /// The mean of the vectors of a text's tokens, of length 1.
    fn embed(&self, tokens: &[usize]) -> Vec<f64> {
        let input = |(position, token): (usize, &usize)| {
            let parts = [
                self.row("token_embd.weight", *token),
                self.row("token_types.weight", 0),
                self.row("position_embd.weight", position),
            ];
            let sum: Vec<f64> = (0..EMBD).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
            self.norm("token_embd_norm", &sum)
        };
        let mut rows: Vec<Vec<f64>> = tokens.iter().enumerate().map(input).collect();
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let mapped = |part| rows.iter().map(|x| self.map(&name(part), x)).collect::<Vec<_>>();
            let (q, k, v) = (mapped("attn_q"), mapped("attn_k"), mapped("attn_v"));
            let attended = q.iter().map(|q| attend(q, &k, &v));
            let next = attended.zip(&rows).map(|(attended, x)| {
                let x = self.norm(
                    &name("attn_output_norm"),
                    &sum(&self.map(&name("attn_output"), &attended), x),
                );
                let hidden: Vec<f64> =
                    self.map(&name("ffn_up"), &x).into_iter().map(gelu).collect();
                self.norm(
                    &name("layer_output_norm"),
                    &sum(&self.map(&name("ffn_down"), &hidden), &x),
                )
            });
            rows = next.collect();
        }
        let total = rows.iter().fold(vec![0.0; EMBD], |total, row| sum(&total, row));
        let length = total.iter().map(|x| x * x).sum::<f64>().sqrt();
        total.iter().map(|x| x / length).collect()
    }

    /// As a GGUF file (version 3; the specification is in ggml's `docs/gguf.md`). `numbers_out` is
    /// the length of its vectors, if it is not that of its rows.
    fn write(&self, path: &PathBuf, numbers_out: Option<usize>) {
        let mut file = Gguf::default();
        let numbers = [
            ("bert.context_length", CONTEXT),
            ("bert.embedding_length", EMBD),
            ("bert.feed_forward_length", FF),
            ("bert.block_count", LAYERS),
            ("bert.attention.head_count", HEADS),
            ("bert.pooling_type", 1), // mean
            ("tokenizer.ggml.token_type_count", 2),
            ("tokenizer.ggml.padding_token_id", 0),
            ("tokenizer.ggml.unknown_token_id", UNKNOWN),
            ("tokenizer.ggml.bos_token_id", CLS),
            ("tokenizer.ggml.cls_token_id", CLS),
            ("tokenizer.ggml.eos_token_id", SEP),
            ("tokenizer.ggml.seperator_token_id", SEP), // so it is spelled
            ("tokenizer.ggml.mask_token_id", 4),
        ];
        file.text("general.architecture", "bert");
        file.text("general.name", "tiny bert");
        file.text("tokenizer.ggml.model", "bert");
        let out = numbers_out.map(|out| ("bert.embedding_length_out", out));
        let numbers = numbers.into_iter().chain(out);
        numbers.for_each(|(key, value)| file.value(key, 4, &(value as u32).to_le_bytes()));
        file.value("bert.attention.layer_norm_epsilon", 6, &(EPSILON as f32).to_le_bytes());
        file.value("bert.attention.causal", 7, &[0]);
        let mut texts =
            [8u32.to_le_bytes().as_slice(), &(TOKENS.len() as u64).to_le_bytes()].concat();
        TOKENS.iter().for_each(|token| push_text(&mut texts, token));
        file.value("tokenizer.ggml.tokens", 9, &texts);
        let kinds = TOKENS.iter().map(|token| if token.starts_with('[') { 3u32 } else { 1 });
        let mut types =
            [5u32.to_le_bytes().as_slice(), &(TOKENS.len() as u64).to_le_bytes()].concat();
        kinds.for_each(|kind| types.extend(kind.to_le_bytes()));
        file.value("tokenizer.ggml.token_type", 9, &types);
        std::fs::write(path, file.with_tensors(&self.0)).unwrap();
    }
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

/// Attention of one row to all, in heads.
fn attend(q: &[f64], k: &[Vec<f64>], v: &[Vec<f64>]) -> Vec<f64> {
    let width = EMBD / HEADS;
    let head = |head: usize| {
        let range = head * width..(head + 1) * width;
        let dot = |k: &Vec<f64>| {
            q[range.clone()].iter().zip(&k[range.clone()]).map(|(q, k)| q * k).sum::<f64>()
        };
        let weights: Vec<f64> = k.iter().map(|k| (dot(k) / (width as f64).sqrt()).exp()).collect();
        let total: f64 = weights.iter().sum();
        range
            .map(move |i| v.iter().zip(&weights).map(|(v, w)| v[i] * w / total).sum())
            .collect::<Vec<f64>>()
    };
    (0..HEADS).flat_map(head).collect()
}

/// A GGUF file in the making.
#[derive(Default)]
struct Gguf {
    values: Vec<u8>,
    count: u64,
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Gguf {
    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        push_text(&mut self.values, key);
        self.values.extend(kind.to_le_bytes());
        self.values.extend(bytes);
        self.count += 1;
    }

    fn text(&mut self, key: &str, text: &str) {
        let mut bytes = Vec::new();
        push_text(&mut bytes, text);
        self.value(key, 8, &bytes);
    }

    fn with_tensors(self, tensors: &BTreeMap<String, (usize, Vec<f32>)>) -> Vec<u8> {
        const ALIGNMENT: usize = 32;
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((tensors.len() as u64).to_le_bytes());
        file.extend(self.count.to_le_bytes());
        file.extend(self.values);
        let mut data: Vec<u8> = Vec::new();
        for (name, (inputs, numbers)) in tensors {
            push_text(&mut file, name);
            let outputs = numbers.len() / inputs;
            let is_vector = outputs == 1 && name != "token_types.weight";
            let dimensions = if is_vector { vec![*inputs] } else { vec![*inputs, outputs] };
            file.extend((dimensions.len() as u32).to_le_bytes());
            dimensions.iter().for_each(|n| file.extend((*n as u64).to_le_bytes()));
            file.extend(0u32.to_le_bytes()); // f32
            file.extend((data.len() as u64).to_le_bytes());
            data.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        }
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(data);
        file
    }
}

fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    let numbers = |item: &Value| {
        let numbers = item["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
        numbers.collect()
    };
    answer["data"].as_array().unwrap().iter().map(numbers).collect()
}

fn serve(bert: &Bert, file: &str, numbers_out: Option<usize>) -> Server {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    bert.write(&path, numbers_out);
    let mut server = Server::start(config()).unwrap();
    server.load(&Source::File(path), |_| ()).unwrap().expect("it loads");
    server
}

/// llama.cpp returns the first numbers of a row. Behind them is other memory.
#[test]
fn vectors_may_be_shorter_than_the_models_rows() {
    const OUT: usize = EMBD / 2;
    let bert = Bert::new(7);
    let server = serve(&bert, "short-bert.gguf", Some(OUT));
    let mut client = Client::connect(server.address());
    let text = "the cat sat";
    let answer = client.post("/v1/embeddings", &json!({"input": text}).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let vector = vectors(&answer.json()).remove(0);
    assert_eq!(vector.len(), OUT);
    let expected = &bert.embed(&tokens(text))[..OUT];
    let length = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (number, expected) in vector.iter().zip(expected) {
        assert!((number - expected / length).abs() < 5e-3, "{vector:?}");
    }
    drop(client);
    server.control().drain();
    server.join().unwrap();
}

/// An assertion of llama.cpp fails while it loads the file.
#[test]
fn a_model_with_a_token_twice_is_refused() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("twice.gguf");
    let bert = Bert::new(7);
    bert.write(&path, None);
    let mut file = std::fs::read(&path).unwrap();
    let dog = file.windows(6).position(|bytes| bytes == "▁dog".as_bytes()).unwrap();
    file[dog..dog + 6].copy_from_slice("▁cat".as_bytes());
    std::fs::write(&path, file).unwrap();
    let mut server = Server::start(config()).unwrap();
    let error = server.load(&Source::File(path), |_| ()).err().unwrap();
    let reason = "GGML_ASSERT(id_to_token.size() == token_to_id.size()) failed";
    assert!(error.contains("llama.cpp cannot load") && error.ends_with(reason), "{error}");
}

#[test]
fn a_model_made_for_embeddings_makes_them() {
    let bert = Bert::new(7);
    let server = serve(&bert, "tiny-bert.gguf", None);
    let mut client = Client::connect(server.address());

    let texts = ["the cat sat on the mat .", "a dog ran", "zebra", "the cat sat on the mat ."];
    let answer = client.post("/v1/embeddings", &json!({"input": texts}).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    let counted: usize = texts.iter().map(|text| tokens(text).len()).sum();
    assert_eq!(answer["usage"]["prompt_tokens"], counted, "[CLS] and [SEP] are around each");
    for (text, vector) in texts.iter().zip(vectors(&answer)) {
        let expected = bert.embed(&tokens(text));
        let error = vector.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 5e-3, "{text}: {error} in {vector:?}");
    }

    // It has no other end than that of its positions, and no text of its own.
    let long = "the ".repeat(CONTEXT - 2);
    let embed = |client: &mut Client, text: &str| {
        client.post("/v1/embeddings", &json!({"input": text}).to_string())
    };
    assert_eq!(embed(&mut client, long.trim()).status, 200);
    let refused = embed(&mut client, &format!("{long} the"));
    assert_eq!(refused.status, 400);
    let message = format!("an input has {} tokens; it may have {CONTEXT}", CONTEXT + 1);
    assert_eq!(refused.json()["error"]["message"], message);
    for (path, body) in [
        ("/v1/completions", json!({"prompt": "the"})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "the"}]})),
    ] {
        let refused = client.post(path, &body.to_string());
        assert_eq!(refused.status, 400, "{path}: {}", refused.body);
    }
    drop(client);
    server.control().drain();
    server.join().unwrap();
}
