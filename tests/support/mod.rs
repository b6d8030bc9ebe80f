//! Helpers of the integration tests: seeded randomness, servers in this process, and an HTTP client
//! that shows everything that came.
#![allow(dead_code)] // each test binary uses its own part of it

pub mod gguf;
pub mod hub;
pub mod metrics;
pub mod mock;
pub mod openapi;
pub mod schemas;
pub mod world;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelane::api::route;
use corelane::clock::Micros;
use corelane::config::ServeConfig;
use corelane::engine::budget::{Budget, Hold};
use corelane::engine::job::Job;
use corelane::http::head::Method;
use corelane::lanes::Server;
use corelane::limits::MASK_TASKS_MAX;
use corelane::metrics::Metrics;
use corelane::model::builtin::GGUF;
use corelane::model::fake::{FakeOptions, continuation};
use corelane::model::gguf::Gguf;
use corelane::model::llama::ContextConfig;
use corelane::model::load::Loaded;
use corelane::model::vocab::Vocab;
use corelane::placement::{Topology, Wishes};
use corelane::prepare::{self, Envelope, Prepared, ServedModel, Step};
use corelane::random::SplitMix64;
use corelane::ring::bell::SocketBell;
use corelane::ring::message::MaskTask;
use corelane::ring::{self, FrontLink, LaneLink};
use corelane::types::{
    CacheLayout, CacheScope, Calibration, Guessing, IoChoice, KeyId, Logits, ModelInfo, TokenId,
};

/// The same seed, the same test.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `low..=high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    /// Half of the bits of [`Random::next`].
    pub fn bits(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Between -1 and 1.
    pub fn number(&mut self) -> f32 {
        (self.bits() >> 9) as f32 / (1 << 22) as f32 - 1.0
    }

    /// Numbers between -1 and 1.
    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// A link to a mask lane.
pub fn mask_lane() -> (FrontLink<MaskTask>, LaneLink<MaskTask>) {
    let (bell, _) = SocketBell::new().unwrap();
    ring::link(MASK_TASKS_MAX, Arc::new(bell), Duration::ZERO)
}

/// A configuration on a free port of the loopback address.
pub fn config() -> ServeConfig {
    ServeConfig {
        batch_rows: 512,
        ubatch_rows: 512,
        entropy: 1,
        io: io(),
        drain: Duration::from_secs(10),
        placement: Topology::read().unwrap().place(&Wishes::default()).unwrap(),
        poll: 0,
        program: option_env!("CARGO_BIN_EXE_corelane")
            .or(option_env!("CARGO_BIN_EXE_corelane-bench"))
            .map(Into::into),
        ..ServeConfig::default()
    }
}

/// How the servers of the tests read sockets: `CORELANE_IO`, which the programs that are started read, too.
pub fn io() -> IoChoice {
    std::env::var("CORELANE_IO").map_or(IoChoice::Auto, |name| name.parse().expect("a way"))
}

/// A server in this process, drained when it is dropped.
pub struct TestServer {
    server: Option<Server>,
    pub address: SocketAddr,
    pub metrics: Arc<Metrics>,
    pub served: Arc<ServedModel>,
}

impl TestServer {
    /// The fake model; one token in `end_one_in` ends a text.
    pub fn fake(config: ServeConfig, end_one_in: u64) -> Self {
        Self::fake_with(config, FakeOptions { end_one_in, ..FakeOptions::default() })
    }

    /// The fake model, behaving as told.
    pub fn fake_with(config: ServeConfig, options: FakeOptions) -> Self {
        let mut server = Server::start(config).unwrap();
        let served = server.load_fake(options).unwrap();
        Self::of(server, served)
    }

    /// The built-in model.
    pub fn builtin(config: ServeConfig) -> Self {
        let mut server = Server::start(config).unwrap();
        let source = corelane::model::load::Source::BuiltIn;
        let served = server.load(&source, |_| ()).unwrap().unwrap();
        Self::of(server, served)
    }

    /// A model's file.
    pub fn file(path: std::path::PathBuf, config: ServeConfig) -> Self {
        let mut server = Server::start(config).unwrap();
        let source = corelane::model::load::Source::File(path);
        let served = server.load(&source, |_| ()).unwrap().unwrap();
        Self::of(server, served)
    }

    /// The built-in model with a ranking head of some weights.
    pub fn ranking(config: ServeConfig) -> Self {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("corelane-ranks-{}-{number}.gguf", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, ranking_model()).unwrap();
        let server = Self::file(path.clone(), config);
        std::fs::remove_file(path).unwrap();
        server
    }

    fn of(server: Server, served: Arc<ServedModel>) -> Self {
        let (address, metrics) = (server.address(), server.metrics());
        Self { address, metrics, server: Some(server), served }
    }

    /// Where its metrics are.
    pub fn ops_address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().ops_address().expect("the test switched it on")
    }

    /// As SIGHUP does with a changed file.
    pub fn set_keys(&self, secrets: &[&str]) -> Result<(), String> {
        let keys = secrets.iter().copied().map(key).collect();
        self.server.as_ref().unwrap().control().set_keys(keys)
    }

    pub fn drain(&self) {
        self.server.as_ref().unwrap().control().drain();
    }

    /// Waits for a drained server to end.
    pub fn join(mut self) {
        self.server.take().unwrap().join().unwrap();
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One POST on a connection of its own.
    pub fn post(&self, path: &str, body: &str) -> Response {
        self.connect().post(path, body)
    }

    /// One GET on a connection of its own.
    pub fn get(&self, path: &str) -> Response {
        self.connect().get(path)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.control().drain();
            server.join().unwrap();
        }
    }
}

