//! A client of any server with OpenAI's API: asks for the answer to a conversation, and gives its pieces as they come.

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::{Handle, Signals};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use super::conversation::Message;

/// Time in which a server must list its models.
const MODELS_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A speed over less time than this would say nothing: several pieces may come at once.
const SPEED_TIME: Duration = Duration::from_millis(10);

/// Most bytes of an answer, as events.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Most bytes of an error, and of a list of models.
const BODY_BYTES_MAX: u64 = 1024 * 1024;

/// The body of `/v1/chat/completions`. Values that are not set leave the choice to the server.
#[derive(Debug, Serialize)]
pub struct Request {
    pub model: String,
    pub messages: Vec<Message>,
    pub stream: bool,
    pub stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_budget: Option<u32>,
}

/// What a stream says besides its text.
#[derive(Debug, Serialize)]
pub struct StreamOptions {
    pub include_usage: bool,
}

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Reasoning(&'a str),
    Text(&'a str),
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Stop,
    /// It has its most tokens.
    Length,
    /// Ctrl-C stopped it.
    Stopped,
    /// Nobody reads on.
    Unread,
    /// It failed, for the reason of this sentence.
    Failed(String),
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The text, without reasoning.
    pub text: String,
    pub end: End,
    /// The time until the first piece.
    pub first: Option<Duration>,
    /// The time from the first piece to the last one.
    rest: Duration,
    /// Tokens, if the server counts them.
    tokens: Option<u64>,
}

impl Answer {
    /// Tokens per second behind the first one.
    pub fn tokens_per_s(&self) -> Option<f64> {
        let behind_first = self.tokens?.checked_sub(1).filter(|tokens| *tokens > 0)?;
        (self.rest >= SPEED_TIME).then(|| behind_first as f64 / self.rest.as_secs_f64())
    }
}

/// A server's address and key.
#[derive(Clone, Debug)]
pub struct Client {
    /// Scheme, host and port, without a slash at the end.
    base: String,
    key: Option<String>,
    is_loopback: bool,
}

impl Client {
    /// A client of the server at `url`, which may end with `/v1`, and needs no scheme on this machine.
    ///
    /// # Errors
    /// If it is no URL.
    pub fn new(url: &str, key: Option<String>) -> Result<Self, String> {
        let wrong = || format!("--url {url} is no URL; one looks like http://127.0.0.1:8080");
        let with_scheme = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let base = with_scheme.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong());
        }
        let is_loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
        if !is_loopback && !url.contains("://") {
            // A key must not travel unencrypted because somebody left a word out.
            return Err(format!("--url {url} has no scheme; put https:// or http:// before it"));
        }
        Ok(Self { base, key, is_loopback })
    }

    /// The names of the server's models.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn models(&self) -> Result<Vec<String>, String> {
        #[derive(Deserialize)]
        struct List {
            data: Vec<Model>,
        }
        #[derive(Deserialize)]
        struct Model {
            id: String,
        }
        let url = format!("{}/v1/models", self.base);
        let get = self.agent().get(&url).config().timeout_global(Some(MODELS_TIMEOUT)).build();
        let response = self.authorized(get).call();
        let response = self.good(response)?;
        let body = response.into_body().into_with_config().limit(BODY_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| self.failed(&error))?;
        let list: List = serde_json::from_slice(&body)
            .map_err(|error| format!("{url} gives no list of models: {error}"))?;
        Ok(list.data.into_iter().map(|model| model.id).collect())
    }

    /// The answer to a request. Its pieces go to `show` as they come, which returns false if nobody reads on. Ctrl-C
    /// stops the answer and not the process.
    pub fn answer(
        &self,
        request: &Request,
        interrupts: &Interrupts,
        show: &mut dyn FnMut(Piece<'_>) -> bool,
    ) -> Answer {
        let agent = self.agent();
        let mut answer = Answer {
            text: String::new(),
            end: End::Stop,
            first: None,
            rest: Duration::ZERO,
            tokens: None,
        };
        let stop = match interrupts.stop(&agent) {
            Ok(stop) => stop,
            Err(error) => {
                answer.end = End::Failed(format!("cannot wait for Ctrl-C: {error}"));
                return answer;
            }
        };
        let ended = self.stream(&agent, request, show, &mut answer);
        answer.end = match (stop.end(), ended) {
            (_, Ok(end)) => end,
            (true, Err(_)) => End::Stopped,
            (false, Err(error)) => End::Failed(error),
        };
        answer
    }

    /// Sends the request, and adds each piece of the stream to `answer`. Returns how the stream ended.
    fn stream(
        &self,
        agent: &Agent,
        request: &Request,
        show: &mut dyn FnMut(Piece<'_>) -> bool,
        answer: &mut Answer,
    ) -> Result<End, String> {
        let began = Instant::now();
        let url = format!("{}/v1/chat/completions", self.base);
        let body = serde_json::to_vec(request).expect("strings and numbers can be written");
        let post = self.authorized(agent.post(&url)).content_type("application/json");
        let events = self.good(post.send(&body))?.into_body();
        let events = BufReader::new(events.into_with_config().limit(ANSWER_BYTES_MAX).reader());
        let mut end = None;
        for line in events.lines() {
            let line = line.map_err(|error| self.failed(&error.into()))?;
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            if data == "[DONE]" {
                break;
            }
            let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
                format!("{} sent an event that is not understood: {error}", self.base)
            })?;
            if let Some(error) = chunk.error {
                return Err(error.message);
            }
            if let Some(usage) = chunk.usage {
                answer.tokens = Some(usage.completion_tokens);
            }
            for choice in chunk.choices {
                for piece in choice.delta.pieces() {
                    let first = *answer.first.get_or_insert_with(|| began.elapsed());
                    answer.rest = began.elapsed() - first;
                    if let Piece::Text(text) = piece {
                        answer.text += text;
                    }
                    if !show(piece) {
                        return Ok(End::Unread);
                    }
                }
                if let Some(reason) = choice.finish_reason {
                    end = Some(if reason == "length" { End::Length } else { End::Stop });
                }
            }
        }
        end.ok_or_else(|| format!("{} closed the connection before the answer ended", self.base))
    }

    fn agent(&self) -> Agent {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("corelane/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT));
        // A proxy could not reach a loopback address.
        let config = if self.is_loopback { config.proxy(None) } else { config };
        config.build().new_agent()
    }

    fn authorized<Kind>(&self, request: ureq::RequestBuilder<Kind>) -> ureq::RequestBuilder<Kind> {
        match &self.key {
            Some(key) => request.header("authorization", &format!("Bearer {key}")),
            None => request,
        }
    }

    /// The response, if it is no error.
    fn good(
        &self,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, String> {
        #[derive(Deserialize)]
        struct Refused {
            error: Refusal,
        }
        let response = response.map_err(|error| self.failed(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.into_body().into_with_config().limit(BODY_BYTES_MAX).read_to_string();
        let body = body.unwrap_or_default();
        let said = serde_json::from_str::<Refused>(&body).map(|refused| refused.error.message);
        let said = said.unwrap_or_else(|_| {
            body.lines().next().unwrap_or_default().chars().take(200).collect()
        });
        Err(format!("{} answers {}: {said}", self.base, status.as_u16()))
    }

    fn failed(&self, error: &ureq::Error) -> String {
        format!("no answer came from {}: {error}", self.base)
    }
}

/// One event of a stream.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
    /// Servers have two names for it.
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
}

impl Delta {
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let reasoning = self.reasoning_content.as_deref().map(Piece::Reasoning);
        let text = self.content.as_deref().map(Piece::Text);
        let is_some = |piece: &Piece<'_>| !matches!(piece, Piece::Reasoning("") | Piece::Text(""));
        [reasoning, text].into_iter().flatten().filter(is_some)
    }
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// What Ctrl-C does: while an answer comes, it stops that; otherwise it ends the process, as it does everywhere.
pub struct Interrupts {
    ends_process: Arc<AtomicBool>,
}

impl Interrupts {
    /// Takes over the process's signal.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn new() -> Result<Self, String> {
        let ends_process = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_default(SIGINT, ends_process.clone())
            .map_err(|error| format!("cannot wait for Ctrl-C: {error}"))?;
        Ok(Self { ends_process })
    }

    /// Lets Ctrl-C end the requests of an agent.
    fn stop(&self, agent: &Agent) -> std::io::Result<Stop<'_>> {
        let mut signals = Signals::new([SIGINT])?;
        let handle = signals.handle();
        let agent = agent.clone();
        let watch = move || {
            let is_pressed = signals.forever().next().is_some();
            if is_pressed {
                agent.shutdown();
            }
            is_pressed
        };
        let watcher = thread::Builder::new().name("stop".into()).spawn(watch)?;
        self.ends_process.store(false, Ordering::Relaxed);
        Ok(Stop { handle, watcher, ends_process: &self.ends_process })
    }
}

