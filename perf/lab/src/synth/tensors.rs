//! The tensors of a model, which follow from its dimensions.

use super::shape::{Architecture, Shape};
use super::weights::{Content, SUM_DEVIATION};
use corelane::random::mix;

/// One tensor of a model.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    /// Numbers in a row, the number of rows, and that of experts.
    pub dims: [u64; 3],
    pub content: Content,
}

impl Tensor {
    fn new(name: impl Into<String>, columns: u32, rows: u32, content: Content) -> Self {
        Self { name: name.into(), dims: [columns.into(), rows.into(), 1], content }
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// The tensors of a block.
struct Block<'a> {
    layer: u32,
    tensors: &'a mut Vec<Tensor>,
}

impl Block<'_> {
    fn add(&mut self, name: &str, columns: u32, rows: u32, content: Content) {
        let name = format!("blk.{}.{name}", self.layer);
        self.tensors.push(Tensor::new(name, columns, rows, content));
    }

    fn matrix(&mut self, name: &str, columns: u32, rows: u32) {
        self.add(name, columns, rows, random(1.0, columns));
    }

    /// A matrix for each expert.
    fn experts(&mut self, name: &str, columns: u32, rows: u32, experts: u32) {
        self.matrix(name, columns, rows);
        self.tensors.last_mut().expect("the matrix").dims[2] = experts.into();
    }

    fn vector(&mut self, name: &str, numbers: u32, value: f32) {
        self.add(name, numbers, 1, Content::Constant(value));
    }

    /// Vectors of ones.
    fn norms(&mut self, names: &[&str], numbers: u32) {
        names.iter().for_each(|name| self.vector(name, numbers, 1.0));
    }

    /// What is added to the products of a matrix with `rows` rows.
    fn bias(&mut self, name: &str, rows: u32, experts: u32) {
        let number = self.tensors.len() as u64; // tells it from the other biases
        let seed = BIAS_SEED + number;
        self.add(name, rows, experts, Content::Given(normal(seed, rows * experts, BIAS_DEVIATION)));
    }
}

/// Numbers such that a product with `inputs` numbers of size 1 has the size `scale`.
fn random(scale: f32, inputs: u32) -> Content {
    Content::Random { deviation: scale / f64::from(inputs).sqrt() as f32 }
}

/// Standard deviation of the logits. Nucleus sampling then keeps some dozens of tokens, as with a
/// trained model. With 1 it would keep nearly all, and the cost of sampling would be wrong.
const LOGIT_DEVIATION: f32 = 5.0;

/// Standard deviation of the products of a query with its keys. Heads then attend to a few tokens
/// each, like trained heads. With 1 they would attend to all tokens equally, every position would
/// see the same, and the model would repeat one word.
const ATTENTION_DEVIATION: f32 = 4.0;

/// Standard deviation of the numbers by which a token chooses its experts.
const ROUTER_DEVIATION: f32 = 1.0;

/// Standard deviation of biases, and what tells their numbers from those of the routers.
const BIAS_DEVIATION: f32 = 0.02;
const BIAS_SEED: u64 = 1 << 32;

