//! The kernels for products with weights: each against exact sums, on every instruction set
//! that this processor has, and against llama.cpp's own.

use std::sync::Arc;

use crate::support::{Random, logits_if};
use corelane::kernels::kernel::Kernel;
use corelane::kernels::matmul::{Product, Strips, work_bytes};
use corelane::kernels::team::Team;
use corelane::kernels::{InstructionSet, KernelChoice};
use corelane::model::ggml::{Pool, dequantise, quantise};
use corelane::model::llama::{ContextConfig, LlamaDecoder};
use corelane::model::load::{Loaded, Source, load};
use corelane::model::products::{ProductGraph, Sizes};
use corelane::model::{Backend, DecodeRow};
use corelane::types::{Position, SlotId, Threads, TokenId};
use proptest::prelude::*;

/// ggml's number, and where a block has 16-bit floats.
const TYPES: [(i32, &[usize]); 20] = [
    (1, &EACH),      // F16
    (2, &[0]),       // Q4_0
    (3, &[0, 2]),    // Q4_1
    (6, &[0]),       // Q5_0
    (7, &[0, 2]),    // Q5_1
    (8, &[0]),       // Q8_0
    (10, &[80, 82]), // Q2_K
    (11, &[108]),    // Q3_K
    (12, &[0, 2]),   // Q4_K
    (13, &[0, 2]),   // Q5_K
    (14, &[208]),    // Q6_K
    (16, &[0]),      // IQ2_XXS
    (17, &[0]),      // IQ2_XS
    (18, &[0]),      // IQ3_XXS
    (20, &[0]),      // IQ4_NL
    (21, &[0]),      // IQ3_S
    (22, &[0]),      // IQ2_S
    (23, &[0]),      // IQ4_XS
    (BF16, &EACH),
    (MXFP4, &[]),
];

/// All 32 numbers of a block.
const EACH: [usize; 32] = {
    let mut each = [0; 32];
    let mut number = 0;
    while number < 32 {
        each[number] = 2 * number;
        number += 1;
    }
    each
};

/// Floats with an exponent of 8 bits.
const BF16: i32 = 30;

/// Its blocks begin with an exponent of 8 bits.
const MXFP4: i32 = 39;

/// Weights as a GGUF file has them: any bits, but with scales that are numbers. `exponents` are
/// those of the scales, as 16-bit floats have them: 0 for the smallest and 30 for the largest.
fn random_weights(
    random: &mut Random,
    kernel: &Kernel,
    halves: &[usize],
    blocks: usize,
    exponents: std::ops::RangeInclusive<u32>,
) -> Vec<u8> {
    let mut weights: Vec<u8> =
        (0..blocks * kernel.block_bytes).map(|_| random.bits() as u8).collect();
    let count = exponents.end() - exponents.start() + 1;
    for block in weights.chunks_exact_mut(kernel.block_bytes) {
        if kernel.name == "MXFP4" {
            let is_any = *exponents.start() == 0; // 255 is no number
            let some = 113 + exponents.start() + random.bits() % count;
            block[0] = if is_any { random.bits() % 255 } else { some } as u8;
        }
        for at in halves {
            let exponent = exponents.start() + random.bits() % count;
            let float = match kernel.name {
                "BF16" => (random.bits() & 0x807F) as u16 | (exponent as u16 + 112) << 7,
                _ => (random.bits() & 0x83FF) as u16 | (exponent as u16) << 10,
            };
            block[*at..at + 2].copy_from_slice(&float.to_le_bytes());
        }
    }
    weights
}

