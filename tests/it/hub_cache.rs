//! Models by name in the cache: later starts, new commits, shards, and what is removed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corelane::hub::{Hub, cached, kept, pull, remove, unfinished};
use corelane::model::builtin::GGUF;

use crate::hub::{FILE, obtained, pulled, tiny, tree};
use crate::support::hub::{Answer, COMMIT, Loopback, Repo, cut, fresh, hub, refusal, response};

#[test]
fn a_second_start_needs_no_hub() {
    fresh("offline");
    let loopback = Loopback::good(Repo::builtin());
    let online = loopback.hub("offline");
    let offline = Hub { offline: true, ..online.clone() };
    let error = obtained(&offline).unwrap_err();
    assert!(error.contains("org/tiny is not in") && error.contains("HF_HUB_OFFLINE"), "{error}");
    let model = obtained(&online).unwrap();
    assert!(pulled(&offline).unwrap_err().contains("the hub is not asked"));
    let asked = loopback.requests().len();
    assert_eq!(obtained(&offline).unwrap().files, model.files);
    assert_eq!(loopback.requests().len(), asked, "offline is offline");
    let gone = hub(&loopback.close(), "offline");
    assert_eq!(obtained(&gone).unwrap().files, model.files);
    // A hub that hangs, or refuses, does not hold a start up.
    let mute = Loopback::start(|_, _| Answer { bytes: Vec::new(), holds: true });
    let began = Instant::now();
    let mut hanging = mute.hub("offline");
    hanging.patience.ask = Duration::from_millis(300);
    assert_eq!(obtained(&hanging).unwrap().files, model.files);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for status in [401, 404, 429, 500] {
        let ill = Loopback::start(move |_, _| response(status, "Retry-After: 60\r\n", b""));
        assert_eq!(obtained(&ill.hub("offline")).unwrap().files, model.files, "{status}");
        assert_eq!(ill.requests().len(), 1, "{status}");
    }
    // For `model pull` it is an error.
    let error = pulled(&Hub { patience: online.patience, ..gone }).unwrap_err();
    assert!(error.contains("the hub cannot be reached"), "{error}");
}

#[test]
fn a_new_commit_is_followed_and_an_old_one_served_until_it_is_whole() {
    fresh("commits");
    let old = Repo::of(&[(FILE, GGUF)]);
    let next =
        |digit: &str, bytes: &[u8]| Repo { commit: digit.repeat(40), ..Repo::of(&[(FILE, bytes)]) };
    let first = obtained(&Loopback::good(old).hub("commits")).unwrap();
    // The same file in another commit needs no download.
    let same = Loopback::good(next("2", GGUF));
    let second = obtained(&same.hub("commits")).unwrap();
    assert!(same.ranges().is_empty());
    assert_ne!(first.files, second.files);
    // Another one replaces it, once it is whole.
    let other: Vec<u8> = GGUF.iter().map(|byte| byte ^ 1).collect();
    let is_well = Arc::new(AtomicBool::new(false));
    let (repo, switch) = (next("3", &other), is_well.clone());
    let newer = Loopback::start(move |request, _| {
        let answer = repo.answer(request);
        let breaks = request.is_file() && !switch.load(Ordering::SeqCst);
        if breaks { cut(answer, 1000) } else { answer }
    });
    let hub = newer.hub("commits");
    assert_eq!(obtained(&hub).unwrap().files, second.files);
    assert_eq!(cached(&hub, &tiny()).unwrap().files, second.files);
    is_well.store(true, Ordering::SeqCst);
    let third = obtained(&hub).unwrap();
    assert!(fs::read(&third.files[0]).unwrap() == other);
    assert_eq!(cached(&hub, &tiny()).unwrap().files, third.files);
}

