//! Prefixes that come back from files: after a restart, and when memory has no room for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use corelane::config::{FileFolder, FilesKey, ServeConfig};
use corelane::types::{CacheLayout, CacheType};
use serde_json::json;
use tempfile::TempDir;

use crate::command_line::Running;
use crate::hybrid::{SHAPES, follow, hybrid};
use crate::support::metrics::Samples;
use crate::support::{Client, Random, TestServer, config, eventually, key};

pub const MODELS: [&str; 4] = ["built-in", SHAPES[0], SHAPES[1], SHAPES[2]];

/// The configuration of a server with files in a folder.
fn with_files(folder: &TempDir) -> ServeConfig {
    let files = FileFolder { path: folder.path().join("files"), mib: 64 };
    ServeConfig { parallel: 1, cache_disk: Some(files), ..config() }
}

pub fn start(model: &str, config: ServeConfig) -> TestServer {
    match model {
        "built-in" => TestServer::builtin(config),
        shape => TestServer::file(hybrid(shape), config),
    }
}

/// Tokens of a text of its own.
pub fn text(number: i64, count: i64) -> Vec<i64> {
    (0..count).map(|place| 260 + number * 17 + place * 7 % 40).collect()
}

/// The files in a folder and in the folders in it, but for its lock.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.ends_with("lock") => {}
            false => all.push(path),
        }
    }
    all.sort();
    all
}

/// The tokens behind a prompt, computed from its start.
pub fn anew(server: &TestServer, prompt: &[i64]) -> Vec<i64> {
    follow(server, prompt, json!({"cache_prompt": false})).0
}

#[test]
fn a_chat_goes_on_where_it_was_after_a_restart() {
    for model in MODELS {
        for key in [None, Some(b"a secret of enough bytes".to_vec())] {
            let folder = TempDir::new().unwrap();
            let mut config = with_files(&folder);
            config.files_key = key.map(FilesKey);
            let mut chat = text(1, 300);
            for turn in 0..3 {
                let server = start(model, config.clone());
                let (said, cached) = follow(&server, &chat, json!({}));
                // The last token of an answer has not been computed.
                let kept = if turn == 0 { 0 } else { chat.len() as u64 - 11 };
                assert_eq!(cached, kept, "{model}, turn {turn}");
                assert_eq!(said, anew(&server, &chat), "{model}, turn {turn}");
                let read = server.metrics.front.fetched_tokens.get();
                assert_eq!(read, kept, "{model}, turn {turn}");
                chat.extend(&said);
                chat.extend(text(turn, 10));
                drop(server);
            }
        }
    }
}

#[test]
fn a_client_is_told_which_tokens_came_from_files() {
    let folder = TempDir::new().unwrap();
    let server = start("built-in", with_files(&folder));
    follow(&server, &text(1, 300), json!({}));
    drop(server);
    let server = start("built-in", with_files(&folder));
    let body = json!({"prompt": text(1, 300), "max_tokens": 4}).to_string();
    let timings = || server.post("/v1/completions", &body).json()["timings"].clone();
    let first = timings();
    for field in ["cache_n", "cache_store_n", "cache_disk_n"] {
        assert_eq!(first[field], 299, "{first}");
    }
    let second = timings();
    assert_eq!(second["cache_n"], 300, "with its logits: {second}");
    assert!(second.get("cache_disk_n").is_none(), "{second}");
}

#[test]
fn files_hold_more_than_memory() {
    for model in SHAPES {
        let folder = TempDir::new().unwrap();
        let config = ServeConfig { cache_ram: Some(2), ..with_files(&folder) };
        let server = start(model, config);
        let texts: Vec<Vec<i64>> = (0..16).map(|number| text(number, 300)).collect();
        let said: Vec<_> = texts.iter().map(|text| follow(&server, text, json!({})).0).collect();
        for (text, said) in texts.iter().zip(said) {
            assert_eq!(follow(&server, text, json!({})).0, said, "{model}");
        }
        let read = server.metrics.front.fetched_tokens.get();
        assert!(read > 1_000, "{model}: {read}");
    }
}

