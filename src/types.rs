//! The words that every lane shares: ids that cannot be mixed up, and the
//! sampling parameters of one sequence, the facts of a model.
//!
//! Plain data. Nothing here reads a clock or does I/O.

pub mod chain;

/// A token of the vocabulary, `0..n_vocab`. Signed because llama.cpp's is.
pub type TokenId = i32;

/// The sequence id that a running sequence holds in the KV cache, `0..parallel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SlotId(pub u16);

impl SlotId {
    /// The slot as an index into per-slot tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Whose request it is: the place of its API key in the configuration. Where
/// there are no keys, everybody is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyId(pub u16);

impl KeyId {
    /// The key as an index into per-key tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// How many times a slot has been handed out. A message for an earlier owner
/// carries an older generation, and is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u32);

impl Generation {
    /// The generation after this one.
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The holder of a slot at one point in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Owner {
    /// The slot held.
    pub slot: SlotId,
    /// Which of the slot's successive holders this is.
    pub generation: Generation,
}

/// A token's place in its sequence, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u32);

impl Position {
    /// The position after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The position as an index into a token history.
    pub fn index(self) -> usize {
        self.0 as usize // u32 always fits: this is a 64-bit program (asserted in limits.rs)
    }
}

/// How the next token of a sequence is chosen from its logits.
///
/// The chain runs in llama.cpp's default order: penalties, top-k, top-p,
/// min-p, temperature, draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw. 0 means greedy: the largest logit wins.
    pub temperature: f32,
    /// Keep the `top_k` largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of tokens whose probabilities reach this; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this probable relative to the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Divides (or, when negative, multiplies) the logits of tokens seen in
    /// the last `repeat_last_n` tokens, prompt included; 1 is off.
    pub repeat_penalty: f32,
    /// The window of `repeat_penalty`, in tokens.
    pub repeat_last_n: u32,
    /// Subtracted from the logit of each token generated before; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted once for each time the token was generated before; 0 is off.
    pub frequency_penalty: f32,
    /// The draw for the token at position `p` depends on this and `p` alone.
    pub seed: u64,
    /// Never choose an end-of-generation token.
    pub ignore_eos: bool,
    /// Presence and frequency penalties are on the tokens that the repetition penalty is
    /// on, as in llama.cpp, and not on all that were generated.
    pub penalise_window: bool,
}

impl Default for Sampling {
    /// OpenAI's defaults: the model's own distribution, untouched.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
            ignore_eos: false,
            penalise_window: false,
        }
    }
}

impl Sampling {
    /// The largest logit wins, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }
}

/// The type of the numbers in the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheType {
    /// 32 bits.
    F32,
    /// 16 bits.
    #[default]
    F16,
    /// 8 bits, in blocks of 32 with a 16-bit scale.
    Q8_0,
    /// 4 bits, in blocks of 32 with a 16-bit scale.
    Q4_0,
}

impl CacheType {
    /// One number for itself, and not a block of them.
    pub fn is_plain(self) -> bool {
        matches!(self, CacheType::F32 | CacheType::F16)
    }

    /// Bits that one number takes, its share of the block's scale included.
    pub fn bits(self) -> f64 {
        match self {
            CacheType::F32 => 32.0,
            CacheType::F16 => 16.0,
            CacheType::Q8_0 => 8.5,
            CacheType::Q4_0 => 4.5,
        }
    }
}

impl std::str::FromStr for CacheType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "f32" => Ok(CacheType::F32),
            "f16" => Ok(CacheType::F16),
            "q8_0" => Ok(CacheType::Q8_0),
            "q4_0" => Ok(CacheType::Q4_0),
            _ => Err("it must be f32, f16, q8_0 or q4_0".into()),
        }
    }
}

/// Whether attention is computed block by block, without the whole matrix of
/// scores (Dao et al., 2022).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlashAttention {
    /// Where the model allows it.
    #[default]
    Auto,
    /// Always.
    On,
    /// llama.cpp's, to compare it with ours.
    Llama,
    /// Never.
    Off,
}

impl std::str::FromStr for FlashAttention {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(FlashAttention::Auto),
            "on" => Ok(FlashAttention::On),
            "llama" => Ok(FlashAttention::Llama),
            "off" => Ok(FlashAttention::Off),
            _ => Err("it must be auto, on, llama or off".into()),
        }
    }
}

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token, which stands for all in BERT and its like.
    Cls,
    /// That of the last token, which has seen all others.
    Last,
}

impl std::str::FromStr for Pooling {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "mean" => Ok(Pooling::Mean),
            "cls" => Ok(Pooling::Cls),
            "last" => Ok(Pooling::Last),
            _ => Err("it must be mean, cls or last".into()),
        }
    }
}

/// How the KV cache is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// One cache for all sequences, and not one for each.
    pub unified: bool,
    /// The type of the keys.
    pub keys: CacheType,
    /// The type of the values.
    pub values: CacheType,
    /// How attention reads it.
    pub flash_attention: FlashAttention,
}

impl Default for CacheLayout {
    fn default() -> Self {
        let (keys, values) = (CacheType::F16, CacheType::F16);
        Self { unified: true, keys, values, flash_attention: FlashAttention::Auto }
    }
}

impl CacheLayout {
    /// Its size, beside that of the same cache in 16 bits.
    pub fn relative_size(&self) -> f64 {
        (self.keys.bits() + self.values.bits()) / (2.0 * CacheType::F16.bits())
    }
}

/// What a user sees of a model.
#[derive(Clone, Debug, Default)]
pub struct ModelInfo {
    /// The GGUF's `general.name`, or the file's name.
    pub name: String,
    /// Parameters.
    pub n_params: u64,
    /// Bytes of its tensors.
    pub size_bytes: u64,
    /// Tokens in its vocabulary.
    pub n_vocab: usize,
    /// Width of its hidden state.
    pub n_embd: usize,
    /// Heads of its attention.
    pub n_head: u32,
    /// How it is told of a conversation, in Jinja, if it is made for one.
    pub chat_template: Option<String>,
    /// Tokens of context it was trained for.
    pub context_trained: u32,
    /// Bytes of KV cache for one token, in f16.
    pub kv_bytes_per_token: u64,
    /// How it makes an embedding of a text, if it was made for that.
    pub pooling: Option<Pooling>,
    /// Its tokens see those behind them, too: it cannot generate text.
    pub sees_ahead: bool,
    /// What it holds of a sequence is a state, in some layers at least: it cannot
    /// forget the end of one, nor begin with a part of another.
    pub is_recurrent: bool,
    /// How the products with its weights are computed.
    pub kernels: KernelsInfo,
}

/// How the products with a model's weights are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelsInfo {
    /// `llama`, or the instruction set of our own kernels.
    pub name: &'static str,
    /// Matrices that our own kernels multiply with. The others are llama.cpp's.
    pub matrices: usize,
    /// Bytes of these matrices in memory.
    pub bytes: u64,
    /// Bytes by which they are larger there than in the file.
    pub bytes_added: u64,
}

impl Default for KernelsInfo {
    fn default() -> Self {
        Self { name: "llama", matrices: 0, bytes: 0, bytes_added: 0 }
    }
}
