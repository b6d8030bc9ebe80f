//! A request's body. In: framed bytes. Out: the body.

use super::HttpError;
use super::head::Framing;
use crate::limits::BODY_BYTES_MAX;

/// Bytes of the trailer fields after a chunked body.
const TRAILER_BYTES_MAX: usize = 4 * 1024;

/// Bytes of one chunk-size line, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Collects one body.
#[derive(Debug)]
pub struct BodyReader {
    state: Next,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The missing bytes of a body with known length.
    Length(usize),
    /// A chunk-size line is next.
    ChunkSize,
    /// The missing bytes of a chunk.
    ChunkData(usize),
    /// The CR LF after a chunk's data is next.
    ChunkEnd,
    /// Trailer fields; this many of their bytes were dropped.
    Trailer(usize),
    Done,
}

impl BodyReader {
    /// A reader for a body with this framing.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => Next::Done,
            Framing::Length(length) => Next::Length(length),
            Framing::Chunked => Next::ChunkSize,
        };
        Self { state, body: Vec::new() }
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == Next::Done
    }

    /// Bytes of the body so far.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether no byte of the body has arrived.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// The body.
    pub fn into_body(self) -> Vec<u8> {
        assert_eq!(self.state, Next::Done);
        self.body
    }

    /// Reads bytes from the start of `input` and returns how many. Once [`BodyReader::is_done`],
    /// the rest belongs to the next request. Until then, the caller passes the rest again with more
    /// bytes after it.
    ///
    /// # Errors
    /// If the framing is invalid or the body too large.
    pub fn feed(&mut self, input: &[u8]) -> Result<usize, HttpError> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.state {
                Next::Done => return Ok(at),
                Next::Length(missing) | Next::ChunkData(missing) => {
                    let take = missing.min(rest.len());
                    self.body.extend_from_slice(&rest[..take]);
                    at += take;
                    self.state = match (self.state, missing - take) {
                        (Next::Length(_), 0) => Next::Done,
                        (Next::Length(_), missing) => Next::Length(missing),
                        (_, 0) => Next::ChunkEnd,
                        (_, missing) => Next::ChunkData(missing),
                    };
                    if take < missing {
                        return Ok(at);
                    }
                }
                Next::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.state = Next::ChunkSize;
                    }
                    [] | [b'\r'] => return Ok(at),
                    _ => return Err(HttpError::malformed("a chunk is longer than its size says")),
                },
                Next::ChunkSize => {
                    let Some(line) = take_line(rest, CHUNK_LINE_BYTES_MAX, "chunk-size line")?
                    else {
                        return Ok(at);
                    };
                    at += line.len() + 2;
                    let size = parse_chunk_size(line)?;
                    if size > BODY_BYTES_MAX - self.body.len() {
                        return Err(HttpError::BodyTooLarge);
                    }
                    self.state = if size == 0 { Next::Trailer(0) } else { Next::ChunkData(size) };
                }
                Next::Trailer(dropped) => {
                    let Some(line) = take_line(rest, TRAILER_BYTES_MAX, "trailer")? else {
                        return Ok(at);
                    };
                    at += line.len() + 2;
                    let dropped = dropped + line.len();
                    if dropped > TRAILER_BYTES_MAX {
                        return Err(HttpError::HeadTooLarge);
                    }
                    self.state = if line.is_empty() { Next::Done } else { Next::Trailer(dropped) };
                }
            }
        }
    }
}

/// The bytes before the first CR LF, or `None` if none has arrived.
fn take_line<'a>(
    input: &'a [u8],
    bytes_max: usize,
    what: &str,
) -> Result<Option<&'a [u8]>, HttpError> {
    match memchr::memchr2(b'\r', b'\n', input) {
        Some(end) if input[end] == b'\n' => {
            Err(HttpError::malformed(format!("a bare LF in a {what}; lines end with CR LF")))
        }
        Some(end) if end <= bytes_max => match input.get(end + 1) {
            Some(b'\n') => Ok(Some(&input[..end])),
            Some(_) => Err(HttpError::malformed(format!("a bare CR in a {what}"))),
            None => Ok(None),
        },
        None if input.len() <= bytes_max => Ok(None),
        _ => Err(HttpError::malformed(format!("a {what} of more than {bytes_max} bytes"))),
    }
}

