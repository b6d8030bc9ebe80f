//! The JSON of a request.

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::load::Load;

#[derive(Serialize)]
struct Completion<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    prompt: &'a [u32],
    max_tokens: u32,
    temperature: f64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The body of one request of a load.
pub fn write(load: &Load, prompt: &[u32], max_tokens: u32) -> Bytes {
    let completion = Completion {
        model: load.model.as_deref(),
        prompt,
        max_tokens,
        // By way of its digits, so that 0.7 stays 0.7.
        temperature: load.temperature.to_string().parse().unwrap_or_default(),
        stream: load.stream,
        stream_options: load.stream.then_some(StreamOptions { include_usage: true }),
        ignore_eos: load.ignore_eos,
    };
    let mut fields = serde_json::to_value(completion).expect("plain data");
    if let Value::Object(fields) = &mut fields {
        fields.extend(load.extra_body.clone());
    }
    Bytes::from(fields.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(load: &Load) -> Value {
        serde_json::from_slice(&write(load, &[1, 2], 7)).unwrap()
    }

    #[test]
    fn a_request_asks_for_usage_and_sends_only_what_is_set() {
        let plain = json!({
            "prompt": [1, 2], "max_tokens": 7, "temperature": 0.0, "stream": true,
            "stream_options": {"include_usage": true},
        });
        assert_eq!(written(&Load::default()), plain);
        let load = Load {
            model: Some("m".into()),
            stream: false,
            ignore_eos: true,
            temperature: 0.7,
            extra_body: json!({"cache_prompt": false, "max_tokens": 9})
                .as_object()
                .unwrap()
                .clone(),
            ..Load::default()
        };
        let full = json!({
            "model": "m", "prompt": [1, 2], "max_tokens": 9, "temperature": 0.7, "stream": false,
            "ignore_eos": true, "cache_prompt": false,
        });
        assert_eq!(written(&load), full);
    }
}
