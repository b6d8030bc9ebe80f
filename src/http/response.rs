//! Writes response heads, chunks and server-sent events into the connection's buffer.

use std::io::Write;

/// The fields of a response's head, besides its status.
#[derive(Clone, Copy, Debug)]
pub struct HeadOptions<'a> {
    /// The media type of the body.
    pub content_type: &'a str,
    /// The request's id: the client's own, or a new one. Every response has it.
    pub request_id: &'a str,
    /// Whether the connection stays open after this response.
    pub keep_alive: bool,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// `Allow`.
    pub allow: Option<&'a str>,
    /// The origin of the web page that may read the response. It must have only printable
    /// characters.
    pub origin: Option<&'a str>,
    /// Further lines, each with its CR LF.
    pub further: &'a str,
}

/// Writes the head of a response whose body length is known. For HEAD, `body_length` is the length
/// of GET's body.
pub fn push_head(out: &mut Vec<u8>, status: u16, options: &HeadOptions<'_>, body_length: usize) {
    push_status_and_fields(out, status, options);
    push(out, format_args!("content-length: {body_length}\r\n\r\n"));
}

/// Writes the head of an event stream. The stream is chunked if the client reads chunks; if not,
/// the end of the connection ends it.
pub fn push_stream_head(out: &mut Vec<u8>, options: &HeadOptions<'_>, chunked: bool) {
    push_status_and_fields(out, 200, options);
    // Proxies such as nginx buffer streams unless these headers tell them not to.
    out.extend_from_slice(b"cache-control: no-store\r\nx-accel-buffering: no\r\n");
    out.extend_from_slice(if chunked { b"transfer-encoding: chunked\r\n\r\n" } else { b"\r\n" });
}

/// Writes the answer to a CORS preflight.
pub fn push_preflight(out: &mut Vec<u8>, options: &HeadOptions<'_>) {
    push_status_and_fields(out, 204, options);
    out.extend_from_slice(
        b"access-control-allow-methods: GET, HEAD, POST, DELETE, OPTIONS\r\n\
          access-control-allow-headers: *, authorization\r\n\
          access-control-max-age: 86400\r\n\r\n",
    );
}

/// The first bytes of every response.
pub const BEGIN: &[u8] = b"HTTP/1.1 ";

/// The interim response that a client with `Expect: 100-continue` waits for.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The last chunk.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn push_status_and_fields(out: &mut Vec<u8>, status: u16, options: &HeadOptions<'_>) {
    out.extend_from_slice(BEGIN);
    push(out, format_args!("{status} {}\r\n", reason(status)));
    if status != 204 {
        push(out, format_args!("content-type: {}\r\n", options.content_type));
    }
    // Anthropic's clients read the second name.
    let id = options.request_id;
    push(out, format_args!("x-request-id: {id}\r\nrequest-id: {id}\r\n"));
    if let Some(origin) = options.origin {
        // Scripts in browsers may read only these fields.
        push(
            out,
            format_args!(
                "access-control-allow-origin: {origin}\r\nvary: origin\r\n\
                 access-control-expose-headers: x-request-id, request-id, retry-after\r\n"
            ),
        );
    }
    if let Some(seconds) = options.retry_after {
        push(out, format_args!("retry-after: {seconds}\r\n"));
    }
    if let Some(methods) = options.allow {
        push(out, format_args!("allow: {methods}\r\n"));
    }
    out.extend_from_slice(options.further.as_bytes());
    if status == 401 {
        out.extend_from_slice(b"www-authenticate: Bearer\r\n");
    }
    let connection: &[u8] =
        if options.keep_alive { b"connection: keep-alive\r\n" } else { b"connection: close\r\n" };
    out.extend_from_slice(connection);
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory cannot fail");
}

/// Bytes before a chunk's data: its size in eight digits, and CR LF.
pub const CHUNK_HEAD_BYTES: usize = 10;

/// Reserves room for the head of the next chunk.
pub fn begin_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"00000000\r\n");
}

/// Ends the chunk whose head is at `start`, and fills in its size. Leading zeroes are allowed (RFC
/// 9112, 7.1).
pub fn end_chunk(out: &mut Vec<u8>, start: usize) {
    let mut size = out.len() - start - CHUNK_HEAD_BYTES;
    for digit in out[start..start + 8].iter_mut().rev() {
        *digit = b"0123456789abcdef"[size & 15];
        size >>= 4;
    }
    out.extend_from_slice(b"\r\n");
}

/// A comment line that keeps a silent event stream open.
pub const PING: &[u8] = b": ping\n\n";

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::body::BodyReader;
    use crate::http::head::Framing;

    #[test]
    fn a_chunk_reads_back() {
        let mut out = b"before".to_vec();
        let start = out.len();
        begin_chunk(&mut out);
        out.extend_from_slice(&[b'x'; 300]);
        end_chunk(&mut out, start);
        out.extend_from_slice(LAST_CHUNK);
        let mut reader = BodyReader::new(Framing::Chunked);
        assert_eq!(reader.feed(&out[start..]).unwrap(), out.len() - start);
        assert_eq!(reader.into_body(), [b'x'; 300]);
    }

    #[test]
    fn a_head_says_what_it_should() {
        let mut out = Vec::new();
        let options = HeadOptions {
            content_type: "application/json",
            request_id: "r1",
            keep_alive: true,
            retry_after: Some(3),
            allow: None,
            origin: Some("http://localhost"),
            further: "",
        };
        push_head(&mut out, 429, &options, 2);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
             x-request-id: r1\r\nrequest-id: r1\r\naccess-control-allow-origin: http://localhost\r\nvary: origin\r\n\
             access-control-expose-headers: x-request-id, request-id, retry-after\r\nretry-after: 3\r\n\
             connection: keep-alive\r\ncontent-length: 2\r\n\r\n"
        );
    }
}
