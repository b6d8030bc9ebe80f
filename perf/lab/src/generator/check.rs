//! Checks the flags of `corelane bench serve` that clap cannot check by itself: ranges and
//! combinations.

use super::args::{Backend, BenchServeArgs, CHAT_PATH, Scenario};
use super::goodput::{Limit, LimitOn};
use super::load::REQUESTS_MAX;
use super::prompts::lengths;
use super::workload::Form;

/// Prompt tokens of one run of the load generator, with warm-ups. It draws all prompts and writes
/// all bodies before it begins.
const PROMPT_TOKENS_MAX: u64 = 64 * 1024 * 1024;

/// Rounds of one comparison.
const ROUNDS_MAX: usize = 1000;

impl BenchServeArgs {
    /// Checks ranges and combinations of flags.
    ///
    /// # Errors
    /// A message that says which values are allowed.
    pub fn check(&self) -> Result<(), String> {
        let within = |flag: &str, value: usize, most: usize| match value {
            0 => Err(format!("{flag} is 0; it must be at least 1")),
            n if n > most => Err(format!("{flag} is {n}; it must be from 1 to {most}")),
            _ => Ok(()),
        };
        within("--num-prompts", self.num_prompts(), REQUESTS_MAX)?;
        within("--streams", self.streams(), REQUESTS_MAX)?;
        within("--rounds", self.rounds(), ROUNDS_MAX)?;
        within("--max-concurrency", self.max_concurrency.unwrap_or(1), usize::MAX)?;
        within("--random-input-len", self.random_input_len as usize, usize::MAX)?;
        within("--random-output-len", self.output_len() as usize, usize::MAX)?;
        within("--long-input-len", self.long_input_len() as usize, usize::MAX)?;
        if self.num_warmups > REQUESTS_MAX {
            let n = self.num_warmups;
            return Err(format!("--num-warmups is {n}; it must be at most {REQUESTS_MAX}"));
        }
        let tokens = self.prompt_tokens_max()?;
        if tokens > PROMPT_TOKENS_MAX {
            return Err(format!(
                "the prompts may come to {tokens} tokens together; {PROMPT_TOKENS_MAX} is \
                 the most"
            ));
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return Err(format!("--temperature is {}; it must be from 0 to 2", self.temperature));
        }
        if !self.percentiles().iter().all(|p| (0.0..=100.0).contains(p)) {
            return Err("--metric-percentiles must be from 0 to 100 each".into());
        }
        self.check_endpoint()?;
        self.check_combinations()?;
        self.check_scenario()?;
        self.timeout().map(drop)
    }

    /// Upper bound on the prompt tokens of a round. All of them are drawn before the round starts.
    fn prompt_tokens_max(&self) -> Result<u64, String> {
        let most = u64::from(*lengths(self.random_input_len, self.range_ratio())?.end());
        let (own, prefix) = (u64::from(self.random_input_len), u64::from(self.prefix_len()));
        let times = |n: usize, tokens: u64| (n as u64).saturating_mul(tokens);
        let sent = match self.scenario {
            Scenario::Load => times(self.num_prompts(), prefix + most),
            Scenario::Burst => times(self.num_prompts() + 1, prefix + own),
            Scenario::Stall => times(self.streams(), own) + 2 * u64::from(self.long_input_len()),
            Scenario::Turns => 2 * prefix + own,
        };
        Ok(sent.saturating_add(times(self.num_warmups, own)))
    }

    fn check_endpoint(&self) -> Result<(), String> {
        let endpoint = self.endpoint();
        match (endpoint.ends_with(CHAT_PATH), self.backend) {
            (true, Backend::Openai) => {
                return Err(format!("--endpoint {endpoint} is for --backend openai-chat"));
            }
            (false, Backend::OpenaiChat) => {
                return Err(format!(
                    "--endpoint is {endpoint}; with --backend openai-chat it must end with \
                     {CHAT_PATH}"
                ));
            }
            (true, Backend::OpenaiChat) | (false, Backend::Openai) => {}
        }
        if self.vocab_size.is_some() && self.form() != Form::Ids {
            return Err("--vocab-size is for prompts of token ids; these are of words".into());
        }
        Ok(())
    }

    fn check_combinations(&self) -> Result<(), String> {
        if self.no_stream && self.scenario != Scenario::Load {
            return Err("--no-stream: the scenarios stall, burst and turns need streams".into());
        }
        let on_tokens = |limit: &Limit| limit.on != LimitOn::E2el;
        if self.no_stream && self.goodput.iter().any(on_tokens) {
            return Err("--no-stream: without streams --goodput can only be on e2el".into());
        }
        for (index, limit) in self.goodput.iter().enumerate() {
            if self.goodput[..index].iter().any(|other| other.on == limit.on) {
                return Err("--goodput has two limits on the same time".into());
            }
        }
        if self.scenario != Scenario::Load && self.request_rate.is_finite() {
            return Err(
                "--request-rate is for the scenario load; the others time themselves".into()
            );
        }
        if self.vs_api_key.is_some() && self.vs.is_none() {
            return Err("--vs-api-key is for the server of --vs, which is not given".into());
        }
        Ok(())
    }

