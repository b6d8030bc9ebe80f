//! The dimensions of a model, the known models by name, and the tensors that follow from the
//! dimensions.

use super::quant::Quant;
use super::weights::Content;
use corelane::limits::SEQUENCE_TOKENS_MAX;

/// Blocks of a synthetic model: llama.cpp's own bound (`LLAMA_MAX_LAYERS`).
const LAYERS_MAX: u32 = 512;

/// Heads of a synthetic model.
pub const HEADS_MAX: u32 = 512;

/// Numbers in a head of a synthetic model.
pub const HEAD_SIZE_MAX: u32 = 1024;

const _: () = assert!(HEADS_MAX * HEAD_SIZE_MAX <= 1 << 20, "rows stay small");

/// Numbers in a synthetic model's hidden state.
const WIDTH_MAX: u32 = 1 << 16;

/// Numbers in a synthetic model's feed-forward layer.
const FFN_MAX: u32 = 1 << 18;

/// Tokens of a synthetic model's vocabulary.
const VOCAB_MAX: u32 = 1 << 20;

/// A transformer's dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The known shape it is based on.
    pub name: &'static str,
    /// The architecture, which determines the tensors.
    pub architecture: Architecture,
    /// Transformer blocks.
    pub layers: u32,
    /// Numbers in the hidden state.
    pub width: u32,
    /// Numbers in the feed-forward layer.
    pub ffn: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads. Each is shared by the same number of query heads.
    pub kv_heads: u32,
    /// Numbers in one head.
    pub head_size: u32,
    /// Tokens in the vocabulary.
    pub vocab: u32,
    /// Tokens of context.
    pub context: u32,
    /// Base of the rotary embedding's frequencies.
    pub rope_base: f32,
    /// Epsilon of the RMS norms.
    pub rms_epsilon: f32,
    /// Whether the output matrix is the token embedding.
    pub tied: bool,
    /// The blocks with attention, of a hybrid; in the others every block has it.
    pub attention: &'static [u32],
    /// The heads of a gated delta net and the numbers in each, of [`Architecture::Qwen35`].
    pub delta: [u32; 2],
    /// The tokens of a sliding window, and the blocks of which the last one has none, of
    /// [`Architecture::Gemma3`].
    pub window: [u32; 2],
}

/// A family of models, by llama.cpp's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// With RMS norms on queries and keys.
    Qwen3,
    /// Plain; a tensor stretches the rotary frequencies of Llama 3.
    Llama,
    /// A hybrid: most blocks have a short convolution, whose state is recurrent, in place of
    /// attention. With RMS norms on queries and keys.
    Lfm2,
    /// A hybrid: three of four blocks have a gated delta net, whose state is recurrent, in place of
    /// attention. Attention has a gate. With RMS norms on queries and keys.
    Qwen35,
    /// Most blocks have a sliding window. With RMS norms also on queries, on keys, and behind
    /// attention and the feed-forward layer.
    Gemma3,
}

/// The known shapes. Sources: the `config.json` of each model.
pub const SHAPES: &[Shape] = &[
    qwen3("qwen3-0.6b", [28, 1024, 3072, 16], true),
    qwen3("qwen3-1.7b", [28, 2048, 6144, 16], true),
    qwen3("qwen3-4b", [36, 2560, 9728, 32], true),
    qwen3("qwen3-8b", [36, 4096, 12288, 32], false),
    llama("llama-3.2-1b", [16, 2048, 8192, 32], 64),
    llama("llama-3.2-3b", [28, 3072, 8192, 24], 128),
    Shape {
        architecture: Architecture::Lfm2,
        attention: &[2, 5, 8, 10, 12, 14],
        head_size: 64,
        vocab: 65_536,
        context: 128_000,
        rms_epsilon: 1e-5,
        ..qwen3("lfm2-1.2b", [16, 2048, 8192, 32], true)
    },
    Shape {
        kv_heads: 2,
        head_size: 256,
        vocab: 248_320,
        context: 262_144,
        delta: [16, 128],
        ..qwen35("qwen3.5-0.8b", [24, 1024, 3584, 8], &[3, 7, 11, 15, 19, 23])
    },
    gemma3("gemma3-270m", [18, 640, 2048, 4], 1, 512),
    gemma3("gemma3-4b", [34, 2560, 10_240, 8], 4, 1024),
    // For tests: the smallest shapes that every quantisation can pack.
    Shape {
        kv_heads: 2,
        head_size: 64,
        vocab: 8192,
        context: 2048,
        ..qwen3("tiny", [2, 256, 512, 4], true)
    },
    Shape {
        architecture: Architecture::Lfm2,
        attention: &[1],
        kv_heads: 2,
        head_size: 64,
        vocab: 8192,
        context: 2048,
        rms_epsilon: 1e-5,
        ..qwen3("tiny-hybrid", [3, 256, 512, 4], true)
    },
    Shape {
        kv_heads: 2,
        head_size: 64,
        vocab: 8192,
        context: 2048,
        delta: [2, 128],
        ..qwen35("tiny-delta", [4, 256, 512, 4], &[3])
    },
    Shape {
        head_size: 64,
        vocab: 8192,
        context: 2048,
        window: [64, 2],
        ..gemma3("tiny-window", [4, 256, 512, 4], 2, 0)
    },
];

