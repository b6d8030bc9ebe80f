//! A text is the same streamed and whole, in every dialect, for tokens of any bytes: characters of
//! several bytes, emoji of several characters, and bytes that are no UTF-8.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Client, Random, TestServer, config};
use corelane::config::ServeConfig;
use corelane::model::fake::{END, FakeOptions, continuation_with};
use corelane::types::TokenId;
use serde_json::{Value, json};

const SEEDS: u64 = 10_000;
const CLIENTS: u64 = 4;

/// The texts of the fake model. Each byte is a token, so every character is cut.
const PHRASES: &[&[u8]] = &[
    b"a",
    b" word",
    b"\"\\/",
    b"\n\t",
    b"\0\x7f",
    "é".as_bytes(),
    "e\u{301}\u{323}".as_bytes(),
    "漢字かな交じり".as_bytes(),
    "한국어".as_bytes(),
    "العربية".as_bytes(),
    "ไทย".as_bytes(),
    "👩‍👩‍👧‍👦".as_bytes(),
    "🏳️‍🌈".as_bytes(),
    "👍🏽".as_bytes(),
    "\u{feff}\u{2028}\u{200f}".as_bytes(),
    "\u{10ffff}\u{fffd}".as_bytes(),
    // No UTF-8: alone, cut off, too long, a surrogate, beyond the last.
    b"\xff",
    b"\x80",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x91",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
];

const OPTIONS: FakeOptions = FakeOptions {
    end_one_in: 60,
    phrases: Some(PHRASES),
    // The others of `default`, which is no constant.
    step: std::time::Duration::ZERO,
    fail_one_in: 0,
    fail_more: 0,
    is_recurrent: false,
    window: 0,
    rollback: 0,
    hang_one_in: 0,
    hang_more: 0,
    hangs_for_good: false,
    panic_one_in: 0,
};

/// Stop strings, some of which do come.
const STOPS: &[&str] = &["word", "字か", "\u{fffd}\u{fffd}", "\u{301}", "👩‍👧", "\"\\", "never"];

/// The expected text.
fn expected(prompt: &str, max_tokens: usize, stop: Option<&str>) -> String {
    let prompt: Vec<TokenId> = prompt.bytes().map(TokenId::from).collect();
    let tokens = continuation_with(&OPTIONS, &prompt, max_tokens);
    let bytes: Vec<u8> = tokens.iter().filter(|t| **t != END).map(|t| *t as u8).collect();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    // Stop strings are searched in whole characters, before the end cuts a character off.
    let begins = |bytes| std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none());
    let is_cut = bytes.utf8_chunks().last().is_some_and(|last| begins(last.invalid()));
    let whole = text.len() - if is_cut { '\u{fffd}'.len_utf8() } else { 0 };
    if let Some(at) = stop.and_then(|stop| text[..whole].find(stop)) {
        text.truncate(at);
    }
    text
}

/// A dialect: where it is, a request to it, and where its text is, whole and in an event.
struct Dialect {
    path: &'static str,
    stream_path: &'static str,
    request: fn(&str, usize, Option<&str>) -> Value,
    whole: &'static str,
    delta: &'static str,
}

fn prompt(prompt: &str, max_tokens: usize, stop: Option<&str>) -> Value {
    let stops: Vec<&str> = stop.into_iter().collect();
    json!({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stop": stops})
}

fn messages(prompt: &str, max_tokens: usize, stop: Option<&str>) -> Value {
    let stops: Vec<&str> = stop.into_iter().collect();
    json!({"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens,
        "temperature": 0, "stop": stops, "stop_sequences": stops})
}

const DIALECTS: &[Dialect] = &[
    Dialect {
        path: "/v1/completions",
        stream_path: "/v1/completions",
        request: prompt,
        whole: "/choices/0/text",
        delta: "/choices/0/text",
    },
    Dialect {
        path: "/v1/chat/completions",
        stream_path: "/v1/chat/completions",
        request: messages,
        whole: "/choices/0/message/content",
        delta: "/choices/0/delta/content",
    },
    Dialect {
        path: "/v1/messages",
        stream_path: "/v1/messages",
        request: messages,
        whole: "/content/0/text",
        delta: "/delta/text",
    },
    Dialect {
        path: "/completion",
        stream_path: "/completion",
        request: prompt,
        whole: "/content",
        delta: "/content",
    },
    Dialect {
        path: "/generate",
        stream_path: "/generate_stream",
        request: |text, max_tokens, _| prompt(text, max_tokens, None),
        whole: "/data/text",
        delta: "/token",
    },
];

/// The text of an event stream.
fn streamed(body: &str, delta: &str) -> String {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter(|data| *data != "[DONE]").map(|data| {
        let event: Value = serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data:?}"));
        event.pointer(delta).and_then(Value::as_str).unwrap_or_default().to_owned()
    });
    events.collect()
}

#[test]
fn an_answer_is_the_same_streamed_or_whole() {
    let chat_template = Some("{{ messages[0].content }}".into());
    let server = TestServer::fake_with(ServeConfig { chat_template, ..config() }, OPTIONS);
    let (invalid, stopped, cut) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let check = |client: &mut Client, seed: u64| {
        let mut random = Random::new(seed);
        let dialect = &DIALECTS[random.within(0, DIALECTS.len() - 1)];
        let max_tokens = random.within(1, 60);
        let can_stop = dialect.path != "/generate" && random.one_in(2);
        let stop = can_stop.then(|| STOPS[random.within(0, STOPS.len() - 1)]);
        let text = format!("prompt {seed}");
        let expected = expected(&text, max_tokens, stop);
        let mut request = (dialect.request)(&text, max_tokens, stop);

        let whole = client.post(dialect.path, &request.to_string());
        assert_eq!(whole.status, 200, "seed {seed}: {}", whole.body);
        let said = whole.json();
        let said = said.pointer(dialect.whole).and_then(Value::as_str).unwrap_or_default();
        assert_eq!(said, expected, "seed {seed}: {request}");

        request["stream"] = true.into();
        let stream = client.post(dialect.stream_path, &request.to_string());
        assert_eq!(stream.status, 200, "seed {seed}: {}", stream.body);
        assert_eq!(streamed(&stream.body, dialect.delta), expected, "seed {seed}: {request}");

        let count =
            |counter: &AtomicUsize, is| counter.fetch_add(usize::from(is), Ordering::Relaxed);
        count(&invalid, expected.contains('\u{fffd}'));
        count(
            &stopped,
            stop.is_some_and(|stop| self::expected(&text, max_tokens, None).contains(stop)),
        );
        count(&cut, expected.ends_with('\u{fffd}'));
    };
    std::thread::scope(|scope| {
        for first in 0..CLIENTS {
            let (mut client, check) = (server.connect(), &check);
            scope.spawn(move || {
                (first..SEEDS).step_by(CLIENTS as usize).for_each(|seed| check(&mut client, seed));
            });
        }
    });
    // All that is asked about did happen, often.
    for (what, count) in [("invalid", invalid), ("stopped", stopped), ("cut off", cut)] {
        let count = count.into_inner();
        assert!(count > 300, "{what}: {count} of {SEEDS}");
    }
}
