//! The attention kernels: each against exact sums, on every instruction set that this
//! processor has, and against llama.cpp's own.

use crate::support::Random;
use corelane::kernels::InstructionSet;
use corelane::model::attentions::{AttentionGraph, AttentionInput, AttentionSizes};
use corelane::model::ggml::{Pool, dequantise, quantise};
use proptest::prelude::*;

const F32: u32 = 0;
const F16: u32 = 1;
const Q8_0: u32 = 8;
const BF16: u32 = 30;
const HIDDEN: f32 = f32::NEG_INFINITY;

fn sets() -> Vec<InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| set.is_here()).collect()
}

fn sizes(cached: [u32; 2], rows: usize, cells: usize) -> AttentionSizes {
    AttentionSizes {
        cached,
        heads: 4,
        kv_heads: 2,
        key_numbers: 64,
        value_numbers: 64,
        rows,
        cells,
        streams: 1,
        scale: 0.3,
        max_bias: 0.0,
        softcap: 0.0,
        layers: 1,
    }
}

fn input(s: &AttentionSizes, mask: Vec<f32>, random: &mut Random) -> AttentionInput {
    assert_eq!(mask.len(), s.streams * s.rows * s.cells);
    AttentionInput {
        queries: random.numbers(s.streams * s.rows * s.heads * s.key_numbers),
        keys: random.numbers(s.streams * s.cells * s.kv_heads * s.key_numbers),
        values: random.numbers(s.streams * s.cells * s.kv_heads * s.value_numbers),
        mask,
        sinks: Vec::new(),
    }
}

/// A mask as llama.cpp makes it for one cache of all sequences: some begin with cells that
/// they share, their own lie between those of the others, some cells are empty, and a few
/// rows of each are computed. `window` is how many cells a row sees at most.
fn mask_of_sequences(rows: usize, cells: usize, window: usize, random: &mut Random) -> Vec<f32> {
    let sequences = random.within(1, 4);
    let shared = random.within(0, cells - 1);
    // The cells of each sequence, in order, with the one that a row writes last.
    let mut of_sequence = vec![Vec::new(); sequences];
    for cell in 0..cells {
        if random.one_in(11) {
            continue;
        }
        let owner = random.within(0, sequences - 1);
        for (sequence, of) in of_sequence.iter_mut().enumerate() {
            if sequence == owner || cell < shared && sequence % 2 == owner % 2 {
                of.push(cell);
            }
        }
    }
    let mut mask = vec![HIDDEN; rows * cells];
    let mut row = 0;
    while row < rows {
        let of = &of_sequence[random.within(0, sequences - 1)];
        let together = random.within(1, 40).min(rows - row).min(of.len().max(1));
        for nth in 0..together {
            let end = (of.len() + 1 + nth).saturating_sub(together).min(of.len());
            for cell in &of[end.saturating_sub(window)..end] {
                mask[row * cells + cell] = 0.0;
            }
            row += 1;
        }
    }
    mask
}