const fn qwen35(name: &'static str, dimensions: [u32; 4], attention: &'static [u32]) -> Shape {
    let architecture = Architecture::Qwen35;
    Shape { architecture, attention, rope_base: 1e7, ..qwen3(name, dimensions, true) }
}

const fn gemma3(name: &'static str, dimensions: [u32; 4], kv_heads: u32, window: u32) -> Shape {
    Shape {
        architecture: Architecture::Gemma3,
        kv_heads,
        head_size: 256,
        vocab: 262_144,
        context: 32_768,
        window: [window, 6],
        ..qwen3(name, dimensions, true)
    }
}

const fn qwen3(name: &'static str, dimensions: [u32; 4], tied: bool) -> Shape {
    let [layers, width, ffn, heads] = dimensions;
    Shape {
        name,
        architecture: Architecture::Qwen3,
        layers,
        width,
        ffn,
        heads,
        kv_heads: 8,
        head_size: 128,
        vocab: 151_936,
        context: 40_960,
        rope_base: 1e6,
        rms_epsilon: 1e-6,
        tied,
        attention: &[],
        delta: [0, 0],
        window: [0, 0],
    }
}

const fn llama(name: &'static str, dimensions: [u32; 4], head_size: u32) -> Shape {
    Shape {
        architecture: Architecture::Llama,
        head_size,
        vocab: 128_256,
        context: 131_072,
        rope_base: 5e5,
        rms_epsilon: 1e-5,
        ..qwen3(name, dimensions, true)
    }
}

/// One tensor of a model.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    /// Numbers in a row, and the number of rows.
    pub dims: [u64; 2],
    pub content: Content,
}

impl Tensor {
    fn new(name: impl Into<String>, columns: u32, rows: u32, content: Content) -> Self {
        Self { name: name.into(), dims: [columns.into(), rows.into()], content }
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.dims[0] * self.dims[1]
    }
}

/// Standard deviation of the logits. Nucleus sampling then keeps some dozens of tokens, as with a
/// trained model. With 1 it would keep nearly all, and the cost of sampling would be wrong.
const LOGIT_DEVIATION: f32 = 5.0;

/// Standard deviation of the products of a query with its keys. Heads then attend to a few tokens
/// each, like trained heads. With 1 they would attend to all tokens equally, every position would
/// see the same, and the model would repeat one word.
const ATTENTION_DEVIATION: f32 = 4.0;

/// The weights of a short convolution: of the token two before, the one before, and this one. Their
/// squares add up to 1.
pub(super) const CONVOLUTION: [f32; 3] = [0.36, -0.48, 0.8];

/// The same of a gated delta net, which has one token more.
pub(super) const DELTA_CONVOLUTION: [f32; 4] = [0.1, 0.3, -0.3, 0.9];

/// The numbers of a head that are rotated in [`Architecture::Qwen35`], and of these the pairs for each
/// of a position's coordinates (`mrope_section` in the `config.json` of Qwen3.5).
pub(super) const ROTATED: u32 = 64;
pub(super) const ROTATED_PAIRS: [i32; 4] = [11, 11, 10, 0];

/// The logarithm by which a gated delta net forgets in a token, before the token's own factor of about
/// 0.7.
const FORGETS: f32 = -0.05;

