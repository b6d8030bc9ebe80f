//! Parses text with marked blocks: reasoning and tool calls.

use std::sync::Arc;

use super::call;
use super::called::Arguments;
use super::cursor::Unread;
use super::fenced::{self, Candidate, Pushed};
use super::form::{Form, Syntax};
use super::json::ValueScanner;
use super::literal::Literal;
use super::marker::{Start, find, leading_space, length_before_space, start, window};
use super::offered::OfferedTools;
use super::options::ParserOptions;
use super::part::Part;
use super::reader::Reader;
use super::reasoning::ReasoningSyntax;
use super::rows;
use super::step::Step;
use super::syntax::ToolSyntax;
use super::tagged::Tagged;
use crate::limits::{MARKER_SPACE_BYTES_MAX, TOOL_HEAD_BYTES_MAX};

/// The parser's place in a message, and the states that may follow.
#[derive(Debug)]
pub(super) struct Blocks {
    syntax: &'static Syntax,
    reasoning: bool,
    reasoning_syntax: Option<ReasoningSyntax>,
    state: Inside,
    /// Calls started so far.
    calls: usize,
    /// Inside an open array whose elements are calls.
    in_list: bool,
    offered: Option<Arc<OfferedTools>>,
    /// The reader of arguments that are not JSON, within such arguments, and a buffer for its JSON.
    reader: Option<Box<Reader>>,
    json: String,
    /// Whether an object without a marker may be a call.
    fenced_calls: bool,
    /// The object that may be one.
    candidate: Option<Box<Candidate>>,
    /// How the last call was marked.
    last: Marking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marking {
    /// By a marker.
    Marker,
    /// By nothing. If it was in a code fence, the fence is still open.
    None { in_fence: bool },
}

#[derive(Clone, Copy, Debug)]
enum Inside {
    /// At the start of the message, or after a block. Only here may reasoning start, or a call
    /// without a marker.
    Start {
        keep_space: bool,
    },
    Content,
    /// `begun` is set after the first character that is not white space.
    Reasoning {
        closer: &'static str,
        begun: bool,
    },
    /// The text starts, or may start, with a call's marker (its brace, if the family has no
    /// marker).
    Head,
    Arguments {
        scanner: ValueScanner,
        in_object: bool,
    },
    /// In arguments that are not JSON.
    Translated,
    /// The text starts with white space and what may be an object without a marker.
    Bare,
    /// In an object that may be a call. Its start is held back.
    Candidate,
    /// In a call's object, after the arguments.
    Tail,
    /// After a call.
    After,
}

impl Blocks {
    pub fn new(options: ParserOptions) -> Self {
        let open = options.reasoning_syntax.filter(|_| options.reasoning_is_open);
        let state = match open {
            Some(syntax) => {
                Inside::Reasoning { closer: syntax.closer(), begun: !options.reasoning }
            }
            None => Inside::Start { keep_space: true },
        };
        let fenced_calls = options.fenced_calls && options.tools == Some(ToolSyntax::Hermes);
        Self {
            syntax: options.tools.map_or(&rows::NONE, |tools| tools.row()),
            reasoning: options.reasoning,
            reasoning_syntax: options.reasoning_syntax,
            state,
            calls: 0,
            in_list: false,
            offered: options.offered,
            reader: None,
            json: String::new(),
            fenced_calls,
            candidate: None,
            last: Marking::Marker,
        }
    }

    /// Consumes a part of `text` and returns its length, or `None` if more text must come first. A
    /// length of 0 means that the state has changed.
    pub fn step(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        match self.state {
            Inside::Start { keep_space } => self.start(text, keep_space, out),
            Inside::Content => self.content(text, out),
            Inside::Reasoning { closer, begun } => self.reasoning(text, closer, begun, out),
            Inside::Head => self.head(text, out),
            Inside::Arguments { scanner, in_object } => {
                self.arguments(text, scanner, in_object, out)
            }
            Inside::Translated => self.translated(text, out),
            Inside::Bare => self.bare(text, out),
            Inside::Candidate => self.candidate(text, out),
            Inside::Tail => self.tail(text),
            Inside::After => self.after(text),
        }
    }

