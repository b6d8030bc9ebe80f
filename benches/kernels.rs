//! Measures products with quantised weights: our kernels and llama.cpp's take turns, and both are
//! compared with the limit of the machine.
//!
//! The weights come from memory, as in a step of a model: there are more copies of a matrix than
//! the last-level cache holds. The limit of a product is the longer of two times: its bytes in the file at
//! the memory's bandwidth, and its multiply-adds at the rate of the dot product instruction. Both rates
//! are measured here. (With AMX, the rate is still that of AVX-512. Activations of F16 and BF16 stay
//! floats, whose products take longer than those of bytes.)
//!
//! ```text
//! cargo bench --bench kernels -- [TYPE ...] [--rows N,N,...] [--rounds N] [--experts] [--kernels SET]
//! ```
//!
//! With `--experts`, the matrices are those of Qwen3-30B-A3B's experts, and a row is a token that
//! chooses 8 of 128.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use corelane::kernels::InstructionSet;
use corelane::kernels::ahead::Ahead;
use corelane::kernels::machine::{Rates, rates};
use corelane::model::ggml::{Pool, quantise};
use corelane::model::products::{COPIES_MAX, Experts, ProductGraph, Sizes};

/// The types, with ggml's numbers. The matrix is that of Qwen3-0.6B's feed-forward layer.
const TYPES: [(&str, u32); 20] = [
    ("Q4_K", 12),
    ("Q6_K", 14),
    ("Q8_0", 8),
    ("Q5_K", 13),
    ("Q4_0", 2),
    ("Q4_1", 3),
    ("Q5_0", 6),
    ("Q5_1", 7),
    ("Q2_K", 10),
    ("Q3_K", 11),
    ("IQ4_NL", 20),
    ("IQ4_XS", 23),
    ("IQ3_S", 21),
    ("IQ3_XXS", 18),
    ("IQ2_S", 22),
    ("IQ2_XS", 17),
    ("IQ2_XXS", 16),
    ("MXFP4", 39),
    ("F16", 1),
    ("BF16", 30),
];
const ROWS: usize = 3072;
const COLUMNS: usize = 1024;
/// The rows and columns of an expert.
const OF_EXPERT: [usize; 2] = [768, 2048];
const EXPERTS: Experts = Experts { count: 128, chosen: 8, own_inputs: false };
const INPUTS: [usize; 6] = [1, 4, 8, 16, 32, 512];
/// More than the last-level cache of our machines (32 MiB).
const WEIGHTS_BYTES: usize = 128 << 20;

fn main() {
    let options = Options::read();
    let set = options.set;
    assert!(set.is_here(), "the processor has {}", set.name());
    corelane::kernels::ggml::choose(set);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    // `cargo test --benches` runs each product once, in the cache.
    let bytes = if options.is_test { 1 << 20 } else { WEIGHTS_BYTES };
    let cores: Vec<usize> = (0..threads).collect();
    let Rates { bytes_per_s: bandwidth, multiply_adds_per_s: rate } = rates(set, &cores, bytes);
    println!(
        "{} threads, {}, {:?} prefetches: {:.1} GB/s are read, {:.0} G multiply-adds/s\n",
        threads,
        set.name(),
        Ahead::of_this_machine(),
        bandwidth / 1e9,
        rate / 1e9
    );
    println!("| type | rows | ours, us | share of the limit | llama.cpp's, us | share | ratio |");
    println!("|---|---|---|---|---|---|---|");
    let pool = Pool::new(threads, true);
    for (name, ggml_type) in TYPES {
        if set.kernel(ggml_type as i32).is_none() || !options.takes(name) {
            continue;
        }
        let experts = options.experts.then_some(EXPERTS);
        let [rows, columns] = if options.experts { OF_EXPERT } else { [ROWS, COLUMNS] };
        let random = random_numbers(rows * columns);
        let weights = quantise(ggml_type, columns, &random);
        let weights = weights.repeat(experts.map_or(1, |experts| experts.count));
        for &inputs in &options.inputs {
            let copies = (bytes / weights.len()).clamp(1, COPIES_MAX);
            let copies = if inputs > 64 { copies.min(8) } else { copies };
            let sizes = Sizes { ggml_type, rows, columns, inputs, copies, experts };
            let choices = choices(inputs);
            let distinct = choices.iter().collect::<HashSet<_>>().len();
            let (read, products) = match experts {
                None => (weights.len(), inputs),
                Some(experts) => {
                    (weights.len() / experts.count * distinct, inputs * experts.chosen)
                }
            };
            let mut both = [true, false].map(|ours| {
                let mut product = ProductGraph::new(sizes, &weights, ours, &pool);
                product.set_input(&random[..inputs * columns]);
                if experts.is_some() {
                    product.set_choices(&choices);
                }
                product.run();
                product
            });
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..options.rounds {
                for (product, times) in both.iter_mut().zip(&mut times) {
                    times.push(time(|| product.run()).as_secs_f64() / copies as f64);
                }
            }
            let ratios = times[1].iter().zip(&times[0]).map(|(theirs, ours)| theirs / ours);
            let ratios = sorted(ratios.collect());
            let multiply_adds = (rows * columns * products) as f64;
            let limit = (read as f64 / bandwidth).max(multiply_adds / rate);
            let [ours, theirs] = times.map(|times| median(&sorted(times)));
            println!(
                "| {name} | {inputs} | {:.1} | {:.2} | {:.1} | {:.2} | {:.2} ({:.2}-{:.2}) |",
                ours * 1e6,
                limit / ours,
                theirs * 1e6,
                limit / theirs,
                median(&ratios),
                ratios[0],
                ratios[ratios.len() - 1],
            );
        }
    }
}

struct Options {
    types: Vec<String>,
    inputs: Vec<usize>,
    rounds: usize,
    experts: bool,
    set: InstructionSet,
    is_test: bool,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            types: vec![],
            inputs: INPUTS.to_vec(),
            rounds: 9,
            experts: false,
            set: InstructionSet::best().expect("a processor that there are kernels for"),
            is_test: true,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut numbers = || {
                let list = words.next().expect("a list of numbers follows");
                list.split(',').map(|n| n.parse().expect("a number")).collect::<Vec<_>>()
            };
            match word.as_str() {
                "--bench" => options.is_test = false, // cargo passes this word
                "--test" => options.is_test = true,
                "--rows" => options.inputs = numbers(),
                "--experts" => options.experts = true,
                "--kernels" => {
                    let name = words.next().expect("an instruction set follows");
                    let named = InstructionSet::ALL.into_iter().find(|set| set.name() == name);
                    options.set = named.expect("one of corelane's");
                }
                "--rounds" => options.rounds = numbers()[0],
                _ => options.types.push(word),
            }
        }
        if options.is_test {
            options.rounds = 1;
        }
        options
    }

    fn takes(&self, name: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|asked| asked.eq_ignore_ascii_case(name))
    }
}

/// Random experts of `tokens` tokens.
fn choices(tokens: usize) -> Vec<i32> {
    let random = random_numbers(tokens * EXPERTS.count);
    let choose = |of_token: &[f32]| {
        let mut experts: Vec<i32> = (0..EXPERTS.count as i32).collect();
        experts.sort_by(|a, b| of_token[*a as usize].total_cmp(&of_token[*b as usize]));
        experts.truncate(EXPERTS.chosen);
        experts
    };
    random.chunks_exact(EXPERTS.count).flat_map(choose).collect()
}

fn random_numbers(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn time(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
