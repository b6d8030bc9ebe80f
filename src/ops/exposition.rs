//! The page of metrics: each value's name, help and unit.
//!
//! Values that vLLM measures, too, have vLLM's names and bounds, so that dashboards and gateways
//! for vLLM can read this server. The others start with `corelane_`. Values with the model's name
//! are left out until the model is loaded.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::page::{Label, MICROS, ONE, Page};
use crate::metrics::{FrontMetrics, Metrics, REASONS, ROW_CLASSES, State, reason};

/// Writes the page from the lanes' metrics.
pub(super) struct Exposition {
    metrics: Arc<Metrics>,
}

impl Exposition {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exposition")
    }
}

impl Collector for Exposition {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &*self.metrics;
        let mut page = Page { encoder };
        if let Some(model) = metrics.model() {
            // vLLM numbers its engines, and dashboards group by the number.
            page.vllm(metrics, &[("model_name", model), ("engine", "0")])?;
        }
        page.server(metrics)?;
        page.front(&metrics.front)?;
        page.decode(metrics)?;
        page.histogram(
            "corelane_prepare_seconds",
            "Reading and tokenising one long request body.",
            &[],
            (&metrics.prepare.time_us, MICROS),
        )?;
        let lanes =
            [("front", &metrics.front.allocations), ("decode", &metrics.decode.allocations)];
        page.counters(
            "corelane_allocations",
            "Rust heap allocations of a lane.",
            lanes.iter().map(|(lane, count)| ([("lane", *lane)], count.get())),
        )
    }
}

