//! The order of llama.cpp's samplers, and the parameters of the less common ones.
//!
//! Plain data: made once for a request, shared by its sequences, read by the decode lane.

use std::sync::Arc;

use super::{Sampling, TokenId};
use crate::limits::SAMPLERS_MAX;

/// llama.cpp's samplers in any order. Parameters that [`Sampling`] has are not repeated here.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The order. A sampler that occurs twice is applied twice.
    pub samplers: heapless::Vec<SamplerKind, SAMPLERS_MAX>,
    /// The least number of tokens that `top_p`, `min_p`, `typical_p` and XTC keep.
    pub min_keep: u32,
    /// Keep the tokens whose information is nearest to the entropy, until the sum of their
    /// probabilities passes this. 1 keeps all.
    pub typical_p: f32,
    /// Keep logits at most this many standard deviations below the largest. 0 and less keep all.
    pub top_n_sigma: f32,
    /// The probability that XTC is applied. 0 is never.
    pub xtc_probability: f32,
    /// XTC drops all tokens of at least this probability except the least probable of them. Above
    /// 0.5 there can be no two such tokens, so XTC is off.
    pub xtc_threshold: f32,
    /// The temperature moves with the entropy by up to this much up and down. 0 is off.
    pub dynatemp_range: f32,
    /// The exponent of the normalised entropy (0 to 1).
    pub dynatemp_exponent: f32,
    /// Don't Repeat Yourself.
    pub dry: DryOptions,
    /// Samples the token after the other samplers.
    pub mirostat: Option<Mirostat>,
    /// The texts of all tokens, if the infill sampler is one of the samplers. [`crate::prepare`]
    /// fills them in.
    pub spellings: Option<Arc<Spellings>>,
}

impl Default for Chain {
    /// llama.cpp's defaults, which change nothing.
    fn default() -> Self {
        Self {
            samplers: SamplerKind::ORDER.into_iter().collect(),
            min_keep: 0,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            dry: DryOptions::default(),
            mirostat: None,
            spellings: None,
        }
    }
}

impl Chain {
    /// False if the sampler would change nothing.
    pub fn is_on(&self, kind: SamplerKind, sampling: &Sampling) -> bool {
        match kind {
            SamplerKind::Penalties => {
                let repeat = sampling.repeat_penalty != 1.0 && sampling.repeat_last_n > 0;
                repeat || sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0
            }
            SamplerKind::Dry => self.dry.multiplier != 0.0 && self.dry.last_n > 0,
            SamplerKind::TopNSigma => self.top_n_sigma > 0.0,
            SamplerKind::TopK => sampling.top_k > 0,
            SamplerKind::Typical => self.typical_p < 1.0,
            SamplerKind::TopP => sampling.top_p < 1.0,
            SamplerKind::MinP => sampling.min_p > 0.0,
            SamplerKind::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            SamplerKind::Temperature => sampling.temperature != 1.0 || self.dynatemp_range > 0.0,
            SamplerKind::Infill => true,
        }
    }
}

/// A sampler of a [`Chain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// `repeat_penalty`, `presence_penalty`, `frequency_penalty`.
    Penalties,
    /// Don't Repeat Yourself.
    Dry,
    /// `top_n_sigma`.
    TopNSigma,
    /// `top_k`.
    TopK,
    /// `typical_p`.
    Typical,
    /// `top_p`.
    TopP,
    /// `min_p`.
    MinP,
    /// Exclude top choices.
    Xtc,
    /// `temperature`, dynamic or not.
    Temperature,
    /// Ends an infilled text where the model is not sure how it goes on.
    Infill,
}

impl SamplerKind {
    /// llama.cpp's order. The infill sampler is in none by default.
    pub const ORDER: [SamplerKind; 9] = [
        SamplerKind::Penalties,
        SamplerKind::Dry,
        SamplerKind::TopNSigma,
        SamplerKind::TopK,
        SamplerKind::Typical,
        SamplerKind::TopP,
        SamplerKind::MinP,
        SamplerKind::Xtc,
        SamplerKind::Temperature,
    ];

    /// True for samplers that depend on the text so far, not on other logits.
    pub fn is_penalty(self) -> bool {
        matches!(self, SamplerKind::Penalties | SamplerKind::Dry)
    }
}

/// Mirostat (Basu et al., 2021): samples a text with a given mean surprise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// 1 or 2.
    pub version: u8,
    /// The surprise per token, in bits.
    pub tau: f32,
    /// The learning rate.
    pub eta: f32,
}

