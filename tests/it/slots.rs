//! Texts of slots that clients save in files, bring back, and erase.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use corelane::config::{FileFolder, FilesKey, ServeConfig};
use corelane::types::CacheLayout;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::disk::{MODELS, anew, files, start, text};
use crate::hybrid::{SHAPES, follow};
use crate::support::{Response, TestServer, config, eventually, key, post_bytes};

/// The configuration of a server whose clients save texts in a folder.
fn with_slots(folder: &Path) -> ServeConfig {
    let files = FileFolder { path: folder.to_owned(), mib: 64 };
    ServeConfig { parallel: 4, slot_save: Some(files), ..config() }
}

fn ask(server: &TestServer, slot: &str, action: &str, body: Value) -> Response {
    server.post(&format!("/slots/{slot}?action={action}"), &body.to_string())
}

fn save(server: &TestServer, slot: &str, name: &str) -> Value {
    let response = ask(server, slot, "save", json!({"filename": name}));
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

fn restore(server: &TestServer, slot: &str, name: &str) -> Value {
    let response = ask(server, slot, "restore", json!({"filename": name}));
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

/// As the client with this API key.
fn post(server: &TestServer, secret: &str, path: &str, body: Value) -> Response {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {secret}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = server.connect();
    client.send(request.as_bytes());
    client.response()
}

#[test]
fn a_text_that_was_saved_comes_back_on_another_server() {
    for model in MODELS {
        for secret in [None, Some(FilesKey(b"a secret of enough bytes".to_vec()))] {
            let folder = TempDir::new().unwrap();
            let config = ServeConfig { files_key: secret, ..with_slots(folder.path()) };
            let chat = text(1, 300);
            let server = start(model, config.clone());
            let (said, _) = follow(&server, &chat, json!({"id_slot": 2}));
            let saved = save(&server, "2", "chat.bin");
            assert_eq!(saved["id_slot"], 2, "{saved}");
            assert_eq!(saved["filename"], "chat.bin", "{saved}");
            let whole = [&*chat, &said].concat();
            assert_eq!(saved["n_saved"], whole.len() - 1, "the last token was not computed");
            let file = folder.path().join("chat.bin").metadata().unwrap();
            assert_eq!(saved["n_written"], file.len(), "{saved}");
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
            assert!(saved["timings"]["save_ms"].as_f64().unwrap() > 0.0, "{saved}");
            drop(server);

            let server = start(model, config);
            let back = restore(&server, "0", "chat.bin");
            assert_eq!(back["n_restored"], saved["n_saved"], "{model}: {back}");
            assert_eq!(back["n_read"], saved["n_written"], "{back}");
            let next = [&*whole, &text(7, 10)].concat();
            let (said, cached) = follow(&server, &next, json!({}));
            assert_eq!(cached as usize, whole.len() - 1, "{model}");
            assert_eq!(said, anew(&server, &next), "{model}");
            let read = server.metrics.front.fetched_tokens.get();
            assert_eq!(read as usize, whole.len() - 1, "{model}");
        }
    }
}

#[test]
fn a_file_has_the_text_of_the_slot_that_a_request_chose() {
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let server = start(model, with_slots(folder.path()));
        let texts: Vec<Vec<i64>> = (0..3).map(|number| text(number, 200)).collect();
        for (slot, text) in texts.iter().enumerate() {
            follow(&server, text, json!({"id_slot": slot}));
        }
        // The third text goes on in the first slot.
        let slots = server.get("/slots").json();
        let is_used = |slot: usize| slots[slot]["n_past"].as_u64().unwrap() > 200;
        assert_eq!([0, 1, 2, 3].map(is_used), [true, true, true, false], "{model}: {slots}");
        for slot in ["0", "1", "2"] {
            save(&server, slot, &format!("text-{slot}"));
        }
        for (slot, text) in texts.iter().enumerate() {
            // A new one each: it does not know yet that computing is as fast as reading.
            let server = start(model, with_slots(folder.path()));
            restore(&server, "3", &format!("text-{slot}"));
            assert_eq!(follow(&server, text, json!({})).1, 199, "{model}, {slot}");
        }
    }
}

#[test]
fn an_erased_text_is_gone_from_everywhere() {
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let cache = FileFolder { path: folder.path().join("cache"), mib: 64 };
        let config = ServeConfig { cache_disk: Some(cache), ..config() };
        let server = start(model, config.clone());
        follow(&server, &text(1, 300), json!({"id_slot": 0}));
        follow(&server, &text(2, 300), json!({"id_slot": 1}));
        let erase = |slot: &str| ask(&server, slot, "erase", json!({})).json();
        assert_eq!(erase("0"), json!({"id_slot": 0, "n_erased": 347}), "{model}");
        assert_eq!(erase("0"), json!({"id_slot": 0, "n_erased": 0}), "{model}");
        assert_eq!(follow(&server, &text(1, 300), json!({"id_slot": 2})).1, 0, "{model}");
        assert_eq!(erase("2")["n_erased"], 347);
        follow(&server, &text(3, 300), json!({"id_slot": 3}));
        eventually("it is written", || server.metrics.disk.written.get() > 0);
        erase("3");
        let left = files(&folder.path().join("cache")).len();
        assert_eq!(erase("1")["n_erased"], 347);
        assert!(left > 0 && files(&folder.path().join("cache")).is_empty(), "when it answers");
        follow(&server, &text(2, 300), json!({"id_slot": 1}));
        drop(server);
        assert!(!files(&folder.path().join("cache")).is_empty(), "{model}: another text stays");
        // A server does not wait long for a file that takes as long as computing.
        let mut servers = (0..5).map(|_| start(model, config.clone()));
        let has_read = |server: &TestServer| follow(server, &text(2, 300), json!({})).1 > 250;
        let server = servers.find(has_read).expect("the text that stays is read");
        assert_eq!(follow(&server, &text(1, 300), json!({})).1, 0, "{model}");
    }
}