impl Shape {
    /// The known shape with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|shape| shape.name == name)
    }

    /// The model's name, which tells it from the real one.
    pub fn title(&self) -> String {
        let known = Self::named(self.name) == Some(self);
        format!("synthetic {}{}", self.name, if known { "" } else { ", modified" })
    }

    /// Length of all query heads together.
    fn query(&self) -> u32 {
        self.heads * self.head_size // both bounded in `check`
    }

    /// Whether a block has attention.
    fn attends(&self, layer: u32) -> bool {
        self.attention.is_empty() || self.attention.contains(&layer)
    }

    /// The key and value heads of each block, 0 in those without attention.
    pub(super) fn kv_heads_of_blocks(&self) -> Vec<i32> {
        let heads = self.kv_heads as i32; // at most HEADS_MAX
        (0..self.layers).map(|layer| if self.attends(layer) { heads } else { 0 }).collect()
    }

    /// The tensors. Each matrix is scaled by the root of its inputs, so that its output has a size
    /// of about 1. The residual stream grows with the root of the layers, to about 5. The layers'
    /// contribution then outweighs the token itself, which a tied output would otherwise repeat
    /// forever.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let Self { width, ffn, vocab, .. } = *self;
        let key = self.kv_heads * self.head_size;
        let scaled = |scale: f32, inputs: u32| Content::Random {
            deviation: scale / f64::from(inputs).sqrt() as f32,
        };
        let random = |inputs: u32| scaled(1.0, inputs);
        // A norm on the queries undoes the scale of their matrix.
        let (query, query_norm) = match self.architecture {
            Architecture::Llama => (scaled(ATTENTION_DEVIATION, width), None),
            _ => (random(width), Some(Content::Constant(ATTENTION_DEVIATION))),
        };
        let ones = Content::Constant(1.0);
        let mut tensors = vec![Tensor::new("token_embd.weight", width, vocab, random(width))];
        for layer in 0..self.layers {
            let mut add = |name: &str, columns, rows, content| {
                tensors.push(Tensor::new(format!("blk.{layer}.{name}"), columns, rows, content));
            };
            add("attn_norm.weight", width, 1, ones.clone());
            if self.attends(layer) {
                let gated = if self.architecture == Architecture::Qwen35 { 2 } else { 1 };
                add("attn_q.weight", width, gated * self.query(), query.clone());
                add("attn_k.weight", width, key, random(width));
                add("attn_v.weight", width, key, random(width));
                add("attn_output.weight", self.query(), width, random(self.query()));
                if let Some(norm) = &query_norm {
                    add("attn_q_norm.weight", self.head_size, 1, norm.clone());
                    add("attn_k_norm.weight", self.head_size, 1, ones.clone());
                }
            } else if self.architecture == Architecture::Qwen35 {
                let [heads, size] = self.delta;
                let value = heads * size;
                let taps = Content::Given(DELTA_CONVOLUTION.repeat(3 * value as usize));
                add("attn_qkv.weight", width, 3 * value, random(width));
                add("attn_gate.weight", width, value, random(width));
                add("ssm_conv1d.weight", DELTA_CONVOLUTION.len() as u32, 3 * value, taps);
                add("ssm_dt.bias", heads, 1, Content::Constant(0.0));
                add("ssm_a", heads, 1, Content::Constant(FORGETS));
                add("ssm_beta.weight", width, heads, random(width));
                add("ssm_alpha.weight", width, heads, random(width));
                add("ssm_norm.weight", size, 1, ones.clone());
                add("ssm_out.weight", value, width, random(value));
            } else {
                let taps = Content::Given(CONVOLUTION.repeat(width as usize));
                add("shortconv.conv.weight", CONVOLUTION.len() as u32, width, taps);
                add("shortconv.in_proj.weight", width, 3 * width, random(width));
                add("shortconv.out_proj.weight", width, width, random(width));
            }
            let ffn_norm = match self.architecture {
                Architecture::Qwen35 => "post_attention_norm.weight",
                _ => "ffn_norm.weight",
            };
            add(ffn_norm, width, 1, ones.clone());
            add("ffn_gate.weight", width, ffn, random(width));
            add("ffn_up.weight", width, ffn, random(width));
            add("ffn_down.weight", ffn, width, random(ffn));
            if self.architecture == Architecture::Gemma3 {
                add("post_attention_norm.weight", width, 1, ones.clone());
                add("post_ffw_norm.weight", width, 1, ones.clone());
            }
        }
        let scale = Content::Constant(LOGIT_DEVIATION);
        let output_norm = match self.architecture {
            Architecture::Lfm2 => "token_embd_norm.weight", // as it is in the real files
            _ => "output_norm.weight",
        };
        tensors.push(Tensor::new(output_norm, width, 1, scale));
        if self.architecture == Architecture::Llama {
            let factors = Content::Given(rope_factors(self.head_size, self.rope_base));
            tensors.push(Tensor::new("rope_freqs.weight", self.head_size / 2, 1, factors));
        }
        if !self.tied {
            tensors.push(Tensor::new("output.weight", width, vocab, random(width)));
        }
        tensors
    }

    /// The number of elements in all tensors.
    pub fn elements(&self) -> u64 {
        self.tensors().iter().map(Tensor::elements).sum()
    }

    /// Refuses an invalid shape, and one that `quant` cannot pack. `vocab_min` is the size of the
    /// vocabulary to extend.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub(super) fn check(&self, quant: &Quant, vocab_min: u32) -> Result<(), String> {
        let within = |flag: &str, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{flag} is {value}; it must be from {low} to {high}"))
        };
        within("--layers", self.layers, 1, LAYERS_MAX)?;
        within("--width", self.width, 1, WIDTH_MAX)?;
        within("--ffn", self.ffn, 1, FFN_MAX)?;
        within("--heads", self.heads, 1, HEADS_MAX)?;
        within("--kv-heads", self.kv_heads, 1, self.heads)?;
        within("--head-size", self.head_size, 2, HEAD_SIZE_MAX)?;
        within("--vocab", self.vocab, vocab_min, VOCAB_MAX)?;
        within("--context", self.context, 1, SEQUENCE_TOKENS_MAX as u32)?; // 2^20
        if !(self.rope_base.is_finite() && self.rope_base > 1.0) {
            return Err(format!("--rope-base is {}; it must be above 1", self.rope_base));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "{} heads cannot share {} key-value heads evenly; --heads must be a multiple of \
                 --kv-heads",
                self.heads, self.kv_heads
            ));
        }
        if !self.head_size.is_multiple_of(2) {
            return Err(format!(
                "--head-size is {}; it must be even, since numbers are rotated in pairs",
                self.head_size
            ));
        }
        if let Some(first) = self.attention.iter().min() {
            within("--layers", self.layers, first + 1, LAYERS_MAX)?; // with attention in one
            if self.architecture == Architecture::Lfm2 && self.query() != self.width {
                return Err(format!(
                    "--heads times --head-size is {}; in this architecture it must be --width, {}",
                    self.query(),
                    self.width
                ));
            }
        }
        self.check_blocks(quant)
    }

    /// If a row's length is not a multiple of the block, llama.cpp silently chooses another type,
    /// and the file's name would be wrong.
    fn check_blocks(&self, quant: &Quant) -> Result<(), String> {
        let rows = [
            ("--width", self.width, quant.embedding_block),
            ("--heads times --head-size", self.query(), quant.block),
            ("--ffn", self.ffn, quant.block),
            // Also the input of all matrices but two.
            ("--width", self.width, quant.block),
        ];
        for (flag, length, block) in rows {
            if !length.is_multiple_of(block) {
                return Err(format!(
                    "{flag} is {length}, and {} packs numbers in blocks of {block}: it must be \
                     a multiple of {block}",
                    quant.name
                ));
            }
        }
        Ok(())
    }
}