/// DRY ("Don't Repeat Yourself"): a token that would continue a repetition of `n` tokens loses
/// `multiplier * base^(n - allowed_length)` of its logit.
#[derive(Clone, Debug, PartialEq)]
pub struct DryOptions {
    /// The multiplier. 0 is off.
    pub multiplier: f32,
    /// The base, at least 1.
    pub base: f32,
    /// Repetitions of fewer tokens cost nothing.
    pub allowed_length: u32,
    /// The number of last tokens in which repetitions count.
    pub last_n: u32,
    /// No repetition reaches over a breaker.
    pub breakers: Arc<Breakers>,
}

/// llama.cpp's default sequence breakers.
pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

impl Default for DryOptions {
    fn default() -> Self {
        let breakers = Arc::default();
        Self { multiplier: 0.0, base: 1.75, allowed_length: 2, last_n: 64, breakers }
    }
}

/// The bytes of every token.
#[derive(Clone, Default, PartialEq)]
pub struct Spellings {
    bytes: Vec<u8>,    // every token's bytes, one after another
    offsets: Vec<u32>, // [n_tokens] into `bytes`: the end of each token
}

impl Spellings {
    /// Adds the next token.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.offsets.push(u32::try_from(self.bytes.len()).expect("a vocabulary is under 4 GiB"));
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The bytes of a token. Empty for ids outside the vocabulary.
    pub fn of(&self, token: TokenId) -> &[u8] {
        let Some(token) = usize::try_from(token).ok().filter(|token| *token < self.len()) else {
            return &[];
        };
        let start = if token == 0 { 0 } else { self.offsets[token - 1] as usize };
        &self.bytes[start..self.offsets[token] as usize]
    }

    /// For each occurrence of a byte in a token: the token, and its bytes from there to its end.
    pub fn ends_from(&self, byte: u8) -> impl Iterator<Item = (TokenId, &[u8])> {
        let mut token = 0;
        memchr::memchr_iter(byte, &self.bytes).map(move |at| {
            while self.offsets[token] as usize <= at {
                token += 1;
            }
            // A vocabulary's size fits into a TokenId.
            (token as TokenId, &self.bytes[at..self.offsets[token] as usize])
        })
    }
}

impl std::fmt::Debug for Spellings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Spellings of {} tokens", self.len())
    }
}

/// Sequences of tokens, each with a head and a tail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakers {
    heads: Box<[(TokenId, u16)]>, // each with its tail; sorted
    tails: Box<[Box<[TokenId]>]>,
}

impl Breakers {
    /// Makes sequences from heads, each with the index of its tail in `tails`. Heads may share a
    /// tail. An empty tail makes a sequence of one token.
    pub fn new(mut heads: Vec<(TokenId, u16)>, tails: Vec<Box<[TokenId]>>) -> Self {
        assert!(heads.iter().all(|(_, tail)| usize::from(*tail) < tails.len()));
        heads.sort_unstable();
        heads.dedup();
        Self { heads: heads.into(), tails: tails.into() }
    }

    /// The bytes of its lists.
    pub fn bytes(&self) -> usize {
        let tails: usize = self.tails.iter().map(|tail| size_of_val(&**tail)).sum();
        size_of_val(&*self.heads) + size_of_val(&*self.tails) + tails
    }

    /// The tails of sequences that begin with `token`.
    pub fn tails(&self, token: TokenId) -> impl Iterator<Item = &[TokenId]> {
        let first = self.heads.partition_point(|(head, _)| *head < token);
        let heads = self.heads[first..].iter().take_while(move |(head, _)| *head == token);
        heads.map(move |(_, tail)| &*self.tails[usize::from(*tail)])
    }

    /// True when `token` is a sequence by itself.
    pub fn is_sequence(&self, token: TokenId) -> bool {
        self.tails(token).any(<[TokenId]>::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakers_are_found_by_their_first_token() {
        let tails: Vec<Box<[TokenId]>> = vec![Box::default(), Box::from([7, 8])];
        let breakers = Breakers::new(vec![(5, 1), (3, 0), (5, 0), (9, 1), (5, 1)], tails);
        let tails = |token| breakers.tails(token).map(<[TokenId]>::to_vec).collect::<Vec<_>>();
        assert_eq!(tails(5), [vec![], vec![7, 8]]);
        assert_eq!(tails(9), [vec![7, 8]]);
        assert!(tails(4).is_empty() && tails(10).is_empty());
        assert!(breakers.is_sequence(3) && breakers.is_sequence(5));
        assert!(!breakers.is_sequence(9) && !breakers.is_sequence(4));
    }

    #[test]
    fn the_defaults_change_nothing() {
        let (chain, sampling) = (Chain::default(), Sampling::default());
        assert!(SamplerKind::ORDER.iter().all(|kind| !chain.is_on(*kind, &sampling)));
    }
}