#[test]
fn a_key_or_a_salt_finds_only_its_own_texts_in_files() {
    let folder = TempDir::new().unwrap();
    let config = ServeConfig { keys: ["alice", "bob"].map(key).into(), ..with_files(&folder) };
    let cached = |server: &TestServer, secret: &str, salt: &str| {
        let body = json!({"prompt": text(1, 300), "max_tokens": 4, "cache_salt": salt}).to_string();
        let header = format!("Authorization: Bearer {secret}\r\n");
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: a\r\n{header}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut client = server.connect();
        client.send(request.as_bytes());
        client.response().json()["timings"]["cache_n"].as_u64().unwrap()
    };
    let server = start("built-in", config.clone());
    cached(&server, "alice", "a");
    drop(server);
    for (secret, salt, expected) in [("bob", "a", 0), ("alice", "b", 0), ("alice", "a", 299)] {
        let server = start("built-in", config.clone());
        assert_eq!(cached(&server, secret, salt), expected, "{secret}, {salt}");
        drop(server);
    }
    // A new key in the place of an old one is somebody else.
    let config = ServeConfig { keys: ["carol", "bob"].map(key).into(), ..config };
    let server = start("built-in", config);
    assert_eq!(cached(&server, "carol", "a"), 0);
}

#[test]
fn files_of_another_model_another_cache_and_another_secret_are_not_used() {
    let folder = TempDir::new().unwrap();
    let chat = text(1, 300);
    let secret = |text: &str| {
        let mut config = with_files(&folder);
        config.files_key = Some(FilesKey(text.into()));
        config
    };
    let cache =
        CacheLayout { keys: CacheType::Q8_0, values: CacheType::Q8_0, ..CacheLayout::default() };
    let types = ServeConfig { cache, ..with_files(&folder) };
    let servers = [
        ("built-in", with_files(&folder)),
        (SHAPES[0], with_files(&folder)),
        ("built-in", types),
        ("built-in", secret("a secret of enough bytes")),
        ("built-in", secret("another one of enough bytes")),
    ];
    for (model, config) in &servers {
        let server = start(model, config.clone());
        assert_eq!(follow(&server, &chat, json!({})).1, 0, "{config:?}");
        drop(server);
    }
    // All of them are still there.
    for (model, config) in &servers {
        let server = start(model, config.clone());
        assert_eq!(follow(&server, &chat, json!({})).1, 299, "{config:?}");
        drop(server);
    }
}

/// Does something to the bytes of a file.
type Damage = fn(&mut Vec<u8>, usize);

#[test]
fn damaged_files_are_found_out_and_removed() {
    let damages: [(&str, Damage); 5] = [
        ("a bit", |bytes, at| bytes[at] ^= 1),
        ("cut off", |bytes, at| bytes.truncate(at)),
        ("empty", |bytes, _| bytes.clear()),
        ("longer", |bytes, at| bytes.extend(vec![7; at])),
        ("zeros", |bytes, at| bytes[at..].fill(0)),
    ];
    let mut random = Random::new(3);
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let chat = text(1, 300);
        let server = start(model, with_files(&folder));
        let said = anew(&server, &chat);
        follow(&server, &chat, json!({}));
        drop(server);
        for (name, damage) in damages {
            let all = files(folder.path());
            assert!(!all.is_empty());
            for path in &all {
                let mut bytes = fs::read(path).unwrap();
                let at = random.within(0, bytes.len() - 1);
                damage(&mut bytes, at);
                fs::write(path, bytes).unwrap();
            }
            let server = start(model, with_files(&folder));
            let (again, cached) = follow(&server, &chat, json!({}));
            assert_eq!((again, cached), (said.clone(), 0), "{model}, {name}");
            drop(server); // it has written them again
        }
        // Files under each other's names are of no use either.
        let all = files(folder.path());
        let contents: Vec<Vec<u8>> = all.iter().map(|path| fs::read(path).unwrap()).collect();
        for (path, content) in all.iter().zip(contents.iter().cycle().skip(1)) {
            fs::write(path, content).unwrap();
        }
        let server = start(model, with_files(&folder));
        assert_eq!(follow(&server, &chat, json!({})), (said, 0), "{model}");
    }
}

