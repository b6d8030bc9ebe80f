//! Reads the bytes of a response into the times and tokens of a [`RequestResult`].

use std::time::{Duration, Instant};

use super::failure::{Failure, FailureKind};
use super::reply::{self, Reply};
use super::result::RequestResult;
use super::sse::EVENT_BYTES_MAX;
use super::sse::{Event, Parser};

/// Bytes of one whole (not streamed) response of a measured server.
pub const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Events of one response of a measured server.
const EVENTS_MAX: usize = 1 << 20;

const _: () = assert!(EVENT_BYTES_MAX <= RESPONSE_BYTES_MAX);

/// Reads one event stream.
pub struct StreamReader {
    parser: Parser,
    started: Instant,
    /// Time of the last event with a choice.
    last: Option<Instant>,
    /// Number of events with a choice.
    events: u64,
    /// `completion_tokens` of the last usage that the server sent.
    counted: Option<u64>,
    is_finished: bool,
    is_done: bool,
}

impl StreamReader {
    /// Creates a reader for the response to a request written at `started`.
    pub fn new(started: Instant) -> Self {
        Self {
            parser: Parser::default(),
            started,
            last: None,
            events: 0,
            counted: None,
            is_finished: false,
            is_done: false,
        }
    }

    /// Returns whether `[DONE]` has arrived.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Reads a piece that arrived at `now`. All events in one piece have the same time.
    ///
    /// # Errors
    /// The fault in the stream. `result` keeps the values from before it.
    pub fn read(
        &mut self,
        piece: &[u8],
        now: Instant,
        result: &mut RequestResult,
        on_event: &mut impl FnMut(Instant),
    ) -> Result<(), Failure> {
        let mut parser = std::mem::take(&mut self.parser);
        let mut outcome = Ok(());
        let fed = parser.feed(piece, &mut |event| {
            if outcome.is_ok() && !self.is_done {
                outcome = self.event(event, now, result, on_event);
            }
        });
        self.parser = parser;
        let too_long = format!("an event of more than {EVENT_BYTES_MAX} bytes");
        outcome.and(fed.map_err(|_| Failure::new(FailureKind::BadResponse, too_long)))
    }

    fn event(
        &mut self,
        event: Event<'_>,
        now: Instant,
        result: &mut RequestResult,
        on_event: &mut impl FnMut(Instant),
    ) -> Result<(), Failure> {
        let data = match event {
            Event::Data(b"[DONE]") => {
                self.is_done = true;
                return Ok(());
            }
            Event::Data(data) => data,
            Event::Error(data) => {
                let message = reply::error_message(data);
                return Err(Failure::new(FailureKind::ErrorEvent, message));
            }
        };
        let reply = read_reply(data, result)?;
        if result.text.len() > RESPONSE_BYTES_MAX {
            return Err(too_much());
        }
        self.counted = reply.usage.and_then(|usage| usage.completion_tokens).or(self.counted);
        self.is_finished |= reply.is_finished;
        if reply.has_choices {
            self.token(now, result)?;
            on_event(now);
        }
        Ok(())
    }

    fn token(&mut self, now: Instant, result: &mut RequestResult) -> Result<(), Failure> {
        if result.itls.len() >= EVENTS_MAX {
            return Err(too_much());
        }
        match self.last {
            None => result.ttft = now - self.started,
            Some(last) => result.itls.push(now - last),
        }
        self.last = Some(now);
        self.events += 1;
        result.e2el = now - self.started;
        // Keep a count in `result`, in case the stream breaks off here.
        result.output_tokens = self.counted.unwrap_or(self.events);
        Ok(())
    }

    /// Finishes the stream, after the end of the body or after `[DONE]`.
    ///
    /// # Errors
    /// When the stream is incomplete.
    pub fn end(self, result: &mut RequestResult) -> Result<(), Failure> {
        if self.last.is_none() {
            let detail = "the stream ended without an event that has a choice";
            return Err(Failure::new(FailureKind::NoTokens, detail));
        }
        if !self.is_done && !self.is_finished {
            let detail = "the stream ended without [DONE] or a finish_reason";
            return Err(Failure::new(FailureKind::Closed, detail));
        }
        result.is_counted = self.counted.is_some();
        result.output_tokens = self.counted.unwrap_or(self.events);
        Ok(())
    }
}

fn too_much() -> Failure {
    let bounds = format!("{EVENTS_MAX} events or {RESPONSE_BYTES_MAX} bytes");
    Failure::new(FailureKind::BadResponse, format!("more than {bounds}"))
}

/// Reads a response without streaming, which took `e2el`.
///
/// # Errors
/// The fault in the response.
pub fn read_whole(body: &[u8], e2el: Duration, result: &mut RequestResult) -> Result<(), Failure> {
    let reply = read_reply(body, result)?;
    if !reply.has_choices {
        return Err(Failure::new(FailureKind::NoTokens, "the response has no choice"));
    }
    result.e2el = e2el;
    let counted = reply.usage.and_then(|usage| usage.completion_tokens);
    result.is_counted = counted.is_some();
    result.output_tokens = counted.unwrap_or(0);
    Ok(())
}

