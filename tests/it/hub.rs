//! Models by name, from a hub on the loopback address with every fault that a hub can have. Nothing
//! half-written is ever served: a link of a snapshot leads to a whole file, or there is none.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corelane::hub::{Hub, Model, Wanted, cached, obtain, pull, unfinished};
use corelane::limits::{HUB_ANSWER_BYTES_MAX, HUB_REDIRECTS_MAX, HUB_TRIES_MAX};
use corelane::model::builtin::GGUF;

use crate::support::hub::{
    Answer, COMMIT, Loopback, Repo, cut, fresh, json, redirect, refusal, response, sha256,
    whole_or_rest,
};

pub const FILE: &str = "tiny-Q8_0.gguf";

pub fn tiny() -> Wanted {
    "org/tiny".parse::<corelane::hub::Name>().unwrap().into()
}

pub fn pulled(hub: &Hub) -> Result<Model, String> {
    pull(hub, &tiny(), &mut |_| ()).map_err(|error| error.to_string())
}

pub fn obtained(hub: &Hub) -> Result<Model, String> {
    obtain(hub, &tiny(), &mut |_| ()).map_err(|error| error.to_string())
}

/// The files below a folder, by their paths in it.
pub fn tree(hub: &Hub) -> Vec<String> {
    fn walk(folder: PathBuf, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => walk(entry.path(), found),
                false => found.push(entry.path()),
            }
        }
    }
    let mut found = Vec::new();
    walk(hub.cache.join("models--org--tiny"), &mut found);
    let path = |path: PathBuf| path.strip_prefix(&hub.cache).unwrap().display().to_string();
    let mut paths: Vec<String> = found.into_iter().map(path).collect();
    paths.sort_unstable();
    paths.into_iter().map(|path| path.replace("models--org--tiny/", "")).collect()
}

fn blob() -> String {
    format!("blobs/{}", sha256(GGUF))
}

/// Only these bytes of the model are there, and nobody is led to them.
fn assert_unfinished(hub: &Hub, bytes: &[u8]) {
    let part = format!("{}.incomplete", blob());
    assert_eq!(tree(hub), [part.as_str()]);
    assert!(fs::read(hub.cache.join("models--org--tiny").join(part)).unwrap() == bytes);
    assert!(cached(hub, &tiny()).is_err());
}

fn assert_whole(hub: &Hub, model: &Model) {
    assert_eq!(model.files.len(), 1);
    assert!(fs::read(&model.files[0]).unwrap() == GGUF, "the bytes are those of the model");
    let link = format!("snapshots/{COMMIT}/{FILE}");
    assert_eq!(tree(hub), [blob().as_str(), "refs/main", &link]);
}

/// A hub that serves the model, and answers a request for its bytes as told.
fn files<A: Into<Answer>>(
    answer: impl Fn(&Repo, Option<usize>, usize) -> A + Send + Sync + 'static,
) -> Loopback {
    let repo = Repo::builtin();
    Loopback::start(move |request, before| match request.is_file() {
        true => answer(&repo, request.from, before).into(),
        false => repo.answer(request).into(),
    })
}

#[test]
fn a_model_is_downloaded_checked_and_linked() {
    fresh("linked");
    let loopback = Loopback::good(Repo::builtin());
    let hub = loopback.hub("linked");
    let mut last = (0, 0);
    let model = obtain(&hub, &tiny(), &mut |p| last = (p.done, p.total)).unwrap();
    assert_whole(&hub, &model);
    assert_eq!((model.bytes, model.downloaded), (GGUF.len() as u64, GGUF.len() as u64));
    assert_eq!(last, (model.bytes, model.bytes), "the progress came to its end");
    // As huggingface_hub has it.
    let link = fs::read_link(&model.files[0]).unwrap();
    assert_eq!(link.to_str().unwrap(), format!("../../{}", blob()));
    let main = fs::read_to_string(hub.cache.join("models--org--tiny/refs/main")).unwrap();
    assert_eq!(main, COMMIT);
    // The second time, the hub is only asked whether there is a newer one.
    let again = obtained(&hub).unwrap();
    assert_eq!(again, Model { downloaded: 0, ..model });
    assert_eq!(loopback.requests().len(), 3);
    assert_eq!(loopback.ranges().len(), 1);
}

#[test]
fn a_broken_download_is_resumed() {
    fresh("resumed");
    let loopback = files(|repo, from, before| {
        let whole = whole_or_rest(repo.bytes(FILE), from);
        if before < 2 { cut(whole, 1_000_000) } else { whole }
    });
    let hub = loopback.hub("resumed");
    assert_whole(&hub, &pulled(&hub).unwrap());
    assert_eq!(loopback.ranges(), [None, Some(1_000_000), Some(2_000_000)]);
}