/// While it lives, Ctrl-C ends the requests of an agent.
struct Stop<'a> {
    handle: Handle,
    watcher: JoinHandle<bool>,
    ends_process: &'a AtomicBool,
}

impl Stop<'_> {
    /// Whether Ctrl-C was pressed.
    fn end(self) -> bool {
        self.ends_process.store(true, Ordering::Relaxed);
        self.handle.close();
        self.watcher.join().expect("a thread that panics ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_people_write_them() {
        let base =
            |url: &str| Client::new(url, None).map(|client| (client.base, client.is_loopback));
        for url in ["127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/"] {
            assert_eq!(base(url).unwrap(), ("http://127.0.0.1:8080".to_owned(), true));
        }
        assert_eq!(
            base("https://a.example/api/v1").unwrap(),
            ("https://a.example/api".to_owned(), false)
        );
        assert!(base("a.example").unwrap_err().contains("has no scheme"));
        for url in ["", "http://", "ftp://a", "a b"] {
            assert!(base(url).unwrap_err().contains("is no URL"), "{url}");
        }
    }

    #[test]
    fn both_names_of_reasoning_are_known() {
        for name in ["reasoning", "reasoning_content"] {
            let chunk: Chunk = serde_json::from_str(&format!(
                r#"{{"choices": [{{"index": 0, "delta": {{"{name}": "a", "content": ""}}}}]}}"#
            ))
            .unwrap();
            let pieces: Vec<_> = chunk.choices[0].delta.pieces().collect();
            assert_eq!(pieces, [Piece::Reasoning("a")]);
        }
    }
}