/// Memory that begins at a cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// The product by one of our kernels, on this thread.
fn multiply(
    kernel: &Kernel,
    weights: &[u8],
    rows: usize,
    columns: usize,
    input: &[f32],
) -> Vec<f32> {
    // Packed weights and work memory begin at cache lines.
    let lines = |bytes: usize| vec![Line { _bytes: [0; 64] }; bytes.div_ceil(64)];
    let mut packed = lines(kernel.packed_bytes(rows, columns));
    let inputs = input.len() / columns;
    let mut work = lines(work_bytes(kernel, columns, inputs));
    work.fill(Line { _bytes: [1; 64] }); // as it is used again and again
    let mut output = vec![f32::NAN; inputs * rows];
    // SAFETY: the memory has the sizes that are asked for, and the processor the kernel's
    // instructions.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(
            packed.as_mut_ptr().cast(),
            kernel.packed_bytes(rows, columns),
        );
        (kernel.pack)(columns, weights, bytes);
        Product {
            strips: Strips {
                kernel: *kernel,
                weights: packed.as_ptr().cast(),
                rows,
                columns,
                inputs,
                from: std::ptr::null(),
                to: std::ptr::null(),
                output: output.as_mut_ptr(),
                output_stride: rows,
                work: work.as_mut_ptr().cast(),
            },
            experts: None,
            input: |row: usize| input[row * columns..].as_ptr(),
        }
        .run(&Team::alone());
    }
    output
}

/// For each row of activations and each of the weights: the exact product, and the sum of
/// the absolute values that it is made of.
fn exact(weights: &[f32], columns: usize, input: &[f32]) -> Vec<(f64, f64)> {
    let dot = |a: &[f32], b: &[f32]| {
        let products = || a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        (products().sum(), products().map(f64::abs).sum())
    };
    let rows = || weights.chunks_exact(columns);
    input.chunks_exact(columns).flat_map(|input| rows().map(move |row| dot(row, input))).collect()
}

fn sets() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| set.is_here())
}

/// Every kernel that this processor has, and where the blocks of its type have scales.
fn kernels() -> impl Iterator<Item = (InstructionSet, i32, Kernel, &'static [usize])> {
    let of = |set: InstructionSet| {
        TYPES.into_iter().filter_map(move |(ggml_type, halves)| {
            Some((set, ggml_type, set.kernel(ggml_type)?, halves))
        })
    };
    sets().flat_map(of)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Activations that 8 bits hold exactly leave nothing but the rounding of float sums.
    #[test]
    fn products_of_whole_numbers_are_exact(
        seed in any::<u64>(),
        rows in 1usize..70,
        blocks in 1usize..5,
        inputs in 1usize..=64,
        exponents in (1u32..=30, 1u32..=30),
    ) {
        for (set, ggml_type, kernel, halves) in kernels() {
            let mut random = Random::new(seed);
            let columns = blocks * kernel.block_columns;
            let exponents = exponents.0.min(exponents.1)..=exponents.0.max(exponents.1);
            let weights = random_weights(&mut random, &kernel, halves, rows * blocks, exponents);
            let mut input: Vec<f32> =
                (0..inputs * columns).map(|_| (random.bits() % 255) as f32 - 127.0).collect();
            // The largest of each block, so that its scale is 1.
            input.iter_mut().step_by(32).for_each(|first| *first = 127.0);
            let found = multiply(&kernel, &weights, rows, columns, &input);
            let floats = dequantise(ggml_type as u32, columns, &weights);
            for (found, (exact, size)) in found.iter().zip(exact(&floats, columns, &input)) {
                let error = (f64::from(*found) - exact).abs();
                prop_assert!(
                    error <= 2e-6 * size,
                    "{} {}: {found} instead of {exact}, of {size}", set.name(), kernel.name
                );
            }
        }
    }

    /// The product of a row is the same, bit by bit, whichever rows are beside it.
    #[test]
    fn rows_of_activations_do_not_touch_each_other(
        seed in any::<u64>(), rows in 1usize..40, blocks in 1usize..4, inputs in 2usize..40,
    ) {
        for (set, _, kernel, halves) in kernels() {
            let mut random = Random::new(seed);
            let columns = blocks * kernel.block_columns;
            let weights = random_weights(&mut random, &kernel, halves, rows * blocks, 5..=15);
            let input: Vec<f32> = random.numbers(inputs * columns);
            let together = multiply(&kernel, &weights, rows, columns, &input);
            for (index, input) in input.chunks_exact(columns).enumerate() {
                let alone = multiply(&kernel, &weights, rows, columns, input);
                prop_assert_eq!(
                    &alone, &together[index * rows..][..rows],
                    "row {} of {}, {} {}", index, inputs, set.name(), kernel.name
                );
            }
        }
    }
}

