//! Converts text-valued sampler options to token ids.

use std::sync::Arc;

use super::prompt::tokenize;
use crate::api::advanced::{BiasTarget, RequestedAdvanced};
use crate::api::error::ApiError;
use crate::model::vocab::Vocab;
use crate::sampling::AdvancedSampling;
use crate::types::TokenId;
use crate::types::chain::SamplerKind;

/// Most tokens of all entries of `logit_bias` together. Each step changes one logit for each of
/// them.
const LOGIT_BIAS_TOKENS_MAX: usize = 4096;

/// Converts a request's sampler options to tokens of the vocabulary.
///
/// # Errors
/// 400 for a token that is not in the vocabulary, and for too many tokens.
pub fn resolve(requested: &RequestedAdvanced, vocab: &Vocab) -> Result<AdvancedSampling, ApiError> {
    let mut advanced = requested.advanced.clone();
    advanced.logit_bias = logit_bias(&requested.logit_bias, vocab)?;
    if let Some(chain) = &mut advanced.chain
        && chain.samplers.contains(&SamplerKind::Infill)
    {
        chain.spellings = Some(vocab.texts().clone());
    }
    if let Some(chain) = &mut advanced.chain
        && chain.dry.multiplier != 0.0
    {
        chain.dry.breakers = match &requested.dry_breakers {
            Some(texts) => Arc::new(vocab.breakers(texts)),
            None => vocab.default_breakers().clone(),
        };
    }
    Ok(advanced)
}

/// The biases by token. The bias of a text applies to each of its tokens, as in llama-server.
fn logit_bias(
    requested: &[(BiasTarget, f32)],
    vocab: &Vocab,
) -> Result<Box<[(TokenId, f32)]>, ApiError> {
    let mut biases = Vec::with_capacity(requested.len());
    for (target, bias) in requested {
        match target {
            BiasTarget::Token(id) => {
                let token = TokenId::try_from(*id).ok().filter(|token| vocab.has(*token));
                let token = token.ok_or_else(|| {
                    let last = vocab.n_tokens() - 1;
                    let message =
                        format!("logit_bias has the token id {id}; this model's are 0 to {last}");
                    ApiError::field("logit_bias", message)
                })?;
                biases.push((token, *bias));
            }
            BiasTarget::Text(text) => {
                let tokens = tokenize(vocab, "logit_bias", text, false, false)?;
                biases.extend(tokens.into_iter().map(|token| (token, *bias)));
            }
        }
        if biases.len() > LOGIT_BIAS_TOKENS_MAX {
            let most = LOGIT_BIAS_TOKENS_MAX;
            let message = format!("logit_bias comes to more than {most} tokens");
            return Err(ApiError::field("logit_bias", message));
        }
    }
    Ok(biases.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::chain::Chain;

    fn biases(requested: Vec<(BiasTarget, f32)>) -> Result<AdvancedSampling, ApiError> {
        let requested = RequestedAdvanced { logit_bias: requested, ..RequestedAdvanced::default() };
        resolve(&requested, &Vocab::of_fake())
    }

    #[test]
    fn a_texts_bias_is_that_of_each_of_its_tokens() {
        let requested = vec![
            (BiasTarget::Text("ab".into()), -1.0),
            (BiasTarget::Token(97), f32::NEG_INFINITY),
            (BiasTarget::Token(256), 2.0),
        ];
        let expected = [(97, -1.0), (98, -1.0), (97, f32::NEG_INFINITY), (256, 2.0)];
        assert_eq!(*biases(requested).unwrap().logit_bias, expected);
    }

    #[test]
    fn tokens_that_are_not_there_and_too_many_are_refused() {
        for id in [-1, 257, i64::MAX] {
            let error = biases(vec![(BiasTarget::Token(id), 1.0)]).expect_err("no such token");
            assert_eq!((error.status, error.param), (400, Some("logit_bias")));
            assert!(error.message.ends_with("this model's are 0 to 256"), "{}", error.message);
        }
        let text = BiasTarget::Text("x".repeat(200));
        let error = biases(vec![(text, 1.0); 30]).expect_err("6,000 tokens");
        assert_eq!(error.message, "logit_bias comes to more than 4096 tokens");
    }

    #[test]
    fn breakers_are_the_requests_or_llama_cpps_where_they_are_needed() {
        let breakers = |multiplier, dry_breakers: Option<Vec<String>>| {
            let mut chain = Chain::default();
            chain.dry.multiplier = multiplier;
            let advanced = AdvancedSampling { chain: Some(chain), ..AdvancedSampling::default() };
            let logit_bias = Vec::new();
            let requested = RequestedAdvanced { advanced, logit_bias, dry_breakers };
            resolve(&requested, &Vocab::of_fake()).unwrap().chain.unwrap().dry.breakers
        };
        let (newline, b, x) = (10, 98, 120);
        let own = breakers(1.0, Some(vec!["x".into(), "ab".into()]));
        assert!(own.is_sequence(x) && !own.is_sequence(newline));
        assert!(own.tails(97).eq([[b].as_slice()]));
        assert!(breakers(1.0, None).is_sequence(newline));
        assert!(!breakers(0.0, None).is_sequence(newline), "not looked for in vain");
    }
}
