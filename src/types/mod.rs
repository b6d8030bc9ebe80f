//! Types that every lane uses: ids, the sampling parameters of a sequence, and the facts of a
//! model.
//!
//! Plain data. Nothing here reads a clock or does I/O.

pub mod chain;
pub mod defaults;
pub mod digits;
mod file_id;
mod ids;
mod io;
pub mod printable;
pub mod reasoning;
mod threads;

use std::time::Duration;

pub use file_id::FileId;
pub use ids::{CheckpointId, PageId, SlotId};
pub use io::{Io, IoChoice};
pub use threads::{Calibration, Threads, TimedStep};

/// A token of the vocabulary, `0..n_vocab`. Signed because llama.cpp's is.
pub type TokenId = i32;

/// The part of the prefix cache that a request may use. A sequence starts only with tokens that a
/// sequence of an equal scope left in the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheScope {
    /// The API key, or the first one for all if keys share the cache.
    pub key: KeyId,
    /// A hash of the request's `cache_salt`; 0 without one.
    pub salt: u64,
    /// A hash of the key's name or secret, which stays the same after a restart; 0 if keys share the
    /// cache, or if there are none.
    pub tenant: u128,
}

impl CacheScope {
    /// The name of the empty text in this scope. `seed` makes the names of different servers differ.
    pub fn root(&self, seed: &[u8; 32]) -> FileId {
        FileId::root(seed, self.tenant, self.salt)
    }
}

/// What a client does with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotAction {
    /// Save its text in a file.
    Save,
    /// Bring the text of a file back.
    Restore,
    /// Forget its text.
    Erase,
}

/// A mark that is inserted into a client's text where it spells a control token, so that it is not
/// tokenised as one. It is a Unicode noncharacter, which no real text has. Chat templates see it.
/// It is removed before a text is tokenised.
pub const GUARD: char = '\u{FDD0}';

/// The API key of a request: a tenant. Keys that had the same place one after another are not
/// equal. Without keys, it is always the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyId {
    /// Its place, which is its share of the server: below [`KEYS_MAX`](crate::limits::KEYS_MAX).
    pub place: u16,
    /// The number of keys that had this place before.
    pub generation: u32,
}

impl KeyId {
    /// The first key at a place.
    pub const fn at(place: u16) -> Self {
        Self { place, generation: 0 }
    }

    /// The place as an index into tables of shares.
    pub fn index(self) -> usize {
        usize::from(self.place)
    }
}

/// The number of times that a slot was given to an owner. A message for an earlier owner has an
/// older generation, and is dropped.
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
    /// The generation of this holder.
    pub generation: Generation,
}

/// The id of a live sequence. The id of an ended one never matches again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId {
    /// The sequence's index in tables of `limits::SEQUENCES_MAX` entries. No other live sequence
    /// has it.
    pub index: u32,
    /// The number of sequences that had this index before.
    pub serial: u32,
}

impl SequenceId {
    /// The sequence as an index into tables.
    pub fn index(self) -> usize {
        self.index as usize // below SEQUENCES_MAX
    }
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

/// Limits on a text's lines, which end it like stop strings do. The default sets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineLimits {
    /// Spaces and tabs that each line but the first must begin with. The text ends at a line with
    /// fewer, also at an empty one.
    pub indent: u32,
    /// After this time from the first token, the text ends with the next new line.
    pub time: Option<Duration>,
}

/// The use of a row's logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// They are not computed.
    #[default]
    None,
    /// Sample the next token from them.
    Sample,
    /// Compute the log-probability of this token, which follows in the prompt.
    Score(TokenId),
}

/// The limits on guesses of a text in one step (speculative decoding).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guessing {
    /// The most guesses of a step; 0 guesses nothing. At most
    /// [`GUESSES_MAX`](crate::limits::GUESSES_MAX).
    pub most: u8,
    /// The fewest guesses of a step; if there are fewer, none is used.
    pub least: u8,
    /// The least probability of a draft model's guess.
    pub p_min: f32,
}