    /// Ends the text: passes the held-back text `held` to `out`.
    pub fn finish(&mut self, held: &str, is_cut: bool, out: &mut impl FnMut(Part<'_>)) {
        let is_marked = self.syntax.open.iter().any(|open| held.trim_start().starts_with(open));
        if is_cut && matches!(self.state, Inside::Head) && is_marked {
            return;
        }
        let mut held = if matches!(self.state, Inside::Tail) { held.trim() } else { held };
        if let Some(candidate) = self.candidate.take() {
            out(Part::Content(&candidate.text));
        }
        if let Some(mut reader) = self.reader.take() {
            self.json.clear();
            if reader.finish(held, &mut self.json) {
                held = "";
            }
            self.push_json(out);
        }
        if held.is_empty() {
            return;
        }
        out(match self.state {
            Inside::Reasoning { .. } => self.thought(held),
            _ => Part::Content(held),
        });
    }

    /// Bytes held back beside the text that was not consumed.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        let candidate = self.candidate.as_ref().map_or(0, |candidate| candidate.text.len());
        candidate + self.reader.as_ref().map_or(0, |reader| reader.held())
    }

    /// A piece of reasoning. It counts as content if the request did not ask to split it off.
    fn thought<'a>(&self, text: &'a str) -> Part<'a> {
        if self.reasoning { Part::Reasoning(text) } else { Part::Content(text) }
    }

    fn start(
        &mut self,
        text: &str,
        keep_space: bool,
        out: &mut impl FnMut(Part<'_>),
    ) -> Option<usize> {
        let space = leading_space(text);
        if space > 0 && !keep_space {
            return Some(space);
        }
        if space > MARKER_SPACE_BYTES_MAX {
            self.state = Inside::Content;
            return Some(0);
        }
        let trimmed = &text[space..];
        if trimmed.is_empty() {
            return None;
        }
        if let Some(syntax) = self.reasoning_syntax {
            match start(trimmed, [syntax.opener()].into_iter()) {
                Start::Marker(opener) => {
                    let end = space + opener.len();
                    if !self.reasoning {
                        out(Part::Content(&text[..end]));
                    }
                    let (closer, begun) = (syntax.closer(), !self.reasoning);
                    self.state = Inside::Reasoning { closer, begun };
                    return Some(end);
                }
                Start::Begun => return None,
                Start::Other => {}
            }
        }
        self.state = match fenced::begins(trimmed) {
            _ if self.syntax.bare && trimmed.starts_with('{') => Inside::Head,
            Start::Marker(_) if self.fenced_calls => Inside::Bare,
            Start::Begun if self.fenced_calls => return None,
            _ => Inside::Content,
        };
        Some(0)
    }

    fn content(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        let noise = self.syntax.noise;
        let (mut at, marker) = find(text, self.syntax.open.iter().chain(noise).copied());
        let bare = if self.fenced_calls { fenced::find_line(&text[..at]) } else { None };
        at = bare.unwrap_or(at);
        let shown = length_before_space(&text[..at]);
        if shown > 0 {
            out(Part::Content(&text[..shown]));
        }
        if bare.is_some() {
            self.state = Inside::Bare;
            return Some(shown);
        }
        match marker {
            Some(marker) if noise.contains(&marker) => {
                self.state = Inside::Start { keep_space: false };
                Some(at + marker.len())
            }
            // Hold the white space back with the marker, because both may turn out to be content.
            Some(_) => {
                self.state = Inside::Head;
                Some(shown)
            }
            None => (shown > 0).then_some(shown),
        }
    }

    fn reasoning(
        &mut self,
        text: &str,
        closer: &'static str,
        begun: bool,
        out: &mut impl FnMut(Part<'_>),
    ) -> Option<usize> {
        if !begun {
            let space = leading_space(text);
            if space > 0 {
                return Some(space);
            }
            if text.is_empty() {
                return None;
            }
            self.state = Inside::Reasoning { closer, begun: true };
        }
        let (at, marker) = find(text, [closer].into_iter());
        let shown = if self.reasoning { length_before_space(&text[..at]) } else { at };
        if shown > 0 {
            out(self.thought(&text[..shown]));
        }
        if let Some(marker) = marker {
            if !self.reasoning {
                out(Part::Content(marker));
            }
            self.state = Inside::Start { keep_space: !self.reasoning };
            return Some(at + marker.len());
        }
        (shown > 0).then_some(shown)
    }

    fn head(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        let call = match call::head(window(text), self.syntax) {
            Ok(call) => call,
            Err(Unread::More) if text.len() < TOOL_HEAD_BYTES_MAX => return None,
            Err(_) => return Some(self.no_call(text, out)),
        };
        let index = self.calls;
        self.calls += 1;
        self.in_list |= call.in_list;
        self.last = Marking::Marker;
        out(Part::ToolCallBegin { index, name: &call.name });
        let in_object = call.arguments == Arguments::InObject;
        match call.arguments {
            Arguments::InObject | Arguments::Alone => {
                self.state = Inside::Arguments { scanner: ValueScanner::default(), in_object };
            }
            Arguments::Before(range) => {
                out(Part::ToolCallArguments { index, delta: &text[range] });
                self.state = Inside::After;
            }
            // Clients parse the arguments as JSON, and an empty text is not valid JSON.
            Arguments::Absent => {
                out(Part::ToolCallArguments { index, delta: "{}" });
                self.state = Inside::After;
            }
            Arguments::Tagged(tags) => {
                let tagged = Tagged::new(tags, self.offered.clone(), call.name);
                self.translate(Reader::Tagged(tagged), out);
            }
            Arguments::Literal(bracket) => {
                self.translate(Reader::Literal(Literal::arguments(bracket)), out);
            }
        }
        Some(call.end)
    }

    fn translate(&mut self, reader: Reader, out: &mut impl FnMut(Part<'_>)) {
        out(Part::ToolCallArguments { index: self.calls - 1, delta: "{" });
        self.reader = Some(Box::new(reader));
        self.state = Inside::Translated;
    }

    fn translated(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        self.json.clear();
        let step = match &mut self.reader {
            Some(reader) => reader.step(text, &mut self.json),
            None => Step::Broken,
        };
        self.push_json(out);
        let taken = match step {
            Step::Taken(taken) => return Some(taken),
            Step::More => return None,
            Step::End(taken) => taken,
            // The rest is content, unless it is the call's closing marker.
            Step::Broken => 0,
        };
        self.reader = None;
        self.state = Inside::After;
        Some(taken)
    }

    fn push_json(&self, out: &mut impl FnMut(Part<'_>)) {
        if !self.json.is_empty() {
            out(Part::ToolCallArguments { index: self.calls - 1, delta: &self.json });
        }
    }

    fn is_offered(&self, name: &str) -> bool {
        self.offered.as_ref().is_some_and(|offered| offered.has(name))
    }

    fn bare(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        match fenced::head(window(text)) {
            Ok((call, is_fenced)) if self.is_offered(&call.name) => {
                let candidate = Candidate::new(&text[..call.end], call.name, is_fenced);
                self.candidate = Some(Box::new(candidate));
                self.state = Inside::Candidate;
                Some(call.end)
            }
            Err(Unread::More) if text.len() < TOOL_HEAD_BYTES_MAX => None,
            _ => Some(self.no_call(text, out)),
        }
    }

    fn candidate(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> Option<usize> {
        let mut candidate = self.candidate.take()?;
        let taken = match candidate.push(text) {
            Err(Unread::More) if text.len() < TOOL_HEAD_BYTES_MAX => {
                self.candidate = Some(candidate);
                return None;
            }
            Ok(Pushed::Taken(taken)) => {
                self.candidate = Some(candidate);
                return Some(taken);
            }
            Ok(Pushed::End(taken)) if self.accepts(&candidate) => {
                let index = self.calls;
                self.calls += 1;
                out(Part::ToolCallBegin { index, name: &candidate.name });
                out(Part::ToolCallArguments { index, delta: candidate.arguments() });
                self.last = Marking::None { in_fence: candidate.is_fenced };
                self.state = Inside::After;
                return Some(taken);
            }
            Ok(Pushed::TooLong(taken)) => taken,
            Ok(Pushed::End(_)) | Err(_) => 0,
        };
        out(Part::Content(&candidate.text));
        self.state = Inside::Content;
        Some(taken)
    }

    fn accepts(&self, candidate: &Candidate) -> bool {
        let offered = self.offered.as_ref();
        offered.is_some_and(|offered| offered.accepts(&candidate.name, candidate.arguments()))
    }

    /// Handles a start that was not a call: consumes the marker as content, so that it is not
    /// examined again.
    fn no_call(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) -> usize {
        let space = leading_space(text);
        let marker = match start(&text[space..], self.syntax.open.iter().copied()) {
            Start::Marker(marker) => marker.len(),
            // A brace without a marker.
            _ => text[space..].chars().next().map_or(0, char::len_utf8),
        };
        out(Part::Content(&text[..space + marker]));
        self.state = Inside::Content;
        space + marker
    }

    fn arguments(
        &mut self,
        text: &str,
        mut scanner: ValueScanner,
        in_object: bool,
        out: &mut impl FnMut(Part<'_>),
    ) -> Option<usize> {
        if text.is_empty() {
            return None;
        }
        let end = scanner.advance(text);
        let taken = end.unwrap_or(text.len());
        if taken > 0 {
            out(Part::ToolCallArguments { index: self.calls - 1, delta: &text[..taken] });
        }
        self.state = match end {
            None => Inside::Arguments { scanner, in_object },
            Some(_) if in_object => Inside::Tail,
            Some(_) => Inside::After,
        };
        Some(taken)
    }

    fn tail(&mut self, text: &str) -> Option<usize> {
        let taken = match call::tail(window(text)) {
            Ok(end) => end,
            Err(Unread::More) if text.len() < TOOL_HEAD_BYTES_MAX => return None,
            // The object's end is malformed, but its call is complete.
            Err(_) => 0,
        };
        self.state = Inside::After;
        Some(taken)
    }

    fn after(&mut self, text: &str) -> Option<usize> {
        let space = leading_space(text);
        if space > 0 {
            return Some(space);
        }
        match (text.bytes().next()?, self.last) {
            (b',', _) if self.in_list => {
                // The name of a Python call has no marker.
                let is_python = self.syntax.form == Form::Python;
                self.state = if is_python { Inside::Head } else { Inside::After };
                return Some(1);
            }
            (b']', _) if self.in_list => {
                self.in_list = false;
                return Some(1);
            }
            (b'{', Marking::Marker) => {
                self.state = Inside::Head;
                return Some(0);
            }
            // Of an object whose outer braces are doubled.
            (b'}', Marking::None { .. }) => return Some(1),
            (b'`', Marking::None { in_fence: true }) => match fenced::begins(text) {
                Start::Marker(fence) => {
                    self.last = Marking::None { in_fence: false };
                    return Some(fence.len());
                }
                Start::Begun => return None,
                Start::Other => {}
            },
            _ => {}
        }
        // Several calls may stand in one block.
        let next = match self.syntax.form {
            Form::Tagged(tags) => tags.name,
            _ => &[],
        };
        match start(text, self.syntax.close.iter().chain(next).copied()) {
            Start::Marker(marker) if next.contains(&marker) => {
                self.state = Inside::Head;
                Some(0)
            }
            Start::Marker(marker) => Some(marker.len()),
            Start::Begun => None,
            Start::Other => {
                self.in_list = false;
                self.state = Inside::Start { keep_space: false };
                Some(0)
            }
        }
    }
}
