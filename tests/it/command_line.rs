//! The binary, as a user starts, misuses and stops it.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use corelane::model::gguf::Gguf;
use corelane::placement::Claims;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::support::hub::{Loopback, Repo};
use crate::support::metrics::Samples;
use crate::support::{Client, eventually, post_bytes};

fn corelane(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run(args: &[&str]) -> Output {
    corelane(args).output().unwrap()
}

/// A running server, ended when it is dropped.
pub struct Running {
    child: Child,
    pub address: SocketAddr,
    /// Of the ops lane.
    pub ops: Option<SocketAddr>,
    banner: String,
}

impl Running {
    pub fn start(args: &[&str]) -> Self {
        Self::of(&mut corelane(&with_free_ports(args, "127.0.0.1:0")))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("max_tokens") {
            let n = stdout.read_line(&mut banner).unwrap();
            assert!(n > 0, "the server ended after {banner:?}");
        }
        let after = |key: &str| {
            let line = banner.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
            let address = line.split("http://").nth(1)?.split(',').next()?;
            let address = address.trim_end_matches("/metrics");
            Some(address.parse::<SocketAddr>().unwrap())
        };
        let (address, ops) = (after("address ").unwrap(), after("metrics "));
        Self { address, ops, child, banner }
    }

    fn scrape(&self) -> Samples {
        Samples::parse(&Client::connect(self.ops.unwrap()).get("/metrics").body)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// User and system time so far, in clock ticks of 10 ms.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One clear line on standard error, exit code 1, no backtrace.
fn refused(args: &[&str]) -> String {
    line_of_failure(&run(&with_free_ports(args, "none")), args)
}

/// `serve` with these flags, on free ports where they name none.
fn with_free_ports<'a>(args: &[&'a str], ops_addr: &'a str) -> Vec<&'a str> {
    let mut all = vec!["serve"];
    for (flag, value) in [("--port", "0"), ("--ops-addr", ops_addr)] {
        if !args.contains(&flag) {
            all.extend([flag, value]);
        }
    }
    all.extend(args);
    all
}

fn line_of_failure(output: &Output, args: &[&str]) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("corelane: "), "{args:?}: {stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"));
    stderr
}

