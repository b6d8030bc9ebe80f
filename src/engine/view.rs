//! The state of the engine that clients see: slots, load, the progress of prompts, and the reasons
//! of refusals.

use super::Engine;
use super::history::{Step, Tick};
use crate::api::error::ApiError;
use crate::api::lanes::{Histograms, Kv, Lanes, Slot, Table};
use crate::api::state::{Load, SlotStatus};
use crate::clock::Micros;
use crate::limits::RETRY_AFTER_S_MAX;
use crate::metrics::Cause;
use crate::ring::files::Outcome;
use crate::ring::message::Batch;
use crate::scheduler::tuning::REUSE_TOKENS_MIN;
use crate::scheduler::{Phase, Refusal, SlotRefusal, SlotTask, SlotView};
use crate::types::{KeyId, SlotAction, SlotId};

impl Engine {
    /// The state of each slot, as `key` may see it: for slots of other keys, only whether they are
    /// busy.
    pub fn slots(&self, now: Micros, key: KeyId) -> Vec<SlotStatus> {
        let status = |view: SlotView| {
            let is_own = view.key == Some(key);
            let n_past = if is_own { view.position } else { 0 };
            let idle = SlotStatus { state: "idle", n_past, ..SlotStatus::default() };
            let Some((id, state)) = view.held else { return idle };
            let Some(stream) = &self.streams[id.index()] else { return idle };
            if !is_own {
                return SlotStatus { state: "busy", ..idle };
            }
            let exchange = stream.exchange.borrow();
            SlotStatus {
                state: match state {
                    Phase::Following => "following",
                    Phase::Prefill => "prefill",
                    Phase::Decode => "decode",
                },
                id_task: exchange.id.clone(),
                prompt_tokens: exchange.usage.prompt_tokens,
                cached_tokens: exchange.usage.cached_tokens,
                decoded_tokens: exchange.usage.completion_tokens,
                elapsed_ms: now.seconds_since(exchange.admitted) * 1e3,
                queued_ms: exchange.timings(now).queued.as_secs_f64() * 1e3,
                ..idle
            }
        };
        self.scheduler.slots().map(status).collect()
    }

    /// The load of a key: its running and waiting sequences, and its tokens in the KV cache.
    pub fn load(&self, key: KeyId) -> Load {
        let (running, waiting, tokens) = self.scheduler.load(key);
        Load { running: running as u64, waiting: waiting as u64, tokens: tokens as u64 }
    }

