//! llama-server's dialect: `/health`, `/slots` and `/props`. `/completion` and the paths that
//! tokenise have files of their own.

pub mod completion;
pub mod embedding;
pub mod infill;
pub mod settings;
pub mod tokens;

use std::io::Write;

use super::write::push_string;
use crate::chat::prompt::ChatModel;
use crate::types::{Calibration, ModelInfo, Threads};

/// The answer to `/health` of a ready server.
pub const HEALTHY: &[u8] = b"{\"status\":\"ok\"}";

/// The level of detail of `GET /health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// How busy the server is.
    Detailed,
    /// Also its memory.
    Full,
}

/// The detailed answer to `GET /health`.
#[derive(Clone, Copy, Debug)]
pub struct Health<'a> {
    /// The model's name for clients.
    pub model: &'a str,
    /// Seconds since the server started.
    pub uptime_s: f64,
    /// Free slots.
    pub slots_idle: u64,
    /// Requests that run.
    pub slots_processing: u64,
    /// Requests that wait.
    pub requests_waiting: u64,
    /// Tokens in the KV cache, for clients without a key in eighths of the capacity.
    pub kv_tokens_used: u64,
    /// Tokens that fit into the KV cache.
    pub kv_tokens_capacity: u64,
    /// Open client connections.
    pub connections: u64,
}

/// Tokens, rounded up to an eighth of the capacity.
pub fn in_eighths(tokens: u64, capacity: u64) -> u64 {
    tokens.next_multiple_of(capacity.div_ceil(8).max(1)).min(capacity)
}

/// Writes the answer to `GET /health?level=…` of a ready server.
pub fn push_health(out: &mut Vec<u8>, health: &Health<'_>, level: Level) {
    out.extend_from_slice(b"{\"status\":\"ok\",\"model\":");
    push_string(out, health.model);
    write!(
        out,
        ",\"version\":\"{}\",\"uptime_s\":{:.3},\"slots_idle\":{},\"slots_processing\":{},\
         \"requests_waiting\":{}",
        env!("CARGO_PKG_VERSION"),
        health.uptime_s,
        health.slots_idle,
        health.slots_processing,
        health.requests_waiting
    )
    .expect("memory");
    if level == Level::Full {
        write!(
            out,
            ",\"kv_tokens_used\":{},\"kv_tokens_capacity\":{},\"connections\":{}",
            health.kv_tokens_used, health.kv_tokens_capacity, health.connections
        )
        .expect("memory");
    }
    out.push(b'}');
}

/// A slot in `GET /slots`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotStatus {
    /// `idle`, `following`, `prefill` or `decode`; `busy` for a slot of another key.
    pub state: &'static str,
    /// Tokens in it.
    pub n_past: usize,
    /// The `id` of its request's response; empty for a free slot.
    pub id_task: String,
    /// Tokens of the request's prompts.
    pub prompt_tokens: u64,
    /// Tokens of the prompts that were found in the KV cache.
    pub cached_tokens: u64,
    /// Tokens that the request has generated.
    pub decoded_tokens: u64,
    /// Milliseconds since the request was admitted.
    pub elapsed_ms: f64,
    /// Milliseconds of these that it waited for a slot.
    pub queued_ms: f64,
}

impl SlotStatus {
    /// Whether a request holds it.
    pub fn is_busy(&self) -> bool {
        self.state != "idle"
    }
}

/// Writes the answer to `GET /slots`: an array, with llama-server's field names.
pub fn push_slots(out: &mut Vec<u8>, n_ctx: u32, slots: &[SlotStatus]) {
    out.push(b'[');
    for (id, slot) in slots.iter().enumerate() {
        if id > 0 {
            out.push(b',');
        }
        write!(
            out,
            "{{\"id\":{id},\"n_ctx\":{n_ctx},\"is_processing\":{},\"state\":\"{}\",\
             \"n_past\":{},\"id_task\":",
            slot.is_busy(),
            slot.state,
            slot.n_past
        )
        .expect("memory");
        push_string(out, &slot.id_task);
        write!(
            out,
            ",\"n_prompt_tokens\":{},\"n_prompt_tokens_cache\":{},\"n_decoded\":{},\
             \"elapsed_ms\":{:.3},\"queued_ms\":{:.3}}}",
            slot.prompt_tokens,
            slot.cached_tokens,
            slot.decoded_tokens,
            slot.elapsed_ms,
            slot.queued_ms
        )
        .expect("memory");
    }
    out.push(b']');
}

