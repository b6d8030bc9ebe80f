//! Samples with the less common options ([`AdvancedSampling`]): biases, forbidden tokens,
//! log-probabilities, and llama.cpp's other samplers.
//!
//! Without a chain of samplers, [`super::sampler`] chooses the token.
//!
//! **Invariant:** nothing here allocates.

use super::infill::infill;
use super::largest::{argmax, max};
use super::logprobs::logprobs_of;
use super::mirostat::draw_mirostat;
use super::penalties::apply_penalties;
use super::sampler::{History, Sampler};
use crate::constraint::Allowed;
use crate::ring::message::TokenLogprobs;
use crate::sampling::AdvancedSampling;
use crate::types::chain::{Chain, SamplerKind};
use crate::types::{Sampling, TokenId};

/// Makes XTC's coin independent of the draw. Any number but 0 would do.
const XTC_STREAM: u64 = 0x5854_4321;

/// The sampling options of a request.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The common options.
    pub sampling: &'a Sampling,
    /// The less common options.
    pub advanced: &'a AdvancedSampling,
}

/// What may come next, whatever the logits are.
#[derive(Clone, Copy, Default)]
pub struct Limits<'a> {
    /// The constraint's tokens.
    pub allowed: Option<&'a Allowed>,
    /// The token that ends the reasoning at its limit. It comes unless the constraint or a bias
    /// forbids it.
    pub forced: Option<TokenId>,
}

impl Sampler {
    /// [`Sampler::sample`] with the less common options, within `limits`. `mu` is
    /// Mirostat's state of this sequence: see [`AdvancedSampling::first_mu`].
    pub fn sample_with(
        &mut self,
        logits: &mut [f32],
        asked: Asked<'_>,
        limits: Limits<'_>,
        mu: &mut f32,
        history: History<'_>,
    ) -> (TokenId, Option<TokenLogprobs>) {
        let Asked { sampling, advanced } = asked;
        if advanced.logprobs.is_some() {
            self.raw.copy_from_slice(logits);
        }
        for (token, bias) in &advanced.logit_bias {
            logits[*token as usize] += bias; // below n_vocab: the front lane checks it
        }
        let generated = history.generated().len();
        if sampling.ignore_eos || generated < advanced.min_tokens as usize {
            self.forbid_ends(logits);
        }
        // Penalties come first if the order of samplers begins with them.
        let chain = advanced.chain.as_ref();
        let order = chain.map_or(&[SamplerKind::Penalties][..], |chain| chain.samplers.as_slice());
        let penalties = order.iter().take_while(|kind| kind.is_penalty()).count();
        for kind in &order[..penalties] {
            self.penalise(*kind, logits, sampling, chain, history);
        }
        if let Some(allowed) = limits.allowed {
            allowed.apply(logits);
        }
        let can_come = |token: &TokenId| logits[*token as usize] > f32::NEG_INFINITY;
        let token = match chain {
            _ if let Some(forced) = limits.forced.filter(can_come) => forced,
            // Only an end-of-generation token may follow, and the request forbids it. It ends the
            // text anyway.
            _ if max(logits) == f32::NEG_INFINITY => self.first_end(),
            Some(chain) => {
                let order = &order[penalties..];
                self.choose_by_chain(logits, sampling, chain, order, mu, history)
            }
            None => self.choose(logits, sampling, history.uniform(sampling.seed)),
        };
        let logprobs = advanced
            .logprobs
            .map(|top| logprobs_of(&self.raw, &mut self.candidates, token, top.into()));
        (token, logprobs)
    }

    /// The log-probability of a token that is not sampled, and those of the `top` most probable
    /// ones.
    pub fn score(&mut self, logits: &[f32], token: TokenId, top: u8) -> TokenLogprobs {
        logprobs_of(logits, &mut self.candidates, token, top.into())
    }

    /// Samples with `order`, the rest of the chain. `mu` is Mirostat's state.
    fn choose_by_chain(
        &mut self,
        logits: &mut [f32],
        sampling: &Sampling,
        chain: &Chain,
        order: &[SamplerKind],
        mu: &mut f32,
        history: History<'_>,
    ) -> TokenId {
        if !max(logits).is_finite() {
            return argmax(logits) as TokenId; // below n_vocab, which is an i32 in llama.cpp
        }
        let coin = history.uniform(sampling.seed ^ XTC_STREAM);
        self.pool.fill(logits);
        for kind in order.iter().filter(|kind| chain.is_on(**kind, sampling)) {
            if kind.is_penalty() {
                self.pool.store(logits);
                self.penalise(*kind, logits, sampling, Some(chain), history);
                self.pool.load(logits);
            } else if let (SamplerKind::Infill, Some(spellings)) = (*kind, &chain.spellings) {
                infill(&mut self.pool, spellings, &self.end_tokens);
            } else {
                self.pool.apply(*kind, sampling, chain, coin);
            }
        }
        let draw = history.uniform(sampling.seed);
        match chain.mirostat {
            Some(mirostat) => draw_mirostat(&mut self.pool, mirostat, logits.len(), mu, draw),
            None => self.pool.draw(draw).0,
        }
    }

