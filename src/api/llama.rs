//! llama-server's dialect: `/health`.

use std::io::Write;

use super::json::push_string;

/// The answer to `/health` of a server that is ready.
pub const HEALTHY: &[u8] = b"{\"status\":\"ok\"}";

/// A slot, as `GET /slots` shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotStatus {
    /// `idle`, `following`, `prefill` or `decode`.
    pub state: &'static str,
    /// Tokens in it.
    pub n_past: usize,
    /// Its request's `id`, as the response says it; empty where nobody holds it.
    pub id_task: String,
    /// Tokens of the request's prompts, and those of them that were found in the
    /// KV cache.
    pub prompt_tokens: u64,
    /// See above.
    pub cached_tokens: u64,
    /// Tokens that the request has generated.
    pub decoded_tokens: u64,
    /// Milliseconds since it was admitted, and those of them that it waited.
    pub elapsed_ms: f64,
    /// See above.
    pub queued_ms: f64,
}

/// The answer to `GET /slots`: an array, with llama-server's names for what it
/// has.
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
            slot.state != "idle",
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
