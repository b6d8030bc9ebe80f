//! Writes the metrics of the page one by one: name, help, type and values.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

use crate::metrics::Histogram;

/// The divisor that turns microseconds into the unit of a metric's name.
pub(super) const MICROS: f64 = 1e6;
pub(super) const ONE: f64 = 1.0;

/// Most buckets of a histogram, the last one included.
const BUCKETS_MAX: usize = 40;

/// A label's name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

/// The page under construction.
pub(super) struct MetricsWriter<'a> {
    pub encoder: DescriptorEncoder<'a>,
}

impl MetricsWriter<'_> {
    /// Writes a metric with the values that `write` adds. A counter's name gets the suffix
    /// `_total`.
    pub fn each(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(&mut self.encoder.encode_descriptor(name, help, None, kind)?)
    }

    /// Writes a gauge.
    pub fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: &[Label<'_>],
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.each(name, help, MetricType::Gauge, |metric| match labels {
            [] => metric.encode_gauge(&value),
            labels => metric.encode_family(&labels)?.encode_gauge(&value),
        })
    }

    /// Writes a counter without labels.
    pub fn counter(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeCounterValue,
    ) -> fmt::Result {
        self.each(name, help, MetricType::Counter, |metric| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// Writes a counter for each set of labels.
    pub fn counters<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = ([Label<'l>; N], V)>,
    ) -> fmt::Result {
        self.each(name, help, MetricType::Counter, |metric| {
            for (labels, value) in values {
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            Ok(())
        })
    }

    /// Writes a histogram. Its numbers are divided by `unit`.
    pub fn histogram<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: &[Label<'_>],
        (histogram, unit): (&Histogram<N>, f64),
    ) -> fmt::Result {
        const { assert!(N < BUCKETS_MAX) };
        let bucket = |(bound, count): (Option<u64>, u64)| {
            (bound.map_or(f64::INFINITY, |bound| bound as f64 / unit), count)
        };
        let buckets: heapless::Vec<_, BUCKETS_MAX> = histogram.counts().map(bucket).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = histogram.sum() as f64 / unit;
        self.each(name, help, MetricType::Histogram, |metric| match labels {
            [] => metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None),
            labels => {
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
        })
    }
}
