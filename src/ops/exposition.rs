//! The page of metrics: each value's name, help and unit.
//!
//! A metric that vLLM also has gets vLLM's name and bounds, so that dashboards and gateways for
//! vLLM can read this server. So do some of llama-server's. All others start with `corelane_`.
//! Metrics with the model's name as a label are left out until the model is loaded.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::process;
use super::writer::{Label, MICROS, MetricsWriter, ONE};
use crate::limits::GUESSES_MAX;
use crate::metrics::{
    Cause, Counter, DiskMetrics, FrontMetrics, Metrics, REASONS, ROW_CLASSES, ServerState, reason,
};
use crate::types::Io;
use crate::{memory, pressure};

/// Writes the page.
pub(super) fn write(metrics: &Arc<Metrics>, out: &mut impl fmt::Write) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition { metrics: metrics.clone() }));
    encode(out, &registry).expect("memory takes any text");
}

/// The page of the lanes' metrics.
struct Exposition {
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exposition")
    }
}

impl Collector for Exposition {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &*self.metrics;
        let mut page = MetricsWriter { encoder };
        if let Some(model) = metrics.model() {
            // vLLM numbers its engines, and dashboards group by this number.
            page.vllm(metrics, &[("model_name", model), ("engine", "0")])?;
        }
        page.llama(metrics)?;
        page.server(metrics)?;
        page.front(&metrics.front)?;
        page.disk(&metrics.disk)?;
        page.decode(metrics)?;
        for (name, help, lane) in [
            (
                "corelane_prepare_seconds",
                "Time of one piece of preparing a short request (reading and tokenising).",
                &metrics.prepare,
            ),
            (
                "corelane_prepare_long_seconds",
                "Time of one piece of preparing a long request (reading and tokenising).",
                &metrics.prepare_long,
            ),
            (
                "corelane_compile_seconds",
                "Time of compiling a constraint that is known to be cheap.",
                &metrics.compile,
            ),
            (
                "corelane_trial_seconds",
                "Time of trying and compiling a constraint that is not known to be cheap.",
                &metrics.trial,
            ),
            (
                "corelane_mask_seconds",
                "Time of one mask on the mask lane, which computes slow masks.",
                &metrics.masks,
            ),
        ] {
            page.histogram(name, help, &[], (&lane.time_us, MICROS))?;
        }
        let spans = [
            ("sent", metrics.spans.sent.get()),
            ("failed", metrics.spans.failed.get()),
            ("dropped", metrics.front.spans_dropped.get()),
        ];
        page.counters(
            "corelane_spans",
            "Spans of requests: sent to the collector, not taken by it, or dropped before sending.",
            spans.map(|(outcome, count)| ([("outcome", outcome)], count)).into_iter(),
        )?;
        let lanes =
            [("front", &metrics.front.allocations), ("decode", &metrics.decode.allocations)];
        page.counters(
            "corelane_allocations",
            "Rust heap allocations of a lane.",
            lanes.iter().map(|(lane, count)| ([("lane", *lane)], count.get())),
        )?;
        page.counters(
            "corelane_allocated_bytes",
            "Bytes of the Rust heap allocations of a lane.",
            std::iter::once(([("lane", "front")], metrics.front.allocated_bytes.get())),
        )?;
        page.pressure()?;
        page.process()
    }
}