#[test]
fn a_slot_that_is_busy_is_saved_when_it_is_free() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::builtin(ServeConfig { parallel: 1, ..with_slots(folder.path()) });
    let body = json!({"prompt": text(1, 300), "n_predict": 400, "ignore_eos": true});
    let mut client = server.connect();
    let asked = thread::spawn(move || client.post("/completion", &body.to_string()));
    eventually("it runs", || server.metrics.front.running.get() == 1);
    let saved = save(&server, "0", "chat");
    assert_eq!(saved["n_saved"], 699, "{saved}");
    assert_eq!(asked.join().unwrap().status, 200);
}

/// The text is stored anew, where the store has dropped it since.
#[test]
fn a_text_that_only_the_slot_has_is_saved() {
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let config = ServeConfig {
            cache_ram: Some(8),
            context_tokens: Some(16_384),
            ..with_slots(folder.path())
        };
        let server = start(model, config);
        follow(&server, &text(0, 300), json!({"id_slot": 0}));
        for number in 1..60 {
            follow(&server, &text(number, 300), json!({"id_slot": 1}));
        }
        let response = ask(&server, "0", "save", json!({"filename": "a"}));
        let kept = server.get("/slots").json()[0]["n_past"].as_u64().unwrap();
        assert_eq!((response.status, kept), (200, 347), "{model}: {}", response.body);
        assert_eq!(response.json()["n_saved"], 347, "{model}");
    }
}

#[test]
fn texts_of_keys_and_salts_stay_apart() {
    let folder = TempDir::new().unwrap();
    let config =
        ServeConfig { keys: ["alice", "bob"].map(key).into(), ..with_slots(folder.path()) };
    let server = TestServer::builtin(config.clone());
    let complete = |server: &TestServer, secret: &str, salt: Option<&str>| {
        let mut body = json!({"prompt": text(1, 300), "n_predict": 4, "id_slot": 0});
        if let Some(salt) = salt {
            body["cache_salt"] = salt.into();
        }
        post(server, secret, "/completion", body).json()["tokens_cached"].as_u64().unwrap()
    };
    complete(&server, "alice", Some("salt"));
    let name = json!({"filename": "a"});
    let foreign = post(&server, "bob", "/slots/0?action=save", name.clone());
    assert_eq!(foreign.status, 400, "{}", foreign.body);
    let foreign = post(&server, "bob", "/slots/0?action=erase", json!({}));
    assert_eq!(foreign.json()["n_erased"], 0, "{}", foreign.body);
    let own = post(&server, "alice", "/slots/0?action=save", name.clone());
    assert_eq!(own.status, 200, "{}", own.body);
    drop(server);

    let server = TestServer::builtin(config);
    let foreign = post(&server, "bob", "/slots/0?action=restore", name.clone());
    assert_eq!(foreign.status, 404, "{}", foreign.body);
    let unsalted = post(&server, "alice", "/slots/0?action=restore", name);
    assert_eq!(unsalted.status, 404, "{}", unsalted.body);
    assert!(unsalted.body.contains("cache_salt"), "{}", unsalted.body);
    let salted = json!({"filename": "a", "cache_salt": "salt"});
    let own = post(&server, "alice", "/slots/0?action=restore", salted);
    assert_eq!(own.status, 200, "{}", own.body);
    assert_eq!(complete(&server, "bob", Some("salt")), 0);
    assert_eq!(complete(&server, "alice", None), 0);
    assert_eq!(complete(&server, "alice", Some("salt")), 299);
}