#[test]
fn all_shards_are_there_or_none_is_linked() {
    fresh("shards");
    let shard = |n: usize| format!("Q4_K_M/big-Q4_K_M-0000{n}-of-00003.gguf");
    let names = [shard(1), shard(2), shard(3)];
    let parts: Vec<&[u8]> = GGUF.chunks(GGUF.len().div_ceil(3)).collect();
    let listed: Vec<_> = names.iter().map(String::as_str).zip(parts.iter().copied()).collect();
    let repo = Repo::of(&listed);
    let is_well = Arc::new(AtomicBool::new(false));
    let (last, switch) = (names[2].clone(), is_well.clone());
    let loopback = Loopback::start(move |request, _| {
        let refuses = request.path.ends_with(&last) && !switch.load(Ordering::SeqCst);
        if refuses { refusal(404, "gone") } else { repo.answer(request) }
    });
    let hub = loopback.hub("shards");
    assert!(pulled(&hub).unwrap_err().contains("00003-of-00003.gguf (404)"));
    assert!(tree(&hub).iter().all(|path| path.starts_with("blobs/")), "{:?}", tree(&hub));
    assert_whole_shards_are_removed(&hub, (parts[0].len() + parts[1].len()) as u64);
    assert!(pulled(&hub).unwrap_err().contains("(404)"));
    is_well.store(true, Ordering::SeqCst);
    let model = pulled(&hub).unwrap();
    assert_eq!(loopback.ranges().len(), 7, "the first two were whole");
    let read: Vec<u8> = model.files.iter().flat_map(|file| fs::read(file).unwrap()).collect();
    assert!(read == GGUF && model.files[0].ends_with(&names[0]));
    let of = kept(&hub);
    assert_eq!((of.len(), of[0].name.to_string().as_str()), (1, "org/tiny:Q4_K_M"));
    assert_eq!((of[0].files.len(), of[0].missing, of[0].bytes), (3, 0, GGUF.len() as u64));
    // One that is lost is one that is missing.
    fs::remove_file(&model.files[1]).unwrap();
    assert_eq!(kept(&hub)[0].missing, 1);
    assert!(cached(&hub, &tiny()).is_err());
    assert_eq!(pulled(&hub).unwrap().downloaded, 0, "its bytes are still there");
}

/// Two whole shards without a link, and the beginning of the third, are seen and removed.
fn assert_whole_shards_are_removed(hub: &Hub, bytes: u64) {
    assert!(kept(hub).is_empty());
    let part = &unfinished(hub)[0];
    assert_eq!((part.name.to_string().as_str(), part.files, part.bytes), ("org/tiny", 3, bytes));
    let name = "org/tiny".parse().unwrap();
    let removed = remove(hub, &name).unwrap();
    assert_eq!((removed.files, removed.bytes), (0, bytes));
    assert!(!hub.cache.join("models--org--tiny").exists(), "{:?}", tree(hub));
    assert!(unfinished(hub).is_empty());
    assert!(remove(hub, &name).unwrap_err().to_string().contains("org/tiny is not in"));
}

/// Bytes that another commit has need no download, so nobody holds their lock.
#[test]
fn a_model_that_is_removed_during_a_pull_is_downloaded_again() {
    fresh("raced");
    let (first, second): (&[u8], &[u8]) = (b"GGUF, the first half", b"and the second one");
    let old = Repo::of(&[("m-Q8_0.gguf", first)]);
    pulled(&Loopback::good(old).hub("raced")).unwrap();
    let names = [1, 2].map(|n| format!("m-Q8_0-0000{n}-of-00002.gguf"));
    let commit = "2".repeat(40);
    let repo = Repo { commit, ..Repo::of(&[(&names[0], first), (&names[1], second)]) };
    let offline = hub("http://127.0.0.1:1", "raced");
    let loopback = Loopback::start(move |request, before| {
        if request.is_file() && before == 0 {
            remove(&offline, &"org/tiny:Q8_0".parse().unwrap()).unwrap();
        }
        repo.answer(request)
    });
    let hub = loopback.hub("raced");
    let model = pulled(&hub).unwrap();
    let read: Vec<Vec<u8>> = model.files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(read == [first, second]);
    assert_eq!(loopback.ranges().len(), 2, "the second half came once");
    assert_eq!(model.downloaded, (first.len() + second.len()) as u64);
    assert_eq!(cached(&hub, &tiny()).unwrap().files, model.files);
}