/// On a processor that multiplies matrices, many rows have functions of their own. A row has the same bits
/// among 530 as among 7.
#[test]
fn a_row_is_the_same_among_many_rows_and_few() {
    let mut random = Random::new(9);
    for (set, _, kernel, halves) in kernels() {
        let (rows, inputs) = (70, 530);
        // Parts of 256 columns, and where the type has smaller blocks, less at the end.
        let columns = 4 * 256 + kernel.block_columns;
        let blocks = columns / kernel.block_columns;
        let weights = random_weights(&mut random, &kernel, halves, rows * blocks, 5..=15);
        let input: Vec<f32> = random.numbers(inputs * columns);
        let many = multiply(&kernel, &weights, rows, columns, &input);
        let few = input
            .chunks(7 * columns)
            .flat_map(|few| multiply(&kernel, &weights, rows, columns, few));
        assert!(few.eq(many.iter().copied()), "{} {}", set.name(), kernel.name);
    }
}

/// Sums of the largest products of both signs, which may not fit in 16 bits.
#[test]
fn the_largest_codes_and_activations_do_not_overflow() {
    for (set, ggml_type, kernel, halves) in kernels() {
        let columns = 512;
        for byte in [0x00, 0x0F, 0x77, 0x7F, 0x80, 0xF0, 0xFF] {
            let mut weights = vec![byte; 20 * columns / kernel.block_columns * kernel.block_bytes];
            for block in weights.chunks_exact_mut(kernel.block_bytes) {
                block[0] = if kernel.name == "MXFP4" { 128 } else { block[0] };
                for at in halves {
                    let one: u16 = if kernel.name == "BF16" { 0x3F80 } else { 0x3C00 };
                    block[*at..at + 2].copy_from_slice(&one.to_le_bytes());
                }
            }
            let floats = dequantise(ggml_type as u32, columns, &weights);
            for input in [[127.0; 2], [-127.0; 2], [127.0, -127.0]] {
                let input: Vec<f32> = input.into_iter().cycle().take(3 * columns).collect();
                let found = multiply(&kernel, &weights, 20, columns, &input);
                for (found, (exact, size)) in found.iter().zip(exact(&floats, columns, &input)) {
                    let error = (f64::from(*found) - exact).abs();
                    let name = kernel.name;
                    assert!(error <= 2e-6 * size, "{} {name} {byte}: {found}, {exact}", set.name());
                }
            }
        }
    }
}

#[test]
fn each_type_with_a_kernel_is_tested() {
    assert_eq!(TYPES.map(|(ggml_type, _)| ggml_type).to_vec(), {
        let mut all = corelane::kernels::TYPES.to_vec();
        all.sort_unstable();
        all
    });
}

