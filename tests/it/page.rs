//! The web page's files, and the lanes that it shows.

use std::collections::HashMap;
use std::io::Read;

use corelane::config::ServeConfig;
use corelane::page;
use serde_json::{Value, json};

use crate::support::{Client, Response, TestServer, config, key};

fn get_with(client: &mut Client, path: &str, fields: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes());
    client.response()
}

/// The head and the bytes of a file.
fn file_with(client: &mut Client, path: &str, fields: &str) -> (Response, Vec<u8>) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes());
    let (status, headers) = client.head().unwrap();
    let head = Response { status, headers, body: String::new() };
    let length = head.header("content-length").unwrap().parse().unwrap();
    let mut bytes = vec![0; if status == 304 { 0 } else { length }];
    client.stream.read_exact(&mut bytes).unwrap();
    (head, bytes)
}

#[test]
fn every_file_of_the_page_is_served_without_a_key() {
    let server = TestServer::fake(ServeConfig { keys: vec![key("secret")], ..config() }, 0);
    let mut client = server.connect();
    for file in page::files() {
        let (response, bytes) = file_with(&mut client, file.path, "");
        assert_eq!((response.status, &*bytes), (200, file.content), "{}", file.path);
        assert_eq!(response.header("content-type"), Some(file.content_type));
        assert_eq!(response.header("content-encoding"), None);
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");

        for fields in ["Accept-Encoding: br, gzip;q=0.5\r\n", "Accept-Encoding: *\r\n"] {
            let (packed, bytes) = file_with(&mut client, file.path, fields);
            assert_eq!(packed.header("content-encoding"), Some("gzip"));
            assert_eq!(bytes, file.gzip);
        }
        for fields in ["Accept-Encoding: *, gzip;q=0\r\n", "Accept-Encoding: br, *;q=0.0\r\n", ""] {
            assert_eq!(file_with(&mut client, file.path, fields).1, file.content, "{fields}");
        }
    }
}

#[test]
fn a_browser_that_has_a_file_gets_no_second_copy() {
    let server = TestServer::fake(config(), 0);
    let mut client = server.connect();
    let etag = client.get("/").header("etag").unwrap().to_owned();
    let fields = format!("If-None-Match: {etag}\r\n");
    let (unchanged, _) = file_with(&mut client, "/", &fields);
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some(&*etag)));
    // The connection goes on: a 304 has no body.
    let (other, bytes) = file_with(&mut client, "/", "If-None-Match: W/\"0-00000000\"\r\n");
    assert_eq!((other.status, &*bytes), (200, page::files()[0].content));
}

#[test]
fn the_page_is_only_read() {
    let server = TestServer::fake(config(), 0);
    let response = server.post("/", "{}");
    assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let mut client = server.connect();
    let response = get_with(&mut client, "/", "Content-Length: 2\r\n\r\n{}");
    assert_eq!(response.status, 400);
    assert!(response.json()["error"]["message"].as_str().unwrap().contains("takes no body"));
}

#[test]
fn a_server_without_the_page_has_nothing_there() {
    let server = TestServer::fake(ServeConfig { ui: false, ..config() }, 0);
    for path in page::paths() {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn the_lanes_show_each_step_once() {
    let server = TestServer::fake(config(), 0);
    let ask = |since: u64| server.get(&format!("/lanes?since={since}")).json();
    let text = json!({"prompt": "a prompt of some tokens", "max_tokens": 20});
    assert_eq!(server.post("/v1/completions", &text.to_string()).status, 200);
    let lanes = ask(0);
    let column = |lanes: &Value, table: &str, name: &str| -> Vec<u64> {
        let fields = lanes[table]["fields"].as_array().unwrap();
        let at = fields.iter().position(|field| field == name).unwrap();
        let rows = lanes[table]["values"].as_array().unwrap().iter();
        rows.map(|row| row[at].as_u64().unwrap()).collect()
    };
    let steps = |name| column(&lanes, "steps", name);
    assert_eq!(steps("prefill_rows").iter().sum::<u64>(), 23, "the fake model has a token a byte");
    assert_eq!(steps("decode_rows").iter().sum::<u64>(), 19, "the first one comes of the prompt");
    assert!(steps("step").is_sorted_by(|a, b| a < b));
    let turns = column(&lanes, "ticks", "began_us").into_iter();
    let turns = turns.zip(column(&lanes, "ticks", "took_us")).collect::<HashMap<_, _>>();
    let times = steps("sent_us").into_iter().zip(steps("began_us")).zip(steps("received_us"));
    for ((sent, began), received) in times {
        let turn_ended = received + turns[&received];
        assert!(sent <= began && began <= turn_ended, "{sent} {began} {received} {turn_ended}");
    }
    let first_tokens = lanes["histograms"]["ttft_us"]["counts"].as_array().unwrap();
    assert_eq!(first_tokens.iter().filter_map(Value::as_u64).sum::<u64>(), 1);

    let now = lanes["now_us"].as_u64().unwrap();
    assert_eq!(ask(now)["steps"]["values"], json!([]), "none since");
    assert_eq!(server.post("/v1/completions", &text.to_string()).status, 200);
    let first = *steps("step").last().unwrap();
    let new = column(&ask(now), "steps", "step");
    assert!(!new.is_empty() && new.iter().all(|step| *step > first));
}

#[test]
fn the_lanes_are_not_shown_to_one_key_of_several() {
    let ask = |keys: &[&str], share_cache, secret: &str| {
        let keys = keys.iter().copied().map(key).collect();
        let server = TestServer::fake(ServeConfig { keys, share_cache, ..config() }, 0);
        let fields = format!("Authorization: Bearer {secret}\r\n");
        get_with(&mut server.connect(), "/lanes", &fields)
    };
    assert_eq!(ask(&["alice"], false, "alice").status, 200);
    assert_eq!(ask(&["alice"], false, "bob").status, 401);
    let refused = ask(&["alice", "bob"], false, "alice");
    assert_eq!(refused.status, 403);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("2 keys") && message.contains("--share-cache"), "{message}");
    assert_eq!(ask(&["alice", "bob"], true, "alice").status, 200);
}