#[test]
fn what_is_removed_is_what_nobody_else_needs() {
    fresh("removed");
    let (a, b): (&[u8], &[u8]) = (b"GGUF and more", b"GGUF");
    let repo = Repo::of(&[("m-Q4_0.gguf", a), ("m-Q8_0.gguf", b), ("copy-F16.gguf", b)]);
    let loopback = Loopback::good(repo);
    let hub = loopback.hub("removed");
    let name = |quant: &str| format!("org/tiny{quant}").parse::<corelane::hub::Name>().unwrap();
    for quant in [":Q4_0", ":Q8_0", ":F16"] {
        pull(&hub, &name(quant).into(), &mut |_| ()).unwrap();
    }
    let names = || kept(&hub).iter().map(|kept| kept.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["org/tiny:F16", "org/tiny:Q4_0", "org/tiny:Q8_0"]);
    assert!(
        remove(&hub, &name(":Q2_K")).unwrap_err().to_string().contains("org/tiny:Q2_K is not in")
    );
    assert!(remove(&hub, &"other/tiny".parse().unwrap()).is_err());
    let shared = remove(&hub, &name(":q8_0")).unwrap();
    assert_eq!((shared.files, shared.bytes), (1, 0), "F16 has the same bytes");
    assert!(fs::read(&cached(&hub, &name(":F16").into()).unwrap().files[0]).unwrap() == b);
    // A file of another tool stays.
    let snapshot = hub.cache.join("models--org--tiny/snapshots").join(COMMIT);
    fs::write(snapshot.join("config.json"), "{}").unwrap();
    for name in ["e".repeat(64), format!("{}.1a2b3c4d", "e".repeat(64))] {
        let part = hub.cache.join(format!("models--org--tiny/blobs/{name}.incomplete"));
        fs::write(&part, "half").unwrap();
    }
    assert_eq!((unfinished(&hub)[0].files, unfinished(&hub)[0].bytes), (2, 8));
    let all = remove(&hub, &name("")).unwrap();
    assert_eq!((all.files, all.bytes), (2, (a.len() + b.len() + 8) as u64));
    assert_eq!(tree(&hub), ["refs/main", &format!("snapshots/{COMMIT}/config.json")]);
    fs::remove_file(snapshot.join("config.json")).unwrap();
    pull(&hub, &name(":Q4_0").into(), &mut |_| ()).unwrap();
    remove(&hub, &name(":Q4_0")).unwrap();
    assert!(!hub.cache.join("models--org--tiny").exists(), "{:?}", tree(&hub));
}

#[test]
fn a_file_that_is_being_downloaded_is_not_removed() {
    let folder = fresh("locked");
    let hub = hub("http://127.0.0.1:1", "locked");
    let hash = "e".repeat(64);
    let lock = folder.join(format!(".locks/models--org--tiny/{hash}.lock"));
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "").unwrap();
    for name in [format!("{hash}.incomplete"), hash] {
        let part = folder.join("models--org--tiny/blobs").join(name);
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(&part, "half").unwrap();
        let lock = fs::File::open(&lock).unwrap();
        lock.lock().unwrap();
        let name = "org/tiny".parse().unwrap();
        let error = remove(&hub, &name).unwrap_err().to_string();
        assert!(error.contains("a process downloads a file of org/tiny"), "{error}");
        assert!(part.exists());
        drop(lock);
        assert_eq!(remove(&hub, &name).unwrap().bytes, 4);
        assert!(!part.exists());
    }
}