#[test]
fn files_that_are_damaged_or_of_another_model_are_refused() {
    let folder = TempDir::new().unwrap();
    let server = start(SHAPES[0], with_slots(folder.path()));
    let chat = text(1, 600);
    follow(&server, &chat, json!({"id_slot": 0}));
    save(&server, "0", "a");
    let path = folder.path().join("a");
    let whole = fs::read(&path).unwrap();
    let error = |server: &TestServer| {
        let response = ask(server, "0", "restore", json!({"filename": "a"}));
        assert_eq!(response.status, 404, "{}", response.body);
        response.body
    };
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(error(&server).contains("cut off"));
    for at in [0, 20, 60, 90, 100, 110] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        error(&server);
    }
    // Content is checked when it is read. Then it is computed.
    let mut bytes = whole.clone();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    drop(server);
    let server = start(SHAPES[0], with_slots(folder.path()));
    restore(&server, "0", "a");
    let next = [&*chat, &text(2, 20)].concat();
    assert_eq!(follow(&server, &next, json!({})).0, anew(&server, &next));
    drop(server);

    fs::write(&path, &whole).unwrap();
    for other in [MODELS[0], SHAPES[1]] {
        assert!(error(&start(other, with_slots(folder.path()))).contains("another model"));
    }
    let secret = Some(FilesKey(b"a secret of enough bytes".to_vec()));
    let server = start(SHAPES[0], ServeConfig { files_key: secret, ..with_slots(folder.path()) });
    error(&server);
    fs::remove_file(&path).unwrap();
    assert!(error(&server).contains("no such file"));
    fs::create_dir(&path).unwrap();
    error(&server);
}

#[test]
fn a_name_leads_to_no_other_folder() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::builtin(with_slots(&folder.path().join("slots")));
    follow(&server, &text(1, 100), json!({"id_slot": 0}));
    for name in ["../a", "/tmp/a", "a/b", "..", ".a", "", "a\u{0}b"] {
        for action in ["save", "restore"] {
            let response = ask(&server, "0", action, json!({"filename": name}));
            assert_eq!(response.status, 400, "{name:?}: {}", response.body);
            assert!(response.body.contains("filename"), "{}", response.body);
        }
    }
    // A link in the folder is not followed.
    let outside = folder.path().join("outside");
    fs::write(&outside, "mine").unwrap();
    std::os::unix::fs::symlink(&outside, folder.path().join("slots/link")).unwrap();
    let response = ask(&server, "0", "restore", json!({"filename": "link"}));
    assert_ne!(response.status, 200, "{}", response.body);
    save(&server, "0", "link");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
}

#[test]
fn files_of_slots_take_no_more_room_than_they_may() {
    let folder = TempDir::new().unwrap();
    let files_of_slots = FileFolder { path: folder.path().to_owned(), mib: 4 };
    let config = ServeConfig { slot_save: Some(files_of_slots), ..with_slots(folder.path()) };
    let server = TestServer::builtin(config);
    follow(&server, &text(1, 200), json!({"id_slot": 0}));
    let mut saved = 0;
    let refused = (0..2_000).find_map(|number| {
        let response = ask(&server, "0", "save", json!({"filename": format!("{number}")}));
        saved += usize::from(response.status == 200);
        (response.status != 200).then_some(response)
    });
    let refused = refused.expect("a file is refused at last");
    assert_eq!(refused.status, 507, "{}", refused.body);
    assert!(refused.body.contains("4 MiB"), "{}", refused.body);
    let all = files(folder.path());
    assert_eq!(all.len(), saved, "nothing is left of the refused one");
    assert!(all.iter().map(|path| path.metadata().unwrap().len()).sum::<u64>() <= 4 << 20);
    save(&server, "0", "0"); // in its own place
    fs::remove_file(&all[0]).unwrap();
    save(&server, "0", "new");
}