/// The exact attention over the cached keys and values, in f64.
fn exact(s: &AttentionSizes, input: &AttentionInput) -> Vec<f64> {
    let cached = |of, numbers, floats: &[f32]| match of {
        F32 => floats.to_vec(),
        _ => dequantise(of, numbers, &quantise(of, numbers, floats)),
    };
    let keys = cached(s.cached[0], s.key_numbers, &input.keys);
    let values = cached(s.cached[1], s.value_numbers, &input.values);
    let mut output = Vec::new();
    for stream in 0..s.streams {
        for row in 0..s.rows {
            let mask = &input.mask[(stream * s.rows + row) * s.cells..][..s.cells];
            for head in 0..s.heads {
                let query = &input.queries
                    [((stream * s.rows + row) * s.heads + head) * s.key_numbers..][..s.key_numbers];
                let kv_head = head / (s.heads / s.kv_heads);
                let at = |cell| (stream * s.cells + cell) * s.kv_heads + kv_head;
                let score = |cell| {
                    let key = &keys[at(cell) * s.key_numbers..][..s.key_numbers];
                    let dot: f64 =
                        query.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let mut score = dot * f64::from(s.scale);
                    if s.softcap != 0.0 {
                        let cap = f64::from(s.softcap);
                        score = cap * (score / cap).tanh();
                    }
                    if mask[cell] == HIDDEN {
                        return f64::NEG_INFINITY;
                    }
                    score + slope(s, head) * f64::from(mask[cell])
                };
                let scores: Vec<f64> = (0..s.cells).map(score).collect();
                let sink = input.sinks.get(head).map(|sink| f64::from(*sink));
                let largest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let mut sum = sink.map_or(0.0, |sink| (sink - largest).exp());
                let mut average = vec![0.0; s.value_numbers];
                for (cell, score) in
                    scores.iter().enumerate().filter(|(_, score)| score.is_finite())
                {
                    let weight = (score - largest).exp();
                    sum += weight;
                    let value = &values[at(cell) * s.value_numbers..][..s.value_numbers];
                    for (average, value) in average.iter_mut().zip(value) {
                        *average += weight * f64::from(*value);
                    }
                }
                output.extend(average.iter().map(|x| if sum == 0.0 { 0.0 } else { x / sum }));
            }
        }
    }
    output
}

/// ALiBi's slopes as its paper gives them.
fn slope(s: &AttentionSizes, head: usize) -> f64 {
    if s.max_bias == 0.0 {
        return 1.0;
    }
    let power = 1 << s.heads.ilog2();
    let base = |steps: f64| 2f64.powf(-f64::from(s.max_bias) / power as f64 * steps);
    if head < power { base((head + 1) as f64) } else { base((2 * (head - power) + 1) as f64 / 2.0) }
}

/// The root of the mean squared error, and the largest error.
fn errors(found: &[f32], exact: &[f64]) -> (f64, f64) {
    assert_eq!(found.len(), exact.len());
    let errors = || found.iter().zip(exact).map(|(a, b)| (f64::from(*a) - b).abs());
    assert!(errors().all(f64::is_finite), "a number that is none");
    let squares: f64 = errors().map(|error| error * error).sum();
    ((squares / exact.len() as f64).sqrt(), errors().fold(0.0, f64::max))
}

