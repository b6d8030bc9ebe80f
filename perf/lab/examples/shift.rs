//! What a cached prefix behind a changed head is worth, if its cells are moved to their new
//! positions instead of computed again.
//!
//! ```text
//! cargo run --release -p corelane-bench --example shift -- MODEL.gguf TEXT [TOKENS]
//! ```
//!
//! A cell's key and value depend on all tokens before it, and moving it (llama.cpp's
//! `seq_add`) only turns the key. So the result is not exact. This measures how far it is off: a
//! text behind a new head is computed anew, and continued greedily. Then the same tokens follow the
//! moved cells. The control is the text computed anew in other batches, which differs by rounding.

use std::num::NonZeroU32;
use std::time::Instant;

use corelane::kernels::KernelChoice;
use corelane::model::library;
use corelane::model::load::{Source, load};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::token::LlamaToken;

/// Heads that differ as those of two requests of a coding agent did.
const OLD: &str = "x-billing-header: version=2.1.9.a1b; number=0a1b2;\nYou are an agent.\n";
const NEW: &str = "x-billing-header: version=2.1.12.7f0; number=9c4d1f;\nYou are an agent.\n";
/// Tokens that are compared.
const COMPARED: usize = 64;
const BATCH: usize = 512;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, model, text, rest @ ..] = args.as_slice() else { panic!("MODEL.gguf TEXT [TOKENS]") };
    let tokens = rest.first().map_or(4096, |tokens| tokens.parse().expect("a number of tokens"));
    let loaded = load(&Source::File(model.into()), KernelChoice::Llama, |_| true).unwrap();
    let text = std::fs::read_to_string(text).expect("the text can be read");
    let of = |text: &str| {
        let tokens = loaded.vocab.tokenize(text, false, false).expect("a text without zeros");
        tokens.into_iter().map(LlamaToken).collect::<Vec<_>>()
    };
    let (old, new, mut body) = (of(OLD), of(NEW), of(&text));
    body.truncate(tokens);
    let cells = NonZeroU32::new((body.len() + 1024) as u32);
    let options =
        LlamaContextParams::default().with_n_ctx(cells).with_n_seq_max(2).with_kv_unified(true);
    let mut context = loaded.model.new_context(library::start(), options).expect("memory");

    let began = Instant::now();
    let whole = [&new[..], &body].concat();
    compute(&mut context, &whole, 0, 0, BATCH);
    let anew = began.elapsed();
    let mut exact = vec![last_logits(&context)];
    let mut continuation = Vec::new();
    while exact.len() < COMPARED {
        let token = LlamaToken(best(exact.last().unwrap()) as i32);
        compute(&mut context, &[token], whole.len() + continuation.len(), 0, BATCH);
        continuation.push(token);
        exact.push(last_logits(&context));
    }

    context.clear_kv_cache();
    compute(&mut context, &whole, 0, 0, BATCH / 2);
    let control = follow(&mut context, &continuation, whole.len(), 0);

    context.clear_kv_cache();
    compute(&mut context, &[&old[..], &body].concat(), 0, 0, BATCH);
    let began = Instant::now();
    let start = Some(old.len() as u32);
    compute(&mut context, &new, 0, 1, BATCH);
    context.copy_kv_cache_seq(0, 1, start, None).unwrap();
    context.clear_kv_cache_seq(Some(0), None, None).unwrap();
    context.kv_cache_seq_add(1, start, None, new.len() as i32 - old.len() as i32).unwrap();
    // The last token is computed again, for its logits.
    context.clear_kv_cache_seq(Some(1), Some(whole.len() as u32 - 1), None).unwrap();
    compute(&mut context, &whole[whole.len() - 1..], whole.len() - 1, 1, BATCH);
    let moved_in = began.elapsed();
    let moved = follow(&mut context, &continuation, whole.len(), 1);

    println!("{} tokens behind a head of {} (before: {})", body.len(), new.len(), old.len());
    println!("computed anew: {anew:.2?}; moved: {moved_in:.2?}");
    report("other batches", &exact, &control);
    report("moved cells", &exact, &moved);
}

/// The logits behind the last computed token, and behind each of `tokens`.
fn follow(
    context: &mut LlamaContext,
    tokens: &[LlamaToken],
    position: usize,
    sequence: i32,
) -> Vec<Vec<f32>> {
    let mut logits = vec![last_logits(context)];
    for (index, token) in tokens.iter().enumerate() {
        compute(context, &[*token], position + index, sequence, BATCH);
        logits.push(last_logits(context));
    }
    logits
}

fn compute(
    context: &mut LlamaContext,
    tokens: &[LlamaToken],
    position: usize,
    sequence: i32,
    batch_rows: usize,
) {
    let mut batch = LlamaBatch::new(batch_rows, 1);
    for (at, part) in tokens.chunks(batch_rows).enumerate() {
        batch.clear();
        for (index, token) in part.iter().enumerate() {
            let position = (position + at * batch_rows + index) as i32;
            batch.add(*token, position, &[sequence], index + 1 == part.len()).unwrap();
        }
        context.decode(&mut batch).expect("the tokens can be computed");
    }
}

fn last_logits(context: &LlamaContext) -> Vec<f32> {
    context.get_logits().to_vec()
}

fn best(logits: &[f32]) -> usize {
    let order = |a: &usize, b: &usize| logits[*a].total_cmp(&logits[*b]);
    (0..logits.len()).max_by(order).expect("a vocabulary has tokens")
}

/// Prints how often the most probable token is the same, and the Kullback-Leibler divergence.
fn report(name: &str, exact: &[Vec<f32>], other: &[Vec<f32>]) {
    let pairs = || exact.iter().zip(other);
    let same = pairs().filter(|(a, b)| best(a) == best(b)).count();
    let mut divergences: Vec<f64> = pairs().map(|(a, b)| divergence(a, b)).collect();
    divergences.sort_by(f64::total_cmp);
    let (median, worst) = (divergences[divergences.len() / 2], divergences[divergences.len() - 1]);
    println!(
        "{name}: the same token {same} times of {}; divergence: median {median:.6}, worst {worst:.4}",
        exact.len()
    );
}

fn divergence(exact: &[f32], other: &[f32]) -> f64 {
    let (exact, other) = (log_softmax(exact), log_softmax(other));
    exact.iter().zip(&other).map(|(a, b)| a.exp() * (a - b)).sum()
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = f64::from(logits[best(logits)]);
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - most).exp()).sum();
    logits.iter().map(|logit| f64::from(*logit) - most - sum.ln()).collect()
}
