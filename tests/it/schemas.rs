//! Texts that a server with the built-in model samples under a schema are valid under that schema.
//! (`constraint.rs` chooses at random among all tokens that the masks allow.)

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::schemas::Schemas;
use crate::support::{Client, Random, TestServer, config};
use corelane::config::ServeConfig;
use serde_json::{Value, json};

const SCHEMAS: usize = 1000;
/// Texts for each.
const CHOICES: usize = 2;
const CLIENTS: usize = 8;
/// Of a text; one that has not ended by then says nothing.
const TOKENS_MAX: usize = 128;

/// Asks for texts under a schema; how many came to an end, and are valid.
fn check(client: &mut Client, index: usize) -> usize {
    let schema = Schemas(&mut Random::new(index as u64)).whole();
    // Half of them go through a chat's template.
    let temperature = [0.7, 1.0, 1.5][index / 2 % 3];
    let mut request = json!({"n": CHOICES, "max_tokens": TOKENS_MAX, "seed": index,
        "temperature": temperature,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}});
    let is_chat = index.is_multiple_of(2);
    let path = if is_chat {
        request["messages"] = json!([{"role": "user", "content": "Tell me of it."}]);
        "/v1/chat/completions"
    } else {
        request["prompt"] = json!("Once upon a time");
        "/v1/completions"
    };
    let response = client.post(path, &request.to_string());
    if response.status == 400 && response.body.contains("has no finite value") {
        return 0; // what contains itself always is rightly refused
    }
    assert_eq!(response.status, 200, "{}\n{request}", response.body);
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let answer = response.json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), CHOICES);
    let is_valid = |choice: &Value| {
        let text = if is_chat { &choice["message"]["content"] } else { &choice["text"] };
        let text = text.as_str().unwrap_or_else(|| panic!("no text: {choice}\n{request}"));
        match choice["finish_reason"].as_str() {
            Some("length") => return false,
            reason => assert_eq!(reason, Some("stop"), "{choice}"),
        }
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            // JSON has numbers that a double has not.
            Err(error) if error.to_string().contains("number out of range") => return false,
            Err(error) => panic!("{error}: {text}\n{request}"),
        };
        if let Err(error) = validator.validate(&value) {
            panic!("{error}\n{text}\n{request}");
        }
        true
    };
    choices.iter().filter(|choice| is_valid(choice)).count()
}

#[test]
fn what_the_model_says_under_a_thousand_random_schemas_validates() {
    let server = TestServer::builtin(ServeConfig { parallel: CLIENTS * CHOICES, ..config() });
    let (next, valid) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::connect(server.address);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= SCHEMAS {
                        return;
                    }
                    valid.fetch_add(check(&mut client, index), Ordering::Relaxed);
                }
            });
        }
    });
    let (valid, texts) = (valid.into_inner(), SCHEMAS * CHOICES);
    eprintln!("{valid} of {texts} texts ended and are valid");
    assert!(valid * 10 >= texts * 6, "{valid} of {texts} texts came to an end");
}