impl Page<'_> {
    /// vLLM's metrics, under vLLM's names.
    fn vllm(&mut self, metrics: &Metrics, model: &[Label<'_>; 2]) -> fmt::Result {
        let front = &metrics.front;
        let capacity = front.kv_tokens_capacity.get().max(1) as f64;
        let usage = kv_tokens_in_use(metrics) as f64 / capacity;
        self.gauge(
            "vllm:num_requests_running",
            "Requests that hold a slot and run in every step.",
            model,
            front.running.get(),
        )?;
        self.gauge(
            "vllm:num_requests_waiting",
            "Requests that wait for a slot.",
            model,
            front.waiting.get(),
        )?;
        self.gauge(
            "vllm:kv_cache_usage_perc",
            "Share of the KV cache that holds tokens, from 0 to 1.",
            model,
            usage,
        )?;
        self.counters(
            "vllm:prompt_tokens",
            "Prompt tokens of requests whose prompts were computed.",
            [(*model, front.prompt_tokens.get())].into_iter(),
        )?;
        self.counters(
            "vllm:generation_tokens",
            "Tokens generated, end-of-generation tokens included.",
            [(*model, front.generation_tokens.get())].into_iter(),
        )?;
        let prompts = front.cached_tokens.get() + front.prefilled_tokens.get();
        self.counters(
            "vllm:prefix_cache_queries",
            "Prompt tokens, cached or computed.",
            [(*model, prompts)].into_iter(),
        )?;
        self.counters(
            "vllm:prefix_cache_hits",
            "Prompt tokens that the KV cache had.",
            [(*model, front.cached_tokens.get())].into_iter(),
        )?;
        self.counters(
            "vllm:num_preemptions",
            "Requests that lost their slot and went back to the queue.",
            [(*model, front.preemptions.get())].into_iter(),
        )?;
        let ends = [
            ("stop", &front.finished.stop),
            ("length", &front.finished.length),
            ("abort", &front.finished.abort),
            ("timeout", &front.finished.timeout),
        ];
        self.counters(
            "vllm:request_success",
            "Requests that ended: by themselves, at their length, or because the client left.",
            ends.iter()
                .map(|(why, count)| ([model[0], model[1], ("finished_reason", *why)], count.get())),
        )?;
        self.histogram(
            "vllm:time_to_first_token_seconds",
            "From the head of the HTTP request to the first token.",
            model,
            (&front.ttft_us, MICROS),
        )?;
        self.histogram(
            "vllm:inter_token_latency_seconds",
            "Between two tokens of a request.",
            model,
            (&front.itl_us, MICROS),
        )?;
        self.histogram(
            "vllm:e2e_request_latency_seconds",
            "From the head of the HTTP request to the last token, of requests that came to an end.",
            model,
            (&front.e2el_us, MICROS),
        )?;
        self.histogram(
            "vllm:request_queue_time_seconds",
            "From admission to a slot.",
            model,
            (&front.queue_us, MICROS),
        )?;
        self.histogram(
            "vllm:request_prefill_time_seconds",
            "From a slot to the end of the prompt.",
            model,
            (&front.prefill_us, MICROS),
        )
    }

    fn server(&mut self, metrics: &Metrics) -> fmt::Result {
        let ready = metrics.front.state() == State::Ready;
        self.gauge(
            "corelane_build_info",
            "Always 1; the labels tell the version, and the kernels once a model is loaded.",
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("kernels", metrics.kernels().unwrap_or_default()),
            ],
            1_u64,
        )?;
        let uptime = metrics.clock.now().0 as f64 / MICROS;
        self.gauge("corelane_uptime_seconds", "Since the start of the server.", &[], uptime)?;
        self.gauge("corelane_ready", "1 when requests are served.", &[], u64::from(ready))?;
        if let Some(lost) = metrics.log_lines_lost() {
            self.counter(
                "corelane_log_lines_lost",
                "Log lines dropped because the log was not written fast enough.",
                lost,
            )?;
        }
        Ok(())
    }

    fn front(&mut self, front: &FrontMetrics) -> fmt::Result {
        self.gauge("corelane_connections", "Open connections.", &[], front.connections.get())?;
        self.counter(
            "corelane_connections_dropped",
            "Connections closed unanswered, because too many were open.",
            front.connections_dropped.get(),
        )?;
        let sent = front.responses.counts().filter(|(.., count)| *count > 0);
        self.each("corelane_http_responses", "HTTP responses.", MetricType::Counter, |metric| {
            for (path, status, count) in sent {
                let labels = ([("path", path)], [("status", status)]);
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
            Ok(())
        })?;
        let refused = REASONS.map(|why| {
            let of_reason = front.responses.counts().filter(|(_, s, _)| reason(*s) == Some(why));
            ([("reason", why)], of_reason.map(|(.., count)| count).sum::<u64>())
        });
        self.counters(
            "corelane_requests_refused",
            "HTTP requests answered with an error, by reason.",
            refused.into_iter(),
        )?;
        self.counter(
            "corelane_requests_failed",
            "Requests that had begun and that an error of ours ended.",
            front.finished.error.get(),
        )?;
        self.gauge(
            "corelane_kv_tokens_kept",
            "Tokens of the KV cache that nobody runs on, kept for prompts that begin alike.",
            &[],
            front.kv_tokens_kept.get(),
        )?;
        self.counter(
            "corelane_kv_tokens_evicted",
            "Kept tokens that gave way to others.",
            front.evicted_tokens.get(),
        )?;
        self.counter(
            "corelane_requests_retried",
            "Requests that began again after a step that failed.",
            front.retries.get(),
        )?;
        self.gauge(
            "corelane_kv_tokens_capacity",
            "Tokens that the KV cache has room for.",
            &[],
            front.kv_tokens_capacity.get(),
        )?;
        self.histogram(
            "corelane_steps_in_flight",
            "Steps that the decode lane or its rings already had when it was sent another.",
            &[],
            (&front.steps_in_flight, ONE),
        )?;
        self.histogram(
            "corelane_front_tick_seconds",
            "One turn of the engine on the front lane: tokens to text, and the next plan; not \
             what connections do between two turns.",
            &[],
            (&front.tick_us, MICROS),
        )
    }

    fn decode(&mut self, metrics: &Metrics) -> fmt::Result {
        let decode = &metrics.decode;
        let capacity = metrics.front.kv_tokens_capacity.get();
        self.gauge(
            "corelane_kv_tokens_free",
            "Tokens that the KV cache has room for where those that are kept give way.",
            &[],
            capacity.saturating_sub(kv_tokens_in_use(metrics)),
        )?;
        self.gauge(
            "corelane_kv_tokens_used",
            "Tokens in the KV cache, those that are kept for others included.",
            &[],
            metrics.front.kv_tokens_used.get(),
        )?;
        self.histogram(
            "corelane_bubble_seconds",
            "Before each step: how long there was work and the model did not run.",
            &[],
            (&decode.bubble_us, MICROS),
        )?;
        self.histogram(
            "corelane_step_seconds",
            "One step: time inside the model.",
            &[],
            (&decode.step_us, MICROS),
        )?;
        self.histogram(
            "corelane_sample_seconds",
            "One step: time to choose its tokens.",
            &[],
            (&decode.sample_us, MICROS),
        )?;
        self.histogram(
            "corelane_step_decode_rows",
            "Rows of a step that continue a text.",
            &[],
            (&decode.decode_rows, ONE),
        )?;
        self.histogram(
            "corelane_step_prefill_rows",
            "Rows of a step that are prompt.",
            &[],
            (&decode.prefill_rows, ONE),
        )?;
        let classes = || ROW_CLASSES.iter().zip(&decode.by_rows);
        self.counters(
            "corelane_steps",
            "Steps, by their number of rows.",
            classes().map(|((_, rows), class)| ([("rows", *rows)], class.steps.get())),
        )?;
        self.counters(
            "corelane_step_busy_seconds",
            "Time inside the model, by the number of rows of the step.",
            classes()
                .map(|((_, rows), class)| ([("rows", *rows)], class.time_us.get() as f64 / MICROS)),
        )?;
        self.counter(
            "corelane_rows_dropped",
            "Rows planned for requests that had ended in the step before.",
            decode.rows_dropped.get(),
        )?;
        self.counter(
            "corelane_steps_failed",
            "Steps that the model could not run.",
            decode.steps_failed.get(),
        )
    }
}

/// Tokens kept for reuse can be evicted, so they count as free, as in vLLM.
fn kv_tokens_in_use(metrics: &Metrics) -> u64 {
    metrics.front.kv_tokens_used.get().saturating_sub(metrics.front.kv_tokens_kept.get())
}
