//! Parses server-sent events from pieces of bytes as the network delivers them.
//!
//! The format is that of the HTML standard. Lines end with LF, CR LF or CR. A line that begins with
//! a colon is a comment. Several `data` lines of one event are joined with LF. Text after the last
//! blank line is not an event.
//!
//! **Invariant:** any bytes, cut anywhere, give the same events as the same bytes in one piece. No
//! bytes cause a panic.

use memchr::memchr2;

/// Bytes of one event that a measured server may send.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// One event from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The data of a `data: …` event.
    Data(&'a [u8]),
    /// The data of an `event: error`, or of a field called `error` (an old form of llama-server).
    Error(&'a [u8]),
}

/// The error of an event with more than [`EVENT_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// A parser that keeps its state between pieces.
#[derive(Debug, Default)]
pub struct Parser {
    /// The start of a line whose end has not arrived yet.
    partial: Vec<u8>,
    /// The data of the current event, with an LF after each line.
    data: Vec<u8>,
    has_data: bool,
    is_error: bool,
    /// The last piece ended with CR, so an LF at the start of the next piece belongs to that line
    /// end.
    after_cr: bool,
    /// A line has been read, so a byte order mark is no longer skipped.
    begun: bool,
}

impl Parser {
    /// Parses one piece and calls `on_event` for each event that it completes.
    ///
    /// # Errors
    /// [`TooLong`]; the parser must not be used afterwards.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), TooLong> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            self.check_bound(line.len())?;
            if self.partial.is_empty() {
                self.read_line(line, on_event);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.read_line(&whole, on_event);
                whole.clear();
                self.partial = whole; // keeps the allocation
            }
            self.after_cr = rest == b"\r";
            bytes = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
        }
        self.check_bound(bytes.len())?;
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn check_bound(&self, more: usize) -> Result<(), TooLong> {
        let held = self.partial.len() + self.data.len();
        if held + more > EVENT_BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    fn read_line(&mut self, mut line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        // A line without a colon is a field with an empty value. A comment is a field with an empty
        // name.
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.push_data(value),
            b"event" => self.is_error = value == b"error",
            b"error" => {
                self.is_error = true;
                self.push_data(value);
            }
            _ => {}
        }
    }

    fn push_data(&mut self, value: &[u8]) {
        self.has_data = true;
        self.data.extend_from_slice(value);
        self.data.push(b'\n');
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        if self.has_data {
            let data = self.data.strip_suffix(b"\n").unwrap_or(&self.data);
            on_event(if self.is_error { Event::Error(data) } else { Event::Data(data) });
        }
        self.data.clear();
        self.has_data = false;
        self.is_error = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The events of `pieces`; error events are prefixed with `!`.
    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut on_event = |event: Event<'_>| {
                found.push(match event {
                    Event::Data(data) => String::from_utf8_lossy(data).into_owned(),
                    Event::Error(data) => format!("!{}", String::from_utf8_lossy(data)),
                });
            };
            parser.feed(piece, &mut on_event).unwrap();
        }
        found
    }

    const SAMPLE: &[u8] = b"\xEF\xBB\xBFdata: one\n\n: ping\n\ndata:two\r\ndata:  2\r\n\r\n\
        id: 7\rretry: 5\rdata: three\r\revent: error\ndata: bad\n\nerror: {}\n\n\
        data\n\nevent: error\n\nfoo: bar\ndata: [DONE]\n\ndata: half";

    #[test]
    fn events_are_read_as_the_standard_has_it() {
        let expected = ["one", "two\n 2", "three", "!bad", "!{}", "", "[DONE]"];
        assert_eq!(events([SAMPLE]), expected);
    }

    #[test]
    fn a_piece_may_end_anywhere() {
        let whole = events([SAMPLE]);
        for cut in 0..=SAMPLE.len() {
            let (left, right) = SAMPLE.split_at(cut);
            assert_eq!(events([left, b"", right]), whole, "cut at {cut}");
        }
        assert_eq!(events(SAMPLE.chunks(1)), whole);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let line = vec![b'a'; EVENT_BYTES_MAX / 2];
        let mut parser = Parser::default();
        let mut none = |event: Event<'_>| panic!("{event:?}");
        assert_eq!(parser.feed(&line, &mut none), Ok(()));
        assert_eq!(parser.feed(&line, &mut none), Ok(()));
        assert_eq!(parser.feed(b"a", &mut none), Err(TooLong));
        // Many short lines of one event.
        let mut parser = Parser::default();
        let lines = b"data: aaaaaaaaa\n".repeat(EVENT_BYTES_MAX / 8);
        assert_eq!(parser.feed(&lines, &mut none), Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_give_the_same_events(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just(b"data: x".to_vec()), Just(b"\n".to_vec()), Just(b"\r".to_vec()),
                    Just(b":".to_vec()), Just(b"event: error".to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..6),
                ], 0..40),
        ) {
            let whole = parts.concat();
            prop_assert_eq!(events(parts.iter().map(Vec::as_slice)), events([&whole[..]]));
            prop_assert_eq!(events(whole.chunks(1)), events([&whole[..]]));
        }
    }
}
