//! Goodput: the rate of requests that meet every latency limit (DistServe, arXiv:2401.09670).

use std::str::FromStr;
use std::time::Duration;

use super::load::RequestResult;

/// A latency of one request that can have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOn {
    /// Time to the first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Time from the write to the last token.
    E2el,
}

/// An upper limit on a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The limited latency.
    pub on: LimitOn,
    /// The limit, in milliseconds.
    pub at_most_ms: f64,
}

impl FromStr for Limit {
    type Err = String;

    /// Parses a limit such as `ttft:200`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a limit; a limit is ttft, tpot or e2el, a colon and milliseconds: ttft:200"
            )
        };
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        let on = match name {
            "ttft" => LimitOn::Ttft,
            "tpot" => LimitOn::Tpot,
            "e2el" => LimitOn::E2el,
            _ => return Err(wrong()),
        };
        let at_most_ms: f64 = value.parse().map_err(|_| wrong())?;
        if at_most_ms.is_nan() || at_most_ms < 0.0 {
            return Err(wrong());
        }
        Ok(Self { on, at_most_ms })
    }
}

/// Returns whether a request completed within every limit. A response of one token has no TPOT and
/// therefore meets every TPOT limit.
pub fn is_good(request: &RequestResult, limits: &[Limit]) -> bool {
    let meets = |limit: &Limit| {
        let time = match limit.on {
            LimitOn::Ttft => request.ttft,
            LimitOn::Tpot => request.tpot().unwrap_or(Duration::ZERO),
            LimitOn::E2el => request.e2el,
        };
        time.as_secs_f64() * 1e3 <= limit.at_most_ms
    };
    request.is_ok() && limits.iter().all(meets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let limit = |on, at_most_ms| Ok(Limit { on, at_most_ms });
        assert_eq!("ttft:200".parse(), limit(LimitOn::Ttft, 200.0));
        assert_eq!("tpot:12.5".parse(), limit(LimitOn::Tpot, 12.5));
        assert_eq!("e2el:0".parse(), limit(LimitOn::E2el, 0.0));
        for wrong in ["", "ttft", "ttft:", "ttft:-1", "ttft:x", "ttft:NaN", "itl:5", "ttft:1:2"] {
            let error = wrong.parse::<Limit>().expect_err(wrong);
            assert!(error.contains("ttft:200"), "{error}");
        }
    }

    #[test]
    fn good_is_what_meets_every_limit() {
        let ms = Duration::from_millis;
        let request = RequestResult {
            ttft: ms(100),
            e2el: ms(500),
            output_tokens: 5,
            ..RequestResult::default()
        };
        let good = |limits: &[&str]| {
            let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
            is_good(&request, &limits)
        };
        assert!(good(&[]));
        assert!(good(&["ttft:100", "tpot:100", "e2el:500"]), "the limit itself is met");
        assert!(!good(&["ttft:99.9"]));
        assert!(!good(&["ttft:100", "tpot:99"]));
        assert!(!good(&["e2el:499"]));
        let one = RequestResult { output_tokens: 1, ..request.clone() };
        assert!(is_good(&one, &["tpot:0".parse().unwrap()]));
        let failed = RequestResult { error: Some("x".into()), ..request.clone() };
        assert!(!is_good(&failed, &[]));
    }
}
