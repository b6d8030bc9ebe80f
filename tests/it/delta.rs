//! Our gated delta net against llama.cpp's.

use corelane::kernels::InstructionSet;
use corelane::model::deltas::{DeltaInput, DeltaSizes, compute};
use corelane::model::ggml::Pool;

use crate::support::Random;

const SIZES: DeltaSizes = DeltaSizes {
    numbers: 128,
    key_heads: 2,
    heads: 4,
    tokens: 1,
    sequences: 1,
    kept: 1,
    rows: 5,
    first_row: 2,
};

/// Random numbers: keys of length 1, and gates up to 0.
fn input(sizes: DeltaSizes, random: &mut Random) -> DeltaInput {
    let mut input = DeltaInput::waves(sizes);
    let shorter = 1.0 / (sizes.numbers as f32).sqrt();
    input.queries = random.numbers(input.queries.len());
    input.keys = random.numbers(input.keys.len()).iter().map(|key| key * shorter).collect();
    input.values = random.numbers(input.values.len());
    input.gates = random.numbers(input.gates.len()).iter().map(|gate| -gate.abs()).collect();
    input.states = random.numbers(input.states.len());
    input
}

/// Compares both for each instruction set and one and two threads. Returns whether the bits were the
/// same: then ours was not used.
fn compare(sizes: DeltaSizes, input: &DeltaInput) -> bool {
    let mut is_same = true;
    for set in InstructionSet::ALL.into_iter().filter(|set| set.is_here()) {
        for threads in [1, 2] {
            let pool = Pool::new(threads, false);
            let (ours, theirs) =
                (compute(sizes, input, Some(set), &pool), compute(sizes, input, None, &pool));
            for (ours, theirs) in [(&ours.0, &theirs.0), (&ours.1, &theirs.1)] {
                let largest = theirs.iter().fold(1.0, |most: f32, value| most.max(value.abs()));
                for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                    let error = (ours - theirs).abs() / largest;
                    assert!(error < 1e-5, "{set:?} {sizes:?} at {at}: {ours}, {theirs}");
                }
            }
            is_same &= ours == theirs;
        }
    }
    is_same
}

#[test]
fn it_equals_that_of_llama_cpp() {
    let mut random = Random::new(1);
    for numbers in [64, 128] {
        for (tokens, sequences, kept) in
            [(1, 1, 1), (1, 3, 1), (7, 1, 1), (7, 2, 1), (1, 3, 4), (3, 1, 4), (4, 1, 4), (9, 3, 4)]
        {
            let sizes = DeltaSizes { numbers, tokens, sequences, kept, ..SIZES };
            let is_same = compare(sizes, &input(sizes, &mut random));
            assert!(!is_same || InstructionSet::best().is_none(), "ours computes {sizes:?}");
        }
    }
}

/// A state that went back stands among those behind later tokens.
#[test]
fn a_state_that_went_back_is_read_where_it_stands() {
    let mut random = Random::new(2);
    for tokens in [1, 2, 4, 6] {
        for back in 1..4 {
            let sizes = DeltaSizes { tokens, sequences: 2, kept: 4, ..SIZES };
            let from = vec![(back * sizes.rows + 2) as i32, 3];
            let input = DeltaInput { from, ..input(sizes, &mut random) };
            let is_same = compare(sizes, &input);
            assert!(!is_same || InstructionSet::best().is_none(), "{tokens} {back}");
        }
    }
}

/// A state of another row must be read before that row is written, so ggml gathers them first.
#[test]
fn states_that_change_places_are_gathered_first() {
    let mut random = Random::new(3);
    for from in [vec![3, 2], vec![0, 3], vec![2, 2], vec![4, 2]] {
        let sizes = DeltaSizes { tokens: 2, sequences: 2, ..SIZES };
        let input = DeltaInput { from, ..input(sizes, &mut random) };
        assert!(compare(sizes, &input), "llama.cpp's computes it");
    }
}

/// No kernel has rows of 32 numbers.
#[test]
fn other_sizes_are_left_to_llama_cpp() {
    let sizes = DeltaSizes { numbers: 32, tokens: 2, ..SIZES };
    assert!(compare(sizes, &input(sizes, &mut Random::new(4))));
}