/// The divisors of the rotary embedding's frequencies in Llama 3.1 and later, [head_size / 2]. Long
/// waves are stretched 32-fold, short ones are unchanged, those between are blended (`rope_scaling`
/// in the `config.json` of Llama 3.2; the formula is Hugging Face's `_compute_llama3_parameters`).
fn rope_factors(head_size: u32, base: f32) -> Vec<f32> {
    const FACTOR: f64 = 32.0;
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    const OLD_CONTEXT: f64 = 8192.0;
    let factor = |pair: u32| {
        let wave = f64::from(base).powf(f64::from(2 * pair) / f64::from(head_size))
            * std::f64::consts::TAU;
        let smooth = ((OLD_CONTEXT / wave - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - smooth) / FACTOR + smooth)) as f32
    };
    (0..head_size / 2).map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(name: &str) -> (usize, u64) {
        let shape = Shape::named(name).unwrap();
        (shape.tensors().len(), shape.elements())
    }

    /// The counts of the model cards and the official files.
    #[test]
    fn known_shapes_have_the_parameters_of_the_real_models() {
        assert_eq!(parameters("qwen3-0.6b"), (310, 596_049_920));
        assert_eq!(parameters("qwen3-1.7b"), (310, 1_720_574_976));
        assert_eq!(parameters("qwen3-4b"), (398, 4_022_468_096));
        assert_eq!(parameters("qwen3-8b"), (399, 8_190_735_360));
        assert_eq!(parameters("llama-3.2-1b"), (147, 1_235_814_400 + 32));
        assert_eq!(parameters("llama-3.2-3b"), (255, 3_212_749_824 + 64));
        assert_eq!(parameters("lfm2-1.2b"), (148, 1_170_340_608));
        assert_eq!(parameters("qwen3.5-0.8b"), (320, 752_393_024));
    }

    #[test]
    fn rope_factors_run_from_1_to_32() {
        let factors = rope_factors(64, 5e5);
        assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 32.0));
        assert!(factors.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_changed_shape_says_so() {
        let shape = Shape::named("qwen3-0.6b").unwrap().clone();
        assert_eq!(shape.title(), "synthetic qwen3-0.6b");
        assert_eq!(Shape { layers: 2, ..shape }.title(), "synthetic qwen3-0.6b, modified");
    }
}
