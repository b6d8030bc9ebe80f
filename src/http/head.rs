//! A request's head. In: bytes. Out: the fields that the server uses.

use httparse::{Header, Request, Status};

use super::HttpError;
use super::trace_context::TraceContext;
use crate::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, REQUEST_ID_BYTES_MAX};

/// The fields of a request's head that the server uses. Other headers are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query without its question mark; empty if there is none.
    pub query: String,
    /// How the body is framed.
    pub framing: Framing,
    /// Whether the connection may serve another request after this one.
    pub keep_alive: bool,
    /// Whether the client speaks HTTP/1.1, and therefore reads chunks.
    pub chunks_allowed: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The body's media type in lower case, without parameters.
    pub content_type: Option<String>,
    /// How the body is compressed, in lower case.
    pub content_encoding: Option<String>,
    /// The key from `Authorization: Bearer` or `X-Api-Key`.
    pub api_key: Option<Vec<u8>>,
    /// The client's own request id, if it is short and printable.
    pub request_id: Option<String>,
    /// The name by which the client reached the server.
    pub host: Option<String>,
    /// The web page on whose behalf a browser sent the request.
    pub origin: Option<String>,
    /// Whether the client reads bodies compressed by gzip.
    pub takes_gzip: bool,
    /// The value of `If-None-Match`: the `ETag`s of the contents that the client has already.
    pub if_none_match: Option<String>,
    /// The trace that the client's request belongs to.
    pub trace_context: Option<TraceContext>,
    /// The reason why a well-formed head cannot be served. The other fields are valid for the
    /// answer. The bytes after this head may not be a request.
    pub fault: Option<HttpError>,
}

/// The request methods that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// DELETE
    Delete,
    /// OPTIONS
    Options,
    /// Any other method; it is refused.
    Other,
}

/// The length of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A number of bytes; 0 without a body.
    Length(usize),
    /// Chunks, up to one of size 0.
    Chunked,
}

/// Reads a head that arrives in pieces. The work is linear in its bytes, for pieces of any size:
/// the bytes are parsed when the head may have ended, and each time they have doubled in number, so
/// that bytes that are not a head are refused early.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// Bytes that were searched for the end of the head.
    looked_at: usize,
    /// CRs and LFs before the head, which `httparse` skips. They do not end the head.
    blank: usize,
    /// The number of bytes at the last parse.
    parsed: usize,
    /// The number of bytes of all parses together.
    #[cfg(test)]
    work: usize,
}

impl HeadReader {
    /// Reads a head from the start of `bytes`, as [`parse`] does. Returns `None` if it is
    /// incomplete. The caller then passes the same bytes again, with more after them.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, HttpError> {
        let is_blank = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        self.blank += bytes[self.blank..].iter().take_while(is_blank).count();
        // The last line end before the new bytes may be half of an empty line.
        let from = self.looked_at.saturating_sub(2).max(self.blank).min(bytes.len());
        self.looked_at = bytes.len();
        let ends = has_empty_line(&bytes[from..]) || bytes.len() >= HEAD_BYTES_MAX;
        if bytes.is_empty() || !ends && bytes.len() < 2 * self.parsed {
            return Ok(None);
        }
        self.parsed = bytes.len();
        #[cfg(test)]
        (self.work += bytes.len().min(HEAD_BYTES_MAX));
        parse(bytes)
    }
}

/// Whether an LF is followed by another line end.
fn has_empty_line(bytes: &[u8]) -> bool {
    let follows = |at: usize| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
    memchr::memchr_iter(b'\n', bytes).any(follows)
}

/// Reads a head from the start of `bytes`. Returns the head and its length in bytes, or `None` if
/// it is incomplete.
///
/// # Errors
/// If the bytes are not a head, or it is too large. A well-formed head that contradicts itself or
/// asks for too much has a [`Head::fault`] instead.
pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, HttpError> {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let length = match request.parse(window) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if bytes.len() >= HEAD_BYTES_MAX => {
            return Err(HttpError::HeadTooLarge);
        }
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HttpError::TooManyHeaders),
        Err(httparse::Error::Version) => return Err(HttpError::Version),
        Err(error) => return Err(HttpError::malformed(format!("malformed request: {error}"))),
    };
    refuse_bare_line_ends(&window[..length])?;
    Ok(Some((interpret(&request), length)))
}

/// Refuses a lone LF. `httparse` accepts it as a line end, but a proxy before us may not.
fn refuse_bare_line_ends(head: &[u8]) -> Result<(), HttpError> {
    for at in memchr::memchr2_iter(b'\r', b'\n', head) {
        let paired = match head[at] {
            b'\r' => head.get(at + 1) == Some(&b'\n'),
            _ => at > 0 && head[at - 1] == b'\r',
        };
        if !paired {
            return Err(HttpError::malformed(format!(
                "malformed request: a bare CR or LF at byte {at}; lines end with CR LF"
            )));
        }
    }
    Ok(())
}

