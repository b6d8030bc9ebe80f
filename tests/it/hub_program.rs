//! The program with models by name: `serve -hf`, `model pull`, `list`, `rm` and `show`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use corelane::model::builtin::GGUF;
use rustix::process::{Pid, Signal, kill_process};

use crate::command_line::Running;
use crate::support::gguf::split;
use crate::support::hub::{Answer, Loopback, Repo, cache, cut, fresh, refusal, sha256};
use crate::support::{Client, PATIENCE, eventually, post_bytes};

/// The program with a hub, and with a folder of the test's own for its models.
fn corelane(endpoint: &str, folder: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(args).env("HF_ENDPOINT", endpoint).env("HF_HUB_CACHE", cache(folder));
    command.env_remove("HF_TOKEN").env_remove("HF_HUB_OFFLINE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(endpoint: &str, folder: &str, args: &[&str]) -> Output {
    corelane(endpoint, folder, args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

const SERVE: [&str; 5] = ["serve", "--port=0", "--ops-addr=none", "-hf", "org/tiny"];

/// A hub that sends half of the model, and the rest once it is told to.
fn halting(folder: &str) -> (Loopback, Arc<AtomicBool>) {
    fresh(folder);
    let sends_rest = Arc::new(AtomicBool::new(false));
    let (repo, switch) = (Repo::builtin(), sends_rest.clone());
    let hub = Loopback::start(move |request, _| {
        let answer = repo.answer(request);
        match request.is_file() && !switch.load(Ordering::SeqCst) {
            true => Answer { bytes: cut(answer, HALF), holds: true },
            false => answer.into(),
        }
    });
    (hub, sends_rest)
}

const HALF: usize = 1_400_000;

/// Waits until the first half of the model is on the disk.
fn wait_for_half(folder: &str) {
    let part = cache(folder).join(format!("models--org--tiny/blobs/{}.incomplete", sha256(GGUF)));
    eventually("half of the model is there", || {
        part.metadata().is_ok_and(|meta| meta.len() == HALF as u64)
    });
}

fn end(mut child: Child, signal: Signal) -> Output {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let began = Instant::now();
    child.wait().unwrap();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    child.wait_with_output().unwrap()
}

#[test]
fn a_model_is_served_by_its_name_and_later_without_the_hub() {
    fresh("serve");
    let loopback = Loopback::good(Repo::builtin());
    let endpoint = loopback.endpoint();
    let speaks = |server: &Running| {
        let mut client = Client::connect(server.address);
        client
            .send(post_bytes("/v1/completions", r#"{"prompt":"Once","max_tokens":3}"#).as_bytes());
        let response = client.response();
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()["model"].as_str().unwrap().to_owned()
    };
    let server = Running::of(&mut corelane(&endpoint, "serve", &SERVE));
    assert_eq!(speaks(&server), "org/tiny");
    drop(server);
    let asked = loopback.requests().len();
    let offline = [&SERVE[..], &["--offline", "--alias=mine"]].concat();
    let server = Running::of(&mut corelane(&endpoint, "serve", &offline));
    assert_eq!(speaks(&server), "mine");
    drop(server);
    assert_eq!(loopback.requests().len(), asked);
    let gone = loopback.close();
    let server = Running::of(&mut corelane(&gone, "serve", &SERVE));
    assert_eq!(speaks(&server), "org/tiny");
    drop(server);
    let error =
        stderr(&run(&gone, "serve", &[&offline[..4], &["org/other", "--offline"]].concat()));
    assert!(error.contains("corelane: org/other is not in"), "{error}");
}

#[test]
fn a_server_answers_while_its_model_is_downloaded() {
    let (hub, sends_rest) = halting("loading");
    let notify = cache("loading").join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    // A port for the test: the server prints its own when it is ready.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let args = ["serve", "--port", &port.to_string(), "--ops-addr=none", "-hf", "org/tiny"];
    let mut command = corelane(&hub.endpoint(), "loading", &args);
    command.env("NOTIFY_SOCKET", &notify);
    let child = command.spawn().unwrap();
    wait_for_half("loading");
    let response = Client::connect(([127, 0, 0, 1], port).into()).get("/health");
    assert_eq!(response.status, 503, "{}", response.body);
    let mut said = [0; 256];
    let length = manager.recv(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    assert!(said.contains("EXTEND_TIMEOUT_USEC=30000000"), "{said}");
    // SIGTERM does not wait for the hub.
    let output = end(child, Signal::TERM);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sends_rest.store(true, Ordering::SeqCst);
    let server = Running::of(&mut corelane(&hub.endpoint(), "loading", &SERVE));
    assert_eq!(hub.ranges(), [None, Some(HALF)], "the second start fetched the rest alone");
    drop(server);
}

#[test]
fn a_killed_download_is_resumed() {
    let (hub, sends_rest) = halting("killed");
    let pull = ["model", "pull", "org/tiny"];
    // Not SIGINT, which a shell makes the jobs in its background ignore, tests included.
    for signal in [Signal::TERM, Signal::KILL] {
        fresh("killed");
        let child = corelane(&hub.endpoint(), "killed", &pull).spawn().unwrap();
        wait_for_half("killed");
        let output = end(child, signal);
        assert!(!output.status.success());
        let list = stdout(&run(&hub.endpoint(), "killed", &["model", "list"]));
        assert!(list.contains("org/tiny") && list.contains("(unfinished: 1 file)"), "{list}");
    }
    sends_rest.store(true, Ordering::SeqCst);
    let said = stdout(&run(&hub.endpoint(), "killed", &pull));
    assert!(said.starts_with("downloaded 1.4 MB of org/tiny"), "{said}");
    assert_eq!(hub.ranges(), [None, None, Some(HALF)]);
}

#[test]
fn two_processes_download_a_file_once() {
    fresh("two");
    let both_came = Arc::new(AtomicBool::new(false));
    let (repo, switch) = (Repo::builtin(), both_came.clone());
    let hub = Loopback::start(move |request, _| {
        if request.is_file() {
            eventually("both processes came", || switch.load(Ordering::SeqCst));
        }
        repo.answer(request)
    });
    let pull = || corelane(&hub.endpoint(), "two", &["model", "pull", "org/tiny"]).spawn().unwrap();
    let first = pull();
    eventually("the first one downloads", || hub.ranges().len() == 1);
    let second = pull();
    // It says so when it waits for the lock.
    let waits = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let pid = second.id().to_string();
        locks.lines().any(|line| line.contains("->") && line.split(' ').any(|word| word == pid))
    };
    eventually("the second one waits", waits);
    both_came.store(true, Ordering::SeqCst);
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(hub.ranges(), [None]);
}

#[test]
fn a_model_in_two_files_is_served() {
    fresh("split");
    let [first, second] = split(GGUF, 20);
    let names = [1, 2].map(|n| format!("tiny-Q8_0-0000{n}-of-00002.gguf"));
    let hub = Loopback::good(Repo::of(&[(&names[0], &first), (&names[1], &second)]));
    let endpoint = hub.endpoint();
    let tokens = |server: &Running| {
        let body = r#"{"prompt":"Once upon","max_tokens":20,"temperature":0}"#;
        let mut client = Client::connect(server.address);
        client.send(post_bytes("/v1/completions", body).as_bytes());
        client.response().json()["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let split = tokens(&Running::of(&mut corelane(&endpoint, "split", &SERVE)));
    assert_eq!(split, tokens(&Running::start(&[])), "the built-in model in one piece");
    let shown = stdout(&run(&endpoint, "split", &["model", "show", "org/tiny:Q8_0"]));
    assert!(shown.contains("36 q8_0") && shown.contains("21 f32"), "tensors of both: {shown}");
    let list = stdout(&run(&endpoint, "split", &["model", "list"]));
    assert!(list.contains("00001-of-00002.gguf (2 files)"), "{list}");
}

#[test]
fn models_are_pulled_listed_shown_and_removed() {
    fresh("commands");
    let hub = Loopback::start(|request, _| Repo::builtin().answer(request));
    let corelane = |args: &[&str]| run(&hub.endpoint(), "commands", args);
    let none = stdout(&corelane(&["model", "list"]));
    assert!(none.starts_with("no models in"), "{none}");
    let pulled = stdout(&corelane(&["model", "pull", "org/tiny:q8_0"]));
    assert!(pulled.starts_with("downloaded 2.8 MB of org/tiny:q8_0"), "{pulled}");
    let again = stdout(&corelane(&["model", "pull", "org/tiny", "--file", "tiny-Q8_0.gguf"]));
    assert!(again.contains("it is the newest") && again.contains("-hff tiny-Q8_0.gguf"), "{again}");
    let list = stdout(&corelane(&["model", "list"]));
    assert!(list.starts_with("NAME             SIZE  WRITTEN"), "{list}");
    assert!(list.contains("\norg/tiny:Q8_0  2.8 MB  20"), "{list}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&corelane(&["model", "list", "--json"]))).unwrap();
    assert_eq!(json["models"][0]["name"], "org/tiny:Q8_0");
    assert_eq!(json["models"][0]["bytes"], GGUF.len());
    let shown = stdout(&corelane(&["model", "show", "org/tiny"]));
    for line in ["architecture   qwen3", "parameters     2.6 M", "context        1024 tokens"] {
        assert!(shown.contains(line), "{shown}");
    }
    let shown = stdout(&corelane(&["model", "show", "--json", "org/tiny"]));
    let json: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&json["quantization"], &json["vocabulary_tokens"]), (&"Q8_0".into(), &2048.into()));
    let same = stdout(&corelane(&["model", "show", json["file"].as_str().unwrap()]));
    assert!(same.contains("qwen3"), "{same}");
    let doctor = |name: &str| {
        let output = corelane(&["doctor", "--no-measure", "-hf", name]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(doctor("org/tiny").contains("corelane built-in: 0.00 GiB of weights"));
    assert!(
        doctor("org/more").contains("$ corelane model pull org/more"),
        "{}",
        doctor("org/more")
    );
    let removed = stdout(&corelane(&["model", "rm", "org/tiny:Q8_0"]));
    assert_eq!(removed, "removed org/tiny:Q8_0: 1 file, 2.8 MB freed\n");
    let error = stderr(&corelane(&["model", "rm", "org/tiny:Q8_0"]));
    assert!(error.starts_with("corelane: org/tiny:Q8_0 is not in"), "{error}");
    let error = stderr(&corelane(&["model", "pull", "org/tiny:Q2_K"]));
    assert_eq!(error, "corelane: org/tiny has no file for \"Q2_K\"; it has Q8_0\n");
    let error = stderr(&corelane(&["model", "pull", "tiny"]));
    assert!(error.contains("it must be OWNER/REPO or OWNER/REPO:QUANT"), "{error}");
}

/// Also if the model never comes.
#[test]
fn secrets_that_others_can_read_are_warned_of_before_the_download() {
    let folder = fresh("secrets");
    let config = folder.join("config.toml");
    std::fs::write(&config, "hf-token = \"secret\"\n").unwrap();
    std::fs::set_permissions(&config, Permissions::from_mode(0o644)).unwrap();
    let gone = "http://127.0.0.1:1";
    let args = [&SERVE[..], &["--offline", "--config", config.to_str().unwrap()]].concat();
    let said = stderr(&run(gone, "secrets", &args));
    assert!(said.contains("has the mode 644: others can read the secrets in it"), "{said}");
    assert!(said.contains("corelane: org/tiny is not in"), "{said}");
    let loopback = Loopback::start(|_, _| refusal(404, "gone"));
    let pull = ["model", "pull", "org/tiny", "--hf-token", "secret"];
    let said = stderr(&run(&loopback.endpoint(), "secrets", &pull));
    assert!(said.contains("--hf-token on the command line can be read"), "{said}");
}

#[test]
fn the_name_and_the_file_of_a_model_exclude_each_other() {
    fresh("places");
    let hub = Loopback::good(Repo::builtin());
    let folder = cache("places");
    let model = folder.join("mine.gguf");
    std::fs::write(&model, GGUF).unwrap();
    let config = |text: &str| {
        let path = folder.join("config.toml");
        std::fs::write(&path, format!("port = 0\nops-addr = \"none\"\n{text}")).unwrap();
        path
    };
    let model = model.to_str().unwrap();
    let file = config(&format!("model = {model:?}"));
    let served = |config: &Path, args: &[&str], variable: Option<(&str, &str)>| {
        let args = [&["serve", "--config", config.to_str().unwrap()], args].concat();
        let mut command = corelane(&hub.endpoint(), "places", &args);
        let server = Running::of(command.envs(variable));
        Client::connect(server.address).get("/v1/models").json()["data"][0]["id"].clone()
    };
    // The higher place wins: flags, then variables, then the file.
    assert_eq!(served(&file, &[], None), "corelane built-in");
    assert_eq!(served(&file, &["-hf", "org/tiny"], None), "org/tiny");
    assert_eq!(served(&file, &[], Some(("CORELANE_HF_REPO", "org/tiny"))), "org/tiny");
    let variable = Some(("CORELANE_MODEL", model));
    assert_eq!(served(&config("hf-repo = \"org/tiny\""), &[], variable), "corelane built-in");
    assert_eq!(served(&file, &["-hf", "org/tiny"], variable), "org/tiny");
    let both = run(&hub.endpoint(), "places", &["serve", "-m", model, "-hf", "org/tiny"]);
    assert!(stderr(&both).contains("both name a model"), "{both:?}");
    assert_eq!(both.status.code(), Some(2));
    let without = run(&hub.endpoint(), "places", &["serve", "-hff", "tiny-Q8_0.gguf"]);
    assert!(stderr(&without).contains("--hf-repo"), "{without:?}");
}
