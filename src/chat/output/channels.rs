//! Parses the harmony format of gpt-oss: messages, each on a channel.
//!
//! A prompt ends with `<|start|>assistant`. The text goes on with
//! `<|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..`. A
//! message to `functions.name` is a call, and its whole text is the arguments. The channel
//! `analysis` has the reasoning. If the request did not ask to split it off, such a message is
//! content, with its header and end as written.

use super::cursor::{Cursor, Unread};
use super::marker::{Start, find, start, window};
use super::part::Part;
use super::reasoning::ReasoningEnd;
use crate::limits::TOOL_HEAD_BYTES_MAX;

/// The markers that start a message.
const BEGIN: &[&str] = &["<|start|>", "<|channel|>"];
/// The markers that end a message. The start of the next message ends it, too.
const END: &[&str] = &["<|end|>", "<|call|>", "<|return|>"];

/// The markers in a message's header.
const FIELDS: &[&str] = &["to=", "<|channel|>", "<|constrain|>", "json", "code", "<|message|>"];
const NAMES: &[&str] = &["analysis", "commentary", "final"];

/// All markers.
pub(super) const MARKERS: &[&[&str]] = &[BEGIN, END, FIELDS];

/// How reasoning ends at a limit. Where tools are offered, the model chooses the next channel. If it
/// chooses to reason again, it must answer.
pub(super) fn reasoning_end(has_tools: bool) -> ReasoningEnd {
    let next = "<|end|><|start|>assistant<|channel|>final<|message|>";
    let text = if has_tools { "<|end|><|start|>assistant" } else { next };
    let (opener, closer) = ("<|channel|>analysis<|message|>", "<|end|>");
    ReasoningEnd { opener, closer, anywhere: true, text, next }
}

#[derive(Debug)]
pub(super) struct Channels {
    reasoning: bool,
    state: Inside,
    /// Calls started so far.
    calls: usize,
}

#[derive(Clone, Copy, Debug)]
enum Inside {
    /// In a header, or in the rest of a header that the prompt started.
    Header,
    Message(Kind),
    /// Outside a message: a mistake of the model.
    Outside,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Content,
    Reasoning,
    /// Reasoning that is not split off.
    Raw,
    Call,
}

impl Channels {
    pub fn new(reasoning: bool) -> Self {
        Self { reasoning, state: Inside::Header, calls: 0 }
    }

    /// Consumes a part of `text` and returns its length, or `None` if more text must come first. A
    /// length of 0 means that the state has changed.
    pub fn step(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        match self.state {
            _ if text.is_empty() => None,
            Inside::Header => self.header(text, out),
            Inside::Message(kind) => self.message(text, kind, out),
            Inside::Outside => {
                let (at, marker) = find(text, BEGIN.iter().copied());
                if at > 0 {
                    out(Part::Content(&text[..at]));
                } else if marker.is_some() {
                    self.state = Inside::Header;
                } else {
                    return None;
                }
                Some(at)
            }
        }
    }

    /// The part that `held` becomes if no more text follows. A header that was cut off is none.
    pub fn last_part<'a>(&self, held: &'a str, is_cut: bool) -> Option<Part<'a>> {
        let is_header = matches!(self.state, Inside::Header)
            && BEGIN.iter().any(|begin| held.trim_start().starts_with(begin));
        if is_cut && is_header {
            return None;
        }
        let kind = if let Inside::Message(kind) = self.state { kind } else { Kind::Content };
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
                self.state = Inside::Outside;
                // Consume the marker, so that it is not examined again.
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
        self.state = Inside::Message(kind);
        Some(header.end)
    }

    fn message(&mut self, text: &str, kind: Kind, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        let (at, marker) = find(text, BEGIN.iter().chain(END).copied());
        if at > 0 {
            out(self.part(&text[..at], kind));
            return Some(at);
        }
        let marker = marker?;
        self.state = Inside::Header;
        if BEGIN.contains(&marker) {
            return Some(0);
        }
        if matches!(kind, Kind::Raw) {
            out(Part::Content(marker));
        }
        Some(marker.len())
    }
}

/// The fields of a message's header.
struct Header<'a> {
    channel: Option<&'static str>,
    /// The function called.
    recipient: Option<&'a str>,
    /// The number of bytes read.
    end: usize,
}

/// Reads a header up to its message. Each field may occur once, and one of them must.
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
