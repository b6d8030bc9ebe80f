//! `GET /lanes`: what the lanes have done since the last look, for the web page. Times are
//! microseconds of the server's clock.

use serde::Serialize;

use super::error::ApiError;
use super::state::SlotStatus;
use crate::clock::Micros;
use crate::metrics::{CAUSES, HistogramSnapshot};

/// The answer.
#[derive(Debug, Serialize)]
pub struct Lanes<'a> {
    /// The time at which it was written: the `since` of the next request.
    pub now_us: u64,
    /// The model's name.
    pub model: &'a str,
    /// The kernels of products with the weights.
    pub kernels: &'a str,
    /// Sequences in a slot.
    pub running: usize,
    /// Sequences waiting for a slot.
    pub waiting: usize,
    /// Most sequences that may wait.
    pub queue_limit: usize,
    /// The KV cache.
    pub kv: Kv,
    /// Each slot.
    pub slots: Vec<Slot>,
    /// The steps that came back.
    /// `late_cause` is an index into `late_causes`.
    pub steps: Table<13>,
    /// The names of the causes of late tokens.
    pub late_causes: [&'static str; CAUSES],
    /// The turns of the front lane's engine.
    pub ticks: Table<2>,
    /// Since the start of the server.
    pub histograms: Histograms,
}

/// Cells of the KV cache, in tokens.
#[derive(Debug, Serialize)]
pub struct Kv {
    /// In use, `kept` among them.
    pub used: usize,
    /// Kept for reuse.
    pub kept: usize,
    /// All.
    pub capacity: u64,
}

/// A slot.
#[derive(Debug, Serialize)]
pub struct Slot {
    id: usize,
    state: &'static str,
    tokens: usize,
    prompt_tokens: u64,
    cached_tokens: u64,
    decoded_tokens: u64,
}

/// Rows of numbers.
#[derive(Debug, Serialize)]
pub struct Table<const N: usize>
where
    [&'static str; N]: Serialize,
    [u64; N]: Serialize,
{
    /// The names of the columns.
    pub fields: [&'static str; N],
    /// The rows, the oldest first.
    pub values: Vec<[u64; N]>,
}

/// Latencies.
#[derive(Debug, Serialize)]
pub struct Histograms {
    /// From a request's head to its first token.
    pub ttft_us: Histogram,
    /// Between two tokens of a request.
    pub itl_us: Histogram,
    /// From admission to a slot.
    pub queue_us: Histogram,
    /// A step in the model.
    pub step_us: Histogram,
}

/// A histogram.
#[derive(Debug, Serialize)]
pub struct Histogram {
    /// The upper bounds of the buckets.
    pub bounds: &'static [u64],
    /// Values in each bucket, and above the last bound.
    pub counts: Vec<u64>,
}

impl From<HistogramSnapshot> for Histogram {
    fn from(snapshot: HistogramSnapshot) -> Self {
        Self { bounds: snapshot.bounds, counts: snapshot.buckets }
    }
}

impl Slot {
    /// The slot with this number.
    pub fn new(id: usize, status: &SlotStatus) -> Self {
        Self {
            id,
            state: status.state,
            tokens: status.n_past,
            prompt_tokens: status.prompt_tokens,
            cached_tokens: status.cached_tokens,
            decoded_tokens: status.decoded_tokens,
        }
    }
}

/// Reads the query: `since=`, in microseconds of the server's clock. Without it, everything is new.
///
/// # Errors
/// 400 if it is not a whole number.
pub fn read_since(query: &str) -> Result<Micros, ApiError> {
    let Some(given) = query.split('&').find_map(|pair| pair.strip_prefix("since=")) else {
        return Ok(Micros(0));
    };
    given.parse().map(Micros).map_err(|_| {
        let message = format!("since must be the now_us of an earlier answer, not {given:?}");
        ApiError::field("since", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_last_look_is_a_whole_number() {
        assert_eq!(read_since("").unwrap(), Micros(0));
        assert_eq!(read_since("a=b&since=17").unwrap(), Micros(17));
        for wrong in ["since=", "since=-1", "since=1.5", "since=99999999999999999999"] {
            assert_eq!(read_since(wrong).unwrap_err().status, 400, "{wrong}");
        }
    }
}