#[test]
fn a_hub_that_always_breaks_off_is_given_up_and_the_bytes_stay() {
    fresh("broken");
    let loopback = files(|repo, from, _| cut(whole_or_rest(repo.bytes(FILE), from), 1000));
    let broken = loopback.hub("broken");
    let error = pulled(&broken).unwrap_err();
    let bytes = 1000 * HUB_TRIES_MAX as usize;
    assert!(error.contains(&format!("broke off after {bytes} of {} bytes", GGUF.len())), "{error}");
    assert_eq!(loopback.ranges().len(), HUB_TRIES_MAX as usize);
    assert_unfinished(&broken, &GGUF[..bytes]);
    assert_eq!(unfinished(&broken)[0].bytes, bytes as u64);
    // Another day, the hub is well, and only the rest is fetched.
    let well = Loopback::good(Repo::builtin());
    let hub = well.hub("broken");
    let model = pulled(&hub).unwrap();
    assert_whole(&hub, &model);
    assert_eq!(well.ranges(), [Some(bytes)]);
    assert_eq!(model.downloaded, (GGUF.len() - bytes) as u64);
    assert!(unfinished(&hub).is_empty());
}

#[test]
fn a_hub_that_makes_progress_may_break_off_more_often() {
    fresh("progress");
    // Three of four tries bring nothing to speak of.
    let loopback = files(|repo, from, before| {
        let piece = if before % 4 == 3 { 1 << 20 } else { 10 };
        let rest = GGUF.len() - from.unwrap_or(0);
        cut(whole_or_rest(repo.bytes(FILE), from), piece.min(rest))
    });
    let hub = loopback.hub("progress");
    assert_whole(&hub, &pulled(&hub).unwrap());
    assert!(loopback.ranges().len() > HUB_TRIES_MAX as usize, "{:?}", loopback.ranges());
}

#[test]
fn a_hub_that_lies_about_sizes_is_found_out() {
    let listing = |size: usize| {
        let mut listing = Repo::builtin().listing();
        listing["siblings"][2]["lfs"]["size"] = size.into();
        json(&listing.to_string())
    };
    for (said, words) in [
        (GGUF.len() + 1, format!("with {} bytes, but sends {} bytes", GGUF.len() + 1, GGUF.len())),
        (GGUF.len() - 1, format!("with {} bytes, but sends {} bytes", GGUF.len() - 1, GGUF.len())),
    ] {
        fresh("sizes");
        let repo = Repo::builtin();
        let loopback = Loopback::start(move |request, _| match request.is_file() {
            true => repo.answer(request),
            false => listing(said),
        });
        let hub = loopback.hub("sizes");
        let error = pulled(&hub).unwrap_err();
        assert!(error.contains(&words), "{error}");
        assert_unfinished(&hub, b"");
        assert_eq!(loopback.ranges().len(), 1, "another try brings the same");
    }
    // A body without a size, which ends after more bytes than the file has.
    fresh("sizes");
    let loopback = files(|repo, _, _| {
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        [&head[..], repo.bytes(FILE), b"more"].concat()
    });
    let hub = loopback.hub("sizes");
    let error = pulled(&hub).unwrap_err();
    let words = format!("with {} bytes, but sends more than that", GGUF.len());
    assert!(error.ends_with(&words), "{error}");
    assert_unfinished(&hub, b"");
    // A size beyond the disk is refused before anything is asked for.
    let loopback = Loopback::start(move |_, _| listing(usize::MAX >> 2));
    let hub = loopback.hub("sizes");
    let error = pulled(&hub).unwrap_err();
    assert!(error.contains("GB free, and the download needs"), "{error}");
    assert!(loopback.ranges().is_empty());
}

#[test]
fn damaged_bytes_are_thrown_away() {
    fresh("damaged");
    let wrong = |repo: &Repo| {
        let mut bytes = repo.bytes(FILE).to_vec();
        bytes[1_000_000] ^= 1;
        response(200, "", &bytes)
    };
    let loopback = files(move |repo, _, _| wrong(repo));
    let hub = loopback.hub("damaged");
    let error = pulled(&hub).unwrap_err();
    assert!(error.contains(&format!("should be {}", sha256(GGUF))), "{error}");
    assert_unfinished(&hub, b"");
    // The bytes that another tool left may be wrong, too. That costs one more download.
    let part = hub.cache.join("models--org--tiny").join(format!("{}.incomplete", blob()));
    fs::write(&part, vec![7; 5000]).unwrap();
    let well = Loopback::good(Repo::builtin());
    let hub = well.hub("damaged");
    assert_whole(&hub, &pulled(&hub).unwrap());
    assert_eq!(well.ranges(), [Some(5000), None]);
}