/// The key and value heads of [`Architecture::Gemma4`]'s blocks without a window, and the numbers in
/// all heads there (`config.json` of Gemma 4 26B-A4B).
pub(super) const GLOBAL_KV_HEADS: u32 = 2;
pub(super) const GLOBAL_HEAD_SIZE: u32 = 512;

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
    /// The tensors. Each matrix is scaled by the root of its inputs, so that its output has a size
    /// of about 1. The residual stream grows with the root of the layers, to about 5. The layers'
    /// contribution then outweighs the token itself, which a tied output would otherwise repeat
    /// forever.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let Self { width, vocab, .. } = *self;
        let mut tensors = vec![Tensor::new("token_embd.weight", width, vocab, random(1.0, width))];
        for layer in 0..self.layers {
            let mut block = Block { layer, tensors: &mut tensors };
            block.norms(&["attn_norm.weight"], width);
            if self.attends(layer) {
                self.add_attention(&mut block);
            } else if self.architecture == Architecture::Qwen35 {
                self.add_delta_net(&mut block);
            } else {
                let taps = Content::Given(CONVOLUTION.repeat(width as usize));
                block.add("shortconv.conv.weight", CONVOLUTION.len() as u32, width, taps);
                block.matrix("shortconv.in_proj.weight", width, 3 * width);
                block.matrix("shortconv.out_proj.weight", width, width);
            }
            self.add_feed_forward(&mut block);
        }
        let scale = Content::Constant(LOGIT_DEVIATION);
        let output_norm = match self.architecture {
            Architecture::Lfm2 => "token_embd_norm.weight", // as it is in the real files
            _ => "output_norm.weight",
        };
        tensors.push(Tensor::new(output_norm, width, 1, scale));
        let rotated = match self.architecture {
            Architecture::Llama => rope_factors(self.head_size, self.rope_base),
            Architecture::Gemma4 if !(0..self.layers).all(|layer| self.has_window(layer)) => {
                quarter_rotated(GLOBAL_HEAD_SIZE)
            }
            _ => Vec::new(),
        };
        if !rotated.is_empty() {
            let pairs = rotated.len() as u32; // half a head
            let factors = Content::Given(rotated);
            tensors.push(Tensor::new("rope_freqs.weight", pairs, 1, factors));
        }
        if !self.tied {
            tensors.push(Tensor::new("output.weight", width, vocab, random(1.0, width)));
        }
        tensors
    }

    /// The number of elements in all tensors.
    pub fn elements(&self) -> u64 {
        self.tensors().iter().map(Tensor::elements).sum()
    }

    /// The key and value heads of a block, and the numbers in its heads.
    pub(super) fn heads_of(&self, layer: u32) -> [u32; 2] {
        if self.architecture == Architecture::Gemma4 && !self.has_window(layer) {
            return [GLOBAL_KV_HEADS, GLOBAL_HEAD_SIZE];
        }
        [self.kv_heads, self.head_size]
    }

    fn add_attention(&self, block: &mut Block) {
        let Self { width, heads, .. } = *self;
        let [kv_heads, size] = self.heads_of(block.layer);
        let (query, key) = (heads * size, kv_heads * size);
        // A norm on the queries undoes the scale of their matrix.
        let has_norm = !matches!(self.architecture, Architecture::Llama | Architecture::GptOss);
        let scale = if has_norm { 1.0 } else { ATTENTION_DEVIATION };
        let gated = if self.architecture == Architecture::Qwen35 { 2 } else { 1 };
        block.add("attn_q.weight", width, gated * query, random(scale, width));
        block.matrix("attn_k.weight", width, key);
        if self.architecture != Architecture::Gemma4 || self.has_window(block.layer) {
            block.matrix("attn_v.weight", width, key);
        }
        block.matrix("attn_output.weight", query, width);
        if has_norm {
            block.vector("attn_q_norm.weight", size, ATTENTION_DEVIATION);
            block.norms(&["attn_k_norm.weight"], size);
        }
        if self.architecture == Architecture::GptOss {
            for (of, rows) in [("q", query), ("k", key), ("v", key), ("output", width)] {
                block.bias(&format!("attn_{of}.bias"), rows, 1);
            }
            block.vector("attn_sinks.weight", heads, 0.0);
        }
    }

    fn add_delta_net(&self, block: &mut Block) {
        let [key_heads, heads, size] = self.delta;
        let (width, value) = (self.width, heads * size);
        let all = 2 * key_heads * size + value;
        let taps = Content::Given(DELTA_CONVOLUTION.repeat(all as usize));
        block.matrix("attn_qkv.weight", width, all);
        block.matrix("attn_gate.weight", width, value);
        block.add("ssm_conv1d.weight", DELTA_CONVOLUTION.len() as u32, all, taps);
        block.vector("ssm_dt.bias", heads, 0.0);
        block.vector("ssm_a", heads, FORGETS);
        block.matrix("ssm_beta.weight", width, heads);
        block.matrix("ssm_alpha.weight", width, heads);
        block.norms(&["ssm_norm.weight"], size);
        block.matrix("ssm_out.weight", value, width);
    }

    fn add_feed_forward(&self, block: &mut Block) {
        let Self { width, ffn, architecture, .. } = *self;
        let [experts, ..] = self.experts;
        let has_experts = experts > 0 && block.layer >= self.dense;
        let norm = match architecture {
            Architecture::Qwen35 | Architecture::GptOss => "post_attention_norm.weight",
            _ => "ffn_norm.weight",
        };
        block.norms(&[norm], width);
        // One of all tokens, beside the experts.
        let shared = match architecture {
            Architecture::Qwen35 if has_experts => Some("_shexp"),
            Architecture::Gemma4 => Some(""),
            _ => (!has_experts).then_some(""),
        };
        if let Some(suffix) = shared {
            block.matrix(&format!("ffn_gate{suffix}.weight"), width, ffn);
            block.matrix(&format!("ffn_up{suffix}.weight"), width, ffn);
            block.matrix(&format!("ffn_down{suffix}.weight"), ffn, width);
        }
        if matches!(architecture, Architecture::Gemma3 | Architecture::Gemma4) {
            block.norms(&["post_attention_norm.weight", "post_ffw_norm.weight"], width);
        }
        if has_experts {
            self.add_experts(block);
        }
    }

    fn add_experts(&self, block: &mut Block) {
        let Self { width, architecture, experts: [experts, _, ffn], .. } = *self;
        let scale = ROUTER_DEVIATION / f64::from(width).sqrt() as f32;
        let router = normal(u64::from(block.layer), width * experts, scale);
        block.add("ffn_gate_inp.weight", width, experts, Content::Given(router));
        if architecture == Architecture::Gemma4 {
            block.experts("ffn_gate_up_exps.weight", width, 2 * ffn, experts);
        } else {
            block.experts("ffn_gate_exps.weight", width, ffn, experts);
            block.experts("ffn_up_exps.weight", width, ffn, experts);
        }
        block.experts("ffn_down_exps.weight", ffn, width, experts);
        match architecture {
            Architecture::Qwen35 => block.vector("ffn_gate_inp_shexp.weight", width, 0.0),
            Architecture::Lfm2 => block.vector("exp_probs_b.bias", experts, 0.0),
            Architecture::GptOss => {
                block.bias("ffn_gate_inp.bias", experts, 1);
                block.bias("ffn_gate_exps.bias", ffn, experts);
                block.bias("ffn_up_exps.bias", ffn, experts);
                block.bias("ffn_down_exps.bias", width, experts);
            }
            Architecture::Gemma4 => {
                // The router divides by the root of the width.
                block.vector("ffn_gate_inp.scale", width, f64::from(width).sqrt() as f32);
                let norms =
                    ["pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"];
                block.norms(&norms, width);
            }
            _ => (),
        }
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

/// The divisors of a rotary embedding that turns a quarter of the pairs (Gemma 4's proportional one).
fn quarter_rotated(head_size: u32) -> Vec<f32> {
    let pairs = head_size / 2;
    (0..pairs).map(|pair| if pair < pairs / 4 { 1.0 } else { 1e30 }).collect()
}

/// Floats around 0. `seed` tells tensors apart.
fn normal(seed: u64, count: u32, deviation: f32) -> Vec<f32> {
    let number = |index: u64| {
        let hash = mix(mix(seed).wrapping_add(index));
        let sum: u32 = hash.to_le_bytes()[..4].iter().map(|byte| u32::from(*byte)).sum();
        (sum as f32 - 510.0) * (deviation / SUM_DEVIATION)
    };
    (0..u64::from(count)).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rope_factors_run_from_1_to_32() {
        let factors = rope_factors(64, 5e5);
        assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 32.0));
        assert!(factors.windows(2).all(|pair| pair[0] <= pair[1]));
    }
}
