//! The parser for the harmony format of gpt-oss: messages, each on a channel.
//!
//! A prompt ends in `<|start|>assistant`; the text goes on with
//! `<|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..`.
//! A message to `functions.name` is a call, and all of its text are the arguments.
//! Reasoning is on the channel `analysis`; where it is not asked for, such a message is
//! content, with its header and its end as written.

use super::cursor::{Cursor, Unread};
use super::marker::{Start, find, start, window};
use super::part::Part;
use crate::limits::TOOL_HEAD_BYTES_MAX;

/// What a message begins with.
const BEGIN: &[&str] = &["<|start|>", "<|channel|>"];
/// What a message ends with, if it ends before the next begins.
const END: &[&str] = &["<|end|>", "<|call|>", "<|return|>"];

/// What is in a message's header.
const FIELDS: &[&str] = &["to=", "<|channel|>", "<|constrain|>", "json", "code", "<|message|>"];
const NAMES: &[&str] = &["analysis", "commentary", "final"];

/// All of them.
pub(super) const MARKERS: &[&[&str]] = &[BEGIN, END, FIELDS];

#[derive(Debug)]
pub(super) struct Channels {
    reasoning: bool,
    state: State,
    /// Calls begun so far.
    calls: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The text begins with a header, or what is left of it behind the prompt.
    Header,
    Message(Kind),
    /// Neither: a mistake of the model.
    Outside,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Content,
    Reasoning,
    /// Reasoning that nobody asked for.
    Raw,
    Call,
}

impl Channels {
    pub fn new(reasoning: bool) -> Self {
        Self { reasoning, state: State::Header, calls: 0 }
    }

    /// Takes some of `text`: how many bytes, or `None` when it has to go on first. Where
    /// it takes nothing, it goes on to another state.
    pub fn step(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        match self.state {
            _ if text.is_empty() => None,
            State::Header => self.header(text, out),
            State::Message(kind) => self.message(text, kind, out),
            State::Outside => {
                let (at, marker) = find(text, BEGIN.iter().copied());
                if at > 0 {
                    out(Part::Content(&text[..at]));
                } else if marker.is_some() {
                    self.state = State::Header;
                } else {
                    return None;
                }
                Some(at)
            }
        }
    }

    /// What `held` is when nothing follows it.
    pub fn last_part<'a>(&self, held: &'a str) -> Option<Part<'a>> {
        let kind = if let State::Message(kind) = self.state { kind } else { Kind::Content };
        (!held.is_empty()).then(|| self.part(held, kind))
    }

    fn part<'a>(&self, text: &'a str, kind: Kind) -> Part<'a> {
        match kind {
            Kind::Content | Kind::Raw => Part::Content(text),
            Kind::Reasoning => Part::Reasoning(text),
            Kind::Call => Part::ToolCallArguments { index: self.calls - 1, delta: text },
        }
    }

    fn header(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        let header = match read_header(window(text)) {
            Ok(header) => header,
            Err(Unread::More) if text.len() < TOOL_HEAD_BYTES_MAX => return None,
            Err(_) => {
                self.state = State::Outside;
                // Takes the marker, so that it is not looked at again.
                let Start::Marker(marker) = start(text, BEGIN.iter().copied()) else {
                    return Some(0);
                };
                out(Part::Content(marker));
                return Some(marker.len());
            }
        };
        let kind = match (header.recipient, header.channel) {
            (Some(name), _) => {
                out(Part::ToolCallBegin { index: self.calls, name });
                self.calls += 1;
                Kind::Call
            }
            (None, Some("analysis")) if self.reasoning => Kind::Reasoning,
            (None, Some("analysis")) => {
                out(Part::Content(&text[..header.end]));
                Kind::Raw
            }
            (None, _) => Kind::Content,
        };
        self.state = State::Message(kind);
        Some(header.end)
    }

    fn message(&mut self, text: &str, kind: Kind, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        let (at, marker) = find(text, BEGIN.iter().chain(END).copied());
        if at > 0 {
            out(self.part(&text[..at], kind));
            return Some(at);
        }
        let marker = marker?;
        self.state = State::Header;
        if BEGIN.contains(&marker) {
            return Some(0);
        }
        if matches!(kind, Kind::Raw) {
            out(Part::Content(marker));
        }
        Some(marker.len())
    }
}

/// What a message's header says.
struct Header<'a> {
    channel: Option<&'static str>,
    /// The function called.
    recipient: Option<&'a str>,
    /// Bytes that were read.
    end: usize,
}

/// Reads a header, up to the message. Each field may stand there once, and one has to.
fn read_header(text: &str) -> Result<Header<'_>, Unread> {
    let mut cursor = Cursor::new(text);
    cursor.marker(&["<|start|>"])?;
    cursor.marker(&["assistant"])?;
    let (mut channel, mut recipient) = (None, None);
    loop {
        cursor.skip_space();
        match cursor.marker(FIELDS)? {
            Some("to=") if recipient.is_none() => {
                let word = cursor.word()?;
                let name = word.strip_prefix("functions.").unwrap_or(word);
                recipient = Some(name).filter(|name| !name.is_empty());
            }
            Some("<|channel|>") if channel.is_none() => {
                channel = Some(cursor.marker(NAMES)?.ok_or(Unread::Not)?);
            }
            Some("<|constrain|>" | "json" | "code") => {}
            Some("<|message|>") if channel.is_some() || recipient.is_some() => {
                return Ok(Header { channel, recipient, end: cursor.at });
            }
            _ => return Err(Unread::Not),
        }
    }
}