/// The error of a product is that of rounding activations to 8 bits, which ggml does alike.
#[test]
fn errors_are_no_larger_than_those_of_llama_cpp() {
    let set = InstructionSet::best().expect("a processor that there are kernels for");
    corelane::kernels::ggml::choose(set);
    let pool = Pool::new(2, false);
    let mut compared = 0;
    for (ggml_type, _) in TYPES {
        let kernel = set.kernel(ggml_type).expect("each set has all types");
        for (rows, blocks, inputs) in [
            (16, 4, 1),
            (64, 1, 2),
            (40, 12, 3),
            (272, 4, 8),
            (33, 2, 17),
            (48, 6, 64),
            (2048, 2, 9),
            (48, 12, 400),
        ] {
            let mut random = Random::new(rows as u64);
            let columns = blocks * 256;
            let floats: Vec<f32> = random.numbers(rows * columns);
            let weights = quantise(ggml_type as u32, columns, &floats);
            // A few large values, as real activations have them.
            let mut activation =
                || random.number() * if random.bits().is_multiple_of(97) { 20.0 } else { 1.0 };
            let input: Vec<f32> = (0..inputs * columns).map(|_| activation()).collect();
            let exact = exact(&dequantise(ggml_type as u32, columns, &weights), columns, &input);
            let sizes = Sizes {
                ggml_type: ggml_type as u32,
                rows,
                columns,
                inputs,
                copies: 1,
                experts: None,
            };
            let [ours, theirs] = [true, false].map(|ours| {
                let mut product = ProductGraph::new(sizes, &weights, ours, &pool);
                product.set_input(&input);
                let before = pool.jobs();
                product.run();
                // ggml must not have other threads than ours: those of OpenMP's own library, say.
                assert_eq!(pool.jobs(), before + 1, "both threads of the pool computed it");
                let found = product.output();
                assert_eq!(found.len(), exact.len());
                let errors = found.iter().zip(&exact).map(|(a, (b, _))| f64::from(*a) - b);
                let sum: f64 = errors.map(|error| error * error).sum();
                (sum / exact.len() as f64).sqrt()
            });
            let kernel = kernel.name;
            println!(
                "{kernel} {rows} x {columns}, {inputs} rows: ours {ours:.2e}, theirs {theirs:.2e}"
            );
            // Both round activations to 8 bits, and scales differ in their last bits: by
            // chance one of them has an error that is 0.2 % larger.
            assert!(ours <= 1.01 * theirs, "{kernel} {rows} x {columns}: {ours}, theirs {theirs}");
            compared += 1;
        }
    }
    assert_eq!(compared, 8 * TYPES.len());
}

#[test]
fn zeros_tiny_and_huge_activations_stay_numbers() {
    for (set, ggml_type, kernel, halves) in kernels() {
        let mut random = Random::new(3);
        let columns = 2 * 256;
        let blocks = columns / kernel.block_columns;
        let weights = random_weights(&mut random, &kernel, halves, 20 * blocks, 5..=15);
        let floats = dequantise(ggml_type as u32, columns, &weights);
        // Below 1e-36, activations count as zeros.
        for (size, precision) in
            [(0.0, 0.0), (1e-45, 1.0), (1e-37, 1.0), (1e-35, 0.02), (1e30, 0.02)]
        {
            let input: Vec<f32> = (0..3 * columns).map(|_| size * random.number()).collect();
            let found = multiply(&kernel, &weights, 20, columns, &input);
            for (found, (exact, of)) in found.iter().zip(exact(&floats, columns, &input)) {
                let error = (f64::from(*found) - exact).abs();
                assert!(
                    found.is_finite() && error <= precision * of,
                    "{} {} {size}: {found} instead of {exact}",
                    set.name(),
                    kernel.name
                );
            }
        }
    }
}

#[test]
fn packed_rows_are_unpacked_as_ggml_reads_them_in_the_file() {
    for (_, ggml_type, kernel, halves) in kernels() {
        let (rows, columns) = (37, 3 * 256);
        let blocks = columns / kernel.block_columns;
        let weights = random_weights(&mut Random::new(7), &kernel, halves, rows * blocks, 0..=30);
        let mut packed = vec![0; kernel.packed_bytes(rows, columns)];
        (kernel.pack)(columns, &weights, &mut packed);
        let floats = dequantise(ggml_type as u32, columns, &weights);
        for (row, expected) in floats.chunks_exact(columns).enumerate() {
            let mut found = vec![0.0; columns];
            (kernel.unpack_row)(&packed, row, &mut found);
            assert_eq!(found, expected, "{} row {row}", kernel.name);
        }
        // No larger than in the file, but for rows that fill up a strip, and signs that the file leaves out.
        let percent = match kernel.name {
            "IQ2_XXS" => 107,
            "IQ2_XS" => 111,
            "IQ3_XXS" => 105,
            _ => 100,
        };
        let most = weights.len() / rows * 48 * percent / 100 + 3 * 64;
        assert!(packed.len() <= most, "{}: {} bytes", kernel.name, packed.len());
    }
}

