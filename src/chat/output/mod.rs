//! Splits the text of a chat model into the parts of a message while it streams.
//!
//! In: the generated text, in pieces of any size. Out: [`Part`]s: content, reasoning and tool calls
//! whose arguments stream. The sizes of the pieces affect only where a part's text is cut.
//!
//! # Requirements on the caller
//! Most markers are special tokens. While a [`Parser`] is in use, special tokens must be passed as
//! text (llama.cpp's `token_to_piece` with `special`). The exception is the tokens that end the
//! generation (`<|im_end|>`, `<|eot_id|>`, `<|call|>`...): they are never pushed. A piece has whole
//! characters, and stop strings have been searched before. A model of the harmony format (gpt-oss)
//! always needs the parser, with or without tools in the request.
//!
//! # What is dropped
//! The parser drops markers, the white space around them (up to `MARKER_SPACE_BYTES_MAX` before
//! one), the names of harmony's channels, and the fields of a call's object other than its name and
//! arguments, and everything of a translated call but its values. It keeps everything else:
//!
//! - Text that looks like a call but is not one becomes content, with its marker. Such text is not
//!   JSON, has no name, has more than `TOOL_HEAD_BYTES_MAX` bytes before its arguments, or ends
//!   before them. (If the text was cut off there, it is dropped.)
//! - Arguments start when the name is known and the next character can start a JSON value.
//!   From there on they are passed on as written and end where brackets and quotes balance.
//!   Arguments that never balance extend to the end of the text. The client checks that they
//!   are valid JSON; a [grammar](ToolSyntax::grammar) makes them valid.
//! - Arguments in another notation (tags, Python, Gemma's) are translated to JSON while they
//!   stream. If the text is cut off, so is the JSON. A value of unknown type is held back whole, up
//!   to 64 KiB, until it is known to be JSON or a string.
//! - An error after the arguments, such as a missing brace or marker, does not affect the call;
//!   the remaining text is content.
//! - A bare or fenced JSON object at the start of a line may be a call, if
//!   [`ParserOptions::fenced_calls`] says so. It is held back whole, up to 64 KiB, until it is
//!   known to be a call of an offered tool or content.
//!
//! The modules:
//! - [`syntax`]: how each family of models writes tool calls, and which family a template is of.
//! - [`reasoning`]: the markers around reasoning, and which ones a template has.
//! - [`grammar`]: a grammar that forces or permits calls.
//! - [`offered`]: the tools of the request, with the types of their parameters.
//! - `blocks`, `channels`: the two kinds of parser, for marked blocks and for harmony.
//! - `call`, `cursor`, `json`, `marker`: how the start of a call is read.
//! - `reader`: reads arguments that are not JSON: `tagged` those between tags, `literal` those of
//!   Python and of Gemma 4.
//! - `fenced`: recognises a call that is a bare or fenced JSON object.
//!
//! **Invariant:** nothing here does I/O or reads a clock. At most `TOOL_HEAD_BYTES_MAX` bytes are
//! held back from the stream, and of a value or an object of which the end decides, 64 KiB.

mod blocks;
mod call;
mod called;
mod channels;
mod cursor;
mod fenced;
mod form;
pub mod grammar;
mod json;
mod literal;
mod marker;
pub mod offered;
mod options;
mod part;
mod reader;
pub mod reasoning;
mod rows;
mod step;
pub mod syntax;
mod tagged;
mod tags;

#[cfg(test)]
mod accepted;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod variants;
#[cfg(test)]
mod walks;

use blocks::Blocks;
use channels::Channels;
pub use grammar::{CallRule, GrammarOptions};
pub use offered::{OfferedTools, ToolSpec};
pub use options::ParserOptions;
pub use part::Part;
pub use reasoning::{ReasoningEnd, ReasoningSyntax};
pub use syntax::ToolSyntax;

/// Splits the text of one message.
#[derive(Debug)]
pub struct Parser {
    rules: Rules,
    /// Text that may be the start of a marker or of a call.
    held: String,
}

#[derive(Debug)]
enum Rules {
    Blocks(Blocks),
    Channels(Channels),
}

impl Parser {
    /// A parser at the start of a message.
    pub fn new(options: ParserOptions) -> Self {
        let rules = match options.tools {
            Some(ToolSyntax::Harmony) => Rules::Channels(Channels::new(options.reasoning)),
            _ => Rules::Blocks(Blocks::new(options)),
        };
        Self { rules, held: String::new() }
    }

    /// Takes more text and passes all parts that are now known to `out`.
    pub fn push(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) {
        self.held.push_str(text);
        let mut rest = self.held.as_str();
        // Each step consumes text, or changes to a state that does.
        loop {
            let taken = match &mut self.rules {
                Rules::Blocks(blocks) => blocks.step(rest, out),
                Rules::Channels(channels) => channels.step(rest, out),
            };
            let Some(taken) = taken else { break };
            rest = &rest[taken..];
        }
        let done = self.held.len() - rest.len();
        self.held.drain(..done);
    }

    /// Ends the text: passes the text held back to `out`. Nothing may be pushed after it. `is_cut` says that the
    /// model had not ended: then the head of a call, whose rest is missing, is no content, and is dropped.
    pub fn finish(&mut self, is_cut: bool, out: &mut impl FnMut(Part<'_>)) {
        let held = std::mem::take(&mut self.held);
        match &mut self.rules {
            Rules::Blocks(blocks) => blocks.finish(&held, is_cut, out),
            Rules::Channels(channels) => {
                channels.last_part(&held, is_cut).into_iter().for_each(out);
            }
        }
    }

    /// Bytes held back: those that were not consumed, and those of a value or an object.
    #[cfg(test)]
    fn held(&self) -> (usize, usize) {
        let whole = match &self.rules {
            Rules::Blocks(blocks) => blocks.held(),
            Rules::Channels(_) => 0,
        };
        (self.held.len(), whole)
    }
}