#[test]
fn more_bytes_than_the_file_has_are_thrown_away() {
    let folder = fresh("longer").join("models--org--tiny/blobs");
    fs::create_dir_all(&folder).unwrap();
    let loopback = Loopback::good(Repo::builtin());
    let part = format!("{}.incomplete", sha256(GGUF));
    fs::write(folder.join(part), vec![7; GGUF.len() + 1]).unwrap();
    let hub = loopback.hub("longer");
    assert_whole(&hub, &pulled(&hub).unwrap());
    assert_eq!(loopback.ranges(), [None]);
}

#[test]
fn each_status_says_what_to_do() {
    for (status, on_file, words) in [
        (401, false, "a token of an account that may read it, in HF_TOKEN"),
        (401, true, "does not show"),
        (403, false, "(403): Access to it is restricted; if the model is gated, accept its terms"),
        (403, true, "tiny-Q8_0.gguf (403)"),
        (404, false, "there is no http://"),
        (404, true, "tiny-Q8_0.gguf (404): check the spelling"),
        (400, false, "answers 400: Access to it is restricted"),
    ] {
        fresh("status");
        let repo = Repo::builtin();
        let loopback = Loopback::start(move |request, _| match request.is_file() == on_file {
            true => refusal(status, "Access to it is restricted"),
            false => repo.answer(request),
        });
        let hub = loopback.hub("status");
        let error = pulled(&hub).unwrap_err();
        assert!(error.contains(words), "{status}: {error}");
        assert!(cached(&hub, &tiny()).is_err());
        let asked = loopback.requests().iter().filter(|r| r.is_file() == on_file).count();
        assert_eq!(asked, 1, "{status} is no passing fault");
    }
}

#[test]
fn a_busy_hub_is_asked_again() {
    fresh("busy");
    let busy = [response(429, "Retry-After: 0\r\n", b""), response(503, "", b""), Vec::new()];
    let repo = Repo::builtin();
    let loopback = Loopback::start(move |request, before| {
        busy.get(before).cloned().unwrap_or_else(|| repo.answer(request))
    });
    let hub = loopback.hub("busy");
    assert_whole(&hub, &pulled(&hub).unwrap());
    assert_eq!(loopback.requests().len(), 8, "four for the list, four for the file");
}