impl MetricsWriter<'_> {
    /// The processor time that the server needed but did not get. Reads it from the kernel at each
    /// scrape.
    fn pressure(&mut self) -> fmt::Result {
        let times = pressure::thread_times();
        self.counters(
            "corelane_run_queue_seconds",
            "Time in which threads had work and waited for a core, by their lane.",
            times.iter().map(|(lane, times)| ([("lane", &**lane)], times.queued.as_secs_f64())),
        )?;
        self.counter(
            "corelane_steal_seconds",
            "Time of all cores that other virtual machines took, since this one started.",
            pressure::stolen().as_secs_f64(),
        )?;
        self.counter(
            "corelane_throttled_seconds",
            "Time in which the control group's limit on processor time stopped the server.",
            pressure::throttled().as_secs_f64(),
        )
    }

    /// What Prometheus' own libraries show of a process, under their names.
    fn process(&mut self) -> fmt::Result {
        self.gauge(
            "corelane_memory_available_bytes",
            "Memory that the server could still take, of the machine or of its control group.",
            &[],
            memory::available_bytes(),
        )?;
        let Some(process) = process::this() else { return Ok(()) };
        self.counter("process_cpu_seconds", "Processor time of the server.", process.cpu_s)?;
        self.gauge(
            "process_resident_memory_bytes",
            "Resident memory.",
            &[],
            process.resident_bytes,
        )?;
        self.gauge(
            "process_virtual_memory_bytes",
            "Reserved addresses.",
            &[],
            process.virtual_bytes,
        )?;
        self.gauge(
            "process_start_time_seconds",
            "Start of the server, in seconds since 1970.",
            &[],
            process.started_s,
        )?;
        if let Some(open) = process.open_files {
            self.gauge("process_open_fds", "Open descriptors.", &[], open)?;
        }
        if let Some(most) = process.most_files {
            self.gauge("process_max_fds", "Most open descriptors.", &[], most)?;
        }
        Ok(())
    }

    /// vLLM's metrics, under vLLM's names.
    fn vllm(&mut self, metrics: &Metrics, model: &[Label<'_>; 2]) -> fmt::Result {
        let front = &metrics.front;
        let capacity = front.kv_tokens_capacity.get().max(1) as f64;
        let usage = kv_tokens_in_use(metrics) as f64 / capacity;
        self.gauge("vllm:num_requests_running", "Requests in a slot.", model, front.running.get())?;
        self.gauge(
            "vllm:num_requests_waiting",
            "Requests waiting for a slot.",
            model,
            front.waiting.get(),
        )?;
        self.gauge(
            "vllm:kv_cache_usage_perc",
            "Fraction of the KV cache in use, from 0 to 1.",
            model,
            usage,
        )?;
        self.counters(
            "vllm:prompt_tokens",
            "Prompt tokens of the requests whose prompts were computed.",
            [(*model, front.prompt_tokens.get())].into_iter(),
        )?;
        self.counters(
            "vllm:generation_tokens",
            "Generated tokens, including end-of-generation tokens.",
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
            "Prompt tokens found in the KV cache.",
            [(*model, front.cached_tokens.get())].into_iter(),
        )?;
        self.counters(
            "vllm:num_preemptions",
            "Requests that lost their slot and went back to the queue.",
            [(*model, front.preemptions.get())].into_iter(),
        )?;
        let guesses = &metrics.decode.guesses;
        let kept = || guesses.kept.iter().map(Counter::get);
        self.counters(
            "vllm:spec_decode_num_drafts",
            "Rows that had guessed tokens after them.",
            [(*model, guesses.rows.get())].into_iter(),
        )?;
        self.counters(
            "vllm:spec_decode_num_draft_tokens",
            "Guessed tokens that were computed.",
            [(*model, guesses.made.get())].into_iter(),
        )?;
        self.counters(
            "vllm:spec_decode_num_accepted_tokens",
            "Guessed tokens that came true.",
            [(*model, kept().sum::<u64>())].into_iter(),
        )?;
        let [engine, name] = *model;
        let positions: [String; GUESSES_MAX] = std::array::from_fn(|index| index.to_string());
        let by_position = positions.iter().zip(kept());
        self.counters(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Guessed tokens that came true, by their position after the row, from 0.",
            by_position.map(|(position, kept)| ([engine, name, ("position", position)], kept)),
        )?;
        let ends = [
            ("stop", &front.finished.stop),
            ("length", &front.finished.length),
            ("abort", &front.finished.abort),
            ("timeout", &front.finished.timeout),
        ];
        self.counters(
            "vllm:request_success",
            "Requests that ended, by reason.",
            ends.iter()
                .map(|(why, count)| ([model[0], model[1], ("finished_reason", *why)], count.get())),
        )?;
        self.histogram(
            "vllm:time_to_first_token_seconds",
            "Time from the head of the HTTP request to the first token.",
            model,
            (&front.ttft_us, MICROS),
        )?;
        self.histogram(
            "vllm:inter_token_latency_seconds",
            "Time between two tokens of a request.",
            model,
            (&front.itl_us, MICROS),
        )?;
        self.histogram(
            "vllm:e2e_request_latency_seconds",
            "Time from the head of the HTTP request to the last token, of finished requests.",
            model,
            (&front.e2el_us, MICROS),
        )?;
        self.histogram(
            "vllm:request_queue_time_seconds",
            "Time from admission to a slot.",
            model,
            (&front.queue_us, MICROS),
        )?;
        self.histogram(
            "vllm:request_prefill_time_seconds",
            "Time from a slot to the end of the prompt.",
            model,
            (&front.prefill_us, MICROS),
        )
    }

    /// llama-server's metrics, under its names.
    fn llama(&mut self, metrics: &Metrics) -> fmt::Result {
        let (front, decode) = (&metrics.front, &metrics.decode);
        let seconds = |us: u64| us as f64 / MICROS;
        let rate = |tokens: u64, s: f64| if s > 0.0 { tokens as f64 / s } else { 0.0 };
        let (prompt, predicted) = (front.prefilled_tokens.get(), front.generation_tokens.get());
        // The times are those between two tokens, so the first token of a text is not counted.
        let later = front.itl_us.count();
        let (prompt_s, predicted_s) =
            (seconds(front.prefill_us.sum()), seconds(front.itl_us.sum()));
        self.counter("llamacpp:prompt_tokens", "Prompt tokens computed.", prompt)?;
        self.counter("llamacpp:prompt_seconds", "Time from slots to ends of prompts.", prompt_s)?;
        self.gauge(
            "llamacpp:prompt_tokens_seconds",
            "Prompt tokens a second of a request.",
            &[],
            rate(prompt, prompt_s),
        )?;
        self.counter("llamacpp:tokens_predicted", "Generated tokens.", predicted)?;
        self.counter(
            "llamacpp:tokens_predicted_seconds",
            "Time of requests between their first and their last token.",
            predicted_s,
        )?;
        self.gauge(
            "llamacpp:predicted_tokens_seconds",
            "Generated tokens a second of a request.",
            &[],
            rate(later, predicted_s),
        )?;
        self.gauge(
            "llamacpp:requests_processing",
            "Requests in a slot.",
            &[],
            front.running.get(),
        )?;
        self.gauge(
            "llamacpp:requests_deferred",
            "Requests waiting for a slot.",
            &[],
            front.waiting.get(),
        )?;
        let steps = decode.step_us.count();
        self.counter("llamacpp:n_decode", "Steps of the model.", steps)?;
        let rows = decode.decode_rows.sum() as f64;
        self.gauge(
            "llamacpp:n_busy_slots_per_decode",
            "Mean number of texts that a step continues.",
            &[],
            if steps == 0 { 0.0 } else { rows / steps as f64 },
        )
    }

    fn server(&mut self, metrics: &Metrics) -> fmt::Result {
        let ready = metrics.front.state() == ServerState::Ready;
        self.gauge(
            "corelane_build_info",
            "Always 1. Labels: the version, how sockets are read, and, once a model is loaded, its kernels.",
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("io", metrics.io().map_or("", Io::name)),
                ("kernels", metrics.kernels().unwrap_or_default()),
            ],
            1_u64,
        )?;
        let uptime = metrics.clock.now().0 as f64 / MICROS;
        self.gauge("corelane_uptime_seconds", "Time since the server started.", &[], uptime)?;
        self.gauge("corelane_ready", "1 if the server accepts requests.", &[], u64::from(ready))?;
        if let Some(lost) = metrics.log_lines_lost() {
            self.counter(
                "corelane_log_lines_lost",
                "Log lines lost because the log was written too slowly.",
                lost,
            )?;
        }
        Ok(())
    }

    fn disk(&mut self, disk: &DiskMetrics) -> fmt::Result {
        self.gauge(
            "corelane_prefix_store_file_bytes",
            "Bytes of this model's files of the prefix store.",
            &[],
            disk.bytes.get(),
        )?;
        self.counter(
            "corelane_prefix_store_bytes_written",
            "Bytes written to files of the prefix store.",
            disk.written.get(),
        )?;
        self.counter(
            "corelane_prefix_store_bytes_read",
            "Bytes read from files of the prefix store.",
            disk.read.get(),
        )?;
        self.counter(
            "corelane_prefix_store_file_errors",
            "Files of the prefix store that could not be written or used.",
            disk.failures.get(),
        )
    }

    fn front(&mut self, front: &FrontMetrics) -> fmt::Result {
        self.gauge(
            "corelane_connections",
            "Open client connections.",
            &[],
            front.connections.get(),
        )?;
        self.gauge(
            "corelane_request_bytes",
            "Bytes that requests hold outside the KV cache.",
            &[],
            front.request_bytes.get(),
        )?;
        self.counter(
            "corelane_connections_dropped",
            "Connections closed without an answer because too many were open.",
            front.connections_dropped.get(),
        )?;
        let sent = front.responses.counts().filter(|(.., count)| *count > 0);
        self.each(
            "corelane_http_responses",
            "HTTP responses by path and status.",
            MetricType::Counter,
            |metric| {
                for (path, status, count) in sent {
                    let labels = ([("path", path)], [("status", status)]);
                    metric
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
                Ok(())
            },
        )?;
        let refused = REASONS.map(|why| {
            let of_reason = front.responses.counts().filter(|(_, s, _)| reason(*s) == Some(why));
            ([("reason", why)], of_reason.map(|(.., count)| count).sum::<u64>())
        });
        self.counters(
            "corelane_requests_refused",
            "HTTP requests that got an error, by reason.",
            refused.into_iter(),
        )?;
        self.counter(
            "corelane_requests_failed",
            "Running requests that an internal error ended.",
            front.finished.error.get(),
        )?;
        self.counters(
            "corelane_late_tokens",
            "Tokens that came later than the bound on the time between two tokens, by cause.",
            Cause::ALL
                .iter()
                .map(|cause| ([("cause", cause.name())], front.late_tokens.of(*cause).get())),
        )?;
        self.gauge(
            "corelane_late_after_seconds",
            "The bound on the time between two tokens; 0 without one.",
            &[],
            front.late_after_us.get() as f64 / MICROS,
        )?;
        self.gauge(
            "corelane_compute_threads",
            "Compute threads of a step.",
            &[],
            front.compute_threads.get(),
        )?;
        self.gauge(
            "corelane_products_led",
            "1 if one compute thread leads and the others help when they have a core.",
            &[],
            front.products_led.get(),
        )?;
        self.gauge(
            "corelane_slowdown",
            "Time of a step, divided by its time on a machine without other programs.",
            &[],
            front.slowdown_permille.get() as f64 / 1e3,
        )?;
        self.gauge(
            "corelane_kv_tokens_kept",
            "Tokens in the KV cache kept for reuse; no running request needs them.",
            &[],
            front.kv_tokens_kept.get(),
        )?;
        self.counter(
            "corelane_kv_tokens_evicted",
            "Kept tokens that were evicted.",
            front.evicted_tokens.get(),
        )?;
        self.gauge(
            "corelane_prefix_store_pages",
            "Pages of the prefix store in use.",
            &[],
            front.store_pages.get(),
        )?;
        self.counter(
            "corelane_prefix_store_tokens_restored",
            "Prompt tokens found in the prefix store.",
            front.restored_tokens.get(),
        )?;
        self.counter(
            "corelane_prefix_store_tokens_read",
            "Prompt tokens found in the prefix store's files.",
            front.fetched_tokens.get(),
        )?;
        self.gauge(
            "corelane_checkpoints",
            "Saved states of recurrent layers and sliding windows.",
            &[],
            front.checkpoints.get(),
        )?;
        self.counter(
            "corelane_checkpoint_starts",
            "Requests that started from a saved state.",
            front.checkpoint_starts.get(),
        )?;
        self.counter(
            "corelane_requests_retried",
            "Requests that started again after a failed step.",
            front.retries.get(),
        )?;
        self.gauge(
            "corelane_kv_tokens_capacity",
            "Size of the KV cache in tokens.",
            &[],
            front.kv_tokens_capacity.get(),
        )?;
        self.histogram(
            "corelane_steps_in_flight",
            "Steps in flight when another one was sent to the decode lane.",
            &[],
            (&front.steps_in_flight, ONE),
        )?;
        self.histogram(
            "corelane_front_tick_seconds",
            "Time of one turn of the engine: tokens to text, and the next plan.",
            &[],
            (&front.tick_us, MICROS),
        )
    }

    fn decode(&mut self, metrics: &Metrics) -> fmt::Result {
        let decode = &metrics.decode;
        let capacity = metrics.front.kv_tokens_capacity.get();
        self.gauge(
            "corelane_kv_tokens_free",
            "Free tokens in the KV cache. Kept tokens count as free.",
            &[],
            capacity.saturating_sub(kv_tokens_in_use(metrics)),
        )?;
        self.gauge(
            "corelane_kv_tokens_used",
            "Tokens in the KV cache, including kept ones.",
            &[],
            metrics.front.kv_tokens_used.get(),
        )?;
        self.histogram(
            "corelane_bubble_seconds",
            "Time before each step in which there was work and the model did not run.",
            &[],
            (&decode.bubble_us, MICROS),
        )?;
        self.histogram(
            "corelane_guess_seconds",
            "Time of a step to find guesses.",
            &[],
            (&decode.guess_us, MICROS),
        )?;
        self.histogram(
            "corelane_step_seconds",
            "Time of a step inside the model.",
            &[],
            (&decode.step_us, MICROS),
        )?;
        self.histogram(
            "corelane_sample_seconds",
            "Time of a step for sampling.",
            &[],
            (&decode.sample_us, MICROS),
        )?;
        self.histogram(
            "corelane_prefix_store_seconds",
            "Time of a step to copy pages of the prefix store.",
            &[],
            (&decode.page_us, MICROS),
        )?;
        self.histogram(
            "corelane_checkpoint_seconds",
            "Time of a step to save states of recurrent layers and sliding windows.",
            &[],
            (&decode.checkpoint_us, MICROS),
        )?;
        self.histogram(
            "corelane_step_decode_rows",
            "Rows of a step that continue a text.",
            &[],
            (&decode.decode_rows, ONE),
        )?;
        self.histogram(
            "corelane_step_prefill_rows",
            "Rows of a step that compute prompts.",
            &[],
            (&decode.prefill_rows, ONE),
        )?;
        let classes = || ROW_CLASSES.iter().zip(&decode.by_rows);
        self.counters(
            "corelane_steps",
            "Steps by number of rows.",
            classes().map(|((_, rows), class)| ([("rows", *rows)], class.steps.get())),
        )?;
        self.counters(
            "corelane_step_busy_seconds",
            "Time inside the model by number of rows of the step.",
            classes()
                .map(|((_, rows), class)| ([("rows", *rows)], class.time_us.get() as f64 / MICROS)),
        )?;
        self.counter(
            "corelane_rows_dropped",
            "Rows planned for requests that ended in the previous step.",
            decode.rows_dropped.get(),
        )?;
        self.counter(
            "corelane_core_changes",
            "Changes of the decode lane's own thread to another of its cores.",
            decode.core_changes.get(),
        )?;
        self.counter(
            "corelane_steps_failed",
            "Steps that the model could not run.",
            decode.steps_failed.get(),
        )
    }
}

/// KV cells in use. Tokens that are kept for reuse can be evicted, so they count as free, as in
/// vLLM.
fn kv_tokens_in_use(metrics: &Metrics) -> u64 {
    metrics.front.kv_tokens_used.get().saturating_sub(metrics.front.kv_tokens_kept.get())
}
