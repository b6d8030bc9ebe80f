//! Products with experts: each choice of a token has the product of its own expert, bit by bit as that
//! expert alone gives it.

use corelane::kernels::InstructionSet;
use corelane::model::ggml::{Pool, dequantise, quantise};
use corelane::model::products::{Experts, ProductGraph, Sizes};
use proptest::prelude::*;

use crate::support::Random;

const Q4_K: u32 = 12;
const Q5_0: u32 = 6;
const MXFP4: u32 = 39;

/// A product with random weights, activations and choices.
struct Case {
    sizes: Sizes,
    experts: Experts,
    weights: Vec<u8>,
    input: Vec<f32>,
    choices: Vec<i32>,
}

impl Case {
    fn new(seed: u64, mut sizes: Sizes, experts: Experts) -> Self {
        sizes.experts = Some(experts);
        let mut random = Random::new(seed);
        let floats: Vec<f32> = random.numbers(experts.count * sizes.rows * sizes.columns);
        let weights = quantise(sizes.ggml_type, sizes.columns, &floats);
        let own = if experts.own_inputs { experts.chosen } else { 1 };
        let input = random.numbers(sizes.inputs * own * sizes.columns);
        // A token's experts differ; some are chosen more often than others.
        let mut choose = || {
            let mut chosen = Vec::new();
            while chosen.len() < experts.chosen {
                let most = [3, experts.count as u32][random.bits() as usize % 2];
                let expert = (random.bits() % most.max(experts.chosen as u32)) as i32;
                if expert < experts.count as i32 && !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            chosen
        };
        let choices = (0..sizes.inputs).flat_map(|_| choose()).collect();
        Self { sizes, experts, weights, input, choices }
    }

    fn run(&self, ours: bool, pool: &std::rc::Rc<Pool>) -> Vec<f32> {
        let mut product = ProductGraph::new(self.sizes, &self.weights, ours, pool);
        product.set_input(&self.input);
        product.set_choices(&self.choices);
        product.run();
        product.output()
    }

    /// The row of activations of each choice.
    fn input_of(&self, choice: usize) -> &[f32] {
        let row = if self.experts.own_inputs { choice } else { choice / self.experts.chosen };
        &self.input[row * self.sizes.columns..][..self.sizes.columns]
    }

    fn weights_of(&self, expert: i32) -> &[u8] {
        let bytes = self.weights.len() / self.experts.count;
        &self.weights[expert as usize * bytes..][..bytes]
    }

    /// The products, each by the matrix of its expert alone.
    fn one_by_one(&self, pool: &std::rc::Rc<Pool>) -> Vec<f32> {
        let product = |(choice, expert): (usize, &i32)| {
            let sizes = Sizes { inputs: 1, experts: None, ..self.sizes };
            let mut product = ProductGraph::new(sizes, self.weights_of(*expert), true, pool);
            product.set_input(self.input_of(choice));
            product.run();
            product.output()
        };
        self.choices.iter().enumerate().flat_map(product).collect()
    }

    /// The exact products.
    fn exact(&self) -> Vec<f64> {
        let columns = self.sizes.columns;
        let product = |(choice, expert): (usize, &i32)| {
            let floats = dequantise(self.sizes.ggml_type, columns, self.weights_of(*expert));
            let input = self.input_of(choice);
            let dot = |row: &[f32]| {
                row.iter().zip(input).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            floats.chunks_exact(columns).map(dot).collect::<Vec<f64>>()
        };
        self.choices.iter().enumerate().flat_map(product).collect()
    }
}

fn pool(threads: usize) -> std::rc::Rc<Pool> {
    let set = InstructionSet::best().expect("a processor that there are kernels for");
    corelane::kernels::ggml::choose(set);
    Pool::new(threads, false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn each_choice_has_the_product_of_its_expert(
        seed in any::<u64>(),
        strips in 8usize..12,
        missing in 0usize..8,
        tokens in 1usize..40,
        count in 1usize..20,
        chosen in 1usize..5,
        own_inputs in any::<bool>(),
        threads in 1usize..=3,
    ) {
        let pool = pool(threads);
        for (ggml_type, columns) in [(Q4_K, 512), (Q5_0, 96), (MXFP4, 128)] {
            let rows = 16 * strips - missing;
            let sizes =
                Sizes { ggml_type, rows, columns, inputs: tokens, copies: 1, experts: None };
            let experts = Experts { count, chosen: chosen.min(count), own_inputs };
            let case = Case::new(seed, sizes, experts);
            prop_assert_eq!(case.run(true, &pool), case.one_by_one(&pool));
        }
    }
}

/// Those of a model's size, so that threads share them.
#[test]
fn errors_are_no_larger_than_those_of_llama_cpp() {
    let pool = pool(2);
    for ggml_type in [Q4_K, MXFP4] {
        for (tokens, own_inputs) in [(1, false), (1, true), (9, false), (70, true)] {
            let sizes = Sizes {
                ggml_type,
                rows: 200,
                columns: 512,
                inputs: tokens,
                copies: 2,
                experts: None,
            };
            let case = Case::new(7, sizes, Experts { count: 12, chosen: 4, own_inputs });
            let exact = case.exact();
            let [ours, theirs] = [true, false].map(|ours| {
                let before = pool.jobs();
                let found = case.run(ours, &pool);
                assert_eq!(pool.jobs(), before + 1, "both threads of the pool computed it");
                assert_eq!(found.len(), exact.len());
                let errors = found.iter().zip(&exact).map(|(a, b)| f64::from(*a) - b);
                let sum: f64 = errors.map(|error| error * error).sum();
                (sum / exact.len() as f64).sqrt()
            });
            println!("type {ggml_type}, {tokens} tokens: ours {ours:.2e}, theirs {theirs:.2e}");
            assert!(ours <= 1.01 * theirs, "{ours}, theirs {theirs}");
        }
    }
}