/// The answer to `GET /props`.
#[derive(Clone, Copy)]
pub struct Props<'a> {
    /// The model's name for clients.
    pub model: &'a str,
    /// The model's properties.
    pub info: &'a ModelInfo,
    /// The model's file.
    pub path: &'a str,
    /// Requests that run at once.
    pub slots: usize,
    /// The machine, as it was measured at the start.
    pub calibration: &'a Calibration,
    /// Compute threads of a step now; their number is 0 if they were not measured.
    pub threads: Threads,
    /// The time of a step to that alone on the machine.
    pub slowdown: f64,
    /// Most tokens of one request.
    pub n_ctx: u32,
    /// The chat template, if there is one.
    pub chat: Option<&'a ChatModel>,
    /// The text of the token at the start of a prompt.
    pub bos: &'a str,
    /// The text of the token at the end of a text.
    pub eos: &'a str,
    /// Whether `/metrics` answers.
    pub shows_metrics: bool,
}

/// Writes the answer to `GET /props`.
pub fn push_props(out: &mut Vec<u8>, props: &Props<'_>) {
    write!(out, "{{\"default_generation_settings\":{{\"n_ctx\":{},\"params\":", props.n_ctx)
        .expect("memory");
    settings::push_defaults(out);
    write!(out, "}},\"total_slots\":{},\"model_alias\":", props.slots).expect("memory");
    push_string(out, props.model);
    out.extend_from_slice(b",\"model_path\":");
    push_string(out, props.path);
    out.extend_from_slice(b",\"chat_template\":");
    push_string(out, props.chat.map_or("", |chat| &chat.source));
    out.extend_from_slice(b",\"chat_template_caps\":");
    let abilities = props.chat.map(ChatModel::abilities).into_iter().flatten();
    let abilities: serde_json::Map<_, _> =
        abilities.map(|(name, able)| (format!("supports_{name}"), able.into())).collect();
    serde_json::to_writer(&mut *out, &abilities).expect("memory");
    out.extend_from_slice(b",\"bos_token\":");
    push_string(out, props.bos);
    out.extend_from_slice(b",\"eos_token\":");
    push_string(out, props.eos);
    write!(
        out,
        ",\"n_vocab\":{},\"n_ctx_train\":{},\"build_info\":\"corelane {}\",\
         \"kernels\":\"{}\",\"compute_threads\":{},\"products_led\":{},\"slowdown\":{:.3},\
         \"modalities\":{{\"vision\":false,\"audio\":false}},\
         \"endpoint_slots\":true,\"endpoint_props\":false,\"endpoint_metrics\":{},\
         \"is_sleeping\":false,\"calibration\":[",
        props.info.n_vocab,
        props.info.context_trained,
        env!("CARGO_PKG_VERSION"),
        props.info.kernels.name,
        props.threads.count,
        props.threads.led,
        props.slowdown,
        props.shows_metrics
    )
    .expect("memory");
    for (index, step) in props.calibration.steps.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let (threads, led) = (step.threads.count, step.threads.led);
        let (rows, is_prompt) = (step.rows, step.is_prompt);
        let ms = step.took.as_secs_f64() * 1e3;
        write!(
            out,
            "{comma}{{\"threads\":{threads},\"led\":{led},\"rows\":{rows},\"is_prompt\":{is_prompt},\
             \"ms\":{ms:.3}}}"
        )
        .expect("memory");
    }
    out.extend_from_slice(b"]}");
}
