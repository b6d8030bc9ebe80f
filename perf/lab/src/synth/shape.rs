//! The dimensions of a model, and the known models by name.

use super::quant::Quant;
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
    /// The heads of keys and of values in a gated delta net, and the numbers in each, of
    /// [`Architecture::Qwen35`].
    pub delta: [u32; 3],
    /// Experts, how many of them a token chooses, and the numbers in the feed-forward layer of each;
    /// zeros in a model without experts.
    pub experts: [u32; 3],
    /// The first blocks that have no experts.
    pub dense: u32,
    /// The tokens of a sliding window, and the blocks of which the last one has none; zeros in a model
    /// without windows.
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
    /// As [`Architecture::Gemma3`], with experts beside the feed-forward layer. Blocks without a window
    /// have larger heads, fewer of them for keys, and keys that are also the values.
    Gemma4,
    /// Experts; every second block has a sliding window. With biases, and a sink in each head.
    GptOss,
}

/// The known shapes. Sources: the `config.json` of each model.
pub const SHAPES: &[Shape] = &[
    qwen3("qwen3-0.6b", [28, 1024, 3072, 16], true),
    qwen3("qwen3-1.7b", [28, 2048, 6144, 16], true),
    qwen3("qwen3-4b", [36, 2560, 9728, 32], true),
    qwen3("qwen3-8b", [36, 4096, 12288, 32], false),
    Shape { kv_heads: 4, ..experts("qwen3-30b-a3b", [48, 2048, 6144, 32], [128, 8, 768]) },
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
        delta: [16, 16, 128],
        ..qwen35("qwen3.5-0.8b", [24, 1024, 3584, 8], &[3, 7, 11, 15, 19, 23])
    },
    Shape {
        architecture: Architecture::Lfm2,
        attention: &[2, 6, 10, 14, 18, 21],
        head_size: 64,
        vocab: 65_536,
        context: 128_000,
        rms_epsilon: 1e-5,
        tied: true,
        dense: 2,
        ..experts("lfm2-8b-a1b", [24, 2048, 7168, 32], [32, 4, 1792])
    },
    Shape {
        kv_heads: 2,
        head_size: 256,
        vocab: 248_320,
        context: 262_144,
        delta: [16, 32, 128],
        experts: [256, 8, 512],
        tied: false,
        ..qwen35("qwen3.5-35b-a3b", [40, 2048, 512, 16], &[3, 7, 11, 15, 19, 23, 27, 31, 35, 39])
    },
    Shape {
        architecture: Architecture::GptOss,
        head_size: 64,
        vocab: 201_088,
        context: 131_072,
        rope_base: 1.5e5,
        rms_epsilon: 1e-5,
        window: [128, 2],
        ..experts("gpt-oss-20b", [24, 2880, 2880, 64], [32, 4, 2880])
    },
    Shape {
        architecture: Architecture::Gemma4,
        context: 262_144,
        experts: [128, 8, 704],
        ..gemma3("gemma-4-26b-a4b", [30, 2816, 2112, 16], 8, 1024)
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
        kv_heads: 2,
        head_size: 64,
        vocab: 8192,
        context: 2048,
        ..experts("tiny-experts", [2, 256, 512, 4], [8, 2, 768])
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
        delta: [2, 2, 128],
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

const fn experts(name: &'static str, dimensions: [u32; 4], experts: [u32; 3]) -> Shape {
    Shape { experts, ..qwen3(name, dimensions, false) }
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
        delta: [0, 0, 0],
        window: [0, 0],
        experts: [0, 0, 0],
        dense: 0,
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
    pub(super) fn query(&self) -> u32 {
        self.heads * self.head_size // both bounded in `check`
    }

    /// Whether a block has attention.
    pub(super) fn attends(&self, layer: u32) -> bool {
        self.attention.is_empty() || self.attention.contains(&layer)
    }

    /// Whether a block has a sliding window.
    pub(super) fn has_window(&self, layer: u32) -> bool {
        let [tokens, pattern] = self.window;
        tokens > 0 && !(layer + 1).is_multiple_of(pattern)
    }

    /// The key and value heads of each block, 0 in those without attention.
    pub(super) fn kv_heads_of_blocks(&self) -> Vec<i32> {
        let heads = |layer| if self.attends(layer) { self.heads_of(layer)[0] } else { 0 };
        (0..self.layers).map(|layer| heads(layer) as i32).collect() // at most HEADS_MAX
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
        // The real files of Gemma 4 have other types where blocks do not fit, too.
        let may_differ = self.architecture == Architecture::Gemma4;
        for (flag, length, block) in rows {
            if !length.is_multiple_of(block) && !may_differ {
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
        assert_eq!(parameters("qwen3-30b-a3b"), (579, 30_532_122_624));
        assert_eq!(parameters("gpt-oss-20b"), (459, 20_914_757_184));
        assert_eq!(parameters("qwen3.5-35b-a3b"), (733, 34_660_610_688));
        // The routers' biases are not counted on the card.
        assert_eq!(parameters("lfm2-8b-a1b"), (256, 8_339_929_856 + 22 * 32));
        // The real file has 60 more, which scale a layer and its experts.
        assert_eq!(parameters("gemma-4-26b-a4b"), (658 - 60, 25_233_138_176));
        assert_eq!(parameters("llama-3.2-1b"), (147, 1_235_814_400 + 32));
        assert_eq!(parameters("llama-3.2-3b"), (255, 3_212_749_824 + 64));
        assert_eq!(parameters("lfm2-1.2b"), (148, 1_170_340_608));
        assert_eq!(parameters("qwen3.5-0.8b"), (320, 752_393_024));
    }

    #[test]
    fn a_changed_shape_says_so() {
        let shape = Shape::named("qwen3-0.6b").unwrap().clone();
        assert_eq!(shape.title(), "synthetic qwen3-0.6b");
        assert_eq!(Shape { layers: 2, ..shape }.title(), "synthetic qwen3-0.6b, modified");
    }
}