/// Why a text cannot follow its constraint any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It needs more states, items or time than a text may use.
    TooMuch,
    /// The constraint requires text that no token of the vocabulary spells.
    NoToken,
    /// A token that the mask allowed was rejected, or llguidance panicked: a bug of the server.
    Fault,
}

/// The common options of sampling.
///
/// The chain runs in llama.cpp's default order: penalties, top-k, top-p, min-p, temperature, draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw. 0 is greedy: the largest logit wins.
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
    /// The seed. The draw for position `p` depends on the seed and `p` alone.
    pub seed: u64,
    /// Never choose an end-of-generation token.
    pub ignore_eos: bool,
    /// Presence and frequency penalties apply to the window of the repetition penalty, as in
    /// llama.cpp, instead of to all generated tokens.
    pub penalise_window: bool,
}

impl Default for Sampling {
    /// OpenAI's defaults, which leave the model's distribution unchanged.
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
    /// Greedy sampling: the largest logit always wins.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Sets the fields that have a value.
    pub fn set(&mut self, defaults: defaults::SamplingDefaults) {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut self.temperature, defaults.temperature);
        set(&mut self.top_k, defaults.top_k);
        set(&mut self.top_p, defaults.top_p);
        set(&mut self.min_p, defaults.min_p);
        set(&mut self.repeat_penalty, defaults.repeat_penalty);
        set(&mut self.repeat_last_n, defaults.repeat_last_n);
        set(&mut self.presence_penalty, defaults.presence_penalty);
        set(&mut self.frequency_penalty, defaults.frequency_penalty);
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
    /// True for types that store each number by itself, not in blocks.
    pub fn is_plain(self) -> bool {
        matches!(self, CacheType::F32 | CacheType::F16)
    }

    /// Bits of one number, with its share of the block's scale.
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

/// Flash attention: computes attention block by block, without the whole matrix of scores (Dao et
/// al., 2022).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlashAttention {
    /// On, if the model allows it.
    #[default]
    Auto,
    /// Always.
    On,
    /// On, with llama.cpp's kernel, to compare it with corelane's.
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

/// How the vectors of a text's tokens are pooled into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Not at all: each token has its vector.
    None,
    /// Their mean.
    Mean,
    /// The vector of the first token, as in BERT.
    Cls,
    /// The vector of the last token, which has seen all others.
    Last,
    /// The model's ranking head turns the text into a score.
    Rank,
}

impl std::str::FromStr for Pooling {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "none" => Ok(Pooling::None),
            "mean" => Ok(Pooling::Mean),
            "cls" => Ok(Pooling::Cls),
            "last" => Ok(Pooling::Last),
            "rank" => Ok(Pooling::Rank),
            _ => Err("it must be none, mean, cls, last or rank".into()),
        }
    }
}

/// The sources of guesses (speculative decoding).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// From the text, and from the draft model if there is one.
    #[default]
    Auto,
    /// No guesses.
    Off,
    /// From the text itself.
    Lookup,
    /// From the draft model.
    Draft,
}

impl Speculation {
    /// Whether guesses come from the text itself.
    pub fn looks_up(self) -> bool {
        matches!(self, Self::Auto | Self::Lookup)
    }

    /// Whether they come from a draft model, if there is one.
    pub fn drafts(self) -> bool {
        matches!(self, Self::Auto | Self::Draft)
    }
}

impl std::fmt::Display for Speculation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Lookup => "lookup",
            Self::Draft => "draft",
        })
    }
}

impl std::str::FromStr for Speculation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Speculation::Auto),
            "off" => Ok(Speculation::Off),
            "lookup" => Ok(Speculation::Lookup),
            "draft" => Ok(Speculation::Draft),
            _ => Err("it must be auto, off, lookup or draft".into()),
        }
    }
}

/// The layout of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// All sequences share one cache. Otherwise each has its own.
    pub unified: bool,
    /// The type of the keys.
    pub keys: CacheType,
    /// The type of the values.
    pub values: CacheType,
    /// The kernel that reads it.
    pub flash_attention: FlashAttention,
    /// Layers with a sliding window keep the cells of all tokens. Otherwise they keep those of the
    /// window, if there is one cache for all.
    pub swa_full: bool,
}

