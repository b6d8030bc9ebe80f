//! What a chat model writes, taken apart into the parts of a message while it streams.
//!
//! In: the generated text, in pieces of any size. Out: [`Part`]s: content, reasoning,
//! and tool calls whose arguments stream. However the text is cut, the parts are the
//! same, but for where a part's text is cut.
//!
//! # What the caller must do
//! Most markers are special tokens. While a [`Parser`] is used, special tokens have to be
//! shown as text (llama.cpp's `token_to_piece` with `special`), all but those that end the
//! generation (`<|im_end|>`, `<|eot_id|>`, `<|call|>`...), which are never pushed. Pieces
//! are whole characters, stop strings are searched before. A model of the harmony format
//! (gpt-oss) needs the parser always, with or without tools in the request.
//!
//! # What is dropped, and what is not
//! Dropped are markers, the white space around them (up to `MARKER_SPACE_BYTES_MAX` before
//! one), the names of harmony's channels, and what a call's object has besides its name
//! and its arguments, such as an id. Nothing else is:
//!
//! - A call that is none (not JSON, without a name, longer than `TOOL_HEAD_BYTES_MAX`
//!   before its arguments, or cut off there) is content, as written, with its marker.
//! - Arguments begin when the name is known and their first character is a JSON value's.
//!   From there on they are passed on as written and end where brackets and quotes
//!   balance. Cut off, or never balanced, they go on to the end of the text. That they
//!   are valid JSON is for the client to check; a [grammar](ToolSyntax::grammar) makes
//!   them so.
//! - What is wrong after the arguments (no closing brace or marker) takes nothing from
//!   the call; whatever else is there is content.
//!
//! The modules:
//! - [`syntax`]: how families of models write tool calls, and which one a template has.
//! - [`reasoning`]: the markers around reasoning.
//! - [`grammar`]: the other direction: a grammar that forces or permits calls.
//! - `blocks`, `channels`: the two kinds of parser: marked blocks, and harmony.
//! - `call`, `cursor`, `json`, `marker`: what a call begins with, and how it is read.
//!
//! **Invariant:** nothing here does I/O or reads a clock, and at most
//! `TOOL_HEAD_BYTES_MAX` bytes are held back from the stream.

mod blocks;
mod call;
mod channels;
mod cursor;
pub mod grammar;
mod json;
mod marker;
mod options;
mod part;
pub mod reasoning;
pub mod syntax;

#[cfg(test)]
mod accepted;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod samples;

use blocks::Blocks;
use channels::Channels;
pub use grammar::{Choice, GrammarOptions, ToolSpec};
pub use options::ParserOptions;
pub use part::Part;
pub use syntax::ToolSyntax;

/// Takes apart the text of one message.
#[derive(Debug)]
pub struct Parser {
    rules: Rules,
    /// What may be the beginning of a marker or of a call.
    held: String,
}

#[derive(Debug)]
enum Rules {
    Blocks(Blocks),
    Channels(Channels),
}

impl Parser {
    /// A parser at the beginning of a message.
    pub fn new(options: ParserOptions) -> Self {
        let rules = match options.tools {
            Some(ToolSyntax::Harmony) => Rules::Channels(Channels::new(options.reasoning)),
            _ => Rules::Blocks(Blocks::new(options)),
        };
        Self { rules, held: String::new() }
    }

    /// The text goes on: hands all parts that are known now to `out`.
    pub fn push(&mut self, text: &str, out: &mut impl FnMut(Part<'_>)) {
        self.held.push_str(text);
        let mut rest = self.held.as_str();
        // Each step takes some of the text, or goes on to another state that does.
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

    /// The text ends: hands what was held back to `out`. Nothing may be pushed after it.
    pub fn finish(&mut self, out: &mut impl FnMut(Part<'_>)) {
        let held = std::mem::take(&mut self.held);
        let last = match &self.rules {
            Rules::Blocks(blocks) => blocks.last_part(&held),
            Rules::Channels(channels) => channels.last_part(&held),
        };
        if let Some(part) = last {
            out(part);
        }
    }

    /// Bytes held back.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.held.len()
    }
}