#[test]
fn what_cannot_be_done_is_explained() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::builtin(with_slots(folder.path()));
    let name = json!({"filename": "a"});
    for (slot, action, body, status, words) in [
        ("4", "save", &name, 400, "0 to 3"),
        ("x", "save", &name, 400, "0 to 3"),
        ("0", "load", &name, 400, "save, restore or erase"),
        ("0", "save", &name, 400, "keeps no text"),
        ("0", "save", &json!({}), 400, "filename"),
        ("0", "save", &json!([]), 400, "object"),
        ("0", "restore", &name, 404, "no such file"),
    ] {
        let response = ask(&server, slot, action, body.clone());
        assert_eq!(response.status, status, "{}", response.body);
        assert!(response.body.contains(words), "{}", response.body);
    }
    follow(&server, &text(1, 8), json!({"id_slot": 0, "n_predict": 2}));
    let short = ask(&server, "0", "save", name.clone());
    assert_eq!(short.status, 400, "{}", short.body);
    assert!(short.body.contains("16 tokens"), "{}", short.body);
    assert_eq!(server.get("/slots/0?action=save").status, 405);

    let server = TestServer::builtin(config());
    let response = ask(&server, "0", "save", name);
    assert_eq!(response.status, 501, "{}", response.body);
    assert!(response.body.contains("--slot-save-path"), "{}", response.body);
}

/// The next request takes the slot, but only when the store has the text.
#[test]
fn a_text_is_saved_although_others_wait_for_its_slot() {
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let config = ServeConfig { parallel: 1, ..with_slots(folder.path()) };
        let server = start(model, config.clone());
        let begin = |number: i64, count: i64| {
            let body = json!({"prompt": text(number, 300), "n_predict": count, "ignore_eos": true});
            let mut client = server.connect();
            thread::spawn(move || client.post("/completion", &body.to_string()).status)
        };
        let first = begin(1, 1500); // long, so that the others come before it ends
        eventually("it runs", || server.metrics.front.running.get() == 1);
        let others = [2, 3, 4].map(|number| begin(number, 20));
        let mut client = server.connect();
        let asked =
            thread::spawn(move || client.post("/slots/0?action=save", r#"{"filename":"a"}"#));
        for request in others.into_iter().chain([first]) {
            assert_eq!(request.join().unwrap(), 200);
        }
        let saved = asked.join().unwrap();
        assert_eq!(saved.status, 200, "{model}: {}", saved.body);
        drop(server);
        let server = start(model, config);
        restore(&server, "0", "a");
        let found = (1..5).map(|number| follow(&server, &text(number, 300), json!({})).1);
        let found: Vec<u64> = found.collect();
        assert_eq!(found, [299, 0, 0, 0], "{model}: the text that was in the slot at that time");
    }
}

#[test]
fn an_erased_chat_is_gone_with_its_earlier_turns() {
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let cache = FileFolder { path: folder.path().to_owned(), mib: 64 };
        let config = ServeConfig { cache_disk: Some(cache), ..config() };
        let server = start(model, config.clone());
        let mut chat = text(1, 100);
        let mut turns = Vec::new();
        for turn in 0..4 {
            turns.push(chat.clone());
            let (said, _) = follow(&server, &chat, json!({"id_slot": 0}));
            eventually("files are written", || !files(folder.path()).is_empty());
            thread::sleep(Duration::from_millis(100)); // also the short last page
            chat.extend(said);
            chat.extend(text(turn, 30));
        }
        let beside = [&*turns[0], &text(9, 50)].concat();
        follow(&server, &beside, json!({"id_slot": 1}));
        let erased = ask(&server, "0", "erase", json!({}));
        assert!(erased.json()["n_erased"].as_u64().unwrap() > 350, "{}", erased.body);
        drop(server);
        let server = start(model, config);
        let cached = follow(&server, &turns[3], json!({})).1;
        // The pages of the beginning that another text goes on from may stay.
        assert!(cached <= 100, "{model}: {cached} of an erased text");
        assert!(follow(&server, &beside, json!({})).1 > 0, "{model}: another text stays");
    }
}

#[test]
fn a_chat_that_was_brought_back_is_written_to_the_store_s_files() {
    for model in MODELS {
        let folder = TempDir::new().unwrap();
        let slots = folder.path().join("slots");
        let cache = FileFolder { path: folder.path().join("cache"), mib: 64 };
        let both = ServeConfig { cache_disk: Some(cache), ..with_slots(&slots) };
        let chat = text(1, 300);
        let server = start(model, with_slots(&slots));
        follow(&server, &chat, json!({"id_slot": 0}));
        save(&server, "0", "chat");
        drop(server);

        let server = start(model, both.clone());
        restore(&server, "0", "chat");
        let (said, cached) = follow(&server, &chat, json!({}));
        assert_eq!(cached, 299, "{model}");
        fs::remove_file(slots.join("chat")).unwrap();
        drop(server);

        let server = start(model, both);
        let next = [&*chat, &said].concat();
        assert_eq!(follow(&server, &next, json!({})).1 as usize, next.len() - 1, "{model}");
    }
}

