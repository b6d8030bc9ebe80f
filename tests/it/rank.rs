//! Documents in the order of their relevance. The scores themselves are compared with a reference in
//! `tests/python/test_rank.py`.

use crate::support::{TestServer, config};
use serde_json::{Value, json};

fn ask(server: &TestServer, path: &str, body: Value) -> (u16, Value) {
    let response = server.post(path, &body.to_string());
    (response.status, response.json())
}

#[test]
fn each_document_is_scored_as_if_it_were_alone() {
    let server = TestServer::ranking(config());
    let documents: Vec<String> = (0..70).map(|n| format!("document {n} of a fox")).collect();
    let body = json!({"query": "fox", "documents": documents});
    let (status, answer) = ask(&server, "/v1/rerank", body);
    assert_eq!(status, 200, "{answer}");
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), documents.len());
    let score = |result: &Value| result["relevance_score"].as_f64().unwrap();
    assert!(results.iter().map(score).is_sorted_by(|a, b| a >= b), "the best first");
    for result in &results[..5] {
        let document = &documents[result["index"].as_u64().unwrap() as usize];
        let (_, alone) = ask(&server, "/v1/score", json!({"text_1": "fox", "text_2": document}));
        let alone = alone["data"][0]["score"].as_f64().unwrap();
        assert!((alone - score(result)).abs() < 1e-3, "{alone} {result}");
    }
}

#[test]
fn pairs_without_tokens_and_pairs_that_are_too_long_are_refused() {
    let server = TestServer::ranking(config());
    let long = "a fox and a river ".repeat(400);
    for (path, body, field, says) in [
        ("/v1/score", json!({"text_1": "", "text_2": ["a", ""]}), "text_2", "without tokens"),
        ("/v1/score", json!({"text_1": "", "text_2": ""}), "text_2", "without tokens"),
        ("/v1/rerank", json!({"query": "a", "documents": [long]}), "documents", "it may have 1024"),
        ("/v1/score", json!({"text_1": "a", "text_2": long}), "text_2", "it may have 1024"),
    ] {
        let (status, answer) = ask(&server, path, body);
        let error = &answer["error"];
        assert_eq!((status, &error["param"]), (400, &field.into()), "{path}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(says), "{answer}");
    }
    // A document is cut where the request allows it.
    for more in [json!({"truncate": true}), json!({"max_tokens_per_doc": 64})] {
        let mut body = json!({"query": "a", "documents": [long, "short"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = ask(&server, "/v2/rerank", body);
        assert_eq!(status, 200, "{answer}");
        let tokens = answer["usage"]["total_tokens"].as_u64().unwrap();
        let most = if more.get("truncate").is_some() { 1030 } else { 75 };
        assert!(tokens <= most && tokens > most / 2, "{tokens}");
    }
}

#[test]
fn a_server_does_what_it_was_started_for() {
    let ranks = TestServer::ranking(config());
    let (status, answer) = ask(&ranks, "/v1/embeddings", json!({"input": "a"}));
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("see /v1/rerank"), "{answer}");
    let (status, answer) = ask(&ranks, "/v1/completions", json!({"prompt": "a", "max_tokens": 2}));
    assert_eq!(status, 200, "texts work beside it: {answer}");
    let other = TestServer::builtin(config());
    let (status, answer) = ask(&other, "/v1/rerank", json!({"query": "a", "documents": ["b"]}));
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("--pooling rank"), "{answer}");
}