/// Through ggml: activations in three dimensions, with gaps between their rows, and rows that
/// are looked up.
#[test]
fn ggml_may_ask_for_activations_with_gaps_and_for_single_rows() {
    use llama_cpp_sys_2 as sys;
    const ROWS: usize = 48;
    const COLUMNS: usize = 512;
    const LOOKED_UP: [i32; 4] = [47, 0, 17, 17];
    let set = InstructionSet::best().expect("a processor that there are kernels for");
    corelane::kernels::ggml::choose(set);
    drop(Pool::new(1, false)); // starts llama.cpp
    for (ggml_type, _) in TYPES {
        let Some(kernel) = set.kernel(ggml_type) else { continue };
        let mut random = Random::new(11);
        let floats: Vec<f32> = random.numbers(ROWS * COLUMNS);
        let weights = quantise(ggml_type as u32, COLUMNS, &floats);
        // Two planes of three rows; 32 floats lie between rows, 64 more between planes.
        let (row, plane) = (COLUMNS + 32, 3 * (COLUMNS + 32) + 64);
        let input: Vec<f32> = random.numbers(2 * plane);
        // SAFETY: tensors in contexts without memory, buffers for them, and copies of as many
        // bytes as the tensors have; everything is freed at the end, users first.
        let (product, rows) = unsafe {
            let context = || {
                let mem_size = 16 * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead();
                let mem_buffer = std::ptr::null_mut();
                sys::ggml_init(sys::ggml_init_params { mem_size, mem_buffer, no_alloc: true })
            };
            let (of_weights, of_rest) = (context(), context());
            let matrix =
                sys::ggml_new_tensor_2d(of_weights, ggml_type as u32, COLUMNS as i64, ROWS as i64);
            sys::ggml_set_name(matrix, c"token_embd.weight".as_ptr());
            let base = sys::ggml_new_tensor_1d(of_rest, sys::GGML_TYPE_F32, input.len() as i64);
            let view =
                sys::ggml_view_3d(of_rest, base, COLUMNS as i64, 3, 2, row * 4, plane * 4, 0);
            let ids = sys::ggml_new_tensor_1d(of_rest, sys::GGML_TYPE_I32, 4);
            let product = sys::ggml_mul_mat(of_rest, matrix, view);
            let rows = sys::ggml_get_rows(of_rest, matrix, ids);
            let graph = sys::ggml_new_graph(of_rest);
            sys::ggml_build_forward_expand(graph, product);
            sys::ggml_build_forward_expand(graph, rows);
            let ours = corelane::kernels::ggml::buffer_type().cast();
            let buffers = [
                sys::ggml_backend_alloc_ctx_tensors_from_buft(of_weights, ours),
                sys::ggml_backend_alloc_ctx_tensors_from_buft(
                    of_rest,
                    sys::ggml_backend_cpu_buffer_type(),
                ),
            ];
            let device = sys::ggml_backend_reg_dev_get(sys::ggml_backend_cpu_reg(), 0);
            for op in [product, rows] {
                assert!(sys::ggml_backend_dev_supports_op(device, op), "{}", kernel.name);
            }
            let scaled = sys::ggml_scale(of_rest, matrix, 2.0);
            assert!(
                !sys::ggml_backend_dev_supports_op(device, scaled),
                "there is no kernel for it"
            );
            let set = |tensor, bytes: &[u8]| {
                sys::ggml_backend_tensor_set(tensor, bytes.as_ptr().cast(), 0, bytes.len());
            };
            set(matrix, &weights);
            set(base, &input.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
            set(ids, &LOOKED_UP.map(i32::to_le_bytes).concat());
            let backend = sys::ggml_backend_cpu_init();
            sys::ggml_backend_cpu_set_n_threads(backend, 2);
            let status = sys::ggml_backend_graph_compute(backend, graph);
            assert_eq!(status, sys::GGML_STATUS_SUCCESS);
            let get = |tensor: *mut sys::ggml_tensor| {
                let mut floats = vec![f32::NAN; sys::ggml_nelements(tensor) as usize];
                let bytes = size_of_val(floats.as_slice());
                sys::ggml_backend_tensor_get(tensor, floats.as_mut_ptr().cast(), 0, bytes);
                floats
            };
            let found = (get(product), get(rows));
            sys::ggml_backend_free(backend);
            buffers.iter().for_each(|buffer| sys::ggml_backend_buffer_free(*buffer));
            sys::ggml_free(of_weights);
            sys::ggml_free(of_rest);
            found
        };
        let dense: Vec<f32> =
            (0..6).flat_map(|i| input[i / 3 * plane + i % 3 * row..][..COLUMNS].to_vec()).collect();
        assert_eq!(product, multiply(&kernel, &weights, ROWS, COLUMNS, &dense), "{}", kernel.name);
        let floats = dequantise(ggml_type as u32, COLUMNS, &weights);
        for (found, row) in rows.chunks_exact(COLUMNS).zip(LOOKED_UP) {
            assert_eq!(found, &floats[row as usize * COLUMNS..][..COLUMNS], "{}", kernel.name);
        }
    }
}

/// A model's logits for the last of some tokens: from one step of all and from steps of one, on two
/// threads, of which one may lead.
fn logits(loaded: &Loaded, tokens: &[TokenId], led: bool) -> [Vec<f32>; 2] {
    let model = loaded.model.clone();
    let tokens = tokens.to_owned();
    let context = ContextConfig {
        context_tokens: 512,
        slots: 2,
        step_rows: 256,
        ubatch_rows: 256,
        decode_cores: vec![0, 1],
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
    // The thread that makes a context is pinned: not this one.
    std::thread::spawn(move || {
        let mut backend = LlamaDecoder::new(model, &context).unwrap();
        backend.use_threads(Threads { count: 2, led });
        let last = tokens.len() - 1;
        let row = |slot, index: usize, sampled| {
            let position = Position(index as u32);
            DecodeRow {
                token: tokens[index],
                position,
                slot: SlotId(slot),
                logits: logits_if(sampled),
            }
        };
        let rows: Vec<_> = (0..=last).map(|index| row(0, index, index == last)).collect();
        backend.decode(&rows).unwrap();
        let at_once = backend.logits(last).to_vec();
        for index in 0..=last {
            backend.decode(&[row(1, index, index == last)]).unwrap();
        }
        [at_once, backend.logits(0).to_vec()]
    })
    .join()
    .unwrap()
}

/// How far two sets of logits are apart, as a share of their spread.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let rms = |numbers: &mut dyn Iterator<Item = f64>| {
        (numbers.map(|x| x * x).sum::<f64>() / a.len() as f64).sqrt()
    };
    let mean = a.iter().map(|x| f64::from(*x)).sum::<f64>() / a.len() as f64;
    let difference = rms(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    difference / rms(&mut a.iter().map(|x| f64::from(*x) - mean))
}

/// Whole models with each type of weights, some with tied embeddings: their logits with corelane's
/// kernels equal those with llama.cpp's, up to rounding.
#[test]
fn logits_are_those_of_llama_cpp_but_for_rounding() {
    for quant in [
        "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k_m", "q4_k_m",
        "q5_k_m", "q6_k", "iq4_nl", "iq4_xs", "iq3_m", "iq3_xxs", "iq2_m", "iq2_xs", "iq2_xxs",
    ] {
        compare_with_llama_cpp("tiny", quant, 1 + 2 * 7, "the embedding once", &[]);
    }
}

#[test]
fn so_are_those_of_a_mixture_of_experts() {
    for quant in ["q4_k_m", "mxfp4_moe"] {
        let routers = [("f32", 2)];
        compare_with_llama_cpp("tiny-experts", quant, 2 + 2 * 7, "but the routers", &routers);
    }
}

fn compare_with_llama_cpp(
    shape: &str,
    quant: &str,
    matrices: usize,
    because: &str,
    left_to_llama_cpp: &[(&str, usize)],
) {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{shape}-{quant}.gguf"));
    synthesise(&path, shape, quant);
    let [ours, theirs] = [KernelChoice::Auto, KernelChoice::Llama]
        .map(|kernels| load(&Source::File(path.clone()), kernels, |_| true).unwrap());
    std::fs::remove_file(&path).unwrap();
    let info = (&ours.info.kernels, &theirs.info.kernels);
    println!("{shape} {quant}: {info:?}");
    assert_eq!(info.1.name, "llama");
    assert_eq!(info.0.matrices, matrices, "{shape} {quant}: {because}");
    let others: Vec<_> = info.0.others.iter().map(|of| (&*of.type_name, of.count)).collect();
    assert_eq!(others, left_to_llama_cpp, "{shape} {quant}");
    assert!(info.0.others.iter().all(|of| !of.has_kernel), "{:?}", info.0.others);
    if matrices == 0 {
        return;
    }
    assert_eq!(info.0.name, InstructionSet::best().unwrap().name());
    // Strips of one block of Q6_K are rounded up by 32 bytes. Some types with grids have one more sign.
    let percent = if quant.starts_with("iq2") || quant.starts_with("iq3") { 11 } else { 1 };
    assert!(info.0.bytes_added * 100 <= info.0.bytes * percent, "{:?}", info.0);
    let tokens: Vec<TokenId> = (0..40).map(|i| i * 97 % 8192).collect();
    let [at_once, one_by_one] = logits(&ours, &tokens, false);
    let led = logits(&ours, &tokens, true);
    assert!(led == [at_once.clone(), one_by_one.clone()], "{shape} {quant}: one thread leads");
    let [theirs_at_once, theirs_one_by_one] = logits(&theirs, &tokens, false);
    let kernels = [apart(&at_once, &theirs_at_once), apart(&one_by_one, &theirs_one_by_one)];
    // The difference between llama.cpp's own kernels for one row and for several.
    let batches = apart(&theirs_at_once, &theirs_one_by_one);
    println!("{quant}: {kernels:.4?} apart from llama.cpp; its batches {batches:.4}");
    // llama.cpp's attention adds up in 16 bits.
    assert!(kernels.iter().all(|apart| *apart < 0.08), "{shape} {quant}: {kernels:?}");
}

fn synthesise(path: &std::path::Path, shape: &str, quant: &str) {
    use corelane_bench::synth::{Quant, Request, Shape, synth};
    let shape = Shape::named(shape).unwrap().clone();
    let quant = Quant::named(quant).unwrap();
    let request = Request { shape, quant, seed: 0, out: path.to_owned(), force: true, threads: 2 };
    synth(&request, |_| ()).unwrap();
}

/// The built-in model, which means something, greedily.
#[test]
fn the_built_in_model_says_the_same_with_both() {
    let prompts = [
        "Once upon a time",
        "<|im_start|>user\nWhat is 3 plus 4?<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\nTell me a story about a dog<|im_end|>\n<|im_start|>assistant\n",
        "Mia had a red kite. She loved it very much. ",
    ];
    for prompt in prompts {
        let [ours, theirs] = [KernelChoice::Auto, KernelChoice::Llama].map(|kernels| {
            let loaded = load(&Source::BuiltIn, kernels, |_| true).unwrap();
            let packed = loaded.info.kernels.matrices > 0;
            assert_eq!(packed, kernels == KernelChoice::Auto, "all weights are Q8_0");
            let tokens = loaded.vocab.tokenize(prompt, true, true).unwrap();
            logits(&loaded, &tokens, false)[0].clone()
        });
        let best =
            |logits: &[f32]| logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        println!("{prompt:?}: {:.4} apart", apart(&ours, &theirs));
        assert!(apart(&ours, &theirs) < 0.05, "{prompt:?}: {}", apart(&ours, &theirs));
        assert_eq!(best(&ours), best(&theirs), "{prompt:?}");
    }
}

#[test]
fn kernels_have_names_and_others_are_refused_with_them() {
    let choice = |text: &str| text.parse::<KernelChoice>();
    assert_eq!(choice("auto"), Ok(KernelChoice::Auto));
    assert_eq!(choice("llama"), Ok(KernelChoice::Llama));
    for set in sets() {
        assert_eq!(choice(set.name()), Ok(KernelChoice::Ours(set)));
    }
    assert!(choice("fast").unwrap_err().contains("auto, llama, amx, avx512-vnni"));
}