fn interpret(request: &Request<'_, '_>) -> Head {
    let version_1_1 = request.version == Some(1);
    let mut fields = Fields::default();
    let mut fault = None;
    for header in request.headers.iter() {
        if let Err(error) = fields.take(header) {
            fault.get_or_insert(error);
        }
    }
    let (path, query) = target(request.path.unwrap_or_default()).unwrap_or_else(|error| {
        fault.get_or_insert(error);
        ("", "")
    });
    let framing = fields.framing(version_1_1).unwrap_or_else(|error| {
        fault.get_or_insert(error);
        Framing::Length(0)
    });
    Head {
        method: match request.method.unwrap_or_default() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        },
        path: tidy(path),
        query: query.to_owned(),
        framing,
        keep_alive: if version_1_1 { !fields.close } else { fields.keep_alive && !fields.close },
        chunks_allowed: version_1_1,
        expects_continue: fields.expects_continue && version_1_1,
        content_type: fields.content_type,
        content_encoding: fields.content_encoding,
        // A key in another scheme counts as a wrong key, unless `X-Api-Key` has one.
        api_key: match fields.authorization {
            Some(key) => key.or(fields.api_key).or(Some(Vec::new())),
            None => fields.api_key,
        },
        request_id: fields.request_id,
        host: fields.host,
        origin: fields.origin,
        takes_gzip: fields.gzip.or(fields.any_coding).unwrap_or(false),
        if_none_match: fields.if_none_match,
        trace_context: fields.trace_context,
        fault,
    }
}

/// Splits a request target into path and query: `/path?query`, `*`, or the absolute form that
/// proxies send.
fn target(target: &str) -> Result<(&str, &str), HttpError> {
    let local = match target.strip_prefix("http://").or_else(|| target.strip_prefix("https://")) {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    if !local.starts_with('/') && local != "*" {
        return Err(HttpError::malformed(format!("the request target {target:?} is not a path")));
    }
    let local = local.split('#').next().unwrap_or_default();
    Ok(local.split_once('?').unwrap_or((local, "")))
}

/// A path without doubled slashes and without one at its end, which a base URL such as
/// `http://host/v1/` brings.
fn tidy(path: &str) -> String {
    if !path.contains("//") && (path == "/" || !path.ends_with('/')) {
        return path.to_owned();
    }
    let parts = path.split('/').filter(|part| !part.is_empty());
    format!("/{}", parts.collect::<Vec<_>>().join("/"))
}

/// The relevant header fields, while they are collected.
#[derive(Default)]
struct Fields {
    content_length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    hosts: usize,
    content_type: Option<String>,
    content_encoding: Option<String>,
    /// The bearer key. `Some(None)` if the scheme is another one, usually a proxy's.
    authorization: Option<Option<Vec<u8>>>,
    api_key: Option<Vec<u8>>,
    request_id: Option<String>,
    host: Option<String>,
    origin: Option<String>,
    /// Whether `Accept-Encoding` accepts gzip, and codings that it does not name (`*`).
    gzip: Option<bool>,
    any_coding: Option<bool>,
    if_none_match: Option<String>,
    trace_context: Option<TraceContext>,
    traces: usize,
}

impl Fields {
    /// The framing of the body.
    fn framing(&self, version_1_1: bool) -> Result<Framing, HttpError> {
        if version_1_1 && self.hosts != 1 {
            return Err(HttpError::malformed(format!(
                "an HTTP/1.1 request has exactly one Host header; this one has {}",
                self.hosts
            )));
        }
        match (self.chunked, self.content_length) {
            (true, Some(_)) => Err(HttpError::malformed(
                "both Content-Length and Transfer-Encoding are given; only one may be",
            )),
            (true, None) if !version_1_1 => {
                Err(HttpError::malformed("Transfer-Encoding in an HTTP/1.0 request"))
            }
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) if length > BODY_BYTES_MAX as u64 => Err(HttpError::BodyTooLarge),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0) as usize)), // checked above
        }
    }

    /// Reads a list such as `br, gzip;q=0.5, *;q=0`. A weight of 0 refuses a coding.
    fn accept_encoding(&mut self, value: &[u8]) {
        for entry in value.split(|byte| *byte == b',') {
            let mut parts = entry.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            let is_zero = |weight: &[u8]| {
                let digits = weight.strip_prefix(b"q=").or_else(|| weight.strip_prefix(b"Q="));
                digits.is_some_and(|digits| digits.iter().all(|digit| b"0.".contains(digit)))
            };
            let taken = Some(!parts.any(is_zero));
            if coding.eq_ignore_ascii_case(b"gzip") {
                self.gzip = taken;
            } else if coding == b"*" {
                self.any_coding = taken;
            }
        }
    }

    fn take(&mut self, header: &Header<'_>) -> Result<(), HttpError> {
        let (name, value) = (header.name, header.value.trim_ascii());
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("content-length") {
            let length = parse_length(value)?;
            once(&mut self.content_length, length, "Content-Length")?;
        } else if is("transfer-encoding") {
            if self.chunked {
                return Err(HttpError::malformed("Transfer-Encoding is given twice"));
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HttpError::TransferCoding);
            }
            self.chunked = true;
        } else if is("connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if is("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(HttpError::Expectation);
            }
            self.expects_continue = true;
        } else if is("host") {
            self.hosts += 1;
            self.host = Some(String::from_utf8_lossy(value).into_owned());
        } else if is("origin") {
            let origin = printable(value, "Origin")?;
            once(&mut self.origin, origin, "Origin")?;
        } else if is("accept-encoding") {
            self.accept_encoding(value);
        } else if is("traceparent") {
            // More than one field counts as none.
            self.traces += 1;
            self.trace_context = TraceContext::read(value).filter(|_| self.traces == 1);
        } else if is("if-none-match") {
            let more = String::from_utf8_lossy(value);
            let before = self.if_none_match.take().map(|before| before + ",");
            self.if_none_match = Some(before.unwrap_or_default() + &more);
        } else if is("content-type") {
            let media = value.split(|byte| *byte == b';').next().unwrap_or_default();
            let media = String::from_utf8_lossy(media.trim_ascii()).to_ascii_lowercase();
            once(&mut self.content_type, media, "Content-Type")?;
        } else if is("content-encoding") {
            let coding = String::from_utf8_lossy(value.trim_ascii()).to_ascii_lowercase();
            once(&mut self.content_encoding, coding, "Content-Encoding")?;
        } else if is("authorization") {
            let key = match value.split_at_checked(7) {
                Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
                    Some(key.trim_ascii().to_vec())
                }
                _ => None,
            };
            once(&mut self.authorization, key, "Authorization")?;
        } else if is("x-api-key") {
            once(&mut self.api_key, value.to_vec(), "X-Api-Key")?;
        } else if is("x-request-id") {
            let printable = value.iter().all(|byte| byte.is_ascii_graphic());
            if printable && !value.is_empty() && value.len() <= REQUEST_ID_BYTES_MAX {
                self.request_id = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
        Ok(())
    }
}