/// A keep-alive connection.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

/// A response as it came over the wire.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// The payloads of an event stream.
    pub fn events(&self) -> Vec<String> {
        let lines = self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        self.response()
    }

    pub fn post(&mut self, path: &str, body: &str) -> Response {
        self.send(post_bytes(path, body).as_bytes());
        self.response()
    }

    /// As [`Client::post`]. Returns `None` if the connection ends before the answer.
    pub fn try_post(&mut self, path: &str, body: &str) -> Option<Response> {
        self.stream.get_mut().write_all(post_bytes(path, body).as_bytes()).ok()?;
        self.try_response()
    }

    /// Reads one response whole.
    pub fn response(&mut self) -> Response {
        self.try_response().expect("a whole response")
    }

    /// Reads one response, or `None` when the connection ends before it.
    pub fn try_response(&mut self) -> Option<Response> {
        let (status, headers) = self.head()?;
        let mut response = Response { status, headers, body: String::new() };
        let mut body = Vec::new();
        if response.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else if let Some(length) = response.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).unwrap();
        } else if response.status != 204 && response.status != 100 {
            self.stream.read_to_end(&mut body).unwrap();
        }
        response.body = String::from_utf8(body).expect("a body is UTF-8");
        Some(response)
    }

    /// Reads a status line and headers.
    pub fn head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line().unwrap();
            if line.is_empty() {
                return Some((status, headers));
            }
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Reads one chunk; `None` at the last.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line().unwrap(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk[size..], b"\r\n");
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.stream.read_line(&mut line).ok()?;
        (n > 0).then(|| line.strip_suffix("\r\n").expect("lines end with CR LF").to_owned())
    }

    /// Makes the kernel hold little of what the server sends.
    pub fn buffer_little(&self) {
        socket2::SockRef::from(self.stream.get_ref()).set_recv_buffer_size(64 * 1024).unwrap();
    }

    /// Reads this many bytes, or less if the connection ends.
    pub fn skip(&mut self, bytes: usize) {
        let _ = self.stream.read_exact(&mut vec![0; bytes]);
    }

    /// True when the server says something, or closes, within this time.
    pub fn hears_within(&mut self, time: Duration) -> bool {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(time)).unwrap();
        let heard = stream.peek(&mut [0]).is_ok();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        heard
    }

    /// True when the server has closed its half.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

pub fn post_bytes(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The body of a greedy completion. `more` stands before its fields, each followed by a comma.
pub fn body(prompt: &str, max_tokens: usize, more: &str) -> String {
    serde_json::json!({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0})
        .to_string()
        .replacen('{', &format!("{{{more}"), 1)
}

/// Logits to sample from, or none.
pub fn logits_if(sampled: bool) -> Logits {
    if sampled { Logits::Sample } else { Logits::None }
}

/// The fake model's tokens of a text.
pub fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(TokenId::from).collect()
}