#[test]
fn a_hub_that_stays_ill_is_given_up() {
    fresh("ill");
    let loopback = Loopback::start(|_, _| response(500, "", b"{\"error\":\"on \\u001bfire\"}"));
    let error = pulled(&loopback.hub("ill")).unwrap_err();
    assert!(error.contains("answers 500: on fire"), "{error}");
    assert_eq!(loopback.requests().len(), HUB_TRIES_MAX as usize);
    // One that asks for too much time is not waited for.
    let loopback = Loopback::start(|_, _| response(429, "Retry-After: 3600\r\n", b""));
    let error = pulled(&loopback.hub("ill")).unwrap_err();
    assert!(error.contains("answers 429 and asks to wait 3600 s"), "{error}");
    assert_eq!(loopback.requests().len(), 1);
    // A short time is waited.
    let loopback = Loopback::start(|_, before| match before {
        0 => response(429, "RateLimit: \"api\";r=0;t=1\r\n", b""),
        _ => refusal(404, "gone"),
    });
    let began = Instant::now();
    assert!(pulled(&loopback.hub("ill")).unwrap_err().contains("404"));
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn the_token_stays_with_the_hub() {
    fresh("token");
    let storage = Loopback::start(|request, _| whole_or_rest(GGUF, request.from));
    let at_storage = format!("{}/bytes?signature=1", storage.endpoint());
    let repo = Repo::builtin();
    let loopback = Loopback::start(move |request, _| match request.path.as_str() {
        path if path.contains("/moved/") => redirect(&at_storage),
        path if request.is_file() => redirect(&path.replace("/resolve/", "/moved/")),
        _ => repo.answer(request),
    });
    let hub = Hub { token: Some("hf_secret".into()), ..loopback.hub("token") };
    assert_whole(&hub, &pulled(&hub).unwrap());
    let secrets = |hub: &Loopback| {
        let requests = hub.requests();
        requests.iter().map(|request| request.authorization.clone()).collect::<Vec<_>>()
    };
    // The same host on another port is another server.
    assert_eq!(secrets(&storage), [None]);
    assert_eq!(secrets(&loopback), vec![Some("Bearer hf_secret".to_owned()); 3]);
    // Without one, none is sent, and the error does not ask for another one.
    let with = Loopback::start(|_, _| refusal(401, "no"));
    let refused = Hub { token: Some("hf_wrong".into()), ..with.hub("token") };
    let error = pulled(&refused).unwrap_err();
    assert!(error.contains("the owner of this token") && !error.contains("hf_wrong"), "{error}");
}

#[test]
fn redirections_end() {
    fresh("loop");
    let loopback = Loopback::start(|request, _| redirect(&request.path));
    let error = pulled(&loopback.hub("loop")).unwrap_err();
    assert!(error.contains("as many redirections as are followed"), "{error}");
    assert_eq!(loopback.requests().len(), HUB_REDIRECTS_MAX + 1);
    let loopback = Loopback::start(|_, _| redirect("file:///etc/passwd"));
    let error = pulled(&loopback.hub("loop")).unwrap_err();
    assert!(error.contains("\"file:///etc/passwd\", which is not a URL of the web"), "{error}");
    // What a storage signs is a secret, and errors go to the log.
    let loopback =
        Loopback::start(|_, _| redirect("ftp://me:s3cret@storage/bytes?signature=s3cret"));
    let error = pulled(&loopback.hub("loop")).unwrap_err();
    assert!(error.contains("\"ftp://storage/bytes\", which is not"), "{error}");
}

#[test]
fn an_answer_that_is_no_list_is_refused() {
    let endless = "[".repeat(200);
    let enormous = " ".repeat(HUB_ANSWER_BYTES_MAX as usize + 1);
    let outside = Repo::of(&[("../../../x.gguf", GGUF)]).listing().to_string();
    for (body, words) in [
        ("<html>", "is not a list of files"),
        ("", "is not a list of files"),
        (endless.as_str(), "is not a list of files"),
        (enormous.as_str(), "is longer than 8388608 bytes"),
        (outside.as_str(), "\"../../../x.gguf\", which leaves the folder"),
    ] {
        fresh("answer");
        let answer = json(body);
        let loopback = Loopback::start(move |_, _| answer.clone());
        let hub = loopback.hub("answer");
        let error = pulled(&hub).unwrap_err();
        assert!(error.contains(words), "{error}");
        assert_eq!(loopback.requests().len(), 1);
        assert!(tree(&hub).is_empty());
    }
}

#[test]
fn a_hub_without_ranges_sends_all_again() {
    let wrong_range = |from: usize| {
        let (last, size) = (GGUF.len() - 1, GGUF.len());
        let range = format!("Content-Range: bytes {from}-{last}/{size}\r\n");
        response(206, &range, &GGUF[from..])
    };
    let whole = response(200, "", GGUF);
    let none = response(416, "Content-Range: bytes */5\r\n", b"");
    for (second, asked) in [
        (whole, vec![None, Some(500_000)]),
        (none, vec![None, Some(500_000), None]),
        (wrong_range(400_000), vec![None, Some(500_000), None]),
    ] {
        fresh("ranges");
        let loopback = files(move |repo, from, before| match before {
            0 => cut(whole_or_rest(repo.bytes(FILE), from), 500_000),
            1 => second.clone(),
            _ => whole_or_rest(repo.bytes(FILE), from),
        });
        let hub = loopback.hub("ranges");
        assert_whole(&hub, &pulled(&hub).unwrap());
        assert_eq!(loopback.ranges(), asked);
    }
}

#[test]
fn a_hub_that_falls_silent_is_asked_again() {
    fresh("silent");
    let loopback = files(|repo, from, before| {
        let bytes = whole_or_rest(repo.bytes(FILE), from);
        match before {
            0 => Answer { bytes: cut(bytes, 700_000), holds: true },
            _ => bytes.into(),
        }
    });
    let mut hub = loopback.hub("silent");
    hub.patience.silence = Duration::from_millis(300);
    assert_whole(&hub, &pulled(&hub).unwrap());
    // On a busy machine the second answer may be late, too.
    assert_eq!(loopback.ranges()[..2], [None, Some(700_000)]);
}

#[test]
fn a_mirror_that_lists_only_names_is_asked_for_the_rest() {
    fresh("mirror");
    let repo = Repo::builtin();
    let loopback = Loopback::start(move |request, _| {
        if request.method == "HEAD" {
            let (sha256, size) = (sha256(GGUF), GGUF.len());
            let linked = format!("X-Linked-Etag: \"{sha256}\"\r\nX-Linked-Size: {size}\r\n");
            return response(
                302,
                &format!("{linked}Location: http://127.0.0.1:1/storage\r\n"),
                b"",
            );
        }
        if request.is_file() {
            return repo.answer(request);
        }
        let mut listing = repo.listing();
        listing["siblings"][2].as_object_mut().unwrap().remove("lfs");
        json(&listing.to_string())
    });
    let hub = loopback.hub("mirror");
    assert_whole(&hub, &pulled(&hub).unwrap());
}
