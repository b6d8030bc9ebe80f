//! llama-server's dialect: `/health`, `/slots` and `/props`. `/completion` and the paths that
//! tokenise have files of their own.

pub mod completion;
pub mod embedding;
pub mod infill;
pub mod settings;
pub mod slots;
pub mod tokens;

use serde::Serialize;

use super::state::SlotStatus;
use super::write::{List, Object, push_json, rounded};
use crate::chat::prompt::ChatModel;
use crate::types::defaults::SamplingDefaults;
use crate::types::{Calibration, Io, ModelInfo, Threads};

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
    #[derive(Serialize)]
    struct Answer<'a> {
        status: &'a str,
        model: &'a str,
        version: &'a str,
        uptime_s: f64,
        slots_idle: u64,
        slots_processing: u64,
        requests_waiting: u64,
        #[serde(flatten)]
        memory: Option<Memory>,
    }
    #[derive(Serialize)]
    struct Memory {
        kv_tokens_used: u64,
        kv_tokens_capacity: u64,
        connections: u64,
    }
    let Health { model, slots_idle, slots_processing, requests_waiting, .. } = *health;
    let Health { kv_tokens_used, kv_tokens_capacity, connections, .. } = *health;
    let memory = Memory { kv_tokens_used, kv_tokens_capacity, connections };
    push_json(
        out,
        &Answer {
            status: "ok",
            model,
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: rounded(health.uptime_s),
            slots_idle,
            slots_processing,
            requests_waiting,
            memory: (level == Level::Full).then_some(memory),
        },
    );
}

/// Writes the answer to `GET /slots`: an array, with llama-server's field names.
pub fn push_slots(out: &mut Vec<u8>, n_ctx: u32, slots: &[SlotStatus]) {
    #[derive(Serialize)]
    struct Slot<'a> {
        id: usize,
        n_ctx: u32,
        is_processing: bool,
        state: &'a str,
        n_past: usize,
        id_task: &'a str,
        n_prompt_tokens: u64,
        n_prompt_tokens_cache: u64,
        n_decoded: u64,
        elapsed_ms: f64,
        queued_ms: f64,
    }
    let slots = slots.iter().enumerate().map(|(id, slot)| Slot {
        id,
        n_ctx,
        is_processing: slot.is_busy(),
        state: slot.state,
        n_past: slot.n_past,
        id_task: &slot.id_task,
        n_prompt_tokens: slot.prompt_tokens,
        n_prompt_tokens_cache: slot.cached_tokens,
        n_decoded: slot.decoded_tokens,
        elapsed_ms: rounded(slot.elapsed_ms),
        queued_ms: rounded(slot.queued_ms),
    });
    push_json(out, &List(slots));
}

/// The answer to `GET /props`.
#[derive(Clone, Copy)]
pub struct Props<'a> {
    /// The model's name for clients.
    pub model: &'a str,
    /// The model's properties.
    pub info: &'a ModelInfo,
    /// How the front lane reads and writes its sockets.
    pub io: Io,
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
    /// The server's values for the sampling that requests leave out.
    pub defaults: SamplingDefaults,
    /// The system message of chats that begin with none.
    pub system_prompt: Option<&'a str>,
}

/// Writes the answer to `GET /props`.
pub fn push_props(out: &mut Vec<u8>, props: &Props<'_>) {
    #[derive(Serialize)]
    struct Answer<'a, A, C> {
        default_generation_settings: Defaults,
        total_slots: usize,
        model_alias: &'a str,
        model_path: &'a str,
        chat_template: &'a str,
        system_prompt: Option<&'a str>,
        chat_template_caps: A,
        bos_token: &'a str,
        eos_token: &'a str,
        n_vocab: usize,
        n_ctx_train: u32,
        build_info: &'a str,
        kernels: &'a str,
        io: &'a str,
        compute_threads: u16,
        products_led: bool,
        slowdown: f64,
        modalities: Modalities,
        endpoint_slots: bool,
        endpoint_props: bool,
        endpoint_metrics: bool,
        is_sleeping: bool,
        calibration: C,
    }
    #[derive(Serialize)]
    struct Defaults {
        n_ctx: u32,
        params: settings::Defaults,
    }
    #[derive(Serialize)]
    struct Modalities {
        vision: bool,
        audio: bool,
    }
    #[derive(Serialize)]
    struct Step {
        threads: u16,
        led: bool,
        rows: usize,
        is_prompt: bool,
        ms: f64,
    }
    let abilities = props.chat.map(ChatModel::abilities).into_iter().flatten();
    let abilities: Vec<_> =
        abilities.map(|(name, able)| (format!("supports_{name}"), able)).collect();
    let steps = props.calibration.steps.iter().map(|step| Step {
        threads: step.threads.count,
        led: step.threads.led,
        rows: step.rows,
        is_prompt: step.is_prompt,
        ms: rounded(step.took.as_secs_f64() * 1e3),
    });
    let answer = Answer {
        default_generation_settings: Defaults {
            n_ctx: props.n_ctx,
            params: settings::Defaults(props.defaults),
        },
        total_slots: props.slots,
        model_alias: props.model,
        model_path: props.path,
        chat_template: props.chat.map_or("", |chat| &chat.source),
        system_prompt: props.system_prompt,
        chat_template_caps: Object(abilities.iter().map(|(name, able)| (name, able))),
        bos_token: props.bos,
        eos_token: props.eos,
        n_vocab: props.info.n_vocab,
        n_ctx_train: props.info.context_trained,
        build_info: concat!("corelane ", env!("CARGO_PKG_VERSION")),
        kernels: props.info.kernels.name,
        io: props.io.name(),
        compute_threads: props.threads.count,
        products_led: props.threads.led,
        slowdown: rounded(props.slowdown),
        modalities: Modalities { vision: false, audio: false },
        endpoint_slots: true,
        endpoint_props: false,
        endpoint_metrics: props.shows_metrics,
        is_sleeping: false,
        calibration: List(steps),
    };
    push_json(out, &answer);
}
