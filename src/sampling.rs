//! Sampling with the less common options, beside [`Sampling`](crate::types::Sampling).
//!
//! Made once for a request, on the front lane or the prepare lane, and shared by its sequences.
//! The decode lane reads it.

use std::sync::Arc;

use crate::constraint::Compiled;
use crate::types::TokenId;
use crate::types::chain::Chain;
use crate::types::reasoning::ReasoningLimit;

/// The less common options of the sampler. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdvancedSampling {
    /// Numbers added to the logits of some tokens before anything else. Negative infinity forbids
    /// a token.
    pub logit_bias: Box<[(TokenId, f32)]>,
    /// The number of tokens that must be generated before an end-of-generation token may come.
    pub min_tokens: u32,
    /// Return the log-probability of each token and of this number of the most probable ones, at
    /// most `limits::TOP_LOGPROBS_MAX`.
    pub logprobs: Option<u8>,
    /// The schema or grammar that the text must keep to.
    pub constraint: Option<Arc<Compiled>>,
    /// The most tokens of reasoning.
    pub reasoning: Option<ReasoningLimit>,
    /// The chain of samplers, where it is not the default one.
    pub chain: Option<Chain>,
}

impl AdvancedSampling {
    /// The bytes of its lists.
    pub fn bytes(&self) -> usize {
        let chain = self.chain.as_ref().map_or(0, |chain| chain.dry.breakers.bytes());
        let reasoning = self.reasoning.as_ref().map_or(0, ReasoningLimit::bytes);
        size_of_val(&*self.logit_bias) + chain + reasoning
    }

    /// Mirostat's `mu` before the first token: twice the surprise aimed at.
    pub fn first_mu(&self) -> f32 {
        let mirostat = self.chain.as_ref().and_then(|chain| chain.mirostat);
        mirostat.map_or(0.0, |mirostat| 2.0 * mirostat.tau)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_mirostat_mu_is_0() {
        let chain = Some(Chain::default());
        assert_eq!(AdvancedSampling { chain, ..AdvancedSampling::default() }.first_mu(), 0.0);
    }
}