fn read_reply(json: &[u8], result: &mut RequestResult) -> Result<Reply, Failure> {
    let reply = reply::read(json, &mut result.text)
        .map_err(|detail| Failure::new(FailureKind::BadResponse, detail))?;
    if let Some(message) = reply.error {
        return Err(Failure::new(FailureKind::ErrorEvent, message));
    }
    if let Some(tokens) = reply.usage.and_then(|usage| usage.prompt_tokens) {
        result.prompt_tokens = tokens;
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &[u8] = b"data: {\"choices\":[{\"text\":\"a\"}]}\n\n";

    /// Reads pieces that arrive at the given times in milliseconds.
    fn read(pieces: &[(u64, &[u8])]) -> (RequestResult, Result<(), Failure>) {
        let started = Instant::now();
        let mut result = RequestResult::default();
        let mut reader = StreamReader::new(started);
        for (ms, piece) in pieces {
            let now = started + Duration::from_millis(*ms);
            if let Err(failure) = reader.read(piece, now, &mut result, &mut |_| ()) {
                return (result, Err(failure));
            }
        }
        let end = reader.end(&mut result);
        (result, end)
    }

    #[test]
    fn times_are_taken_from_events_with_choices() {
        let ms = Duration::from_millis;
        let (result, end) = read(&[
            (5, b": ping\n\ndata: {\"choices\":[]}\n\n"),
            (10, START),
            (30, START),
            (35, b"data: {\"choi"),
            (60, b"ces\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n"),
            (70, b"data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n"),
            (80, b"data: [DONE]\n\ndata: what follows does not count\n\n"),
        ]);
        assert_eq!(end, Ok(()));
        assert_eq!((result.ttft, result.e2el), (ms(10), ms(60)));
        assert_eq!(result.itls, [ms(20), ms(30)]);
        assert_eq!((result.prompt_tokens, result.output_tokens), (9, 4));
        assert!(result.is_counted);
        assert_eq!(result.text, "aab");
    }

    #[test]
    fn without_usage_events_are_counted_and_marked() {
        let (result, end) = read(&[(1, START), (2, START), (3, b"data: [DONE]\n\n")]);
        assert_eq!(end, Ok(()));
        assert_eq!((result.output_tokens, result.is_counted), (2, false));
    }

    #[test]
    fn a_stream_that_is_not_whole_is_a_failure() {
        fn kind(pieces: &[(u64, &[u8])]) -> FailureKind {
            read(pieces).1.unwrap_err().kind
        }
        assert_eq!(kind(&[]), FailureKind::NoTokens);
        assert_eq!(kind(&[(1, b"data: [DONE]\n\n")]), FailureKind::NoTokens);
        assert_eq!(kind(&[(1, START)]), FailureKind::Closed);
        assert_eq!(kind(&[(1, START), (2, b"data: nonsense\n\n")]), FailureKind::BadResponse);
        let error = b"data: {\"error\":{\"message\":\"no room\"}}\n\n";
        assert_eq!(kind(&[(1, START), (2, error)]), FailureKind::ErrorEvent);
        assert_eq!(kind(&[(1, b"event: error\ndata: {}\n\n")]), FailureKind::ErrorEvent);
        let endless = vec![b'x'; EVENT_BYTES_MAX + 1];
        assert_eq!(kind(&[(1, START), (2, &endless)]), FailureKind::BadResponse);
        // The limit on text holds for events without a token, too.
        let text = "x".repeat(EVENT_BYTES_MAX / 2);
        let heading = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"role\":\"a\"}},\"text\":\"{text}\"}}]}}\n\n"
        );
        let headings = [(1, heading.as_bytes()); 2 * RESPONSE_BYTES_MAX / EVENT_BYTES_MAX + 1];
        assert_eq!(kind(&headings), FailureKind::BadResponse);
        // Values from before the failure are kept.
        let (result, _) = read(&[(1, START), (2, error)]);
        assert_eq!((result.output_tokens, result.text.as_str()), (1, "a"));
    }

    #[test]
    fn a_whole_response_has_tokens_and_one_time() {
        let mut result = RequestResult::default();
        let body = br#"{"choices":[{"text":"ab"}],"usage":{"completion_tokens":2}}"#;
        assert_eq!(read_whole(body, Duration::from_secs(3), &mut result), Ok(()));
        assert_eq!((result.e2el, result.output_tokens), (Duration::from_secs(3), 2));
        let mut bad = |body: &[u8]| read_whole(body, Duration::ZERO, &mut result).unwrap_err().kind;
        assert_eq!(bad(b"{}"), FailureKind::NoTokens);
        assert_eq!(bad(b"<html>"), FailureKind::BadResponse);
        assert_eq!(bad(br#"{"error":"x"}"#), FailureKind::ErrorEvent);
    }
}