/// Ours on all instruction sets is right and no further from the exact attention than llama.cpp's.
fn check(s: &AttentionSizes, input: &AttentionInput, threads: usize) {
    let pool = Pool::new(threads, false);
    let mut graph = AttentionGraph::new(s, input, &pool);
    let exact = exact(s, input);
    graph.run(None);
    let (theirs, _) = errors(&graph.output(), &exact);
    for set in sets() {
        graph.run(Some(set));
        let (ours, largest) = errors(&graph.output(), &exact);
        println!(
            "{} {:?}, {} rows, {} cells: ours {ours:.1e}, theirs {theirs:.1e}",
            set.name(),
            s.cached,
            s.rows,
            s.cells
        );
        // Rounding queries to 8 bits costs both about 0.004.
        let most = if s.cached[0] == Q8_0 { 0.03 } else { 2e-5 };
        assert!(largest < most, "{} {s:?}: {largest}", set.name());
        // Sums of f32 differ in their last bits. Each query's rounding to 8 bits is a matter of chance, so
        // of few queries ours may come out worse.
        let queries = (s.rows * s.heads) as f64;
        let chance = if s.cached[0] == Q8_0 { 0.5 / queries.sqrt() } else { 0.0 };
        assert!(
            ours <= (1.05 + chance) * theirs + 3e-7,
            "{} {s:?}: {ours}, theirs {theirs}",
            set.name()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn attention_of_any_rows_is_exact(
        seed in any::<u64>(),
        rows in 1usize..90,
        cells in 1usize..700,
        types in prop::sample::select(vec![
            [F16; 2], [BF16; 2], [Q8_0; 2], [F32; 2], [Q8_0, F16], [F16, Q8_0], [F32, BF16],
        ]),
        numbers in prop::sample::select(vec![(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)]),
        heads in prop::sample::select(vec![(1, 1), (2, 1), (3, 3), (6, 2), (7, 1), (8, 2), (16, 1)]),
        streams in 1usize..3,
        threads in 1usize..4,
        windowed in any::<bool>(),
    ) {
        let mut random = Random::new(seed);
        let s = AttentionSizes {
            heads: heads.0,
            kv_heads: heads.1,
            key_numbers: numbers.0,
            value_numbers: numbers.1,
            streams,
            ..sizes(types, rows, cells)
        };
        let window = if windowed { random.within(1, cells) } else { usize::MAX };
        let mask = (0..streams)
            .flat_map(|_| mask_of_sequences(rows, cells, window, &mut random))
            .collect();
        let input = input(&s, mask, &mut random);
        check(&s, &input, threads);
    }

    /// ALiBi, soft caps and sinks, which some models have.
    #[test]
    fn biases_caps_and_sinks_are_exact(
        seed in any::<u64>(),
        rows in 1usize..40,
        cells in 1usize..300,
        heads in prop::sample::select(vec![(4, 4), (6, 2), (12, 3)]),
        max_bias in prop::sample::select(vec![0.0f32, 8.0]),
        softcap in prop::sample::select(vec![0.0f32, 2.0, 30.0]),
        has_sinks in any::<bool>(),
    ) {
        let mut random = Random::new(seed);
        let s = AttentionSizes {
            heads: heads.0, kv_heads: heads.1, max_bias, softcap, ..sizes([F16; 2], rows, cells)
        };
        let mut mask = mask_of_sequences(rows, cells, usize::MAX, &mut random);
        if max_bias > 0.0 {
            // Distances between tokens.
            mask.iter_mut().filter(|x| **x == 0.0).for_each(|x| *x = -(random.within(0, 63) as f32));
        }
        let mut input = input(&s, mask, &mut random);
        if has_sinks {
            input.sinks = random.numbers(s.heads).into_iter().map(|x| 4.0 * x).collect();
        }
        check(&s, &input, 2);
    }

    /// A row's output depends neither on other rows nor on how many threads there are, bit by bit.
    #[test]
    fn rows_do_not_touch_each_other(
        seed in any::<u64>(),
        own in prop::collection::vec((1usize..40, 1usize..700), 1..6),
        types in prop::sample::select(vec![[F16; 2], [Q8_0; 2]]),
    ) {
        let mut random = Random::new(seed);
        // Sequences behind each other in the cache, and some last rows of each.
        let rows = own.iter().map(|(rows, cells)| rows.min(cells)).sum();
        let cells = own.iter().map(|(_, cells)| cells).sum();
        let s = sizes(types, rows, cells);
        let mut mask = Vec::new();
        let mut first = 0;
        for (rows, of_sequence) in &own {
            let rows = *rows.min(of_sequence);
            for row in 0..rows {
                let end = first + of_sequence - rows + row + 1;
                mask.extend((0..cells).map(|cell| {
                    if (first..end).contains(&cell) { 0.0 } else { HIDDEN }
                }));
            }
            first += of_sequence;
        }
        let input = input(&s, mask, &mut random);
        for set in sets() {
            let of = |s: &AttentionSizes, input: &AttentionInput, threads| {
                let mut graph = AttentionGraph::new(s, input, &Pool::new(threads, false));
                graph.run(Some(set));
                graph.output()
            };
            let together = of(&s, &input, 1);
            for threads in [2, 5] {
                prop_assert_eq!(&together, &of(&s, &input, threads), "{} threads", threads);
            }
            let row_numbers = s.heads * s.key_numbers;
            for row in [0, random.within(0, rows - 1), rows - 1] {
                let alone = AttentionInput {
                    queries: input.queries[row * row_numbers..][..row_numbers].to_vec(),
                    mask: input.mask[row * cells..][..cells].to_vec(),
                    ..input.clone()
                };
                let found = of(&AttentionSizes { rows: 1, ..s.clone() }, &alone, 2);
                let size = s.heads * s.value_numbers;
                prop_assert_eq!(&found[..], &together[row * size..][..size], "row {}", row);
            }
        }
    }
}

/// Every head size that models have, of every cached type.
#[test]
fn every_head_size_is_exact() {
    for numbers in [64, 80, 96, 112, 128, 160, 192, 224, 256] {
        for of in [F16, BF16, Q8_0, F32] {
            if of == Q8_0 && numbers % 32 != 0 {
                continue; // ggml has no such cache
            }
            let mut random = Random::new(numbers as u64);
            let s = AttentionSizes {
                key_numbers: numbers,
                value_numbers: numbers,
                ..sizes([of; 2], 21, 130)
            };
            let mask = mask_of_sequences(s.rows, s.cells, usize::MAX, &mut random);
            check(&s, &input(&s, mask, &mut random), 2);
        }
    }
}

/// Long texts, alone and beside others: from 1 to 4,096 cells.
#[test]
fn texts_of_any_length_are_exact() {
    for (rows, cells) in
        [(1, 1), (1, 2), (1, 31), (2, 257), (1, 1000), (9, 2048), (1, 4096), (70, 4096)]
    {
        for of in [F16, Q8_0] {
            let mut random = Random::new(cells as u64);
            let s = sizes([of; 2], rows, cells);
            let mask = mask_of_sequences(rows, cells, usize::MAX, &mut random);
            check(&s, &input(&s, mask, &mut random), 2);
        }
    }
}

/// A row that sees nothing has zeros, and rows that see everything are not a causal prompt.
#[test]
fn rows_that_see_nothing_or_everything_are_exact() {
    for visible in [HIDDEN, 0.0] {
        let mut random = Random::new(5);
        let s = sizes([F16; 2], 50, 300);
        let mask = vec![visible; s.rows * s.cells];
        check(&s, &input(&s, mask, &mut random), 2);
    }
}

/// Scores far apart leave one cell each, and large ones do not overflow.
#[test]
fn large_scores_are_exact() {
    for scale in [0.0, 1.0, 100.0, 3000.0] {
        let mut random = Random::new(6);
        let s = AttentionSizes { scale, ..sizes([F16; 2], 20, 200) };
        let mask = mask_of_sequences(s.rows, s.cells, usize::MAX, &mut random);
        let input = input(&s, mask, &mut random);
        let exact = exact(&s, &input);
        let mut graph = AttentionGraph::new(&s, &input, &Pool::new(1, false));
        for set in sets() {
            graph.run(Some(set));
            // A score of 10,000 has an error of 0.001 in f32.
            assert!(errors(&graph.output(), &exact).1 < 0.01, "{} {scale}", set.name());
        }
    }
}

/// llama.cpp computes the attentions that corelane has no kernel for.
#[test]
fn other_types_and_heads_are_llama_cpps() {
    const Q4_0: u32 = 2;
    for (of, numbers) in [(Q4_0, 64), (F16, 8), (F16, 512), (F16, 72)] {
        let mut random = Random::new(7);
        let s = AttentionSizes {
            key_numbers: numbers,
            value_numbers: numbers,
            ..sizes([of; 2], 3, 64)
        };
        let input = input(&s, vec![0.0; s.rows * s.cells], &mut random);
        let mut graph = AttentionGraph::new(&s, &input, &Pool::new(1, false));
        graph.run(None);
        let theirs = graph.output();
        graph.run(Some(InstructionSet::best().expect("a processor that there are kernels for")));
        assert_eq!(graph.output(), theirs);
    }
}