    /// Refuses flags that the scenario does not use.
    fn check_scenario(&self) -> Result<(), String> {
        use Scenario::{Burst, Load, Stall, Turns};
        let used_by: [(&str, bool, &[Scenario]); 11] = [
            ("--streams", self.streams.is_some(), &[Stall]),
            ("--long-input-len", self.long_input_len.is_some(), &[Stall]),
            ("--prefix-len", self.prefix_len.is_some(), &[Load, Burst, Turns]),
            ("--num-prompts", self.num_prompts.is_some(), &[Load, Burst]),
            ("--random-range-ratio", self.random_range_ratio.is_some(), &[Load]),
            ("--burstiness", self.burstiness.is_some(), &[Load]),
            ("--max-concurrency", self.max_concurrency.is_some(), &[Load]),
            ("--percentile-metrics", self.percentile_metrics.is_some(), &[Load]),
            ("--metric-percentiles", self.metric_percentiles.is_some(), &[Load]),
            ("--goodput", !self.goodput.is_empty(), &[Load]),
            ("--save-detailed", self.save_detailed, &[Load]),
        ];
        for (flag, is_given, scenarios) in used_by {
            if is_given && !scenarios.contains(&self.scenario) {
                let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name()).collect();
                let (names, this) = (names.join(", "), self.scenario.name());
                return Err(format!("{flag} is for --scenario {names}; {this} does not use it"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::args::tests::parse;
    use super::*;

    #[test]
    fn what_a_scenario_does_not_use_is_refused() {
        for (flags, scenarios) in [
            ("--streams 4", "stall"),
            ("--long-input-len 1890", "stall"),
            ("--prefix-len 9", "load burst turns"),
            ("--random-prefix-len 9", "load burst turns"),
            ("--num-prompts 40", "load burst"),
            ("--random-range-ratio 0", "load"),
            ("--burstiness 1", "load"),
            ("--max-concurrency 8", "load"),
            ("--percentile-metrics ttft", "load"),
            ("--metric-percentiles 99", "load"),
            ("--goodput ttft:1", "load"),
            ("--save-detailed", "load"),
            (
                "--num-warmups 1 --random-input-len 9 --random-output-len 9 --seed 1 --ignore-eos \
                 --temperature 1 --text-prompts --timeout-s 9 --rounds 2 --save-result",
                "any",
            ),
        ] {
            for scenario in Scenario::value_variants() {
                let name = scenario.name();
                let checked = parse(&format!("--scenario {name} {flags}")).check();
                if scenarios == "any" || scenarios.contains(name) {
                    assert_eq!(checked, Ok(()), "{name}: {flags}");
                } else {
                    let error = checked.expect_err(flags);
                    assert!(error.ends_with(&format!("{name} does not use it")), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (flags, why) in [
            ("--num-prompts 0", "--num-prompts is 0"),
            ("--max-concurrency 0", "--max-concurrency is 0"),
            ("--random-range-ratio 1", "from 0 to below 1"),
            ("--metric-percentiles 101", "from 0 to 100"),
            ("--metric-percentiles NaN", "from 0 to 100"),
            ("--temperature 3", "from 0 to 2"),
            ("--timeout-s 0", "above 0"),
            ("--timeout-s NaN", "above 0"),
            ("--endpoint /v1/chat/completions", "for --backend openai-chat"),
            ("--backend openai-chat --endpoint /v1/completions", "end with /chat/completions"),
            ("--text-prompts --vocab-size 9", "prompts of token ids"),
            ("--vs-api-key k", "the server of --vs"),
            ("--no-stream --scenario stall", "need streams"),
            ("--no-stream --goodput ttft:1", "only be on e2el"),
            ("--goodput ttft:1 ttft:2", "two limits"),
            ("--scenario burst --request-rate 1", "time themselves"),
            ("--rounds 0", "--rounds is 0"),
            ("--random-input-len 70000000", "may come to 2800000000 tokens together; 67108864 is"),
            ("--scenario stall --long-input-len 4000000000", "8000000128 tokens"),
            ("--scenario burst --prefix-len 4000000000", "tokens together"),
            ("--scenario turns --prefix-len 4000000000", "tokens together"),
            ("--num-warmups 1000000 --random-input-len 4000000000", "tokens together"),
        ] {
            let error = parse(flags).check().expect_err(flags);
            assert!(error.contains(why), "{flags}: {error}");
        }
    }
}
