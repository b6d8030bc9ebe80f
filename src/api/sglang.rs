//! The pages for SGLang's model gateway: `/server_info`, `/model_info` and `/get_load`. The gateway
//! sends requests for text to OpenAI's paths.

use serde_json::{Value, json};

use super::model::Model;
use super::state::Load;

/// The answer to `GET /server_info`. The gateway takes the model's name from it.
pub fn server_info(model: &Model<'_>, path: &str, slots: usize, kv_tokens: u32) -> Value {
    json!({
        "served_model_name": model.name,
        "model_path": path,
        "version": env!("CARGO_PKG_VERSION"),
        "dp_size": 1,
        "max_running_requests": slots,
        "max_total_num_tokens": kv_tokens,
        "context_length": model.context_tokens,
    })
}

/// The answer to `GET /model_info`.
pub fn model_info(model: &Model<'_>, path: &str) -> Value {
    json!({
        "model_path": path,
        "tokenizer_path": path,
        "is_generation": !model.info.sees_ahead,
        "model_type": model.info.architecture,
    })
}

/// The answer to `GET /get_load`: a list with one entry, for there is one engine.
pub fn load(load: Load) -> Value {
    json!([{
        "dp_rank": 0,
        "num_reqs": load.running + load.waiting,
        "num_waiting_reqs": load.waiting,
        "num_tokens": load.tokens,
    }])
}
