//! What clients of llama-server expect, from its flags to the fields of its answers.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Client, TestServer, config, key, post_bytes};
use corelane::config::ServeConfig;
use corelane::lanes::Server;
use corelane::model::fake::FakeOptions;
use serde_json::{Value, json};

fn payloads(events: &[String]) -> Vec<Value> {
    events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect()
}

fn socket(name: &str) -> PathBuf {
    // Such a path may have 107 bytes.
    std::env::temp_dir().join(format!("corelane-{}-{name}.sock", std::process::id()))
}

fn curl(path: &PathBuf, more: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.arg("-s").arg("--unix-socket").arg(path).args(more);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_server_listens_on_several_addresses_and_on_a_unix_socket() {
    let path = socket("several");
    let hosts = vec!["127.0.0.1".into(), path.to_str().unwrap().into(), "127.0.0.2".into()];
    let with = |hosts: &Vec<String>| ServeConfig { hosts: hosts.clone(), ..config() };
    let server = TestServer::fake(with(&hosts), 0);
    let body = r#"{"prompt":"abc","max_tokens":5,"stream":true}"#;
    let whole = server.post("/v1/completions", body).events();
    let mut other = server.address;
    other.set_ip("127.0.0.2".parse().unwrap());
    assert_eq!(Client::connect(other).post("/v1/completions", body).events().len(), whole.len());
    let url = "http://localhost/v1/completions";
    let streamed = curl(&path, &[url, "-d", body]);
    assert_eq!(streamed.matches("data: ").count(), whole.len(), "{streamed}");
    let error = Server::start(with(&vec![path.to_str().unwrap().into()])).err().unwrap();
    assert!(error.contains("is in use by another program"), "{error}");
    drop(server);
    assert!(!path.exists(), "the file is removed");
}

#[test]
fn the_file_of_a_dead_socket_is_replaced_and_another_file_is_not() {
    let path = socket("dead");
    let hosts = vec![path.to_str().unwrap().to_owned()];
    let with = || ServeConfig { hosts: hosts.clone(), ..config() };
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left behind");
    let mut server = Server::start(with()).unwrap();
    assert_eq!(server.addresses().len(), 1);
    server.load_fake(FakeOptions::default()).unwrap();
    assert_eq!(curl(&path, &["http://localhost/health"]), "{\"status\":\"ok\"}");
    server.control().drain();
    server.join().unwrap();
    std::fs::write(&path, "mine").unwrap();
    let error = Server::start(with()).err().unwrap();
    assert!(error.contains("is a file and no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_metrics_are_on_the_port_of_the_api_if_asked_for() {
    let keys = vec![key("secret")];
    let server = TestServer::fake(ServeConfig { metrics: true, keys, ..config() }, 0);
    let mut client = server.connect();
    assert_eq!(client.get("/metrics").status, 401);
    let request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n";
    client.send(request.as_bytes());
    let page = client.response();
    assert_eq!(page.status, 200);
    let media = page.header("content-type").unwrap();
    assert_eq!(media, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    for line in ["llamacpp:requests_processing 0", "corelane_ready 1", "# EOF"] {
        assert!(page.body.contains(line), "{line}: {}", page.body);
    }
    let without = TestServer::fake(config(), 0).get("/metrics");
    assert_eq!(
        (without.status, &without.json()["error"]["type"]),
        (501, &"not_supported_error".into())
    );
}

#[test]
fn a_model_has_all_its_names() {
    let (aliases, tags) = (vec!["first".to_owned(), "a/b".to_owned()], vec!["small".to_owned()]);
    let server = TestServer::fake(ServeConfig { aliases, tags, ..config() }, 0);
    let list = server.get("/v1/models").json();
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["aliases"]), (&json!("first"), &json!(["first", "a/b"])));
    assert_eq!(
        (&list["models"][0]["name"], &list["models"][0]["tags"]),
        (&json!("first"), &json!(["small"]))
    );
    for (name, status) in [("first", 200), ("a/b", 200), ("a%2Fb", 200), ("fake", 404)] {
        assert_eq!(server.get(&format!("/v1/models/{name}")).status, status, "{name}");
    }
    assert_eq!(server.get("/props").json()["model_alias"], "first");
}

#[test]
fn the_last_object_repeats_the_request() {
    let server = TestServer::builtin(config());
    let body = json!({"prompt": "Once upon", "n_predict": 5, "top_k": 3, "seed": 7, "n_cmpl": 2});
    let whole = server.post("/completion", &body.to_string()).json();
    for (choice, seed) in [(0, 7), (1, 8)] {
        let last = &whole[choice];
        let settings = &last["generation_settings"];
        assert_eq!((&settings["seed"], &settings["top_k"]), (&json!(seed), &json!(3)));
        assert_eq!((&settings["n_predict"], &last["prompt"]), (&json!(5), &json!("Once upon")));
        assert!(last["id_slot"].as_u64().unwrap() < 8, "{last}");
    }
    let mut body = body;
    body["response_fields"] = json!(["content", "generation_settings/seed", "timings/prompt_n"]);
    body["stream"] = true.into();
    body["n_cmpl"] = 1.into();
    let events = payloads(&server.post("/completion", &body.to_string()).events());
    let names: Vec<&String> = events.last().unwrap().as_object().unwrap().keys().collect();
    assert_eq!(names, ["content", "generation_settings/seed", "timings/prompt_n"]);
    let first = &events[0];
    assert_eq!((&first["stop"], &first["tokens_predicted"]), (&json!(false), &json!(1)));
    assert!(first.get("prompt").is_none() && first["tokens_evaluated"] == 4, "{first}");
}

/// The seed in the answer gives the same text again.
#[test]
fn a_drawn_seed_is_told() {
    let server = TestServer::builtin(config());
    let ask = |seed: Option<u64>| {
        let body = json!({"prompt": "Once upon a time", "n_predict": 20, "seed": seed});
        server.post("/completion", &body.to_string()).json()
    };
    let drawn = ask(None);
    let again = ask(drawn["generation_settings"]["seed"].as_u64());
    assert_eq!(drawn["content"], again["content"]);
}

#[test]
fn the_progress_of_a_prompt_is_streamed() {
    let small = ServeConfig { batch_rows: 64, ubatch_rows: 64, ..config() };
    let server = TestServer::fake(small, 0);
    let prompt = "x".repeat(300);
    let body = json!({"prompt": prompt, "n_predict": 3, "stream": true, "return_progress": true});
    for path in ["/completion", "/v1/completions"] {
        let salted = json!({"cache_salt": path});
        let mut body = body.clone();
        body.as_object_mut().unwrap().extend(salted.as_object().unwrap().clone());
        let events = payloads(&server.post(path, &body.to_string()).events());
        let parts: Vec<&Value> =
            events.iter().filter_map(|event| event.get("prompt_progress")).collect();
        assert!(parts.len() >= 4, "{path}: {events:?}");
        let shown = |event: &Value| event.get("prompt_progress").is_some();
        assert!(events[..parts.len()].iter().all(shown), "before the text");
        let processed: Vec<u64> =
            parts.iter().map(|part| part["processed"].as_u64().unwrap()).collect();
        assert!(processed.is_sorted() && processed.last() == Some(&300), "{processed:?}");
        assert!(parts.iter().all(|part| part["total"] == 300 && part["cache"] == 0));
    }
    let whole = server
        .post("/completion", &body.to_string().replace("\"stream\":true", "\"stream\":false"));
    assert!(whole.json().get("prompt_progress").is_none());
}

#[test]
fn a_silent_stream_sends_comments_as_often_as_it_is_asked_to() {
    // The first step hangs until the server is dropped.
    let options = FakeOptions { hang_one_in: 1, ..FakeOptions::default() };
    let ping_interval = Some(Duration::from_millis(1));
    let drain = Duration::from_millis(1);
    let step_timeout = Duration::from_secs(600);
    let config = ServeConfig { ping_interval, drain, step_timeout, ..config() };
    let server = TestServer::fake_with(config, options);
    let stream = |more: &str| {
        let body = format!("{{\"prompt\":\"a\",\"n_predict\":1,\"stream\":true{more}}}");
        let mut client = server.connect();
        client.send(post_bytes("/completion", &body).as_bytes());
        client
    };
    let mut never = stream(",\"sse_ping_interval\":-1");
    let mut as_configured = stream("");
    assert_eq!(as_configured.head().unwrap().0, 200);
    for _ in 0..3 {
        assert_eq!(as_configured.chunk().unwrap(), b": ping\n\n");
    }
    let start = Instant::now();
    let mut every_second = stream(",\"sse_ping_interval\":1");
    every_second.head().unwrap();
    assert_eq!(every_second.chunk().unwrap(), b": ping\n\n");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(!never.hears_within(Duration::from_millis(1)));
}
