//! Writes the JSON body of a request.

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::prompts::words;
use super::workload::{Form, Load};

#[derive(Serialize)]
struct Fields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Value>,
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

/// Writes the body of one request of a load.
pub fn write(load: &Load, prompt: &[u32], max_tokens: u32) -> Bytes {
    let (prompt, messages) = match load.form {
        Form::Ids => (Some(prompt.into()), None),
        Form::Text => (Some(words(prompt).into()), None),
        Form::Chat => (None, Some(json!([{"role": "user", "content": words(prompt)}]))),
    };
    let fields = Fields {
        model: load.model.as_deref(),
        prompt,
        messages,
        max_tokens,
        // An f32 converted to f64 directly would turn 0.7 into 0.699…; its decimal digits keep 0.7.
        temperature: load.temperature.to_string().parse().unwrap_or_default(),
        stream: load.stream,
        stream_options: load.stream.then_some(StreamOptions { include_usage: true }),
        ignore_eos: load.ignore_eos,
    };
    let mut fields = serde_json::to_value(fields).expect("plain data");
    if let Value::Object(fields) = &mut fields {
        fields.extend(load.extra_body.clone());
    }
    Bytes::from(fields.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn words_go_as_a_text_or_as_a_message() {
        let text = words(&[1, 2]);
        let common = json!({
            "max_tokens": 7, "temperature": 0.0, "stream": true,
            "stream_options": {"include_usage": true},
        });
        let with = |key: &str, value: Value| {
            let mut fields = common.clone();
            fields[key] = value;
            fields
        };
        let of_text = written(&Load { form: Form::Text, ..Load::default() });
        assert_eq!(of_text, with("prompt", text.as_str().into()));
        let of_chat = written(&Load { form: Form::Chat, ..Load::default() });
        let messages = json!([{"role": "user", "content": text}]);
        assert_eq!(of_chat, with("messages", messages));
    }
}