    /// The state of the lanes, as `key` may see it, with the steps and turns since a time.
    pub fn lanes<'a>(
        &self,
        now: Micros,
        since: Micros,
        key: KeyId,
        model: &'a str,
        kernels: &'a str,
    ) -> Lanes<'a> {
        let (front, decode) = (&self.metrics.front, &self.metrics.decode);
        let (held, kept) = self.scheduler.cells();
        let slots = self.slots(now, key);
        let slots = slots.iter().enumerate().map(|(id, status)| Slot::new(id, status)).collect();
        Lanes {
            now_us: now.0,
            model,
            kernels,
            running: self.scheduler.running_count(),
            waiting: self.scheduler.waiting_count(),
            queue_limit: self.scheduler.queue_limit(),
            kv: Kv { used: held + kept, kept, capacity: front.kv_tokens_capacity.get() },
            slots,
            steps: Table {
                fields: Step::FIELDS,
                values: self.history.steps_since(since).map(Step::values).collect(),
            },
            late_causes: Cause::ALL.map(Cause::name),
            ticks: Table {
                fields: Tick::FIELDS,
                values: self.history.ticks_since(since).map(Tick::values).collect(),
            },
            histograms: Histograms {
                ttft_us: front.ttft_us.snapshot().into(),
                itl_us: front.itl_us.snapshot().into(),
                queue_us: front.queue_us.snapshot().into(),
                step_us: decode.step_us.snapshot().into(),
            },
        }
    }

    /// Passes the progress of prompts that a step has computed to the streams that show it.
    pub(super) fn push_progress(&mut self, batch: &Batch, now: Micros) {
        if batch.step_failed {
            return;
        }
        for rows in batch.rows.chunk_by(|a, b| a.owner == b.owner) {
            let [.., last] = rows else { continue };
            let Some(id) = self.scheduler.holder(last.owner) else { continue };
            let Some(stream) = &self.streams[id.index()] else { continue };
            if !stream.shows_progress {
                continue;
            }
            let usage = stream.times.usage();
            let processed = last.position.index() as u64 + 1;
            let is_prompt = usage.completion_tokens == 0 && processed <= usage.prompt_tokens;
            if is_prompt && !batch.failed.iter().any(|failed| failed.owner == last.owner) {
                self.update(id, now, |stream, context| {
                    stream.push_progress(processed, context.now);
                    false
                });
            }
        }
    }

    /// The error for a refused request.
    pub(super) fn explain(&self, refusal: Refusal) -> ApiError {
        match refusal {
            Refusal::TooManyTokens { tokens, limit } => ApiError::field(
                "prompt",
                format!(
                    "the prompts of this request that would wait for slots have {tokens} tokens; the \
                     queue holds {limit}"
                ),
            ),
            Refusal::TooMany { sequences, limit } => ApiError::field(
                "prompt",
                format!("{sequences} prompts in one request; this server takes {limit} at once"),
            ),
            Refusal::QueueFull { waiting, limit } => {
                self.busy(format!("{waiting} prompts"), limit.to_string())
            }
            Refusal::TokensFull { waiting, limit } => {
                self.busy(format!("prompts of {waiting} tokens"), limit.to_string())
            }
        }
    }

    /// The error for a full queue. If there are several keys, it has only numbers of this key, and
    /// the time to wait is rounded up to a power of 2.
    fn busy(&self, waiting: String, limit: String) -> ApiError {
        let seconds = self.pace.seconds_until_free(self.scheduler.waiting_count());
        if self.scheduler.serves_one_key() {
            let message = format!("the queue is full: {waiting} are waiting, {limit} may");
            return ApiError::busy(message, seconds);
        }
        let message = format!(
            "the queue is full: {waiting} of this key are waiting, {limit} may while other keys \
             leave room"
        );
        ApiError::busy(message, seconds.next_power_of_two().min(RETRY_AFTER_S_MAX))
    }

    /// The error for a client's task with a slot that was not done.
    pub(super) fn explain_slot(task: &SlotTask, refusal: SlotRefusal) -> ApiError {
        let SlotId(slot) = task.slot;
        let name = task.path.file_name().unwrap_or_default();
        match refusal {
            SlotRefusal::Busy => {
                ApiError::busy("too many texts are being saved; try again soon", 1)
            }
            SlotRefusal::NoText => ApiError::invalid(format!(
                "slot {slot} keeps no text of this key; n_past in GET /slots tells which slots do"
            )),
            SlotRefusal::NoRoom { stored, tokens } => ApiError::invalid(format!(
                "the text in slot {slot} has {tokens} tokens, and the prefix store has {stored} of them; \
                 a text is saved from there if it has {REUSE_TOKENS_MIN} tokens, and if --cache-ram \
                 leaves room for it"
            )),
            SlotRefusal::File(_, reason) if task.action == SlotAction::Erase => ApiError::internal(
                format!("files of the text in slot {slot} are still there: {reason}"),
            ),
            SlotRefusal::File(Outcome::Gone, reason) => {
                ApiError::no_such(format!("{name:?} cannot be used: {reason}"))
            }
            SlotRefusal::File(Outcome::Full, reason) => {
                ApiError::no_storage(format!("{name:?} was not saved: {reason}"))
            }
            SlotRefusal::File(_, reason) => {
                ApiError::internal(format!("the system refused {name:?}: {reason}"))
            }
        }
    }
}
