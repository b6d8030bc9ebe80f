//! The state of the server, as the engine tells it. Dialects write it in their forms.

/// A slot.
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

/// How busy the server is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests in a slot.
    pub running: u64,
    /// Requests waiting for a slot.
    pub waiting: u64,
    /// Tokens in the KV cache that running requests hold.
    pub tokens: u64,
}