    /// Applies a penalty for tokens of the text so far. Does nothing if the penalty is off.
    fn penalise(
        &mut self,
        kind: SamplerKind,
        logits: &mut [f32],
        sampling: &Sampling,
        chain: Option<&Chain>,
        history: History<'_>,
    ) {
        match (kind, chain) {
            (SamplerKind::Dry, Some(chain)) if chain.is_on(kind, sampling) => {
                self.dry.apply(&mut self.counts, logits, history.tokens, &chain.dry);
            }
            (SamplerKind::Penalties, _) => {
                apply_penalties(&mut self.counts, logits, sampling, history);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::chain::{DryOptions, Mirostat};

    fn asked<'a>(sampling: &'a Sampling, advanced: &'a AdvancedSampling) -> Asked<'a> {
        Asked { sampling, advanced }
    }

    const NO_HISTORY: History<'static> = History { tokens: &[], prompt_tokens: 0 };

    fn sampler(n_vocab: usize) -> Sampler {
        Sampler::new(n_vocab, Box::new([]))
    }

    fn chain(order: &[SamplerKind], chain: Chain) -> AdvancedSampling {
        let samplers = order.iter().copied().collect();
        AdvancedSampling { chain: Some(Chain { samplers, ..chain }), ..AdvancedSampling::default() }
    }

    /// Chooses a token, without log-probabilities.
    fn choose(
        logits: &[f32],
        sampling: &Sampling,
        advanced: &AdvancedSampling,
        history: History<'_>,
    ) -> TokenId {
        let mut mu = advanced.first_mu();
        let mut sampler = sampler(logits.len());
        let asked = Asked { sampling, advanced };
        sampler.sample_with(&mut logits.to_vec(), asked, Limits::default(), &mut mu, history).0
    }

    #[test]
    fn log_probabilities_are_the_models_whatever_is_chosen() {
        // Probabilities 1/4 and 3/4.
        let logits = [0.0, 3.0f32.ln()];
        let advanced = AdvancedSampling {
            logit_bias: Box::new([(0, 10.0)]),
            logprobs: Some(2),
            ..AdvancedSampling::default()
        };
        let s = Sampling { temperature: 0.01, repeat_penalty: 5.0, ..Sampling::default() };
        let history = History { tokens: &[1], prompt_tokens: 0 };
        let (token, logprobs) = sampler(2).sample_with(
            &mut logits.clone(),
            asked(&s, &advanced),
            Limits::default(),
            &mut 0.0,
            history,
        );
        let logprobs = logprobs.expect("they were asked for");
        assert_eq!(token, 0);
        assert!((logprobs.logprob - 0.25f32.ln()).abs() < 1e-5);
        let expected = [(1, 0.75f32.ln()), (0, 0.25f32.ln())];
        assert_eq!(logprobs.top.len(), 2);
        for (found, expected) in logprobs.top.iter().zip(expected) {
            assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-5);
        }
    }

    #[test]
    fn asking_for_log_probabilities_changes_no_choice() {
        let logits: Vec<f32> = (0..2000).map(|i| NO_HISTORY.uniform(i) as f32 * 9.0).collect();
        let advanced = AdvancedSampling { logprobs: Some(3), ..AdvancedSampling::default() };
        let base = Sampling::default();
        for s in [
            Sampling::greedy(),
            base,
            Sampling { top_k: 40, ..base },
            Sampling { top_k: 1500, top_p: 0.9, ..base },
        ] {
            for seed in 0..50 {
                let s = Sampling { seed, ..s };
                let plain = sampler(2000).sample(&mut logits.clone(), &s, NO_HISTORY);
                assert_eq!(choose(&logits, &s, &advanced, NO_HISTORY), plain, "{s:?}");
            }
        }
    }

    #[test]
    fn biases_add_up_and_forbid() {
        let with = |logit_bias: &[(TokenId, f32)]| {
            let advanced =
                AdvancedSampling { logit_bias: logit_bias.into(), ..AdvancedSampling::default() };
            choose(&[3.0, 2.0, 1.0], &Sampling::greedy(), &advanced, NO_HISTORY)
        };
        assert_eq!(with(&[(2, 1.5)]), 0);
        assert_eq!(with(&[(2, 1.5), (2, 1.0)]), 2);
        assert_eq!(with(&[(0, f32::NEG_INFINITY)]), 1);
        assert_eq!(with(&[(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY), (0, 9.0)]), 2);
    }

    #[test]
    fn no_text_ends_before_its_least_tokens() {
        let advanced = AdvancedSampling { min_tokens: 2, ..AdvancedSampling::default() };
        let chosen = |generated: usize| {
            let tokens = [0; 10];
            let history = History { tokens: &tokens[..3 + generated], prompt_tokens: 3 };
            let (mut logits, s) = ([1.0, 2.0, 9.0], Sampling::greedy());
            let mut sampler = Sampler::new(3, Box::new([2]));
            sampler
                .sample_with(
                    &mut logits,
                    asked(&s, &advanced),
                    Limits::default(),
                    &mut 0.0,
                    history,
                )
                .0
        };
        assert_eq!([chosen(0), chosen(1), chosen(2), chosen(3)], [1, 1, 2, 2]);
    }

    #[test]
    fn samplers_run_in_the_order_that_is_asked_for() {
        use SamplerKind::{Penalties, Temperature, TopK};
        let logits = [5.0, 4.0, 3.0, 2.0];
        let s = Sampling { top_k: 2, presence_penalty: 2.5, ..Sampling::greedy() };
        let history = History { tokens: &[0, 1], prompt_tokens: 0 };
        let with =
            |order: &[SamplerKind]| choose(&logits, &s, &chain(order, Chain::default()), history);
        // Both of the largest logits are penalised, before the cut or after it.
        assert_eq!(with(&[Penalties, TopK, Temperature]), 2);
        assert_eq!(with(&[TopK, Penalties, Temperature]), 0);
        assert_eq!(with(&[TopK, Temperature]), 0, "what is not there does nothing");
        assert_eq!(with(&[Penalties, Penalties, TopK, Temperature]), 2);
    }

    #[test]
    fn a_repetition_is_left_where_it_costs_more_than_it_is_worth() {
        use SamplerKind::{Dry, Temperature, TopK};
        let logits = [0.0, 0.0, 0.0, 2.0, 1.5];
        let s = Sampling { top_k: 2, ..Sampling::greedy() };
        let history = History { tokens: &[1, 2, 3, 1, 2], prompt_tokens: 5 };
        let with = |order: &[SamplerKind], multiplier| {
            let dry = DryOptions { multiplier, ..DryOptions::default() };
            choose(&logits, &s, &chain(order, Chain { dry, ..Chain::default() }), history)
        };
        for order in [[Dry, TopK, Temperature], [TopK, Dry, Temperature]] {
            assert_eq!((with(&order, 0.0), with(&order, 0.4), with(&order, 0.6)), (3, 3, 4));
        }
    }

    #[test]
    fn the_coin_of_xtc_is_not_the_draw() {
        let logits = [0.5f32, 0.3, 0.2].map(f32::ln);
        let xtc = Chain { xtc_probability: 0.5, xtc_threshold: 0.1, ..Chain::default() };
        let advanced = chain(&[SamplerKind::Xtc], xtc);
        let mut seen = [0; 3];
        for seed in 0..2000 {
            let s = Sampling { seed, ..Sampling::default() };
            seen[choose(&logits, &s, &advanced, NO_HISTORY) as usize] += 1;
        }
        // In half of the draws XTC leaves only the last token: 0.25, 0.15 and 0.6 of 2000.
        for (count, expected) in seen.iter().zip([500i32, 300, 1200]) {
            assert!((count - expected).abs() < 100, "{seen:?}");
        }
    }

    #[test]
    fn mirostat_keeps_its_state_where_it_is_told_to() {
        let mirostat = Mirostat { version: 2, tau: 3.0, eta: 0.5 };
        let advanced = chain(&[], Chain { mirostat: Some(mirostat), ..Chain::default() });
        let mut mu = advanced.first_mu();
        let (mut logits, s) = ([9.0, -99.0], Sampling::default());
        sampler(2).sample_with(
            &mut logits,
            asked(&s, &advanced),
            Limits::default(),
            &mut mu,
            NO_HISTORY,
        );
        // The token is no surprise, so mu grows by 0.5 * (3 - 0).
        assert!((mu - 7.5).abs() < 1e-4, "{mu}");
    }

    #[test]
    fn logits_that_are_not_numbers_never_win_or_panic() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let all = Chain {
            min_keep: 2,
            typical_p: 0.5,
            top_n_sigma: 1.0,
            xtc_probability: 1.0,
            dynatemp_range: 0.5,
            dry: DryOptions { multiplier: 1.0, ..DryOptions::default() },
            ..Chain::default()
        };
        let s = Sampling { top_k: 30, top_p: 0.9, min_p: 0.1, ..Sampling::default() };
        let history = History { tokens: &[1, 2, 3, 1, 2], prompt_tokens: 5 };
        for mirostat in [0, 1, 2] {
            let mirostat = Mirostat { version: mirostat, tau: 5.0, eta: 0.1 };
            let mirostat = (mirostat.version > 0).then_some(mirostat);
            let advanced = AdvancedSampling {
                logprobs: Some(20),
                chain: Some(Chain { mirostat, ..all.clone() }),
                ..AdvancedSampling::default()
            };
            for logits in [[nan; 40], [-inf; 40], [inf; 40]] {
                assert!((0..40).contains(&choose(&logits, &s, &advanced, history)));
            }
            let mut one = [nan; 40];
            one[17] = -3.0;
            assert_eq!(choose(&one, &s, &advanced, history), 17);
        }
    }
}
