//! Measures attention: our kernel and llama.cpp's take turns, for rows that decode, for prompts and
//! for both together.
//!
//! The heads are Qwen3-0.6B's: 16 of queries, 8 of keys and values, 128 numbers each. Several
//! layers run one after the other, so that keys and values come from memory.
//!
//! ```text
//! cargo bench --bench attention -- [PART OF A LOAD'S NAME] [--rounds N]
//! ```

use std::time::Instant;

use corelane::kernels::InstructionSet;
use corelane::model::attentions::{AttentionGraph, AttentionInput, AttentionSizes, LAYERS_MAX};
use corelane::model::ggml::Pool;

const F16: (&str, u32) = ("f16", 1);
const Q8_0: (&str, u32) = ("q8_0", 8);
/// Bytes of the keys and values of all layers.
const CACHE_BYTES: usize = 256 << 20;

/// The rows of one step, and the cells that they see.
struct Load {
    name: &'static str,
    /// The number of decoding sequences, and the cells of each.
    decoding: (usize, usize),
    /// The rows of a prompt, and the cells before them.
    prompt: (usize, usize),
    /// All sequences share one cache, and their cells alternate.
    is_unified: bool,
}

const fn load(
    name: &'static str,
    decoding: (usize, usize),
    prompt: (usize, usize),
    is_unified: bool,
) -> Load {
    Load { name, decoding, prompt, is_unified }
}

const LOADS: [Load; 12] = [
    load("1 row of 2,048 cells", (1, 2048), (0, 0), false),
    load("1 row behind 1,024", (0, 0), (1, 1024), false),
    load("2 rows behind 1,024, as a guess has them", (0, 0), (2, 1024), false),
    load("4 rows behind 1,024", (0, 0), (4, 1024), false),
    load("2 rows of 1,024 cells, two sequences", (2, 1024), (0, 0), false),
    load("8 rows of 82 cells", (8, 82), (0, 0), false),
    load("8 rows of 512 cells", (8, 512), (0, 0), false),
    load("8 rows of 2,048 cells", (8, 2048), (0, 0), false),
    load("8 rows of 512 cells, one cache", (8, 512), (0, 0), true),
    load("32 rows of 512 cells, one cache", (32, 512), (0, 0), true),
    load("512 rows of a prompt behind 1,024", (0, 0), (512, 1024), false),
    load("4 rows of 512, 32 of a prompt behind 1,024", (4, 512), (32, 1024), true),
];

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut rounds, mut is_test, mut asked) = (9, true, String::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => is_test = false, // cargo passes this word
            "--rounds" => rounds = words.next().and_then(|n| n.parse().ok()).expect("a number"),
            "--test" => {}
            _ if word.starts_with("--") => panic!("{word} is no flag"),
            _ => asked = word,
        }
    }
    let is_asked = |load: &&Load| load.name.contains(&asked);
    assert!(LOADS.iter().any(|load| is_asked(&load)), "no load's name has {asked:?} in it");
    let set = InstructionSet::best().expect("a processor that there are kernels for");
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    println!("{threads} threads, {}; microseconds of a layer\n", set.name());
    println!("| a step's rows | cache | ours, us | GB/s | llama.cpp's, us | ratio |");
    println!("|---|---|---|---|---|---|");
    let pool = Pool::new(threads, true);
    for load in LOADS.iter().filter(is_asked) {
        for (type_name, cached) in [F16, Q8_0] {
            let (sizes, input, bytes) = load.tensors(cached, is_test);
            let mut graph = AttentionGraph::new(&sizes, &input, &pool);
            let mut times = [Vec::new(), Vec::new()];
            for round in 0..if is_test { 1 } else { rounds + 1 } {
                for (ours, times) in [Some(set), None].into_iter().zip(&mut times) {
                    let start = Instant::now();
                    graph.run(ours);
                    if is_test || round > 0 {
                        times.push(start.elapsed().as_secs_f64() / sizes.layers as f64);
                    }
                }
            }
            let ratios = times[1].iter().zip(&times[0]).map(|(theirs, ours)| theirs / ours);
            let ratios = sorted(ratios.collect());
            let [ours, theirs] = times.map(|times| median(&sorted(times)));
            println!(
                "| {} | {type_name} | {:.0} | {:.1} | {:.0} | {:.2} ({:.2}-{:.2}) |",
                load.name,
                ours * 1e6,
                bytes as f64 / ours / 1e9,
                theirs * 1e6,
                median(&ratios),
                ratios[0],
                ratios[ratios.len() - 1],
            );
        }
    }
}

impl Load {
    /// The sizes, the input, and the bytes of keys and values that a layer's rows see.
    fn tensors(&self, cached: u32, is_test: bool) -> (AttentionSizes, AttentionInput, usize) {
        const HEADS: usize = 16;
        const KV_HEADS: usize = 8;
        const NUMBERS: usize = 128;
        let (sequences, own) = self.decoding;
        let (prompt, before) = self.prompt;
        let visible = sequences * own + prompt + before;
        let streams = if self.is_unified || sequences == 0 { 1 } else { sequences };
        let rows = if streams > 1 { 1 } else { sequences + prompt };
        let cells = (visible / streams).next_multiple_of(256);
        let row_bytes = if cached == F16.1 { 2 * NUMBERS } else { NUMBERS / 32 * 34 };
        let bytes = 2 * visible * KV_HEADS * row_bytes;
        let allocated = 2 * streams * cells * KV_HEADS * row_bytes;
        let most = if is_test { 1 } else { LAYERS_MAX };
        let layers = (CACHE_BYTES / allocated).clamp(1, most);
        let mut mask = vec![f32::NEG_INFINITY; streams * rows * cells];
        for (index, value) in mask.iter_mut().enumerate() {
            let (row, cell) = (index / cells, index % cells);
            let sees = if streams > 1 {
                cell < own
            } else if row < sequences {
                // The sequences took turns when their cells were written.
                cell < sequences * own && cell % sequences == row
            } else {
                let first = sequences * own;
                (first..first + before + row - sequences + 1).contains(&cell)
            };
            if sees {
                *value = 0.0;
            }
        }
        let sizes = AttentionSizes {
            cached: [cached; 2],
            heads: HEADS,
            kv_heads: KV_HEADS,
            key_numbers: NUMBERS,
            value_numbers: NUMBERS,
            rows,
            cells,
            streams,
            scale: 0.088,
            max_bias: 0.0,
            softcap: 0.0,
            layers,
        };
        let wave = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect();
        let input = AttentionInput {
            queries: wave(streams * rows * HEADS * NUMBERS, 0.37),
            keys: wave(streams * cells * KV_HEADS * NUMBERS, 0.11),
            values: wave(streams * cells * KV_HEADS * NUMBERS, 0.23),
            mask,
            sinks: Vec::new(),
        };
        (sizes, input, bytes)
    }
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