/// Checks a field that will be written into the response: only printable ASCII characters are
/// allowed.
fn printable(value: &[u8], name: &str) -> Result<String, HttpError> {
    match str::from_utf8(value) {
        Ok(text) if value.iter().all(u8::is_ascii_graphic) => Ok(text.to_owned()),
        _ => Err(HttpError::malformed(format!("{name} has characters that are not printable"))),
    }
}

/// Stores a field that may occur only once.
fn once<T>(place: &mut Option<T>, value: T, name: &str) -> Result<(), HttpError> {
    match place.replace(value) {
        Some(_) => Err(HttpError::malformed(format!("{name} is given twice"))),
        None => Ok(()),
    }
}

/// Reads digits only: no sign, no space, no list, and no overflow.
fn parse_length(value: &[u8]) -> Result<u64, HttpError> {
    let malformed = || {
        let value = String::from_utf8_lossy(value);
        HttpError::malformed(format!("Content-Length is {value:?}, which is not a number of bytes"))
    };
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(malformed());
    }
    if value.len() > 19 {
        return Err(HttpError::BodyTooLarge);
    }
    std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses a head, and returns its fault as an error.
    fn parsed(text: &str) -> Result<Option<(Head, usize)>, HttpError> {
        match parse(text.as_bytes())? {
            Some((Head { fault: Some(fault), .. }, _)) => Err(fault),
            parsed => Ok(parsed),
        }
    }

    fn head(text: &str) -> Head {
        parsed(text).unwrap().unwrap().0
    }

    fn status(text: &str) -> u16 {
        parsed(text).expect_err(text).status()
    }

    #[test]
    fn a_plain_request() {
        let text = "POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\
                    Content-Type: Application/JSON; charset=utf-8\r\nAuthorization: Bearer  k3y \r\n\
                    X-Request-Id: abc-1\r\n\r\nhello";
        let (head, length) = parsed(text).unwrap().unwrap();
        assert_eq!(&text[length..], "hello");
        assert_eq!(head.method, Method::Post);
        assert_eq!(head.path, "/v1/completions");
        assert_eq!(head.framing, Framing::Length(5));
        assert!(head.keep_alive && head.chunks_allowed && !head.expects_continue);
        assert_eq!(head.content_type.as_deref(), Some("application/json"));
        assert_eq!(head.api_key.as_deref(), Some(&b"k3y"[..]));
        assert_eq!(head.request_id.as_deref(), Some("abc-1"));
    }

    #[test]
    fn keep_alive_follows_the_version() {
        assert!(head("GET / HTTP/1.1\r\nHost: a\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(head("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for bad in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET foo HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\0\x01\x02garbage\r\n\r\n",
        ] {
            assert_eq!(status(bad), 400, "{bad:?}");
        }
    }

    #[test]
    fn bounds_are_named_by_their_status() {
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(status(&long), 431);
        let many = "X: y\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), 431);
        for length in [format!("{}", BODY_BYTES_MAX + 1), "9".repeat(19), "9".repeat(40)] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(status(&text), 413, "{length}");
        }
        assert_eq!(status("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nExpect: a cake\r\n\r\n"), 417);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"), 501);
    }

    /// Parsing all bytes again at each new byte once took 134 MB of parsing for 16 kB.
    #[test]
    fn a_head_that_drips_is_parsed_a_few_times() {
        let fields: String = (0..60).map(|n| format!("x{n}: y\r\n")).collect();
        let long =
            format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}X: {}\r\n\r\n", "x".repeat(15_000));
        let newlines = "\r\n".repeat(HEAD_BYTES_MAX / 2);
        for (text, is_head) in [(&long, true), (&newlines, false)] {
            let mut reader = HeadReader::default();
            let last = text.len() - 1;
            for end in 1..=last {
                assert_eq!(reader.read(&text.as_bytes()[..end]), Ok(None), "{end} bytes");
            }
            assert_eq!(reader.read(text.as_bytes()).is_ok(), is_head);
            assert!(reader.work <= 4 * text.len(), "{} bytes for {}", reader.work, text.len());
        }
    }

    #[test]
    fn bytes_that_are_no_head_are_refused_before_its_end() {
        let mut reader = HeadReader::default();
        let text =
            "GET / HTTP/1.1\r\nHost: a\r\nbroken line\r\n".to_owned() + &"X: y\r\n".repeat(60);
        let refused = (1..text.len()).find(|end| reader.read(&text.as_bytes()[..*end]).is_err());
        assert!(refused.unwrap() <= 64, "{refused:?}");
    }

    #[test]
    fn a_request_id_that_could_break_a_header_is_not_echoed() {
        let long = "a".repeat(REQUEST_ID_BYTES_MAX + 1);
        for id in ["a b", "", "caf\u{e9}", &long] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()).unwrap().unwrap().0.request_id, None, "{id:?}");
        }
    }

    proptest! {
        /// Any bytes give a head, `None` or an error, and never a panic. Each proper prefix of a
        /// complete head is incomplete.
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        /// Bytes give the same head, or an error, in pieces and at once.
        #[test]
        fn pieces_make_the_same_head(
            text in "(\r\n){0,2}(GET|P) /[a-z]{0,9} HTTP/1.[01](\r|\n|\r\n)(Host: a(\r\n|\n)){0,2}(\r|\n|\r\n|x){0,3}.{0,4}",
            size in 1usize..9,
        ) {
            let bytes = text.as_bytes();
            let mut reader = HeadReader::default();
            let mut end = 0;
            let in_pieces = loop {
                end = bytes.len().min(end + size);
                match reader.read(&bytes[..end]) {
                    Ok(None) if end < bytes.len() => {}
                    done => break done,
                }
            };
            match parse(bytes) {
                Ok(Some(whole)) => prop_assert_eq!(in_pieces, Ok(Some(whole))),
                // In pieces, it is refused at its end at the latest.
                Err(_) => prop_assert!(in_pieces.is_err() || matches!(in_pieces, Ok(None))),
                Ok(None) => prop_assert_eq!(in_pieces, Ok(None)),
            }
        }

        #[test]
        fn a_head_arrives_in_any_pieces(cut in 0usize..200) {
            let text = b"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n";
            let cut = cut.min(text.len() - 1);
            prop_assert_eq!(parse(&text[..cut]).unwrap(), None);
            prop_assert!(parse(text).unwrap().is_some());
        }

        #[test]
        fn mutated_requests_never_panic(
            at in 0usize..90, byte in any::<u8>(), at2 in 0usize..90, byte2 in any::<u8>()
        ) {
            let mut text = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\
                Transfer-Encoding: x\r\n\r\n".to_vec();
            let n = text.len();
            text[at % n] = byte;
            text[at2 % n] = byte2;
            let _ = parse(&text);
        }
    }
}
