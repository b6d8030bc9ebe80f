//! A hub on the loopback address, which serves repositories well or as badly as a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::hub::{Hub, Patience};

/// Requests that are remembered.
const REQUESTS_MAX: usize = 512;

pub const COMMIT: &str = "0000000000000000000000000000000000000001";

/// A request, as far as it matters.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub authorization: Option<String>,
    /// The first byte of a `Range`.
    pub from: Option<usize>,
}

impl Request {
    /// Whether it is for the bytes of a file, and not for a list of files.
    pub fn is_file(&self) -> bool {
        self.path.contains("/resolve/")
    }
}

/// The bytes that are sent. The connection is closed after them, or never.
pub struct Answer {
    pub bytes: Vec<u8>,
    pub holds: bool,
}

impl From<Vec<u8>> for Answer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, holds: false }
    }
}

/// A hub on a free port. Ends with the process, or when it is [closed](Self::close).
pub struct Loopback {
    pub address: SocketAddr,
    listener: TcpListener,
    log: Arc<Log>,
}

struct Log {
    requests: Vec<OnceLock<Request>>,
    count: AtomicUsize,
}

impl Loopback {
    /// `answer` gets each request, and the number of requests for files or for lists before it.
    pub fn start<A: Into<Answer>>(
        answer: impl Fn(&Request, usize) -> A + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let requests = (0..REQUESTS_MAX).map(|_| OnceLock::new()).collect();
        let log = Arc::new(Log { requests, count: AtomicUsize::new(0) });
        let hub = Self {
            address: listener.local_addr().unwrap(),
            listener: listener.try_clone().unwrap(),
            log: log.clone(),
        };
        let (answer, log) = (Arc::new(answer), log);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (answer, log) = (answer.clone(), log.clone());
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        hub
    }

    /// A hub without faults.
    pub fn good(repo: Repo) -> Self {
        Self::start(move |request, _| repo.answer(request))
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.log.requests.iter().map_while(|request| request.get().cloned()).collect()
    }

    /// The first bytes of all requests for files so far.
    pub fn ranges(&self) -> Vec<Option<usize>> {
        self.requests().iter().filter(|request| request.is_file()).map(|r| r.from).collect()
    }

    /// Refuses connections from now on.
    pub fn close(self) -> String {
        // `incoming` returns an error then.
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).unwrap();
        self.endpoint()
    }

    /// This hub, and the folder of a test's own for its models. Another try comes at once.
    pub fn hub(&self, folder: &str) -> Hub {
        hub(&self.endpoint(), folder)
    }
}

/// A hub at an address, and the folder of a test's own for its models. Another try comes at once.
pub fn hub(endpoint: &str, folder: &str) -> Hub {
    Hub {
        endpoint: endpoint.into(),
        token: None,
        cache: cache(folder),
        offline: false,
        patience: Patience {
            ask: Duration::from_secs(10),
            answer: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            first_delay: Duration::from_millis(1),
        },
    }
}

/// The folder of a test's own for models.
pub fn cache(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hub").join(folder)
}

/// The same folder, without what earlier runs left there.
pub fn fresh(folder: &str) -> PathBuf {
    let path = cache(folder);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn serve<A: Into<Answer>>(
    stream: TcpStream,
    log: &Log,
    answer: &(impl Fn(&Request, usize) -> A + Send + Sync),
) {
    let mut reader = BufReader::new(stream);
    let Some(request) = read(&mut reader) else { return };
    let alike = |known: &&OnceLock<Request>| known.get().unwrap().is_file() == request.is_file();
    let earlier = log.requests.iter().take_while(|known| known.get().is_some());
    let before = earlier.filter(alike).count();
    let number = log.count.fetch_add(1, Ordering::SeqCst);
    log.requests[number].set(request.clone()).unwrap();
    let Answer { bytes, holds } = answer(&request, before).into();
    let stream = reader.get_mut();
    if stream.write_all(&bytes).is_err() {
        return; // the client has seen enough
    }
    if holds {
        let _ = stream.read(&mut [0]); // until the client closes
    }
    let _ = stream.shutdown(Shutdown::Write);
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let mut request =
        Request { method: words.next()?, path: words.next()?, authorization: None, from: None };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some(request) };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = Some(value.to_owned()),
            "range" => {
                let from = value.strip_prefix("bytes=")?.strip_suffix('-')?;
                request.from = Some(from.parse().unwrap());
            }
            _ => {}
        }
    }
}

/// The files of a repository, at one commit.
#[derive(Clone)]
pub struct Repo {
    pub commit: String,
    pub files: Vec<(String, Arc<[u8]>)>,
}

impl Repo {
    pub fn of(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), Arc::from(*bytes)));
        Self { commit: COMMIT.into(), files: files.collect() }
    }

    /// The built-in model, beside files that are none.
    pub fn builtin() -> Self {
        let gguf = corelane::model::builtin::GGUF;
        Self::of(&[("README.md", b"hello"), ("mmproj-f16.gguf", b"GGUF"), ("tiny-Q8_0.gguf", gguf)])
    }

    pub fn bytes(&self, path: &str) -> &[u8] {
        &self.files.iter().find(|(known, _)| known == path).unwrap().1
    }

    /// The answer of a hub without faults.
    pub fn answer(&self, request: &Request) -> Vec<u8> {
        match request.path.split_once(&format!("/resolve/{}/", self.commit)) {
            Some((_, path)) if self.files.iter().any(|(known, _)| known == path) => {
                whole_or_rest(self.bytes(path), request.from)
            }
            Some(_) => refusal(404, "Entry not found"),
            None => json(&self.listing().to_string()),
        }
    }

    /// The hub's list of the files.
    pub fn listing(&self) -> serde_json::Value {
        let siblings = self.files.iter().map(|(path, bytes)| {
            let mut file = serde_json::json!({"rfilename": path, "size": bytes.len()});
            if path.ends_with(".gguf") {
                let sha256 = sha256(bytes);
                file["lfs"] = serde_json::json!(
                    {"sha256": sha256, "size": bytes.len(), "pointerSize": 134}
                );
            }
            file
        });
        let siblings: Vec<_> = siblings.collect();
        serde_json::json!({"id": "org/tiny", "sha": self.commit, "siblings": siblings})
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A response with these header lines, each of which ends in CR LF.
pub fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} Said\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub fn json(body: &str) -> Vec<u8> {
    response(200, "Content-Type: application/json\r\n", body.as_bytes())
}

/// An error as huggingface.co words it.
pub fn refusal(status: u16, words: &str) -> Vec<u8> {
    response(status, &format!("X-Error-Message: {words}\r\n"), b"")
}

pub fn redirect(to: &str) -> Vec<u8> {
    response(302, &format!("Location: {to}\r\n"), b"")
}

/// All bytes, or those from a number on.
pub fn whole_or_rest(bytes: &[u8], from: Option<usize>) -> Vec<u8> {
    match from {
        None => response(200, "", bytes),
        Some(from) => {
            let (last, size) = (bytes.len() - 1, bytes.len());
            let range = format!("Content-Range: bytes {from}-{last}/{size}\r\n");
            response(206, &range, &bytes[from..])
        }
    }
}

/// Cuts a response after this many bytes of its body.
pub fn cut(mut response: Vec<u8>, bytes: usize) -> Vec<u8> {
    let head = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    response.truncate(head + bytes);
    response
}
