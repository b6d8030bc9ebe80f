//! Requests to a hub. This file follows redirections instead of ureq, for two reasons: the token
//! may go only to the hub's scheme, host and port, and some headers of the first answer are needed.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use super::environment::Hub;
use super::error::{HubError, without_secrets};
use super::listing::{Content, Listing};
use super::name::{Name, is_hash};
use super::tries::Tries;
use crate::limits::{HUB_ANSWER_BYTES_MAX, HUB_REDIRECTS_MAX};

/// Most bytes of an error answer that are read, to find the hub's message.
const HUB_ERROR_BYTES_MAX: u64 = 64 * 1024;

/// Most characters of the hub's message that are shown.
const HUB_SAID_CHARS_MAX: usize = 300;

/// Time to connect to a hub.
const HUB_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a path that are not encoded in a URL.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A client of a hub.
pub(super) struct Client<'a> {
    hub: &'a Hub,
    agent: Agent,
    /// True if the model is in the cache. The hub is then asked only once, with a short timeout.
    is_brief: bool,
}

/// One request.
struct Ask<'a> {
    url: &'a str,
    /// True to ask for the headers only, and to follow no redirection to another host.
    only_head: bool,
    /// The first byte of the body that is needed.
    from: u64,
    /// The timeout of the whole request. With `None`, only the silence is bounded.
    time: Option<Duration>,
}

impl<'a> Client<'a> {
    /// Makes a client. If `is_brief`, it makes one try for each request, with a short timeout.
    pub fn new(hub: &'a Hub, is_brief: bool) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("corelane/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(HUB_CONNECT_TIMEOUT))
            .timeout_recv_response(Some(hub.patience.answer))
            .timeout_per_read(Some(hub.patience.silence));
        Self { hub, agent: config.build().new_agent(), is_brief }
    }

    /// The files of the newest commit.
    pub fn listing(&self, name: &Name) -> Result<Listing, HubError> {
        let url =
            format!("{}/api/models/{}/revision/main?blobs=true", self.hub.endpoint, name.repo());
        let answer = |reason| HubError::Answer { url: without_secrets(&url), reason };
        self.again(|| {
            let response = self.ask(&self.short(&url, false))?;
            let limit = HUB_ANSWER_BYTES_MAX;
            let body = response.into_body().into_with_config().limit(limit).read_to_vec();
            let body = body.map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(_) => answer(format!("is longer than {limit} bytes")),
                error => unreachable_at(&url)(error),
            })?;
            Listing::read(&body).map_err(answer)
        })
    }

    /// The size and hash of a file for which the list has neither.
    pub fn content(&self, name: &Name, commit: &str, path: &str) -> Result<Content, HubError> {
        let url = self.file_url(name, commit, path);
        self.again(|| {
            let response = self.ask(&self.short(&url, true))?;
            let header = |name: &str| response.headers().get(name)?.to_str().ok();
            let etag = header("x-linked-etag").or_else(|| header("etag")).unwrap_or_default();
            let sha256 = etag.trim_start_matches("W/").trim_matches('"').to_owned();
            let size = header("x-linked-size").or_else(|| header("content-length"));
            match size.and_then(|size| size.parse().ok()) {
                Some(size) if is_hash(&sha256, 64) => Ok(Content { size, sha256 }),
                _ => Err(HubError::Answer {
                    url: url.clone(),
                    reason: "has no size and SHA-256 of the file, so it could not be checked"
                        .into(),
                }),
            }
        })
    }

    /// Asks for the bytes of a file that begin at byte `from`. The answer has the status 200, 206
    /// or 416.
    pub fn file(&self, url: &str, from: u64) -> Result<Response<Body>, HubError> {
        self.ask(&Ask { url, only_head: false, from, time: None })
    }

    /// The URL of a file of a commit.
    pub fn file_url(&self, name: &Name, commit: &str, path: &str) -> String {
        let path = utf8_percent_encode(path, PATH);
        format!("{}/{}/resolve/{commit}/{path}", self.hub.endpoint, name.repo())
    }

    /// The tries of a request.
    pub fn tries(&self) -> Tries {
        Tries::new(self.hub.patience.first_delay)
    }

    fn short<'u>(&self, url: &'u str, only_head: bool) -> Ask<'u> {
        let patience = &self.hub.patience;
        let time = if self.is_brief { patience.ask } else { patience.answer };
        Ask { url, only_head, from: 0, time: Some(time) }
    }

    /// Asks until an answer comes or a further try would be useless. If the client is brief, asks
    /// once.
    fn again<T>(&self, ask: impl Fn() -> Result<T, HubError>) -> Result<T, HubError> {
        let mut tries = self.tries();
        loop {
            match ask() {
                Err(error) if !self.is_brief => tries.wait_after(error)?,
                answer => return answer,
            }
        }
    }

    fn ask(&self, ask: &Ask) -> Result<Response<Body>, HubError> {
        let mut url = ask.url.to_owned();
        let mut with_token = self.hub.token.is_some();
        for _ in 0..=HUB_REDIRECTS_MAX {
            let response = self.call(ask, &url, with_token)?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return self.check(ask, response);
            }
            let to = target(&url, response.headers());
            let to = to.map_err(|(to, reason)| redirect(ask, to, reason))?;
            let is_same = origin(&to) == origin(&url);
            if ask.only_head && !is_same {
                return Ok(response);
            }
            with_token &= is_same;
            url = to;
        }
        Err(redirect(ask, "yet another URL".into(), "after as many redirections as are followed"))
    }

    fn call(&self, ask: &Ask, url: &str, with_token: bool) -> Result<Response<Body>, HubError> {
        let mut request = if ask.only_head { self.agent.head(url) } else { self.agent.get(url) };
        if let Some(token) = self.hub.token.as_ref().filter(|_| with_token) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if ask.from > 0 {
            request = request.header("range", format!("bytes={}-", ask.from));
        }
        if let Some(time) = ask.time {
            request = request.config().timeout_global(Some(time)).build();
        }
        request.call().map_err(unreachable_at(ask.url))
    }

    /// Returns an answer with a usable status, or the error for its status.
    fn check(&self, ask: &Ask, mut response: Response<Body>) -> Result<Response<Body>, HubError> {
        let status = response.status();
        if matches!(status.as_u16(), 200 | 206 | 416) && (status == StatusCode::OK || ask.from > 0)
        {
            return Ok(response);
        }
        let (url, with_token) = (without_secrets(ask.url), self.hub.token.is_some());
        Err(match status.as_u16() {
            401 => HubError::NotShown { url, with_token },
            403 => HubError::Refused { url, said: said(&mut response) },
            404 => HubError::NotFound { url },
            status => {
                let after = retry_after(response.headers());
                HubError::Status { url, status, said: said(&mut response), after }
            }
        })
    }
}