/// Reads hexadecimal digits, and ignores an extension after them.
fn parse_chunk_size(line: &[u8]) -> Result<usize, HttpError> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, extension) = line.split_at(end);
    let extension_ok = match extension.trim_ascii_start() {
        [] => extension.is_empty(),
        [first, rest @ ..] => *first == b';' && !rest.iter().any(|b| b.is_ascii_control()),
    };
    if digits.is_empty() || !extension_ok {
        let line = String::from_utf8_lossy(line);
        return Err(HttpError::malformed(format!(
            "{line:?} is not a chunk size; a chunk size is a hexadecimal number"
        )));
    }
    if digits.len() > 8 {
        return Err(HttpError::BodyTooLarge);
    }
    let digit = |byte: &u8| (*byte as char).to_digit(16).unwrap_or(0) as usize;
    Ok(digits.iter().fold(0, |size, byte| size * 16 + digit(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(framing: Framing, input: &[u8]) -> Result<(Vec<u8>, usize), HttpError> {
        let mut reader = BodyReader::new(framing);
        let used = reader.feed(input)?;
        assert!(reader.is_done(), "the body is complete");
        Ok((reader.into_body(), used))
    }

    #[test]
    fn a_length_ends_the_body() {
        assert_eq!(read(Framing::Length(3), b"abcdef").unwrap(), (b"abc".to_vec(), 3));
        assert_eq!(read(Framing::Length(0), b"abc").unwrap(), (vec![], 0));
    }

    #[test]
    fn chunks_are_joined() {
        let input = b"3\r\nabc\r\n0000A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT";
        let (body, used) = read(Framing::Chunked, input).unwrap();
        assert_eq!(body, b"abc0123456789");
        assert_eq!(&input[used..], b"NEXT");
    }

    #[test]
    fn broken_chunks_are_refused() {
        for bad in [
            &b"\r\n"[..],
            b"-1\r\n",
            b"0x3\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b" 3\r\nabc\r\n",
            b"3\nabc\n",
            b"3\rabc",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"g\r\n",
            b"3;\x01\r\nabc",
        ] {
            let mut reader = BodyReader::new(Framing::Chunked);
            let error = reader.feed(bad).expect_err(&String::from_utf8_lossy(bad));
            assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn bodies_are_bounded() {
        for line in ["FFFFFFFFFFFFFFFFFF\r\n".to_owned(), format!("{:x}\r\n", BODY_BYTES_MAX + 1)] {
            let mut reader = BodyReader::new(Framing::Chunked);
            assert_eq!(reader.feed(line.as_bytes()).unwrap_err(), HttpError::BodyTooLarge);
        }
        let mut reader = BodyReader::new(Framing::Chunked);
        let endless = vec![b'1'; CHUNK_LINE_BYTES_MAX + 1];
        assert_eq!(reader.feed(&endless).unwrap_err().status(), 400);
        let mut reader = BodyReader::new(Framing::Chunked);
        reader.feed(b"0\r\n").unwrap();
        let field = format!("X: {}\r\n", "y".repeat(1000)).repeat(5);
        assert_eq!(reader.feed(field.as_bytes()).unwrap_err().status(), 431);
    }

    proptest! {
        #[test]
        fn a_body_arrives_in_any_pieces(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in proptest::collection::vec(1usize..9, 1..200),
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let mut reader = BodyReader::new(Framing::Chunked);
            let mut pending: Vec<u8> = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                pending.extend_from_slice(piece);
                let used = reader.feed(&pending).unwrap();
                pending.drain(..used);
                rest = after;
            }
            prop_assert!(reader.is_done() && pending.is_empty());
            prop_assert_eq!(reader.into_body(), chunks.concat());
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = BodyReader::new(Framing::Chunked).feed(&bytes);
        }
    }
}