/// The text with which a fake model that never ends continues a prompt.
pub fn fake_text(prompt: &str, max_tokens: usize) -> String {
    let tokens = continuation(&tokens(prompt), max_tokens, 0);
    tokens.iter().map(|token| *token as u8 as char).collect()
}

/// The built-in model's file with a head that gives two numbers, "yes" and "no", as in Qwen3-Reranker.
fn ranking_model() -> Vec<u8> {
    let mut gguf = Gguf::from_bytes(GGUF).unwrap();
    let data = &GGUF[gguf.header().len()..];
    let norm = gguf.tensors().into_iter().find(|tensor| tensor.name == "output_norm.weight");
    let width = norm.unwrap().dims[0] as usize;
    gguf.set_number("qwen3.pooling_type", 4);
    let labels = [c"yes".to_owned(), c"no".to_owned()];
    gguf.set_strings("qwen3.classifier.output_labels", &labels);
    let offset = gguf.add_tensor("cls.output.weight", 0, [width as u64, 2, 1]) as usize; // 0 is F32
    let mut file = gguf.header();
    let head = file.len();
    file.extend_from_slice(data);
    file.resize(head + offset, 0);
    let mut random = Random::new(7);
    file.extend((0..2 * width).flat_map(|_| random.number().to_le_bytes()));
    file
}

/// A key as `--api-key` makes one.
pub fn key(secret: &str) -> corelane::keys::ApiKey {
    corelane::keys::ApiKey::plain(secret)
}

/// The facts that a server of the fake model has about it.
pub fn served_model(sequence_tokens: u32) -> ServedModel {
    ServedModel {
        vocab: Arc::new(Vocab::of_fake()),
        info: ModelInfo::default(),
        name: "fake".into(),
        aliases: Vec::new(),
        tags: Vec::new(),
        path: None,
        chat: None,
        context_tokens: sequence_tokens,
        sequence_tokens,
        slots: 1,
        calibration: Calibration::default(),
        embeds: None,
        spm_infill: false,
        guessing: Guessing::default(),
        store_bytes: 0,
        n_predict: None,
        sampling: corelane::types::defaults::SamplingDefaults::default(),
        system_prompt: None,
    }
}

/// The job of a good request that needs no key.
pub fn job(path: &str, body: &[u8], model: &ServedModel, received: Micros) -> Job {
    let envelope = Envelope {
        route: route::find(Method::Post, path).unwrap(),
        number: 1,
        seed: 1,
        key: KeyId::at(0),
        priority_min: 0,
        cache: CacheScope::default(),
        timeout: None,
        received,
        created: 0,
    };
    let read = envelope.route.action.read_body().unwrap();
    let request = read(&mut body.to_vec()).unwrap();
    let now = time::OffsetDateTime::UNIX_EPOCH;
    match prepare::advance(request, &envelope, model, None, usize::MAX, &|| true, now) {
        Ok(Step::Done(Prepared::Job(job))) => *job,
        _ => panic!("a request for text"),
    }
}

/// After this time, something that a test waits for counts as hanging. A machine that runs other
/// tests beside these takes seconds where an idle one takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that happens soon.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Memory for one request, as much as it needs.
pub fn hold() -> Hold {
    Budget::new(1 << 40, &[1.0]).hold(Some(KeyId::at(0)))
}

/// The context of a model in a test: one thread, and shared cells.
pub fn context(loaded: &Loaded, slots: u32, context_tokens: u32, rows: u32) -> ContextConfig {
    ContextConfig {
        context_tokens,
        slots,
        step_rows: rows,
        ubatch_rows: rows,
        decode_cores: vec![0],
        pinned: false,
        poll: 0,
        state_bytes: 0,
        rollback: 0,
        window: 0,
        stores_pages: false,
        cache: CacheLayout::default(),
        attention: loaded.kernels,
        abort: Arc::default(),
    }
}