fn unreachable_at(url: &str) -> impl Fn(ureq::Error) -> HubError {
    let url = without_secrets(url);
    move |error| HubError::Unreachable { url: url.clone(), source: Box::new(error) }
}

fn redirect(ask: &Ask, to: String, reason: &'static str) -> HubError {
    HubError::Redirect { url: without_secrets(ask.url), to: without_secrets(&to), reason }
}

/// The URL of a redirection, or its target and the reason why it is not followed.
fn target(from: &str, headers: &HeaderMap) -> Result<String, (String, &'static str)> {
    let location = headers.get("location").and_then(|value| value.to_str().ok());
    let location = location.unwrap_or_default();
    let to = match location.starts_with('/') && !location.starts_with("//") {
        true => {
            let (scheme, rest) = from.split_once("://").unwrap_or_default();
            let host = rest.split('/').next().unwrap_or_default();
            format!("{scheme}://{host}{location}")
        }
        false => location.to_owned(),
    };
    match origin(&to) {
        Some((scheme, ..)) if scheme == "http" && from.starts_with("https:") => {
            Err((to, "which is not encrypted"))
        }
        Some((scheme, ..)) if matches!(scheme.as_str(), "http" | "https") => Ok(to),
        _ => Err((to, "which is not a URL of the web")),
    }
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> Option<(String, String, Option<u16>)> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.to_ascii_lowercase();
    Some((uri.scheme_str()?.to_owned(), host, uri.port_u16()))
}

/// The hub's message about an error, with a colon before it.
fn said(response: &mut Response<Body>) -> String {
    #[derive(Deserialize)]
    struct Words {
        error: String,
    }
    let header = response.headers().get("x-error-message").and_then(|value| value.to_str().ok());
    let words = header.map(str::to_owned).or_else(|| {
        let body = response.body_mut().with_config().limit(HUB_ERROR_BYTES_MAX).read_to_vec();
        serde_json::from_slice(&body.ok()?).ok().map(|words: Words| words.error)
    });
    let words = words.unwrap_or_default();
    // The message comes from a peer and may be shown on a terminal, so control characters are
    // removed.
    let words: String =
        words.chars().filter(|c| !c.is_control()).take(HUB_SAID_CHARS_MAX).collect();
    if words.is_empty() { words } else { format!(": {words}") }
}

/// The time that the hub asks to wait: in `Retry-After`, or as the `t` of huggingface.co's
/// `RateLimit`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let of_limit =
        || header("ratelimit")?.split(';').find_map(|part| part.trim().strip_prefix("t="));
    let seconds = header("retry-after").or_else(of_limit)?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        [(name.parse().unwrap(), value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn redirections_stay_on_the_web_and_encrypted() {
        let to = |from, location| target(from, &headers("location", location));
        assert_eq!(to("http://a:1/b?c", "/d?e").unwrap(), "http://a:1/d?e");
        assert_eq!(to("https://a/b", "https://cdn/x").unwrap(), "https://cdn/x");
        assert_eq!(to("http://a/b", "https://a/b").unwrap(), "https://a/b");
        for (from, location) in [
            ("https://a/b", "http://a/b"),
            ("https://a/b", "//cdn/x"),
            ("https://a/b", "file:///etc/passwd"),
            ("https://a/b", "c"),
            ("https://a/b", ""),
        ] {
            assert!(to(from, location).is_err(), "{location}");
        }
        assert_eq!(origin("http://A:1/b"), origin("http://a:1/c"));
        assert_ne!(origin("http://a:1/b"), origin("http://a:2/b"));
        assert_ne!(origin("http://a/b"), origin("https://a/b"));
    }

    #[test]
    fn the_path_of_a_file_is_encoded() {
        let home = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        let hub = Hub::new(home, None, false).unwrap();
        let name = "a/b:Q8_0".parse().unwrap();
        let url = Client::new(&hub, false).file_url(&name, "c0ffee", "Q8_0/ü b?#%.gguf");
        let path = "Q8_0/%C3%BC%20b%3F%23%25.gguf";
        assert_eq!(url, format!("https://huggingface.co/a/b/resolve/c0ffee/{path}"));
    }

    #[test]
    fn the_time_to_wait_is_read_from_two_headers() {
        let after = |name, value| retry_after(&headers(name, value)).map(|after| after.as_secs());
        assert_eq!(after("retry-after", "7"), Some(7));
        assert_eq!(after("ratelimit", "\"api\";r=0;t=55"), Some(55));
        assert_eq!(after("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