/// Files close for others, and their texts are computed then.
#[test]
fn many_files_are_brought_back() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::builtin(with_slots(folder.path()));
    let texts: Vec<Vec<i64>> = (0..40).map(|number| text(number, 60)).collect();
    for (number, text) in texts.iter().enumerate() {
        follow(&server, text, json!({"id_slot": 0}));
        save(&server, "0", &format!("{number}"));
    }
    drop(server);
    let server = TestServer::builtin(with_slots(folder.path()));
    restore(&server, "0", "39");
    for _ in 0..50 {
        restore(&server, "0", "20"); // takes one place
    }
    assert_eq!(follow(&server, &texts[39], json!({})).1, 59);
    for number in 0..39 {
        restore(&server, "0", &format!("{number}"));
    }
    for text in &texts {
        let (said, cached) = follow(&server, text, json!({}));
        assert!(cached == 0 || cached == 59, "{cached}");
        assert_eq!(said, anew(&server, text));
    }
    // Which texts are still in a slot, with their logits, depends on when earlier requests gave theirs back.
    follow(&server, &texts[38], json!({}));
    assert_eq!(follow(&server, &texts[38], json!({})).1, 60, "with its logits");
}

#[test]
fn a_drain_ends_what_waits_for_a_slot() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::builtin(ServeConfig { parallel: 1, ..with_slots(folder.path()) });
    let body = json!({"prompt": text(1, 300), "n_predict": 400, "ignore_eos": true}).to_string();
    let mut clients = [server.connect(), server.connect()];
    let [asks, saves] = &mut clients;
    asks.send(post_bytes("/completion", &body).as_bytes());
    eventually("it runs", || server.metrics.front.running.get() == 1);
    saves.send(post_bytes("/slots/0?action=save", r#"{"filename": "a"}"#).as_bytes());
    thread::sleep(Duration::from_millis(20));
    drop(server);
    assert_eq!(asks.response().status, 200);
    let saved = saves.response();
    assert_eq!(saved.status, 200, "{}", saved.body);
    assert!(folder.path().join("a").exists());
}

#[test]
fn clients_that_leave_take_no_places() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::builtin(ServeConfig { parallel: 1, ..with_slots(folder.path()) });
    let body = json!({"prompt": text(1, 300), "n_predict": 400, "ignore_eos": true}).to_string();
    for _ in 0..100 {
        let mut asks = server.connect();
        asks.send(post_bytes("/completion", &body).as_bytes());
        eventually("it runs", || server.metrics.front.running.get() == 1);
        let mut saves = server.connect();
        saves.send(post_bytes("/slots/0?action=save", r#"{"filename": "a"}"#).as_bytes());
        thread::sleep(Duration::from_millis(2));
        drop(saves);
        drop(asks);
        eventually("it ends", || server.metrics.front.running.get() == 0);
    }
    follow(&server, &text(1, 300), json!({}));
    save(&server, "0", "b"); // no place is lost
}

#[test]
fn one_cache_of_all_keys_has_one_folder() {
    let folder = TempDir::new().unwrap();
    let config = ServeConfig {
        keys: ["alice", "bob"].map(key).into(),
        share_cache: true,
        ..with_slots(folder.path())
    };
    let server = TestServer::builtin(config);
    post(
        &server,
        "alice",
        "/completion",
        json!({"prompt": text(1, 300), "n_predict": 4, "id_slot": 0}),
    );
    let saved = post(&server, "bob", "/slots/0?action=save", json!({"filename": "a"}));
    assert_eq!(saved.status, 200, "{}", saved.body);
    assert!(folder.path().join("a").exists());
    let back = post(&server, "alice", "/slots/0?action=restore", json!({"filename": "a"}));
    assert_eq!(back.status, 200, "{}", back.body);
}

#[test]
fn slots_with_caches_of_their_own_are_not_chosen() {
    let cache = CacheLayout { unified: false, ..config().cache };
    let server = TestServer::builtin(ServeConfig { parallel: 2, cache, ..config() });
    for slot in [0, 1, 7] {
        assert_eq!(follow(&server, &text(slot, 30), json!({"id_slot": slot})).0.len(), 48);
    }
}