fn scratch(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_bad_model_is_one_clear_line() {
    assert!(refused(&["-m", "/nonexistent.gguf"]).contains("cannot read the model file"));
    assert!(refused(&["-m", "/"]).contains("is not a file"));
    let text = scratch("text.gguf", b"hello, I am no model");
    let line = refused(&["-m", text.to_str().unwrap()]);
    assert!(line.contains("not a GGUF file") && line.contains("hell"), "{line}");
    let name = scratch("x\x1b]0;y\x07\u{202e}.gguf", b"hello");
    let line = refused(&["-m", name.to_str().unwrap()]);
    assert!(
        line.contains("x ]0;y  .gguf is not a GGUF file"),
        "the terminal obeys nothing: {line:?}"
    );
    let empty = scratch("empty.gguf", b"");
    assert!(refused(&["-m", empty.to_str().unwrap()]).contains("not a GGUF file"));
    let gguf = corelane::model::builtin::GGUF;
    for length in [4, 100, 50_000, gguf.len() / 2, gguf.len() - 1] {
        let cut = scratch(&format!("cut-{length}.gguf"), &gguf[..length]);
        let line = refused(&["-m", cut.to_str().unwrap()]);
        assert!(line.contains("llama.cpp cannot load"), "{length} bytes: {line}");
        assert!(!line.contains("failed to load model"), "the cause, not the call: {line}");
    }
}

/// The built-in model with other facts in its header, and a part of its weights changed.
fn odd_model(name: &str, change: impl Fn(&mut Gguf), weights: impl Fn(&mut [u8])) -> PathBuf {
    let whole = corelane::model::builtin::GGUF;
    let mut gguf = Gguf::from_bytes(whole).unwrap();
    let mut data = whole[gguf.header().len()..].to_vec();
    change(&mut gguf);
    weights(&mut data);
    scratch(name, &[gguf.header(), data].concat())
}

#[test]
fn a_file_that_is_no_model_to_serve_is_one_clear_line() {
    let same = |_: &mut [u8]| ();
    let refused_file = |path: PathBuf| {
        let line = refused(&["-m", path.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        line
    };
    for (kind, said) in [
        ("adapter", "is an adapter for a model (LoRA), and no model"),
        ("mmproj", "is the part of a model that sees or hears (mmproj), and no model"),
        ("imatrix", "is an importance matrix, which programs that quantise read, and no model"),
    ] {
        let change = |gguf: &mut Gguf| gguf.set_text("general.type", kind);
        let line = refused_file(odd_model(&format!("of-type-{kind}.gguf"), change, same));
        assert!(line.contains(said), "{line}");
    }
    // Others may be models: llama.cpp reads the type of adapters alone. And in some models, a token that fills up texts
    // has zeros.
    let change = |gguf: &mut Gguf| gguf.set_text("general.type", "cake");
    let gguf = Gguf::from_bytes(corelane::model::builtin::GGUF).unwrap();
    let tensors = gguf.tensors();
    let embedding = tensors.iter().find(|tensor| tensor.name == "token_embd.weight").unwrap();
    let row_bytes = (embedding.bytes / embedding.dims[1]) as usize;
    let zeros = |data: &mut [u8]| data[embedding.offset as usize..][..row_bytes].fill(0);
    let model = odd_model("of-type-cake.gguf", change, zeros);
    drop(Running::start(&["-m", model.to_str().unwrap()]));
    std::fs::remove_file(&model).unwrap();

    let change = |gguf: &mut Gguf| gguf.set_number("split.no", 1);
    let later = odd_model("part-00002-of-00003.gguf", change, same);
    let line = refused_file(later);
    assert!(
        line.contains("name the first one: ") && line.contains("part-00001-of-00003.gguf"),
        "{line}"
    );

    let pipe = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pipe.gguf");
    let _ = std::fs::remove_file(&pipe);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(refused_file(pipe).contains("is not a file"));

    let none = |gguf: &mut Gguf| {
        gguf.set_text("tokenizer.ggml.model", "none");
        gguf.set_number("qwen3.vocab_size", 2048);
    };
    let line = refused_file(odd_model("no-words.gguf", none, same));
    assert!(line.contains("has no tokenizer"), "{line}");
    for tokens in [0, 1 << 31, u32::MAX] {
        let change = |gguf: &mut Gguf| gguf.set_number("qwen3.context_length", tokens);
        let line = refused_file(odd_model(&format!("context-{tokens}.gguf"), change, same));
        assert!(
            line.contains("its context has") && line.contains("from 1 to 2147483647"),
            "{line}"
        );
    }
    let change = |gguf: &mut Gguf| gguf.set_number("qwen3.attention.head_count", u32::MAX);
    let line = refused_file(odd_model("heads.gguf", change, same));
    assert!(line.starts_with("corelane: "), "a sentence, whoever refuses it: {line}");
    // As a download has it that was interrupted in a file of the full length.
    let zeros = |data: &mut [u8]| data.fill(0);
    let line = refused_file(odd_model("zeros.gguf", |_| (), zeros));
    assert!(
        line.contains("the model is broken: all logits of a first step are the same"),
        "{line}"
    );
    let ones = |data: &mut [u8]| data.fill(0xFF);
    let line = refused_file(odd_model("ones.gguf", |_| (), ones));
    assert!(line.contains("the model is broken: "), "{line}");
}

#[test]
fn a_text_that_is_no_template_is_refused_at_the_start() {
    let line = refused(&["--chat-template", "chatmel"]);
    assert!(line.contains("\"chatmel\" is neither a template in Jinja"), "{line}");
    assert!(line.contains("chatml, phi3"), "{line}");
}

#[test]
fn what_the_machine_does_not_have_is_one_clear_line() {
    assert!(refused(&["--front-core", "499"]).contains("--front-core 499: there is no such core"));
    assert!(refused(&["--decode-cores", "0,498"]).contains("--decode-cores 498"));
    assert!(refused(&["--threads", "400"]).contains("--threads 400: from 1 to"));
    let line = refused(&["--ctx-size", "67108864", "-np", "256"]);
    assert!(line.contains("GiB of memory for the KV cache"), "{line}");
    assert!(refused(&["--host", "203.0.113.1"]).contains("not an address of this machine"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(refused(&["--port", &port]).contains("is in use by another program"));
    let addr = taken.local_addr().unwrap().to_string();
    let line = refused(&["--ops-addr", &addr]);
    assert!(line.contains("--ops-addr is in use by another program"), "{line}");
    // Two of ours do not share a port either.
    let running = Running::start(&[]);
    let port = running.address.port().to_string();
    assert!(refused(&["--port", &port]).contains("is in use by another program"));
    let addr = running.ops.unwrap().to_string();
    assert!(refused(&["--ops-addr", &addr]).contains("is in use by another program"));
    assert!(refused(&["--ops-addr", "9090"]).contains("such as 127.0.0.1:9090, or none"));
    assert!(refused(&["--ops-addr", "203.0.113.1:9090"]).contains("not an address of this"));
}

/// A vocabulary that llama.cpp splits with `std::regex`, which recurses for
/// each letter of a word: one long word must not end the process.
#[test]
fn a_long_word_does_not_overflow_a_stack() {
    let mut gguf = corelane::model::builtin::GGUF.to_vec();
    let at = gguf.windows(5).position(|bytes| bytes == b"qwen2").expect("tokenizer.ggml.pre");
    gguf[at..at + 5].copy_from_slice(b"bloom");
    let model = scratch("bloom.gguf", &gguf);
    let running = Running::start(&["-m", model.to_str().unwrap()]);
    let mut client = Client::connect(running.address);
    let most = corelane::limits::TEXT_BYTES_MAX;
    for length in [900, 20_000, most] {
        let body = format!("{{\"text\":\"{}\"}}", "a".repeat(length));
        let answer = client.post("/encode", &body);
        assert_eq!(answer.status, 200, "{length} letters");
        assert!(answer.json()["data"]["length"].as_u64().unwrap() > 100);
    }
    let body = format!("{{\"text\":\"{}\"}}", "a".repeat(most + 1));
    let refused = client.post("/encode", &body);
    assert_eq!(refused.status, 400);
    assert!(refused.json()["message"].as_str().unwrap().contains("it may have 1048576"));
    // A prompt that cannot fit is refused before it is tokenised.
    let body = format!("{{\"prompt\":\"{}\"}}", "a".repeat(most));
    let refused = client.post("/generate", &body).json();
    assert!(refused["message"].as_str().unwrap().contains("at least"), "{refused}");
}

#[test]
fn arguments_that_are_not_unicode_are_one_clear_line() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = corelane(&["serve", "--port", "0", "--ops-addr", "none", "-m"]);
    command.arg(std::ffi::OsStr::from_bytes(b"/nonexistent-\xff.gguf"));
    let line = line_of_failure(&command.output().unwrap(), &["not unicode"]);
    assert!(line.contains("cannot read the model file"), "{line}");
}

#[test]
fn impossible_values_say_what_would_be_right() {
    assert!(refused(&["-np", "0"]).contains("--parallel is 0; it must be from 1 to 256"));
    assert!(refused(&["-b", "5000"]).contains("it must be from 8 to 2048"));
    assert!(refused(&["--poll", "101"]).contains("--poll is 101; it must be from 0 to 100"));
    assert!(refused(&["-c", "3"]).contains("--ctx-size is 3; it must be from 16"));
    assert!(refused(&["-n", "0"]).contains("--n-predict is 0"));
    assert!(refused(&["--log", "a[=info"]).contains("not a log filter"));
    for word in ["loud", "llama.cpp=loud", "info,verbose"] {
        let line = refused(&["--log", word]);
        assert!(line.contains("is no level; the levels are error, warn, info"), "{line}");
    }
    let refused_otlp = refused(&["--otlp-endpoint", "127.0.0.1:4317"]);
    assert!(refused_otlp.contains("such as http://127.0.0.1:4318"), "{refused_otlp}");
    // Usage errors are clap's, with its exit code.
    for args in [&["serve", "--port", "x"][..], &["serve", "--nope"], &["nope"], &[]] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    for (args, said) in [
        (&["serve", "-ngl", "99"][..], "corelane computes on the CPU alone; leave -ngl out"),
        (&["serve", "--gpu-layers", "-1"], "corelane computes on the CPU alone"),
        (&["serve", "-c", "-5"], "it must be from 16 to 67108864"),
        (&["serve", "-np", "-1"], "it must be from 1 to 256"),
        (&["serve", "-b", "-1"], "it must be from 1 to 2048"),
        (&["serve", "-t", "-1"], "it must be from 1 to"),
        (&["serve", "--poll", "-1"], "it must be from 0 to 100"),
        (&["serve", "model.gguf"], "a model is named with -m"),
        (&["chat", "model.gguf"], "a model is named with -m"),
        (&["run", "model.gguf"], "a model is named with -m"),
        (&["rm"], "corelane model rm"),
    ] {
        let output = run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{args:?}: {stderr}");
    }
    let output = run(&["serve", "--kernels", "fast"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("must be auto, llama, amx, avx512-vnni")
    );
    let output = run(&["serve", "--decode-cores", "3-1"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("looks like 1-3,6"));
}

/// Kubernetes sets CORELANE_PORT for a Service named corelane.
#[test]
fn a_variable_with_an_address_of_kubernetes_is_not_read() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("service-links.log");
    let mut command = corelane(&["serve", "--ops-addr", "none"]);
    for (name, value) in [("PORT", "tcp://10.96.12.34:80"), ("CONFIG", "tcp://10.96.12.34:81")] {
        command.env(format!("CORELANE_{name}"), value);
    }
    // Port 8080 is the default, so the file chooses another one.
    command.args(["--host", "127.0.0.1"]).stderr(std::fs::File::create(&file).unwrap());
    let taken = TcpListener::bind("127.0.0.1:8080"); // or by another program
    let output = command.output().unwrap();
    drop(taken);
    assert_eq!(output.status.code(), Some(1));
    let log = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(log.contains("the variable CORELANE_PORT is ignored"), "{log}");
    assert!(log.contains("port 8080 of 127.0.0.1 is in use by another program"), "{log}");
}

/// Nobody may read what a command says.
#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    for args in [
        &["completions", "bash"][..],
        &["doctor"],
        &["--help"],
        &["--version"],
        &["serve", "--help"],
        &["model", "list"],
        &["serve", "--port", "x"],
        &["serve", "-m", "/nonexistent.gguf", "--port", "0", "--ops-addr", "none"],
        &["run", "-n", "1", "Hello"],
        &["bench", "--help"],
        &["bench", "completions", "fish"],
    ] {
        let mut command = corelane(args);
        let closed = || std::io::pipe().unwrap().1;
        let ended = command.stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(ended.signal(), None, "{args:?}");
        assert!(ended.code().is_some_and(|code| code <= 2), "{args:?}: {ended}");
    }
}

/// Lets a server run with little lockable memory, as containers often have.
fn lock_little(command: &mut Command) {
    let limit = || {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = Rlimit { current: Some(64 * 1024), maximum: Some(64 * 1024) };
        Ok(setrlimit(Resource::Memlock, limit)?)
    };
    // SAFETY: the closure makes one system call and does not allocate.
    unsafe { command.pre_exec(limit) };
}

/// Lets a server run under a seccomp filter such as containers have: a call fails.
fn forbid(command: &mut Command, call: u32, errno: u32) {
    // SAFETY: the closure makes two system calls and does not allocate.
    unsafe { command.pre_exec(move || forbid_call(call, errno)) };
}

/// io_uring's calls, whose numbers are the same everywhere: to set up, to enter, to register.
const URING_CALLS: [u32; 3] = [425, 426, 427];

#[test]
fn io_uring_that_is_asked_for_and_forbidden_is_one_clear_line() {
    let asked = || corelane(&["serve", "--io", "uring", "--port", "0", "--ops-addr", "none"]);
    let mut command = asked();
    lock_little(&mut command);
    let line = line_of_failure(&command.output().unwrap(), &["memlock"]);
    assert!(line.contains("64 KiB") && line.contains("ulimit -l 512"), "{line}");
    for (errno, part) in [(1, "io_uring is forbidden"), (38, "this kernel has no io_uring")] {
        for call in URING_CALLS {
            let mut command = asked();
            forbid(&mut command, call, errno);
            let line = line_of_failure(&command.output().unwrap(), &["io_uring"]);
            assert!(line.contains(part), "{line}");
        }
    }
}

/// With Docker's default filter and limits.
#[test]
fn a_server_without_io_uring_answers_by_epoll() {
    for call in URING_CALLS {
        let mut command = corelane(&with_free_ports(&["--io", "auto"], "127.0.0.1:0"));
        if call == URING_CALLS[0] {
            lock_little(&mut command);
        }
        forbid(&mut command, call, 1);
        let running = Running::of(&mut command);
        assert!(running.banner.contains(", epoll)"), "{}", running.banner);
        let mut client = Client::connect(running.address);
        let body = r#"{"prompt":"a","max_tokens":4,"ignore_eos":true}"#;
        assert_eq!(client.post("/v1/completions", body).json()["usage"]["completion_tokens"], 4);
        assert_eq!(client.get("/props").json()["io"], "epoll");
        let metrics = Client::connect(running.ops.unwrap()).get("/metrics").body;
        assert!(metrics.contains("io=\"epoll\""), "{metrics}");
    }
}

/// Makes a system call fail with `errno` in this process, also after `exec`.
fn forbid_call(call: u32, errno: u32) -> std::io::Result<()> {
    // Classic BPF (linux/filter.h): load the call's number; if it is this one, return the error, else
    // allow.
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, call),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives during the calls, and its length is right.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn a_configuration_file_stands_behind_environment_and_flags() {
    let file = scratch(
        "good.toml",
        b"parallel = 3\nalias = \"from-file\"\nn-predict = 4\napi_key = [\"k1\", \"k2\"]\n",
    );
    let path = file.to_str().unwrap();
    let running = Running::start(&["--config", path]);
    let mut client = Client::connect(running.address);
    assert_eq!(client.get("/v1/models").json()["data"][0]["id"], "from-file");
    assert!(running.banner.contains("shared by 3 requests"), "{}", running.banner);
    assert_eq!(client.post("/v1/completions", r#"{"prompt":"a"}"#).status, 401);
    let body = r#"{"prompt":"a","ignore_eos":true}"#;
    let keyed = post_bytes("/v1/completions", body).replacen("Host", "X-Api-Key: k2\r\nHost", 1);
    client.send(keyed.as_bytes());
    assert_eq!(client.response().json()["usage"]["completion_tokens"], 4);
    let running = Running::start(&["--config", path, "--alias", "from-flag"]);
    let models = Client::connect(running.address).get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "from-flag");

    for (name, content, part) in [
        ("bad-key.toml", "blue = 1", "unknown key \"blue\"; known are"),
        ("near-key.toml", "ctx_sise = 4096", "unknown key \"ctx_sise\"; did you mean ctx-size?"),
        (
            "section.toml",
            "[server]\nport = 1",
            "the section [server] is unknown; all keys stand at the top",
        ),
        ("bad-toml.toml", "port = ", "is not valid TOML"),
        ("unquoted.toml", "alias = mymodel", "a text stands in quotes"),
        ("bad-type.toml", "[port]\na = 1", "port must be a string, a number"),
        ("bad-value.toml", "parallel = 1000", "it must be from 1 to 256"),
    ] {
        let file = scratch(name, content.as_bytes());
        let line = run(&["serve", "--config", file.to_str().unwrap(), "--port", "0"]);
        let stderr = String::from_utf8(line.stderr).unwrap();
        assert!(stderr.contains(part), "{name}: {stderr}");
        assert_eq!(line.status.code(), Some(1), "{name}");
    }
    assert!(refused(&["--config", "/nonexistent.toml"]).contains("cannot read the configuration"));
}

#[test]
fn the_kv_cache_is_one_or_several_as_file_and_flags_say() {
    for (content, flag, is_one) in [
        ("", None, true),
        ("kv-unified = false", None, false),
        ("kv-unified = false", Some("--kv-unified"), true),
        ("no-kv-unified = true", Some("--kv-unified"), true),
        ("kv-unified = true", Some("--no-kv-unified"), false),
        ("kv-unified = true", None, true),
    ] {
        let file = scratch("kv.toml", content.as_bytes());
        let mut args = vec!["--config", file.to_str().unwrap(), "--ctx-size", "2048"];
        args.extend(flag);
        let running = Running::start(&args);
        // Of 2,048 cells one request may have all that the model takes, or its share.
        let each = if is_one { "one may use 1024, as many as" } else { "one may use 256" };
        assert!(running.banner.contains(each), "{content} {flag:?}: {}", running.banner);
    }
}

#[test]
fn the_example_of_a_configuration_file_is_one() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/corelane.toml");
    let running = Running::start(&["--config", file.to_str().unwrap()]);
    assert_eq!(Client::connect(running.address).get("/health").status, 200);
}

/// A request counts first, then the flag, then the model's file, then the API.
#[test]
fn sampling_and_a_system_message_have_defaults() {
    let advise = |gguf: &mut Gguf| {
        gguf.set_float("general.sampling.temp", 0.25);
        gguf.set_number("general.sampling.top_k", 7);
        gguf.set_float("general.sampling.top_p", 3.0); // no probability
    };
    let file = odd_model("advised.gguf", advise, |_| ());
    let running = Running::start(&[
        "-m",
        file.to_str().unwrap(),
        "--temp",
        "0",
        "--presence-penalty",
        "-0.5",
        "--system-prompt",
        "You rhyme.",
    ]);
    std::fs::remove_file(&file).unwrap();
    let mut client = Client::connect(running.address);
    let props = client.get("/props").json();
    let shown = |settings: &serde_json::Value| {
        ["temperature", "top_k", "top_p", "presence_penalty"].map(|name| settings[name].to_string())
    };
    assert_eq!(
        shown(&props["default_generation_settings"]["params"]),
        ["0.0", "7", "0.95", "-0.5"]
    );
    assert_eq!(props["system_prompt"], "You rhyme.");
    let mut post = |path: &str, body: serde_json::Value| {
        let answer = client.post(path, &body.to_string());
        assert_eq!(answer.status, 200, "{path} {body}");
        answer.json()
    };
    let body = |more: serde_json::Value| {
        let mut body = serde_json::json!({"prompt": "Once upon a time", "n_predict": 20});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let silent = post("/completion", body(serde_json::json!({})));
    assert_eq!(shown(&silent["generation_settings"]), ["0.0", "7", "0.95", "-0.5"]);
    let said = post("/completion", body(serde_json::json!({"temperature": 1.5, "top_k": 3})));
    assert_eq!(shown(&said["generation_settings"]), ["1.5", "3", "0.95", "-0.5"]);
    // Greedy, so the same whatever the seed.
    let again = post("/completion", body(serde_json::json!({"seed": 99})));
    assert_eq!(silent["content"], again["content"]);
    let explicit = serde_json::json!({"temperature": 0, "top_k": 7, "presence_penalty": -0.5});
    assert_eq!(silent["content"], post("/completion", body(explicit))["content"]);
    let response =
        post("/v1/responses", serde_json::json!({"input": "Hi", "max_output_tokens": 2}));
    assert_eq!((&response["temperature"], &response["top_p"]), (&0.0.into(), &1.0.into()));

    let rendered =
        |messages: serde_json::Value,
         post: &mut dyn FnMut(&str, serde_json::Value) -> serde_json::Value| {
            let answer = post("/apply-template", serde_json::json!({"messages": messages}));
            answer["prompt"].as_str().unwrap().to_owned()
        };
    let user = serde_json::json!([{"role": "user", "content": "Hi"}]);
    let own = serde_json::json!([{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi"}]);
    assert!(rendered(user, &mut post).contains("You rhyme."));
    let own = rendered(own, &mut post);
    assert!(own.contains("Be terse.") && !own.contains("You rhyme."), "{own}");
    // An order of samplers that leaves one out switches it off, and one that has it gets the server's value.
    let order = serde_json::json!({"samplers": ["temperature"], "seed": 1, "temperature": 2.0});
    let free = post("/completion", body(order.clone()));
    let greedy = body(serde_json::json!({"samplers": ["temperature"], "seed": 1}));
    let plain = body(serde_json::json!({"temperature": 0, "presence_penalty": 0}));
    assert_eq!(post("/completion", greedy)["content"], post("/completion", plain)["content"]);
    let mut other = order;
    let differ = (2..12).any(|seed| {
        other["seed"] = seed.into();
        post("/completion", body(other.clone()))["content"] != free["content"]
    });
    assert!(differ, "temperature 2, of all tokens");
    let [one, two] = [3, 4].map(|seed| {
        let asked = serde_json::json!({"typical_p": 0.99, "seed": seed});
        post("/completion", body(asked))["content"].clone()
    });
    assert_eq!(one, two, "greedy also beside another sampler");
    // What is typed counts before what a file says.
    let text = scratch("system.txt", b"From a file.\n");
    let toml = format!("system-prompt-file = {:?}\n", text.to_str().unwrap());
    let config = scratch("system.toml", toml.as_bytes());
    for (more, expected) in [(&[][..], "From a file."), (&["--system-prompt", "Typed."], "Typed.")]
    {
        let mut args = vec!["--config", config.to_str().unwrap()];
        args.extend(more);
        let running = Running::start(&args);
        let props = Client::connect(running.address).get("/props").json();
        assert_eq!(props["system_prompt"], expected);
    }
    assert!(
        refused(&["--system-prompt-file", "/nonexistent"])
            .contains("cannot read the system prompt")
    );
    let output = run(&["serve", "--top-p", "1.5"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("it must be a number from 0 to 1"));
}

/// Where a model's file asks for a token before each text, a prompt begins with it exactly once, whatever wrote it.
#[test]
fn a_prompt_begins_once_with_the_token_that_begins_texts() {
    let whole = Running::start(&[]);
    let id_of = |text: &str| {
        let body = serde_json::json!({"content": text, "parse_special": true});
        let answer = Client::connect(whole.address).post("/tokenize", &body.to_string()).json();
        let [id] = answer["tokens"].as_array().unwrap().as_slice() else { panic!("{answer}") };
        id.as_u64().unwrap() as u32
    };
    let counts = |address: SocketAddr, texts: &[&str]| -> Vec<u64> {
        let mut client = Client::connect(address);
        let mut count = |path: &str, body: serde_json::Value| {
            let answer = client.post(path, &body.to_string());
            assert_eq!(answer.status, 200, "{path} {body}");
            answer.json()["usage"]["prompt_tokens"].as_u64().unwrap()
        };
        let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
        let chat = serde_json::json!({"messages": messages, "max_tokens": 1});
        let mut counts = vec![count("/v1/chat/completions", chat)];
        for text in texts {
            counts.push(count(
                "/v1/completions",
                serde_json::json!({"prompt": text, "max_tokens": 1}),
            ));
        }
        counts
    };
    let rendered = |address: SocketAddr| {
        let body = r#"{"messages":[{"role":"user","content":"Hi"}]}"#;
        let answer = Client::connect(address).post("/apply-template", body).json();
        answer["prompt"].as_str().unwrap().to_owned()
    };
    let template = rendered(whole.address);
    // The template begins with the second one.
    for (number, token) in ["<|im_end|>", "<|im_start|>"].into_iter().enumerate() {
        let texts = ["Once", &format!("{token}Once"), &format!("{token}{token}Once"), &template];
        let plain = counts(whole.address, &texts);
        let id = id_of(token);
        let change = |gguf: &mut Gguf| {
            gguf.set_number("tokenizer.ggml.bos_token_id", id);
            gguf.set_flag("tokenizer.ggml.add_bos_token", true);
        };
        let file = odd_model(&format!("begins-{number}.gguf"), change, |_| ());
        let running = Running::start(&["-m", file.to_str().unwrap()]);
        std::fs::remove_file(&file).unwrap();
        let found = counts(running.address, &texts);
        let begins = usize::from(template.starts_with(token)) as u64;
        let expected =
            [plain[0] + 1 - begins, plain[1] + 1, plain[2], plain[3] - 1, plain[4] + 1 - begins];
        assert_eq!(found, expected, "{token}: {plain:?}");
        // What `/apply-template` answers is the prompt of the chat.
        let shown = rendered(running.address);
        assert_eq!(shown, template.strip_prefix(token).unwrap_or(&template));
        assert_eq!(counts(running.address, &[&shown])[1], found[0], "{token}");
    }
    assert!(template.starts_with("<|im_start|>"), "{template}");
}

#[test]
fn keys_may_come_from_a_file() {
    let file = scratch("keys", b"k1\n\n  k2  \n");
    let running = Running::start(&["--api-key-file", file.to_str().unwrap()]);
    let mut client = Client::connect(running.address);
    let body = r#"{"prompt":"a","max_tokens":1}"#;
    for (key, status) in [("k1", 200), ("k2", 200), ("  k2  ", 200), ("k3", 401)] {
        let request = post_bytes("/v1/completions", body);
        client.send(request.replacen("Host", &format!("X-Api-Key: {key}\r\nHost"), 1).as_bytes());
        assert_eq!(client.response().status, status, "{key:?}");
    }
    let empty = scratch("no-keys", b"\n \n");
    assert!(refused(&["--api-key-file", empty.to_str().unwrap()]).contains("has no API key"));
    assert!(refused(&["--api-key-file", "/nonexistent"]).contains("cannot read the API keys"));
}

/// Wherever it is named: flag, variable, file.
#[test]
fn the_metrics_are_where_they_should_be() {
    let running = Running::start(&[]);
    let mut client = Client::connect(running.address);
    let body = r#"{"prompt":"a","max_tokens":5,"ignore_eos":true}"#;
    assert_eq!(client.post("/v1/completions", body).status, 200);
    let page = running.scrape();
    let tokens = "vllm:generation_tokens_total{model_name=\"corelane built-in\",engine=\"0\"}";
    assert_eq!(page.get(tokens), 5.0);
    assert_eq!(page.get("corelane_log_lines_lost_total"), 0.0);
    // The binary counts its lanes' allocations.
    assert!(page.get("corelane_allocations_total{lane=\"front\"}") > 0.0);

    let none = Running::start(&["--ops-addr", "none"]);
    assert!(none.ops.is_none() && none.banner.contains("metrics  none"), "{}", none.banner);
    let mut command = corelane(&["serve", "--port", "0"]);
    let by_variable = Running::of(command.env("CORELANE_OPS_ADDR", "localhost:0"));
    by_variable.scrape();
    let file = scratch("ops.toml", b"ops-addr = \"127.0.0.1:0\"\n");
    let args = ["serve", "--port", "0", "--config", file.to_str().unwrap()];
    Running::of(&mut corelane(&args)).scrape();
}

/// A panic on a connection of the ops lane ends that connection, and not the process. Here the
/// library panics because it cannot complain of a request: nobody reads standard error.
#[test]
fn a_panic_on_the_ops_lane_ends_nothing_else() {
    let mut running = Running::start(&[]);
    drop(running.child.stderr.take());
    for malformed in ["GARBAGE\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"] {
        let mut stranger = Client::connect(running.ops.unwrap());
        stranger.send(malformed.as_bytes());
        stranger.try_response();
        assert!(stranger.is_closed());
        running.scrape();
        let body = r#"{"prompt":"a","max_tokens":3}"#;
        let answer = Client::connect(running.address).post("/v1/completions", body);
        assert_eq!(answer.status, 200);
    }
    assert!(running.child.try_wait().unwrap().is_none(), "it runs");
}

#[test]
fn sigterm_finishes_what_runs_and_ends_with_zero() {
    finish_after(rustix::process::Signal::TERM);
}

/// Keys can be changed while a server runs. A file that is none changes nothing.
#[test]
fn sighup_reads_the_keys_again() {
    let file = scratch("rotated-keys", b"# of the editor\nold\n\nother\n");
    let running = Running::of(
        corelane(&["serve", "--port", "0", "--ops-addr", "none"])
            .args(["--api-key-file", file.to_str().unwrap()]),
    );
    let status = |key: &str| {
        let request = post_bytes("/v1/completions", r#"{"prompt":"a","max_tokens":1}"#);
        let mut client = Client::connect(running.address);
        client.send(request.replacen("Host", &format!("X-Api-Key: {key}\r\nHost"), 1).as_bytes());
        client.response().status
    };
    assert_eq!((status("old"), status("new"), status("other")), (200, 401, 200));
    assert_eq!(status("# of the editor"), 401, "a comment is no key");
    let reload = |content: &[u8]| {
        std::fs::write(&file, content).unwrap();
        running.signal(rustix::process::Signal::HUP);
    };
    reload(b"other\nnew\n");
    eventually("the new key is let in", || status("new") == 200);
    assert_eq!((status("old"), status("other")), (401, 200));
    for wrong in [&b""[..], b"# none\n", b"other\nne", b"new\0\nother", b"new\nnew\n", b"key x"] {
        reload(wrong);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let all = ["new", "other", "ne", "", "x", "old"].map(status);
        assert_eq!(all, [200, 200, 401, 401, 401, 401], "{wrong:?}");
    }
    reload(b"key alice:new\r\nother");
    std::fs::remove_file(&file).unwrap();
    running.signal(rustix::process::Signal::HUP);
    assert_eq!((status("old"), status("other")), (401, 200));
}

fn finish_after(signal: rustix::process::Signal) {
    let mut running = Running::start(&[]);
    let mut scraper = Client::connect(running.ops.unwrap()); // holds nobody
    assert_eq!(scraper.get("/ready").status, 200);
    let mut client = Client::connect(running.address);
    let body = r#"{"prompt":"Once","max_tokens":300,"ignore_eos":true}"#;
    client.send(post_bytes("/generate_stream", body).as_bytes());
    client.head().unwrap();
    running.signal(signal);
    let mut text = Vec::new();
    while let Some(chunk) = client.chunk() {
        text.extend(chunk);
    }
    assert!(text.ends_with(b"\"token\":\"\",\"done\":true}\n\n"));
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut running = Running::start(&["-np", "1"]);
    let mut client = Client::connect(running.address);
    let body = r#"{"prompt":"Once","max_tokens":1000,"ignore_eos":true}"#;
    client.send(post_bytes("/generate_stream", body).as_bytes());
    client.head().unwrap();
    running.signal(rustix::process::Signal::INT);
    eventually("it drains", || {
        std::net::TcpStream::connect_timeout(&running.address, Duration::from_millis(100)).is_err()
    });
    running.signal(rustix::process::Signal::INT);
    let status = running.child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
}

#[test]
fn clients_that_connect_and_leave_at_once_do_not_pile_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flood.sock");
    let running = Running::start(&["--host", &format!("127.0.0.1,{}", path.display())]);
    let flood = std::thread::spawn(move || {
        for _ in 0..20_000 {
            drop(UnixStream::connect(&path).unwrap());
        }
    });
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", running.child.id())).unwrap().count();
    let mut most = 0;
    while !flood.is_finished() {
        most = most.max(descriptors());
    }
    flood.join().unwrap();
    // Each is closed before many more are accepted.
    assert!(most < 1000, "{most} descriptors");
    assert_eq!(Client::connect(running.address).get("/health").status, 200);
}

/// Idle lanes sleep: in two seconds, under a tenth of one second of CPU. (The promise is a
/// hundredth; see `perf/`. A test on a busy machine is no place to measure it.)
#[test]
fn an_idle_server_does_not_spin() {
    let running = Running::start(&[]);
    let mut client = Client::connect(running.address);
    client.post("/v1/completions", r#"{"prompt":"a"}"#);
    let mut scraper = Client::connect(running.ops.unwrap()); // stays open
    assert_eq!(scraper.get("/metrics").status, 200);
    // ggml's threads poll for a while after the last step.
    eventually("the server rests", || {
        let before = running.cpu_ticks();
        std::thread::sleep(Duration::from_millis(500));
        running.cpu_ticks() - before <= 2 // of 10 ms
    });
}

/// The processors on which each thread of a process may run, by the thread's name.
fn affinities(running: &Running) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread that has ended meanwhile has no file any more.
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_owned()
        };
        Some((field("Name"), field("Cpus_allowed_list")))
    };
    tasks.filter_map(of_task).collect()
}

/// The processors on which this thread may run.
fn own_affinity() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

/// A server that finds all cores claimed pins nothing: its busy threads would wait for those of the
/// server that claimed them.
#[test]
fn a_second_server_on_the_same_cores_is_not_pinned() {
    let may = sched_getaffinity(None).unwrap();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| may.is_set(*core)).collect();
    // A server outside this test may hold a core and end before the second server starts. Then the
    // next turn claims that core.
    let (mut claimed, may) = (Vec::new(), own_affinity());
    let is_free = (0..=cores.len()).any(|_| {
        claimed.push(Claims::of(&cores));
        let second = Running::start(&["--parallel", "1"]);
        let body = r#"{"prompt":"Once upon a time","max_tokens":5}"#;
        assert_eq!(Client::connect(second.address).post("/v1/completions", body).status, 200);
        let all = affinities(&second);
        assert!(all.iter().any(|(name, _)| name == "decode") && all.len() > 6, "{all:?}");
        all.iter().all(|(_, cores)| *cores == may)
    });
    assert!(is_free);
}

/// A key would be in a core dump, and so would a token. Without them there is nothing to hide.
#[test]
fn core_dumps_hold_no_keys() {
    let folder = std::env::temp_dir().join(format!("corelane-dumps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), "secret").unwrap();
    let hub = Loopback::good(Repo::builtin());
    let dumps = |model: &[&str], variables: &[(&str, &str)]| {
        let args = [&["--parallel", "1"], model].concat();
        let serve = corelane(&with_free_ports(&args, "none"));
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]);
        shell.arg(serve.get_program()).args(serve.get_args()).current_dir(&folder);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        shell.env_remove("HF_TOKEN").env("HF_ENDPOINT", hub.endpoint());
        shell.envs(variables.iter().copied());
        let mut running = Running::of(&mut shell);
        running.signal(rustix::process::Signal::ABORT);
        running.child.wait().unwrap().core_dumped()
    };
    let with_key = dumps(&[], &[("CORELANE_API_KEY", "secret")]);
    let by_name = ["-hf", "org/tiny"];
    let with_token = dumps(&by_name, &[("HF_HOME", folder.to_str().unwrap())]);
    let without_token = folder.join("none");
    let without = dumps(&by_name, &[("HF_HOME", without_token.to_str().unwrap())]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(without, "this machine writes core dumps");
    assert!(!with_key && !with_token);
}

/// `--log-json` prints nothing but JSON: no banner, and a line with the same facts.
#[test]
fn a_log_in_json_has_nothing_else() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("json.log");
    let mut command = corelane(&with_free_ports(&["--log-json"], "none"));
    command.stderr(std::fs::File::create(&file).unwrap()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&file).unwrap();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let event = |message: &str| {
        lines()
            .into_iter()
            .map(|line| line["fields"].clone())
            .find(|line| line["message"] == message)
    };
    eventually("the server is ready", || event("ready").is_some());
    let ready = event("ready").unwrap();
    assert_eq!(
        (&ready["version"], &ready["model"]),
        (&"0.1.0".into(), &"corelane built-in".into())
    );
    let address = ready["addresses"].as_str().unwrap().strip_prefix("http://").unwrap();
    assert!(
        ready["after_s"].as_f64().unwrap() > 0.0 && !ready["kernels"].as_str().unwrap().is_empty()
    );
    let mut client = Client::connect(address.parse().unwrap());
    assert_eq!(client.post("/v1/completions", r#"{"prompt":"a","max_tokens":1}"#).status, 200);
    assert_eq!(client.post("/v1/completions", r#"{"prompt":1.5}"#).status, 400);
    for message in ["served", "refused"] {
        eventually(message, || event(message).is_some());
        assert_eq!(event(message).unwrap()["peer"], "127.0.0.1", "{message}");
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(stdout, "");
    assert!(event("ended").is_some());
    std::fs::remove_file(&file).unwrap();
}

/// Requests go on when the log cannot be written.
#[test]
fn log_lines_that_cannot_be_written_are_counted() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = corelane(&with_free_ports(&["--log", "info"], "127.0.0.1:0"));
    let running = Running::of(command.stderr(full));
    let mut client = Client::connect(running.address);
    for _ in 0..20 {
        assert_eq!(client.post("/v1/completions", r#"{"prompt":"a","max_tokens":1}"#).status, 200);
    }
    let lost = || running.scrape().get("corelane_log_lines_lost_total");
    eventually("20 lines are lost", || lost() >= 20.0);
}

/// Lanes that are not pinned may run on every core. (The check of the kernels at the start uses
/// ggml's threads, which pin the calling thread. The pin must not stay.)
#[test]
fn only_the_front_and_the_decode_lane_are_pinned() {
    let running = Running::start(&[]);
    let mut seen = affinities(&running);
    seen.retain(|(name, _)| ["corelane", "prepare", "signals", "masks"].contains(&name.as_str()));
    let may = own_affinity();
    assert!(seen.len() >= 4 && seen.iter().all(|(_, cores)| *cores == may), "{may}: {seen:?}");
}

/// In the banner, the metrics and `/props`.
#[test]
fn kernels_are_said_wherever_a_server_describes_itself() {
    let best = corelane::kernels::InstructionSet::best().unwrap().name();
    let auto = format!("{best} for 36 of 36 matrices");
    for (flag, name, shown) in [("auto", best, auto), ("llama", "llama", "llama.cpp's\n".into())] {
        let running = Running::start(&["--kernels", flag]);
        assert!(running.banner.contains(&format!("kernels  {shown}")), "{}", running.banner);
        let version = env!("CARGO_PKG_VERSION");
        let props = Client::connect(running.address).get("/props").json();
        let io = props["io"].as_str().unwrap();
        let labels = format!("version=\"{version}\",io=\"{io}\",kernels=\"{name}\"");
        let info = format!("corelane_build_info{{{labels}}}");
        assert_eq!(running.scrape().get(&info), 1.0);
        assert_eq!(props["kernels"], name);
    }
}

/// In the banner, the metrics and `/props`.
#[test]
fn threads_are_said_wherever_a_server_describes_itself() {
    for flags in [&["--threads", "1"][..], &[]] {
        let running = Running::start(flags);
        assert!(running.banner.contains("  threads  a token: "), "{}", running.banner);
        let mut client = Client::connect(running.address);
        let body = r#"{"prompt": "Once", "max_tokens": 20}"#;
        assert_eq!(client.post("/v1/completions", body).status, 200);
        let props = client.get("/props").json();
        let steps = props["calibration"].as_array().unwrap();
        let of = |field: &'static str| steps.iter().map(move |step| &step[field]);
        assert!(of("rows").any(|rows| *rows == 1), "{steps:?}");
        assert!(of("ms").all(|ms| ms.as_f64().unwrap() > 0.0), "{steps:?}");
        let threads = props["compute_threads"].as_u64().unwrap();
        assert!(of("threads").any(|of| of.as_u64() == Some(threads)), "{props}");
        let is_ordered = !flags.is_empty();
        assert!(!is_ordered || of("threads").all(|threads| *threads == 1), "{steps:?}");
        let page = running.scrape();
        assert_eq!(page.get("corelane_compute_threads") as u64, threads);
        let led = props["products_led"].as_bool().unwrap();
        assert_eq!(page.get("corelane_products_led"), f64::from(u8::from(led)));
        assert_eq!(page.get("corelane_slowdown"), props["slowdown"].as_f64().unwrap());
    }
}

#[test]
fn the_banner_and_the_help_teach() {
    let running = Running::start(&[]);
    for part in [
        "address",
        "metrics",
        "model",
        "corelane built-in",
        "lanes",
        "front on core",
        "tokens/s for one stream", // a busy machine leaves no time to measure the other kinds
        "while texts are short",
        "curl http",
    ] {
        assert!(running.banner.contains(part), "{part:?} in {}", running.banner);
    }
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    for part in ["--model", "--ops-addr", "--ctx-size", "-np", "-ub", "CORELANE_PORT", "Examples:"]
    {
        assert!(help.contains(part), "{part:?} in the help");
    }
    let mut version = String::new();
    run(&["--version"]).stdout.as_slice().read_to_string(&mut version).unwrap();
    assert!(version.starts_with("corelane 0."));
}

/// What it writes, a server takes.
#[test]
fn tune_writes_a_configuration_with_what_it_measured() {
    let path = std::env::temp_dir().join(format!("corelane-tune-{}.toml", std::process::id()));
    let path = path.to_str().unwrap();
    let tuned = run(&["tune", "--output", path]);
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, String::from_utf8(tuned.stdout).unwrap());
    let table: toml::Table = text.parse().unwrap();
    let of = |key: &str| table[key].as_integer().unwrap().to_string();
    let starred = |value: &str| {
        text.lines().any(|line| line.starts_with(&format!("#   {value} ")) && line.ends_with('*'))
    };
    assert!(starred(&of("ubatch-size")) && starred(&of("poll")), "{text}");
    assert!(text.contains("#   threads   1 text, ms"), "{text}");
    let running = Running::start(&["--config", path]);
    assert!(running.banner.contains("corelane built-in"), "{}", running.banner);
    // What cannot be written is said before the measurement.
    let nowhere = run(&["tune", "--output", "/nowhere/tuned.toml"]);
    let said = String::from_utf8(nowhere.stderr).unwrap();
    assert!(nowhere.stdout.is_empty() && said.contains("there is no folder /nowhere"), "{said}");
    // A file is never written over.
    let again = run(&["tune", "--output", path]);
    assert!(!again.status.success());
    assert!(String::from_utf8(again.stderr).unwrap().contains("the file exists; name a new one"));
    std::fs::remove_file(path).unwrap();
}

/// `corelane bench` and `corelane model synth` are `corelane-bench`, beside it or in `PATH`.
#[test]
fn corelane_bench_is_started_wherever_it_lies() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("without-bench");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let moved = folder.join("corelane");
    std::fs::copy(env!("CARGO_BIN_EXE_corelane"), &moved).unwrap();
    let start = |program: &std::path::Path, args: &[&str], path: &str| {
        let output = Command::new(program).args(args).env("PATH", path).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let here = PathBuf::from(env!("CARGO_BIN_EXE_corelane"));
    let beside = here.parent().unwrap().to_str().unwrap();
    assert!(here.with_file_name("corelane-bench").exists(), "run cargo build --release first");
    for (args, usage) in [
        (&["bench", "serve", "--help"][..], "Usage: corelane bench serve [OPTIONS]"),
        (&["help", "bench", "serve"], "Usage: corelane bench serve [OPTIONS]"),
        (&["help", "bench"], "Usage: corelane bench <COMMAND>"),
        (&["help", "model", "synth"], "Usage: corelane model synth [OPTIONS] <OUT.gguf>"),
        (&["model", "synth", "--help"], "Usage: corelane model synth [OPTIONS] <OUT.gguf>"),
    ] {
        for said in [start(&here, args, "/nowhere"), start(&moved, args, beside)] {
            assert!(said.contains(usage), "{said}");
        }
        let said = start(&moved, args, "/nowhere");
        assert!(said.starts_with("corelane: cannot start corelane-bench: "), "{said}");
    }
}
