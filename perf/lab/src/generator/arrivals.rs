//! Arrival times of requests, drawn from a Gamma process as in `vllm bench serve`.

use std::time::Duration;

use rand::Rng;
use rand_distr::{Distribution, Gamma};

/// Draws the arrival times of `count` requests at `rate` requests per second.
///
/// The gaps have a Gamma distribution with shape `burstiness` and scale 1 / (rate · burstiness).
/// Their mean is 1 / rate for every burstiness. At 1 the arrivals are a Poisson process. Below 1
/// they come in bunches, above 1 they are more even, and at infinity the gaps are equal.
///
/// As in vllm, all times are then scaled so that the last one is count / rate. The achieved rate
/// therefore does not depend on the draw. With an infinite rate, all requests arrive at time 0.
pub fn gamma(
    count: usize,
    rate: f64,
    burstiness: f64,
    random: &mut impl Rng,
) -> Result<Vec<Duration>, String> {
    if rate.is_nan() || rate <= 0.0 {
        return Err(format!("--request-rate is {rate}; it must be above 0, or inf"));
    }
    if burstiness.is_nan() || burstiness <= 0.0 {
        return Err(format!("--burstiness is {burstiness}; it must be above 0"));
    }
    if rate.is_infinite() {
        return Ok(vec![Duration::ZERO; count]);
    }
    let gaps: Vec<f64> = if burstiness.is_infinite() {
        vec![1.0 / rate; count]
    } else {
        let gamma = Gamma::new(burstiness, 1.0 / (rate * burstiness)).map_err(|error| {
            format!("--request-rate {rate} with --burstiness {burstiness}: {error}")
        })?;
        (0..count).map(|_| gamma.sample(random)).collect()
    };
    let drawn: f64 = gaps.iter().sum();
    let stretch = count as f64 / rate / drawn;
    let mut time = 0.0;
    let arrivals = gaps.iter().map(|gap| {
        time += gap * stretch;
        Duration::try_from_secs_f64(time).map_err(|_| {
            format!("at --request-rate {rate} the last of {count} requests never arrives")
        })
    });
    arrivals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

    fn draw(count: usize, rate: f64, burstiness: f64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let arrivals = gamma(count, rate, burstiness, &mut random).unwrap();
        arrivals.iter().map(Duration::as_secs_f64).collect()
    }

    /// Mean shape·scale = 1 / rate, variance shape·scale² = 1 / (rate²·burstiness).
    #[test]
    fn gaps_have_the_mean_and_variance_of_their_distribution() {
        const COUNT: usize = 200_000;
        for (rate, burstiness) in [(2.0, 1.0), (10.0, 0.5), (0.5, 4.0)] {
            let arrivals = draw(COUNT, rate, burstiness);
            assert!(arrivals.is_sorted());
            let starts = std::iter::once(&0.0).chain(&arrivals);
            let gaps: Vec<f64> = arrivals.iter().zip(starts).map(|(b, a)| b - a).collect();
            let n = COUNT as f64;
            let mean = gaps.iter().sum::<f64>() / n;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n;
            assert!((mean * rate - 1.0).abs() < 1e-6, "mean {mean} at rate {rate}");
            let expected = 1.0 / (rate * rate * burstiness);
            assert!((variance / expected - 1.0).abs() < 0.03, "{variance} and not {expected}");
        }
    }

    #[test]
    fn the_ends_of_the_scale() {
        let even = draw(4, 2.0, f64::INFINITY);
        for (time, expected) in even.iter().zip([0.5, 1.0, 1.5, 2.0]) {
            assert!((time - expected).abs() < 1e-9);
        }
        assert_eq!(draw(3, f64::INFINITY, 1.0), [0.0; 3]);
        assert_eq!(draw(50, 3.0, 0.7), draw(50, 3.0, 0.7), "the same seed, the same times");
        assert!((draw(50, 3.0, 0.7)[49] - 50.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_process_is_refused() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for (rate, burstiness) in
            [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, 0.0), (1.0, f64::NAN), (1e-300, 1.0)]
        {
            assert!(gamma(5, rate, burstiness, &mut random).is_err(), "{rate} {burstiness}");
        }
    }
}