#[test]
fn files_take_no_more_room_than_they_may() {
    let folder = TempDir::new().unwrap();
    let mut config = with_files(&folder);
    config.cache_disk.as_mut().unwrap().mib = 4;
    for model in MODELS {
        let server = start(model, config.clone());
        for number in 0..30 {
            follow(&server, &text(number, 300), json!({}));
        }
        drop(server);
        let bytes: u64 =
            files(folder.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!((1 << 20..=4 << 20).contains(&bytes), "{model}: {bytes}");
    }
}

/// The command of a server of a small hybrid model with files in a folder.
fn command(folder: &TempDir, shell: &str) -> Command {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_corelane");
    let serve = "exec \"$0\" serve -m \"$1\" --cache-disk \"$2\" --cache-disk-size 64 -np 1 -c 2048 \
                 --metrics --port 0 --ops-addr none --log warn";
    command
        .args(["-c", &format!("{shell} {serve}"), program])
        .arg(hybrid(SHAPES[0]))
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// The tokens behind a prompt.
fn ask(client: &mut Client, prompt: &[i64], cache: bool) -> Option<serde_json::Value> {
    let body = json!({"prompt": prompt, "n_predict": 8, "temperature": 0, "ignore_eos": true,
        "return_tokens": true, "cache_prompt": cache});
    Some(client.try_post("/completion", &body.to_string())?.json())
}

#[test]
fn a_server_that_is_killed_while_it_writes_leaves_nothing_that_harms() {
    const ROUNDS: usize = 8;
    let folder = TempDir::new().unwrap();
    let texts: Vec<Vec<i64>> = (0..6).map(|number| text(number, 200 + 40 * number)).collect();
    let mut random = Random::new(9);
    for _ in 0..ROUNDS {
        let server = Running::of(&mut command(&folder, ""));
        let address = server.address;
        let asking = std::thread::spawn({
            let texts = texts.clone();
            move || {
                let mut client = Client::connect(address);
                texts.iter().cycle().take(100).all(|text| ask(&mut client, text, true).is_some())
            }
        });
        std::thread::sleep(Duration::from_millis(random.within(1, 900) as u64));
        drop(server); // as kill -9
        asking.join().unwrap();
    }
    let server = Running::of(&mut command(&folder, ""));
    let mut client = Client::connect(server.address);
    let mut cached = 0;
    for text in &texts {
        let answer = ask(&mut client, text, true).unwrap();
        let anew = ask(&mut client, text, false).unwrap();
        assert_eq!(answer["tokens"], anew["tokens"]);
        cached += answer["tokens_cached"].as_u64().unwrap();
    }
    assert!(cached > 150, "{cached}");
}

/// The limit on the size of files makes writes fail in the middle, as a full disk does.
#[test]
fn a_server_goes_on_when_files_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    let server = Running::of(&mut command(&folder, "trap '' XFSZ; ulimit -f 16;"));
    let mut client = Client::connect(server.address);
    for number in 0..6 {
        let text = text(number, 300);
        let answer = ask(&mut client, &text, true).unwrap();
        assert_eq!(answer["tokens"], ask(&mut client, &text, false).unwrap()["tokens"]);
    }
    eventually("a write failed", || {
        let metrics = Samples::parse(&client.get("/metrics").body);
        metrics.get("corelane_prefix_store_file_errors_total") > 0.0
    });
    assert!(files(folder.path()).iter().all(|path| path.metadata().unwrap().len() <= 16 * 512));
    drop(server);
    // What is left is of use.
    let server = Running::of(&mut command(&folder, ""));
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, &text(1, 300), true).unwrap()["tokens_cached"], 0);
}
