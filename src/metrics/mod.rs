//! The metrics of all lanes. They are always on. The ops lane and the benchmarks read them.
//!
//! Each lane writes its own part of [`Metrics`]. Nothing is sent: a writer stores into its own
//! cache lines, a reader loads from them.
//!
//! **Invariant:** a value has one writer. Writing takes plain loads and stores, and neither
//! allocates nor locks. **Invariant:** readers change nothing. A scrape costs a writer at most the
//! cache misses of fetching its lines back.
//!
//! A benchmark takes the difference of two moments:
//!
//! ```
//! # let metrics = corelane::metrics::Metrics::default();
//! let bubble = metrics.decode.bubble_us.snapshot();
//! let allocations = metrics.decode.allocations.get();
//! // ... steps run ...
//! let bubble = metrics.decode.bubble_us.snapshot().since(&bubble);
//! let allocations = metrics.decode.allocations.get() - allocations;
//! println!("p50 {:?} µs, p99 {:?} µs", bubble.quantile(0.5), bubble.quantile(0.99));
//! ```

pub mod bounds;
mod decode;
mod front;
mod histogram;
mod http;
mod late;
mod value;

use std::fmt;
use std::sync::OnceLock;

pub use decode::{DecodeMetrics, ROW_CLASSES, RowClass};
pub use front::{Finished, FrontMetrics, ServerState};
pub use histogram::{Histogram, HistogramSnapshot};
pub use http::{REASONS, Responses, reason};
pub use late::{CAUSES, Cause, LateCount, LateTokens};
pub use value::{Counter, Gauge};

use crate::clock::Clock;
use crate::types::Io;

/// All metrics, and the clock that all lanes share.
pub struct Metrics {
    /// The common clock: times that travel between lanes are read from it.
    pub clock: Clock,
    /// Written by the front lane.
    pub front: FrontMetrics,
    /// Written by the decode lane.
    pub decode: DecodeMetrics,
    /// Written by the first prepare lane.
    pub prepare: WorkerMetrics,
    /// Written by the second prepare lane.
    pub prepare_long: WorkerMetrics,
    /// Written by the prepare lane that compiles cheap constraints.
    pub compile: WorkerMetrics,
    /// Written by the prepare lane that tries and compiles all other constraints.
    pub trial: WorkerMetrics,
    /// Written by the mask lane.
    pub masks: WorkerMetrics,
    /// Written by the lane that sends spans.
    pub spans: SpanMetrics,
    /// Written by the disk lane.
    pub disk: DiskMetrics,
    /// Pieces of work that the mask lane has done: masks, and parts of tasks that take in many
    /// tokens.
    pub mask_pieces: Counter,
    io: OnceLock<Io>,
    model: OnceLock<(String, &'static str)>,
    log_lines_lost: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
}

/// The metrics of a prepare lane or of the mask lane.
#[derive(Debug)]
#[repr(align(128))] // two cache lines: processors fetch them in pairs
pub struct WorkerMetrics {
    /// One task, in microseconds.
    pub time_us: Histogram<{ bounds::PREPARE_US.len() }>,
}

/// The metrics of the lane that sends spans.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines: processors fetch them in pairs
pub struct SpanMetrics {
    /// Spans that the collector has taken.
    pub sent: Counter,
    /// Spans that were lost: the collector did not take them.
    pub failed: Counter,
}

/// The metrics of the disk lane.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines: processors fetch them in pairs
pub struct DiskMetrics {
    /// The bytes of this model's files.
    pub bytes: Gauge,
    /// Bytes of files written.
    pub written: Counter,
    /// Bytes of cells and states read.
    pub read: Counter,
    /// Files that could not be written or used.
    pub failures: Counter,
}

impl Default for WorkerMetrics {
    fn default() -> Self {
        Self { time_us: Histogram::new(&bounds::PREPARE_US) }
    }
}

impl Metrics {
    /// Metrics at zero. Responses are counted by path; `paths` are the known ones.
    pub fn new(clock: Clock, paths: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            clock,
            front: FrontMetrics::new(paths),
            decode: DecodeMetrics::default(),
            prepare: WorkerMetrics::default(),
            prepare_long: WorkerMetrics::default(),
            compile: WorkerMetrics::default(),
            trial: WorkerMetrics::default(),
            masks: WorkerMetrics::default(),
            spans: SpanMetrics::default(),
            disk: DiskMetrics::default(),
            mask_pieces: Counter::default(),
            model: OnceLock::new(),
            io: OnceLock::new(),
            log_lines_lost: OnceLock::new(),
        }
    }

    /// The name of the model, once it is loaded.
    pub fn model(&self) -> Option<&str> {
        self.model.get().map(|(name, _)| name.as_str())
    }

    /// The kernels of products with the weights, once the model is loaded.
    pub fn kernels(&self) -> Option<&'static str> {
        self.model.get().map(|(_, kernels)| *kernels)
    }

    /// Sets the names of the model and its kernels. Later calls change nothing.
    pub fn set_model(&self, name: &str, kernels: &'static str) {
        self.model.get_or_init(|| (name.to_owned(), kernels));
    }

    /// How the front lane reads and writes its sockets, once it has started.
    pub fn io(&self) -> Option<Io> {
        self.io.get().copied()
    }

    /// Sets how the front lane reads and writes its sockets. Later calls change nothing.
    pub fn set_io(&self, io: Io) {
        self.io.get_or_init(|| io);
    }

    /// Log lines lost because the log was written too slowly; `None` if no counter was set.
    pub fn log_lines_lost(&self) -> Option<u64> {
        self.log_lines_lost.get().map(|count| count())
    }

    /// Sets the counter of lost log lines. Later calls change nothing.
    pub fn set_log_lines_lost(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        self.log_lines_lost.get_or_init(|| Box::new(count));
    }
}

impl Default for Metrics {
    /// For an engine without HTTP.
    fn default() -> Self {
        Self::new(Clock::start(), [])
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("model", &self.model()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of different lanes share no cache line.
    #[test]
    fn lanes_write_to_cache_lines_of_their_own() {
        assert_eq!(align_of::<FrontMetrics>(), 128);
        assert_eq!(align_of::<DecodeMetrics>(), 128);
        assert_eq!(align_of::<WorkerMetrics>(), 128);
        assert_eq!(align_of::<SpanMetrics>(), 128);
        assert_eq!(size_of::<DecodeMetrics>() % 128, 0);
    }

    #[test]
    fn the_model_is_named_once() {
        let metrics = Metrics::default();
        assert_eq!(metrics.model(), None);
        metrics.set_model("first", "avx2");
        metrics.set_model("second", "llama");
        assert_eq!((metrics.model(), metrics.kernels()), (Some("first"), Some("avx2")));
        assert_eq!(metrics.log_lines_lost(), None);
        metrics.set_log_lines_lost(|| 3);
        assert_eq!(metrics.log_lines_lost(), Some(3));
    }
}
