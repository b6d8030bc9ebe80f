//! Measures constraints over 151,936 tokens (Qwen3's vocabulary): finding the allowed tokens,
//! forbidding the others, and appending the next token.
//!
//! Each text is followed token by token. Each run has its own matcher, whose lexer learns on the
//! way.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use corelane::constraint::{Compiled, Compiler, Constraint, Matcher};
use corelane::types::TokenId;
use criterion::{Criterion, Throughput, criterion_group};

const N_VOCAB: usize = 151_936;
/// Control tokens at the end of the vocabulary. The last one ends a text.
const N_CONTROL: usize = 300;

/// Words like a tokenizer's: all bytes, JSON's punctuation in pairs, runs of spaces, numbers,
/// letters with and without a space, and two other scripts.
fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    for pair in ["{\"", "\":", "\",", "\"}", " \"", "\": \"", "\", \"", "[{", "}]", "},", "\\n"] {
        words.push(pair.as_bytes().to_vec());
    }
    words.extend((2..=64).map(|n| vec![b' '; n]));
    words.extend((10..1000).map(|n: u32| n.to_string().into_bytes()));
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    while words.len() < N_VOCAB - N_CONTROL {
        let (kind, length) = (below(10), 2 + below(4) + below(6));
        let mut word = String::from(if (2..7).contains(&kind) { " " } else { "" });
        for _ in 0..length {
            let code = match kind {
                0 => 0x4E00 + below(8000),
                1 => 0x430 + below(32),
                _ => u64::from(b"etaoinshrdlucmfw"[below(16) as usize]),
            };
            word.push(char::from_u32(code as u32).expect("the code of a letter"));
        }
        words.push(word.into_bytes());
    }
    words.resize(N_VOCAB, Vec::new());
    words
}

/// Tokenises by the longest word at each place.
fn tokenise(words: &[Vec<u8>], text: &str) -> Vec<TokenId> {
    let ids: HashMap<&[u8], usize> =
        words.iter().enumerate().rev().map(|(id, word)| (&word[..], id)).collect();
    let mut tokens = Vec::new();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let longest = (1..=rest.len().min(64)).rev().find(|n| ids.contains_key(&rest[..*n]));
        let length = longest.expect("every byte is a word");
        tokens.push(ids[&rest[..length]] as TokenId);
        rest = &rest[length..];
    }
    tokens
}

/// Passes the time of each token to `step`.
fn follow(
    compiled: &Compiled,
    tokens: &[TokenId],
    logits: &mut [f32],
    mut step: impl FnMut(Duration),
) {
    let mut matcher = Matcher::new(compiled);
    for token in tokens {
        let began = Instant::now();
        matcher.mask(logits);
        step(began.elapsed());
        assert!(logits[*token as usize] > f32::NEG_INFINITY, "the text is allowed");
        black_box(&logits);
        logits.fill(0.0); // a new row of logits; takes some microseconds
        matcher.push(*token).unwrap();
    }
}

/// Prints the slowest masks: a step waits for those, not for the mean.
fn tail(name: &str, mut follow: impl FnMut(&mut dyn FnMut(Duration))) {
    let mut times = Vec::new();
    (0..20).for_each(|_| follow(&mut |time| times.push(time)));
    times.sort();
    let of = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{name}: p50 {:?}, p99 {:?}, max {:?} a mask", of(0.5), of(0.99), of(1.0));
}

const SCHEMA: &str = r##"{"type":"object","properties":{"name":{"type":"string"},
    "summary":{"type":"string","maxLength":400},"rating":{"type":"integer","minimum":0,
    "maximum":100},"tags":{"type":"array","items":{"enum":["red","green","blue"]}},
    "author":{"$ref":"#/$defs/p"}},"required":["name","summary","rating","tags","author"],
    "additionalProperties":false,"$defs":{"p":{"type":"object","properties":{
    "id":{"type":"string","pattern":"^[a-z]{2,8}-[0-9]{3}$"},
    "score":{"type":"number"}},"required":["id","score"]}}}"##;

const JSON: &str = r#"{"name": "the old stone mill", "summary": "it was told near the shore, and all
 who heard it had to listen until the moon rose", "rating": 87, "tags": ["red", "blue"], "author":
 {"id": "moss-417", "score": 3.25}}"#;

/// A hand-written GBNF grammar of JSON.
const GBNF: &str = r#"root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( pair ( "," ws pair )* )? ws "}"
pair ::= string ws ":" ws value ws
array ::= "[" ws ( value ws ( "," ws value ws )* )? "]"
string ::= "\"" ( [^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} ) )* "\""
number ::= "-"? ( "0" | [1-9] [0-9]* ) ( "." [0-9]+ )? ( [eE] [-+]? [0-9]+ )?
ws ::= [ \t\n]*
"#;

const REGEX: &str = r"(\w+ ){3,12}on [0-9]{4}-[0-9]{2}-[0-9]{2}(!|\.)";

const SENTENCE: &str = "the old moss shone around the mill on 2031-05-17.";

fn masks(c: &mut Criterion) {
    let words = words();
    let end = [N_VOCAB as TokenId - 1];
    let mut compiler = Compiler::of_words(words.clone(), &end).unwrap();
    let mut logits = vec![0.0; N_VOCAB];
    let mut group = c.benchmark_group("masks over 151,936 tokens");
    let json = JSON.replace('\n', "");
    let cases = [
        ("JSON schema", Constraint::JsonSchema(SCHEMA.into()), json.as_str()),
        ("GBNF", Constraint::Gbnf(GBNF.into()), json.as_str()),
        ("regex", Constraint::Regex(REGEX.into()), SENTENCE),
    ];
    for (name, constraint, text) in cases {
        let tokens = tokenise(&words, text);
        // The time is for the whole text, the rate for single tokens.
        group.throughput(Throughput::Elements(tokens.len() as u64));
        let compiled = compiler.compile(&constraint).unwrap();
        group.bench_function(name, |b| {
            b.iter(|| follow(&compiled, &tokens, &mut logits, |_| ()));
        });
        tail(name, |step| follow(&compiled, &tokens, &mut logits, step));
    }
    group.finish();
}

criterion_group!(name = benches; config = crate::settings::short(); targets = masks);