impl Default for CacheLayout {
    fn default() -> Self {
        let (keys, values) = (CacheType::F16, CacheType::F16);
        let flash_attention = FlashAttention::Auto;
        Self { unified: true, keys, values, flash_attention, swa_full: false }
    }
}

impl CacheLayout {
    /// The size relative to the same cache in f16.
    pub fn relative_size(&self) -> f64 {
        (self.keys.bits() + self.values.bits()) / (2.0 * CacheType::F16.bits())
    }
}

/// Facts about a model, for users.
#[derive(Clone, Debug, Default)]
pub struct ModelInfo {
    /// The GGUF's `general.name`, or the file's name.
    pub name: String,
    /// Its architecture, as GGUF names it: `qwen3`.
    pub architecture: String,
    /// The format of most of its weights: `Q4_K_M`.
    pub quantization: String,
    /// When the file was written, in seconds since 1970; 0 for the built-in model.
    pub modified: u64,
    /// Parameters.
    pub n_params: u64,
    /// Bytes of its tensors.
    pub size_bytes: u64,
    /// The kind of its vocabulary, by llama.cpp's number: 1 is SentencePiece, 2 BPE.
    pub vocab_type: u32,
    /// Tokens in its vocabulary.
    pub n_vocab: usize,
    /// Width of its hidden state.
    pub n_embd: usize,
    /// Numbers in a vector of an embedding.
    pub n_embd_out: usize,
    /// Heads of its attention.
    pub n_head: u32,
    /// The chat template in Jinja, if the model has one.
    pub chat_template: Option<String>,
    /// Tokens of context that the model was trained with.
    pub context_trained: u32,
    /// Bytes of KV cache for one token, in f16.
    pub kv_bytes_per_token: u64,
    /// The pooling of embeddings, if the model was made for them.
    pub pooling: Option<Pooling>,
    /// Whether the model has a ranking head.
    pub ranks: bool,
    /// The prompt of a pair to rank, with `{query}` and `{document}`, if the model has one.
    pub rank_template: Option<String>,
    /// The sampling that its makers advise (`general.sampling` in the file).
    pub sampling: defaults::SamplingDefaults,
    /// Whether tokens also attend to later ones. Such a model cannot generate text.
    pub sees_ahead: bool,
    /// The tokens of the sliding window that some layers have; 0 without one.
    pub window: u32,
    /// Whether some layers hold a recurrent state. Such a state cannot drop the last tokens of a
    /// sequence, nor start with a prefix of another sequence.
    pub is_recurrent: bool,
    /// The kernels for products with the weights.
    pub kernels: KernelsInfo,
}

/// The longest time between two tokens of a stream while prompts are computed
/// (`--itl-target-ms`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItlTarget {
    /// Twice the time of a step without prompts, and at least 60 ms
    /// ([`ITL_UNNOTICED`](crate::scheduler::tuning::ITL_UNNOTICED)).
    #[default]
    Chosen,
    /// This time.
    Within(Duration),
    /// No bound: a step takes as many prompt rows as it has.
    Unbounded,
}

/// The kernels for products with a model's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelsInfo {
    /// `llama`, or the instruction set of corelane's kernels.
    pub name: &'static str,
    /// The number of matrices that corelane's kernels multiply with. llama.cpp's kernels do the
    /// others.
    pub matrices: usize,
    /// Bytes of these matrices in memory.
    pub bytes: u64,
    /// Bytes by which the matrices are larger in memory than in the file.
    pub bytes_added: u64,
    /// The matrices that are left to llama.cpp's kernels: how many of each type.
    pub others: Vec<OtherMatrices>,
}

/// Matrices of one type that corelane's kernels do not multiply with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherMatrices {
    /// The type's name in a GGUF file.
    pub type_name: String,
    /// Their number.
    pub count: usize,
    /// Whether there is a kernel for the type. The matrices then have no whole blocks, are not used
    /// for products, or in a way that the kernel does not know.
    pub has_kernel: bool,
}

impl Default for KernelsInfo {
    fn default() -> Self {
        Self { name: "llama", matrices: 0, bytes: 0, bytes_added: 0, others: Vec::new() }
    }
}
